"""specialize: a version of the whole nest for sizes with a property, which its code relies on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import OpError, ScheduleError
from ...algo.location import Loc
from ...algo.tensor_expr.affine import is_affine
from ...algo.tensor_expr.expr import Call, Expr, Index, Size, substitute, walk
from ...algo.tensor_expr.lexer import tokenize
from ...algo.tensor_expr.parse_expr import ExpressionParser
from .names import suggest_from
from .nest import Nest
from .primitive import Primitive

_CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


@dataclass(frozen=True)
class Specialize(Primitive):
    """Two versions of the nest, one for sizes with a condition, whose bounds are derived from it.

        for io: for ii in 0:min(8, N - 8*io): S   ==>   if N % 8 == 0: for io: for ii in 0:8: S
                                                        else: for io: for ii in 0:min(..): S

    The condition is affine in sizes, written as in operators. Where the sizes are numbers it is
    decided, and one version is left; so it is for dynamic sizes. Further conditions are for the
    sizes without the earlier ones. All primitives act on every version.
    """

    called: ClassVar[str] = "specialize"
    condition: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.condition,), {}

    def legal(self, nest: Nest) -> None:
        self._parsed(nest)

    def apply(self, nest: Nest) -> Nest:
        return replace(nest, versions=(*nest.versions, self._parsed(nest)))

    def _parsed(self, nest: Nest) -> Expr:
        try:
            parser = ExpressionParser(tokenize(self.condition, Loc("condition", 1)))
            parser.names.begin()
            found = parser.expression()
            if parser.token.kind != "end":
                parser.unexpected("an operator or the end of the condition")
        except OpError as error:
            raise ScheduleError(f"{self.who}: {error}") from None
        sizes = nest.kernel.checked.sizes
        for name in dict.fromkeys(item.name for item in walk(found) if isinstance(item, Index)):
            if name not in sizes:
                raise ScheduleError(
                    f"{self.who}: there is no size {name}{suggest_from(name, list(sizes))}"
                )
        if not (is_affine(found) and isinstance(found, Call) and found.op in _CONDITIONS):
            raise ScheduleError(
                f"{self.who}: expected an affine condition on sizes, such as "
                f"{(sizes or ('N',))[0]} % 8 == 0"
            )
        return substitute(found, {Index(name): Size(name) for name in sizes})
