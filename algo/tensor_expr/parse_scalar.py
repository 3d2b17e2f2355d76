"""Scalar functions of the user's own in operator text.

    function gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2)))
    derivative gelu = 0.5 * (1 + erf(x / sqrt(2))) + 0.4 * x * exp(-x**2 / 2)

The second line is only there where derivatives are given, one for each parameter; in it the name
of the function stands for its value.
"""

from __future__ import annotations

from .expr import Access, Expr, Index, Reduce, substitute, walk
from .lexer import Token, fail
from .parse_reducer import ReducerParser
from .scalar import VALUE, Scalar


class ScalarParser(ReducerParser):
    """The lines that define a function."""

    def function(self) -> None:
        """`name(x, y) = e`, after the word `function`."""
        title = self.identifier("a function")
        if title.text in self.functions:
            raise fail(f"function {title.text} is defined twice", title.loc)
        self.expect("(", f"and the parameters of {title.text}")
        params = self._names("a parameter")
        self.expect(")", f"after the parameters of {title.text}")
        if len(set(params)) < len(params):
            raise fail(f"two parameters of {title.text} have one name", title.loc)
        self.expect("=", f"and what {title.text} gives")
        body = self._of_scalars(title, params, {})
        self.functions[title.text] = Scalar(title.text, params, body)

    def derivative(self) -> None:
        """`name = e, e`, after the word `derivative`."""
        title = self.identifier("a function")
        function = self.functions.get(title.text)
        if function is None:
            raise fail(f"no function is called {title.text}", title.loc)
        self.expect("=", f"and the derivative of {title.text} by each parameter")
        value: dict[Expr, Expr] = {Index(title.text): VALUE}
        partials = self._items(lambda: self._of_scalars(title, function.params, value))
        if len(partials) != len(function.params):
            raise fail(
                f"{title.text} has parameters {', '.join(function.params)}, and {len(partials)} "
                "derivatives are given; expected one for each, separated by commas",
                title.loc,
            )
        self.functions[title.text] = Scalar(
            title.text, function.params, function.body, tuple(partials)
        )

    def _of_scalars(self, title: Token, params: tuple[str, ...], more: dict[Expr, Expr]) -> Expr:
        at = self.token.loc
        self.names.begin()
        expr = self.expression()
        known: dict[Expr, Expr] = {Index(p): Access(p, ()) for p in params} | more
        for part in walk(expr):
            if isinstance(part, Access | Reduce) or (isinstance(part, Index) and part not in known):
                names = ", ".join(e.name for e in known if isinstance(e, Index))
                raise fail(f"{title.text} is made of scalars: it may use {names} and numbers", at)
        return substitute(expr, known)
