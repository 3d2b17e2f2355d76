"""The results of a joint reduction in Python, and what is said where other targets take them."""

from __future__ import annotations

import traceback
from contextvars import ContextVar

from ..errors import OpError, counted
from ..location import Loc, caller
from .folds import Fold
from .lexer import fail
from .terms import Term


class Together(tuple[Term, ...]):
    """One value a component, to be defined by as many targets at once."""

    fold: Fold
    loc: Loc

    @classmethod
    def of(cls, fold: Fold, values: tuple[Term, ...]) -> Together:
        """The results of a reduction that the caller's line makes."""
        made = cls(values)
        made.fold, made.loc = fold, caller()
        _last.set(made)
        return made

    def refusal(self) -> OpError:
        """That not as many targets take them as there are."""
        names = ", ".join(f"{name}[...]" for name in self.fold.left)
        return fail(
            f"{self.fold} gives {counted(len(self), 'result')} together; define all of them at "
            f"once: {names} = {self.fold}(...)",
            self.loc,
            OpError,
        )


_last: ContextVar[Together | None] = ContextVar("together", default=None)


def misfit(err: ValueError) -> OpError | None:
    """What to say of Python's own error, if it arose where results were to be taken apart."""
    made, frames = _last.get(), traceback.extract_tb(err.__traceback__)
    if made is None or "values to unpack" not in str(err) or not frames:
        return None
    here = frames[-1].filename, frames[-1].lineno
    return made.refusal() if here == (made.loc.file, made.loc.line) else None
