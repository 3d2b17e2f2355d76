"""Expressions of operator text: a recursive-descent parser with Python's precedences."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dtypes import BY_NAME, DType
from .binding import OPEN
from .boundary import KINDS
from .expr import Boundary, Call, Cast, Const, Expr, Range, Reduce
from .folds import Fold, Part
from .lexer import Token, fail
from .names import CONSTANTS, Equations, suggestion
from .operations import BY_SYMBOL, FUNCTIONS
from .reducers import NAMES
from .scalar import Scalar
from .surface import RESERVED, compare, not_a_condition, typed

ALIASES = {"minimum": "min", "maximum": "max"}
DEEPEST = 150
"""Parts within parts: what Python's stack holds wherever the parser is called from."""

_COMPARISON = 1
_TIGHTEST = 100
_INSTEAD = {"and": "&", "or": "|", "not": "~"}


@dataclass(slots=True)
class _Options:
    """What a reduction was given by name, and where."""

    given: dict[str, Token] = field(default_factory=dict)
    over: tuple[str, ...] = OPEN
    ranges: tuple[Range, ...] = ()
    where: Expr | None = None
    dtype: DType | None = None


class ExpressionParser:
    """Tokens in, expressions out, left to right with one token of lookahead.

    What the names mean is left to `names`, which is told of each.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.names = Equations()
        self.folds: dict[str, Fold] = {}
        self.functions: dict[str, Scalar] = {}

    # -- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, distance: int = 1) -> Token:
        return self.tokens[min(self.at + distance, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        self.at += token.kind != "end"
        return token

    def sees(self, *texts: str) -> bool:
        return self.token.kind in ("op", "name") and self.token.text in texts

    def accept(self, *texts: str) -> Token | None:
        return self.next() if self.sees(*texts) else None

    def expect(self, text: str, where: str) -> Token:
        return self.accept(text) or self.unexpected(f"'{text}' {where}")

    def identifier(self, what: str) -> Token:
        token = self.token
        if token.kind != "name":
            self.unexpected(what)
        if token.text in RESERVED:
            raise fail(f"{token.text} is a word of the language and cannot name {what}", token.loc)
        return self.next()

    def unexpected(self, expected: str) -> Token:
        raise fail(f"expected {expected}, got {_shown(self.token)}", self.token.loc)

    def skip_newlines(self) -> None:
        while self.token.kind == "newline":
            self.next()

    # -- expressions

    def expression(self, lowest: int = 0) -> Expr:
        """An expression whose operators all bind tighter than `lowest`."""
        if self.depth == DEEPEST:
            raise fail(
                "expressions are nested too deeply here; give a part an equation of its own",
                self.token.loc,
            )
        self.depth += 1
        left = self.unary()
        while self.token.kind == "op":
            operation = BY_SYMBOL.get((self.token.text, 2))
            if operation is None or operation.precedence <= lowest:
                break
            if operation.precedence == _COMPARISON:
                left = self.comparison(left)
            else:
                at = self.next()
                right = self.expression(operation.precedence)
                wrong = not_a_condition(operation.name, left, right)
                if wrong is not None:
                    raise fail(wrong, at.loc)
                left = Call(operation.name, (left, right))
        if self.sees("and", "or"):
            word = self.token.text
            raise fail(f"write {_INSTEAD[word]} instead of '{word}'", self.token.loc)
        self.depth -= 1
        return left

    def comparison(self, left: Expr) -> Expr:
        """`a < b <= c` is `(a < b) & (b <= c)`, as in Python."""
        chain: Expr | None = None
        while (op := BY_SYMBOL.get((self.token.text, 2))) and op.precedence == _COMPARISON:
            self.next()
            right = self.expression(_COMPARISON)
            link = compare(op.name, left, right)
            chain = link if chain is None else Call("and", (chain, link))
            left = right
        assert chain is not None
        return chain

    def unary(self) -> Expr:
        if self.token.kind != "op" or self.token.text not in "-~+":
            return self.power()
        sign = self.next()
        if sign.text == "+":
            return self.expression(_TIGHTEST)
        if sign.text == "-" and self.peek().text != "**":
            number = self.number()
            if number is not None:
                return Const(-number)
        operation = BY_SYMBOL[sign.text, 1]
        return Call(operation.name, (self.expression(_TIGHTEST),))

    def power(self) -> Expr:
        base = self.atom()
        if self.accept("**"):
            return Call("pow", (base, self.expression(_TIGHTEST)))
        return base

    def number(self) -> int | float | None:
        """The numeric literal that stands here, or None."""
        token = self.token
        if token.kind == "number":
            self.next()
            return _value(token)
        if token.kind == "name" and token.text in ("inf", "nan"):
            self.next()
            return CONSTANTS[token.text]
        return None

    def integer(self) -> int:
        token = self.next()
        value = _value(token)
        if not isinstance(value, int):
            raise fail(f"expected a whole number, got {token.text}", token.loc)
        return value

    def atom(self) -> Expr:
        number = self.number()
        if number is not None:
            return Const(number)
        token = self.token
        if self.accept("("):
            inner = self.expression()
            self.expect(")", "to close the parenthesis")
            return inner
        if token.kind != "name":
            self.unexpected("an expression")
        if token.text in ("not", "and", "or"):
            raise fail(f"write {_INSTEAD[token.text]} instead of '{token.text}'", token.loc)
        self.next()
        if self.accept("("):
            return self.call(token)
        boundary = self.boundary(token) if self.accept(".") else None
        if self.accept("["):
            indices = self.expressions("]", f"after the indices of {token.text}")
            return self.names.access(token, indices, boundary)
        if boundary is not None:
            self.unexpected(f"'[' after {token.text}.{boundary.kind}")
        if token.text in CONSTANTS:
            return Const(CONSTANTS[token.text])
        if token.text in RESERVED:
            raise fail(f"expected an expression, got '{token.text}'", token.loc)
        return self.names.bare(token)

    def boundary(self, tensor: Token) -> Boundary:
        """What follows the dot of `x.edge[...]`, up to the bracket."""
        if self.token.kind != "name":
            self.unexpected(f"a boundary, as in {tensor.text}.edge[...]")
        word = self.next()
        if word.text not in KINDS:
            close = suggestion(word.text, KINDS) or f"; known are {', '.join(KINDS)}"
            raise fail(
                f"{_shown(word)} is no boundary that {tensor.text}.{word.text}[...] could have"
                f"{close}",
                word.loc,
            )
        if word.text != "fill":
            return Boundary(word.text)
        self.expect("(", "and a number: fill(1.5)")
        at = self.token.loc
        value = self.expression()
        if not isinstance(value, Const):
            raise fail("fill takes a number; choose other values by where(c, a, b)", at)
        self.expect(")", "after the number of fill")
        return Boundary("fill", value)

    def expressions(self, closing: str, where: str) -> tuple[Expr, ...]:
        """Expressions separated by commas up to the closing bracket, which is consumed."""
        items: list[Expr] = []
        while not self.sees(closing):
            if self.sees(":"):
                raise fail("slices are not part of operator text; write an index", self.token.loc)
            items.append(self.expression())
            if not self.accept(","):
                break
        if self.sees(":"):
            raise fail("slices are not part of operator text; write an index", self.token.loc)
        self.expect(closing, where)
        return tuple(items)

    # -- calls

    def call(self, token: Token) -> Expr:
        """A call whose opening bracket is consumed: a reduction, an operation or a cast."""
        name = ALIASES.get(token.text, token.text)
        if name in self.folds:
            return self.folded(token, self.folds[name])
        if name in self.functions:
            return self.applied(token, self.functions[name])
        if not (name in NAMES or name in FUNCTIONS or name in BY_NAME):
            known = [*FUNCTIONS, *NAMES, *BY_NAME, *ALIASES, *self.folds, *self.functions]
            close = suggestion(token.text, known)
            hint = close or f"; tensors are read with brackets: {token.text}[...]"
            raise fail(f"unknown function '{token.text}'{hint}", token.loc)
        args, options = self.arguments(token)
        if name in NAMES and len(args) == 1 and token.text not in ALIASES:
            self.names.spot(token)
            return Reduce(name, options.over, args[0], options.ranges, options.where, options.dtype)
        for option in options.given.values():
            what = f"{token.text} of {_count(len(args))}" if name in NAMES else token.text
            raise fail(f"{option.text}= belongs to a reduction, which {what} is not", option.loc)
        return self.apply(token, name, args)

    def applied(self, token: Token, function: Scalar) -> Expr:
        """A call of a function of the user's own."""
        args, options = self.arguments(token)
        for option in options.given.values():
            raise fail(
                f"{option.text}= belongs to a reduction, which {token.text} is not", option.loc
            )
        self.arity(token, args, len(function.params))
        return Call(function, tuple(args))

    def folded(self, token: Token, fold: Fold) -> Expr:
        """A reduction by a user's reducer of one component."""
        args, options = self.arguments(token)
        self.names.spot(token)
        if len(args) != 1 or len(fold.combine) != 1:
            count = len(fold.combine)
            instead = f"; write {', '.join(f'{n}[...]' for n in fold.left)} = {token.text}(...)"
            raise fail(
                f"{token.text} combines {count} at a time, got {len(args)}"
                if len(args) != count
                else f"{token.text} gives {count} results together{instead}",
                token.loc,
            )
        return Reduce(
            Part(fold, 0), options.over, args[0], options.ranges, options.where, options.dtype
        )

    def arguments(self, token: Token) -> tuple[list[Expr], _Options]:
        """What stands in the brackets of a call, up to the closing one, which is consumed."""
        args: list[Expr] = []
        options = _Options()
        while not self.sees(")"):
            if self.token.kind == "name" and self.peek().text == "=":
                self.option(options)
            elif options.given:
                self.unexpected("an option such as over=, after the first option")
            else:
                args.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", f"after the arguments of {token.text}")
        return args, options

    def option(self, options: _Options) -> None:
        """`over=`, `where=` or `dtype=`."""
        option = self.next()
        self.next()
        if option.text in options.given:
            raise fail(f"{option.text}= is given twice", option.loc)
        options.given[option.text] = option
        if option.text == "over":
            options.over, options.ranges = self.over()
        elif option.text == "where":
            options.where = self.condition()
        elif option.text == "dtype":
            options.dtype = self.dtype()
        else:
            raise fail(
                f"unknown option '{option.text}='; reducers take over=, where= and dtype=",
                option.loc,
            )

    def dtype(self) -> DType:
        """The name of an element type."""
        word = self.identifier("an element type")
        if word.text not in BY_NAME:
            hint = suggestion(word.text, BY_NAME) or f"; known are {', '.join(BY_NAME)}"
            raise fail(f"unknown element type '{word.text}'{hint}", word.loc)
        return BY_NAME[word.text]

    def apply(self, token: Token, name: str, args: list[Expr]) -> Expr:
        if name in BY_NAME:
            self.arity(token, args, 1)
            value = args[0]
            if (
                isinstance(value, Const)
                and value.dtype is None
                and typed(value.value, BY_NAME[name])
            ):
                return Const(value.value, BY_NAME[name])
            return Cast(BY_NAME[name], value)
        if name in ("min", "max"):
            if len(args) < 2:
                self.arity(token, args, 2)
            result = args[0]
            for other in args[1:]:
                result = Call(name, (result, other))
            return result
        self.arity(token, args, FUNCTIONS[name].arity if name in FUNCTIONS else 1)
        return Call(name, tuple(args))

    def arity(self, token: Token, args: list[Expr], expected: int) -> None:
        if len(args) != expected:
            raise fail(f"{token.text} takes {_count(expected)}, got {len(args)}", token.loc)

    def over(self) -> tuple[tuple[str, ...], tuple[Range, ...]]:
        """`k`, `(k,)`, `(k in 0:K, l)` or `()`."""
        names: list[str] = []
        ranges: list[Range] = []
        many = self.accept("(")
        while not (many and self.sees(")")):
            token = self.token
            if self.peek().text == "in":
                ranges.append(self.range())
            else:
                self.names.index(self.identifier("an index"))
            if token.text in names:
                raise fail(f"index {token.text} is listed twice in over=", token.loc)
            names.append(token.text)
            if not (many and self.accept(",")):
                break
        if many:
            self.expect(")", "after the indices of over=")
        return tuple(names), tuple(ranges)

    def condition(self) -> Expr:
        found = self.expression()
        self.names.bounds((found,))
        return found

    def range(self) -> Range:
        token = self.identifier("an index")
        self.names.index(token)
        self.expect("in", "and the range of the index")
        lo = self.expression()
        self.expect(":", f"in the range of {token.text}, as in 0:N")
        hi = self.expression()
        self.names.bounds((lo, hi))
        return Range(token.text, lo, hi)


def _value(token: Token) -> int | float:
    word = token.text.replace("_", "")
    if word[:2] in ("0x", "0X"):
        return int(word, 16)
    return int(word) if word.isdigit() else float(word)


def _count(arguments: int) -> str:
    return "1 argument" if arguments == 1 else f"{arguments} arguments"


def _shown(token: Token) -> str:
    if token.kind == "end":
        return "the end of the text"
    return "the end of the line" if token.kind == "newline" else f"'{token.text}'"
