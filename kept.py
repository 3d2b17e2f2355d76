"""What plain calls keep for derivatives."""

from __future__ import annotations

from .algo.tensor_expr.op import Op
from .attached import attached
from .autodiff.keep import worth_keeping


def kept_for(op: Op, wrt: tuple[str, ...]) -> tuple[str, ...]:
    """The tensors that are kept for the gradient by `wrt` where nobody says: none of an operator
    that somebody has scheduled, which then runs as it is."""
    return () if attached.get(op) is not None else worth_keeping(op, wrt)
