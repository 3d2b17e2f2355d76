"""What Python would make of an expression in traced code, and cannot: each says what to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..errors import OpError
from ..location import caller
from .lexer import fail


def error(message: str) -> OpError:
    """An `OpError` at the user's line that is being traced."""
    return fail(message, caller(), OpError)


class NoAttribute(OpError, AttributeError):
    """An attribute that traced values have not; also what `hasattr` looks for."""


def _refuse(text: str) -> Callable[..., NoReturn]:
    """A method that raises `text` about its object."""

    def refuse(self: object, *_: object) -> NoReturn:
        raise error(text.format(repr(self)))

    return refuse


class Refusing:
    """No container, no number, and no condition of Python's own control flow."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        raise error(
            f"{self!r} cannot be iterated over: an index already stands for all its values; "
            f"reduce with dt.sum, dt.max and the like"
        )

    def __bool__(self) -> bool:
        raise error(
            f"{self!r} has no truth value while it is traced; choose with dt.where(c, a, b), join "
            f"with & | ~ instead of and, or, not, and write a < b < c as (a < b) & (b < c)"
        )

    def __len__(self) -> int:
        raise error(f"{self!r} has no length; name the size of a dimension with dt.size('N')")

    def __contains__(self, item: object) -> bool:
        raise error(f"{self!r} cannot be searched; reduce with dt.any")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        cast = "; write dt.cast(e, dtype)" if name == "astype" else ""
        raise fail(f"{self!r} is an expression and has no {name}{cast}", caller(), NoAttribute)

    __float__ = _refuse(
        "{} is no Python number while it is traced; dt.exp, dt.floor and the like are the "
        "functions of expressions, dt.cast(e, dtype) converts them"
    )
    __int__ = __complex__ = __trunc__ = __float__
    __index__ = __array__ = _refuse(
        "{} stands for many numbers, so it is no Python number and cannot index a list or an "
        "array; make the array a parameter of the function and read it as A[i]"
    )
    __round__ = _refuse("round has no meaning for {}; write dt.floor(e + 0.5)")
    __divmod__ = __rdivmod__ = _refuse("divmod has no meaning for {}; write a // b and a % b")
    __matmul__ = __rmatmul__ = _refuse(
        "@ has no meaning on elements; write dt.sum(A[i,k] * B[k,j])"
    )
    __xor__ = __rxor__ = _refuse(
        "^ has no meaning on elements; write a ** b for powers, != for exclusive or"
    )
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse(
        "shifts have no meaning on elements; multiply by 2 ** n, or divide by it with //"
    )
