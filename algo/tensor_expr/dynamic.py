"""Dynamic sizes: those that stay symbols in compiled code, so that one kernel serves every value.

A dynamic size has a declared maximum, at which memory is planned. `dt.dynamic("B", max=256)`
stands in an annotation, `dynamic B <= 256` in text, `op.dynamic(B=256)` makes any operator so.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import OpError
from .op import Op


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A dynamic size as annotations hold it: `f32[dt.dynamic("B", max=256), "K"]`."""

    name: str
    max: int


def dynamic(name: str, *, max: int) -> Dynamic:
    """The size `name`, of at most `max`, for which operators are compiled once for all values.

    It stands in an annotation. Raises `OpError` for what is no name, or no number of at least 1.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise OpError(f"{name!r} cannot name a size; expected a name such as B")
    return Dynamic(name, _maximum(name, max))


def with_maxima(op: Op, maxima: Mapping[str, Any]) -> Op:
    """The operator with exactly these sizes dynamic."""
    from .settle import needs

    found = {name: _maximum(name, most) for name, most in maxima.items()}
    made = replace(op, maxima=found, _memo={})
    needs(made)
    return made


def carried(op: Op, made: Op) -> Op:
    """`made`, an operator derived from `op`, with those sizes dynamic that it has of it."""
    from .check import check

    kept = {name: most for name, most in op.maxima.items() if name in check(made).sizes}
    return with_maxima(made, kept) if kept else made


def check_maxima(op: Op, sizes: Sequence[str]) -> None:
    """Raises `OpError` unless every size that is declared dynamic is one of the operator's."""
    for name, most in op.maxima.items():
        if name not in sizes:
            near = difflib.get_close_matches(name, sizes, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? Its" if near else "its"
            known = f"{hint} sizes are {', '.join(sizes)}" if sizes else "it has no sizes"
            raise OpError(f"dynamic {name} <= {most}: {op.name} has no size {name}; {known}")
        _maximum(name, most)


def _maximum(name: str, most: Any) -> int:
    if isinstance(most, bool) or not hasattr(most, "__index__") or int(most) < 1:
        raise OpError(f"dynamic {name} <= {most!r}: expected a whole number of at least 1")
    if int(most) >= 1 << 63:
        raise OpError(f"dynamic {name} <= {most!r}: expected less than 2**63, as any size has")
    return int(most)
