"""What a primitive is: a small immutable class with `legal` and `apply`, one file an idea.

`legal(nest)` raises a `ScheduleError` that names the primitive, the loop and, where instances
would run in a wrong order, one pair of them. `apply(nest)` builds the new nest and checks nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from .arguments import fit
from .nest import Nest
from .storage import place

_Step = tuple[Nest, Nest]
"""A nest, and what a primitive makes of it."""


@dataclass(frozen=True)
class Primitive(ABC):
    """One step of a schedule. `called` is the method of `Schedule` that makes it.

    The types of the fields are the types of its arguments: what is not of them is refused.
    """

    called: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, fit(self.called, type(self), field.name, value))

    @abstractmethod
    def legal(self, nest: Nest) -> None:
        """Raises `ScheduleError` where the primitive means nothing or would change a result."""

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """The nest afterwards."""

    def step(self, nest: Nest) -> Nest:
        """Checks, applies, and brings the places of buffers up to date."""
        self.legal(nest)
        return self.after(nest)

    def after(self, nest: Nest) -> Nest:
        """The nest afterwards with the places of buffers, which a check looks at as well.

        It is kept for the step that follows the check: both ask for it once.
        """
        kept: _Step | None = self.__dict__.pop("_kept", None)
        if kept is not None and kept[0] is nest:
            return kept[1]
        made = place(self.apply(nest), nest)
        self.__dict__["_kept"] = (nest, made)
        return made

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that makes it: positional arguments, then keywords that are not the default."""
        keywords = {f.name: getattr(self, f.name) for f in fields(self)}
        defaults = {f.name: f.default for f in fields(self)}
        return (), {k: v for k, v in keywords.items() if v != defaults[k]}

    @property
    def text(self) -> str:
        """The call as users write it: `split("i", 8)`."""
        positional, keywords = self.arguments()
        parts = [_literal(value) for value in positional]
        parts += [f"{key}={_literal(value)}" for key, value in keywords.items()]
        return f"{self.called}({', '.join(parts)})"

    @property
    def who(self) -> str:
        """How messages name it: `split(i, 8)`, without quotes."""
        positional, keywords = self.arguments()
        parts = [_bare(value) for value in positional]
        parts += [f"{key}={_bare(value)}" for key, value in keywords.items()]
        return f"{self.called}({', '.join(parts)})"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        inner = ", ".join(_literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _bare(value: Any) -> str:
    return _literal(value).replace('"', "")
