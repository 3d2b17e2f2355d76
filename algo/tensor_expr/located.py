"""The last line of an error about an equation: the equation as text, and where it was written."""

from __future__ import annotations

from ..errors import OpError
from .op import Op
from .printer import print_together


def located(op: Op, number: int) -> str:
    """`in C[i,j] = sum(A[i,k] * B[k,j]) (mm.py:14)`, on a line of its own."""
    where = f" ({op.locations[number]})" if number < len(op.locations) else ""
    return f"\n    in {print_together(op.equations, number)}{where}"


def failure(op: Op, number: int, message: str) -> OpError:
    """The error that an equation is ill-formed."""
    return OpError(message + located(op, number))
