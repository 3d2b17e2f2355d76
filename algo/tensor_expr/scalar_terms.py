"""`dt.scalar`: scalar functions of the user's own, from text and from Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import counted
from ..location import caller
from .expr import Access, Expr, Index, Reduce, Size, walk
from .functions import function_of
from .lexer import fail, tokenize
from .parse_scalar import ScalarParser
from .refusing import error
from .scalar import VALUE, Scalar
from .surface import is_name
from .terms import Term, Value, to_expr


def scalar(definition: Any = None, *, functions: Mapping[str, ScalarFunction] | None = None) -> Any:
    """A scalar function, from a text `gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2)))` or from a Python
    function of expressions (also as a decorator), which runs once, on symbols.

    It is called in traced operators and in programs, on numbers too, and in the text of operators
    that get it as `functions={"gelu": gelu}`; its own text may use `functions`. Printed operators
    keep its name. Its derivatives are found by sympy, in the simplest form that is found, unless
    `defderivative` gives them. Raises `ParseError` or `OpError` for what is no function of scalars.
    """
    if definition is None:
        return lambda given: scalar(given, functions=functions)
    if isinstance(definition, str):
        return ScalarFunction(_parsed(definition, functions or {}, "function"))
    if not callable(definition):
        raise error(
            f"{definition!r} is no scalar function; expected the text of one, as in "
            '"square(x) = x * x", or a Python function'
        )
    name = getattr(definition, "__name__", "")
    if not is_name(name):
        raise error(
            f"{name!r} cannot name a function; write a def, or a text, with a name such as f"
        )
    params = tuple(inspect.signature(definition).parameters)
    body = _traced(name, definition, [Access(p, ()) for p in params])
    if len(body) != 1:
        raise error(f"{name} gives {counted(len(body), 'value')}; expected one")
    if not params:
        raise error(f"{name} has no parameter, so it is a number")
    return ScalarFunction(Scalar(name, params, body[0]))


class ScalarFunction:
    """A scalar function that can be called; `function` is what stands in expressions."""

    def __init__(self, function: Scalar) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Its value: an expression, a value of a program, or a number."""
        expected = len(self.function.params)
        if len(args) != expected:
            raise error(f"{self.function} takes {counted(expected, 'argument')}, {len(args)} came")
        return function_of(self.function, args)

    def defderivative(self, rule: Any) -> ScalarFunction:
        """Gives its derivatives, and returns it; also a decorator.

        `rule` is a Python function of the parameters, and of the function's value if it takes one
        more, that returns the derivative, or a tuple of one by each parameter; or a text of these,
        separated by commas, in which the function's name stands for its value.
        """
        f = self.function
        if isinstance(rule, str):
            given = _parsed(f"{f.name} = {rule}", {f.name: ScalarFunction(f)}, "derivative")
            self.function = given
            return self
        if not callable(rule):
            raise error(
                f"{rule!r} is no derivative of {f}; expected a Python function of its parameters, "
                'or a text such as "2 * x", one derivative for each, separated by commas'
            )
        args = [*(Access(p, ()) for p in f.params), VALUE]
        count = len(inspect.signature(rule).parameters)
        if count not in (len(args) - 1, len(args)):
            raise error(
                f"the derivative of {f} takes {counted(count, 'argument')}; expected "
                f"{', '.join(f.params)}, and perhaps the value of {f} after them"
            )
        partials = _traced(f"the derivative of {f}", rule, args[:count])
        if len(partials) != len(f.params):
            raise error(
                f"{f} has parameters {', '.join(f.params)}, and {len(partials)} derivatives are "
                "given; expected a tuple of one for each"
            )
        self.function = Scalar(f.name, f.params, f.body, partials)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalarFunction) and self.function is other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        from .print_reducer import function_lines

        return "\n".join(function_lines(self.function)).removeprefix("function ")


def _parsed(text: str, functions: Mapping[str, ScalarFunction], word: str) -> Scalar:
    parser = ScalarParser(tokenize(text, caller()))
    parser.functions.update(own(functions))
    parser.skip_newlines()
    title = parser.token
    parser.function() if word == "function" else parser.derivative()
    parser.skip_newlines()
    if parser.token.kind != "end":
        raise fail("expected the end of the text after the function", parser.token.loc)
    return parser.functions[title.text]


def own(functions: Mapping[str, Any]) -> dict[str, Scalar]:
    """Functions as a text uses them, under these names."""
    found: dict[str, Scalar] = {}
    for name, given in functions.items():
        if not isinstance(given, ScalarFunction):
            raise error(f"functions= has {given!r} for {name}; expected dt.scalar(...)")
        f = given.function
        found[name] = Scalar(name, f.params, f.body, f.partials)
    return found


def _traced(name: str, function: Callable[..., Any], args: list[Access]) -> tuple[Expr, ...]:
    """What a Python function gives for symbols."""
    result = function(*map(Value, args))
    items = result if isinstance(result, tuple | list) else (result,)
    for item in items:
        if not isinstance(item, Term | bool | int | float):
            raise error(f"{name} gives {item!r}; expected an expression of its parameters")
    exprs = tuple(map(to_expr, items))
    for part in (part for expr in exprs for part in walk(expr)):
        if isinstance(part, Index | Size | Reduce) or (
            isinstance(part, Access) and part not in args
        ):
            what = part if isinstance(part, Reduce) else getattr(part, "name", part)
            shown = "a reduction" if isinstance(part, Reduce) else getattr(part, "tensor", what)
            raise error(
                f"{name} is made of scalars; it may use its parameters and numbers, not {shown}"
            )
    return exprs
