"""Operator text to `Op`: a recursive-descent parser with Python's precedences.

    name(A: f32[M, K], x) -> C, D:                 header, optional
        T: [V, D]                                  declared extents
        size N; index K                            what a name is, where the rules would not know
        C[i, j] = sum(A[i,k] * B[k,j])             also += *= max= min= any= all=
        c[i] = c[i-1] + x[i] where i in 1:N, i < j

What a bare name means is decided in `names.py`, which reduction binds an index in `binding.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import BY_NAME, TensorType
from ..location import Loc
from .binding import OPEN
from .expr import Call, Cast, Const, Expr, Range, Reduce
from .lexer import Token, fail, tokenize
from .names import CONSTANTS, Equations, suggestion
from .op import Op, Param
from .operations import BY_SYMBOL, FUNCTIONS
from .reducers import REDUCERS
from .surface import RESERVED, Draft, compare, make_op, typed

ALIASES = {"minimum": "min", "maximum": "max"}

ASSIGNMENTS = {"=": None, "+=": "sum", "*=": "prod"}
_COMPARISON = 1
_INSTEAD = {"and": "&", "or": "|", "not": "~"}


def parse(
    text: str,
    *,
    name: str | None = None,
    returns: str | Sequence[str] | None = None,
    loc: Loc | None = None,
) -> Op:
    """The operator that `text` describes; `loc` is where its first line stands in a file.

    `name` and `returns` win over a header's. Raises `ParseError` for text that does not follow the
    grammar and `OpError` for equations that make no operator, both with the line and a caret.
    """
    start = loc or Loc("<text>", 1)
    parser = _Parser(tokenize(text, Loc(start.file, start.line)))
    parser.program()
    names = parser.names
    drafts = names.resolve()
    defined = list(dict.fromkeys(draft.tensor for draft in drafts))
    inputs = [t for t in parser.shaped if t.text in names.tensors]  # their extents are formulas
    for token in parser.returned + [t for t in parser.shaped if t not in inputs]:
        if token.text not in defined:
            raise fail(
                f"no equation defines {token.text}; defined are {', '.join(defined)}", token.loc
            )
    asked: Sequence[str] | None = [token.text for token in parser.returned] or None
    if returns is not None:
        asked = [returns] if isinstance(returns, str) else returns
    where = drafts[0].loc if drafts else start
    return make_op(name or parser.name, drafts, parser.params, asked, names.shapes, where)


class _Parser:
    """Tokens in, drafts out, in one left-to-right walk with one token of lookahead."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.name: str | None = None
        self.params: list[Param] | None = None
        self.returned: list[Token] = []
        self.shaped: list[Token] = []
        self.names = Equations()

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

    # -- lines

    def program(self) -> None:
        self.skip_newlines()
        if self.token.kind == "end":
            raise fail("the operator text is empty; expected T[i] = ...", self.token.loc)
        if self.token.kind == "name" and self.peek().text == "(":
            self.header()
            self.skip_newlines()
        while self.token.kind != "end":
            self.line()
            if self.token.kind not in ("newline", "end"):
                self.unexpected("an operator or the end of the line")
            self.skip_newlines()

    def header(self) -> None:
        self.name = self.identifier("an operator").text
        self.params = []
        self.names.listed = True
        self.next()
        while not self.sees(")"):
            token = self.identifier("a parameter")
            if any(p.name == token.text for p in self.params):
                raise fail(f"parameter {token.text} is listed twice", token.loc)
            self.names.tensors.setdefault(token.text)
            kind = self.type(token) if self.accept(":") else TensorType(None, None)
            self.params.append(Param(token.text, kind))
            if not self.accept(","):
                break
        self.expect(")", "after the parameters")
        if self.accept("->"):
            self.returned = [self.identifier("a returned tensor")]
            while self.accept(","):
                self.returned.append(self.identifier("a returned tensor"))
        if self.sees("="):
            name = self.name
            raise fail(
                f"tensors are indexed with brackets; write {name}[...] = ...", self.token.loc
            )
        self.expect(":", "after the header")

    def type(self, param: Token) -> TensorType:
        dtype = None
        if self.token.kind == "name":
            word = self.next()
            dtype = BY_NAME.get(word.text)
            if dtype is None:
                hint = suggestion(word.text, BY_NAME) or f"; known are {', '.join(BY_NAME)}"
                raise fail(f"unknown element type '{word.text}'{hint}", word.loc)
        if not self.accept("["):
            if dtype is None:
                self.unexpected(f"the type of {param.text}, such as f32[M, K]")
            return TensorType(dtype, None)
        dims: list[str | int] = []
        while not self.sees("]"):
            if self.token.kind == "number":
                dims.append(self.integer())
            else:
                dims.append(self.identifier("a size").text)
                self.names.sizes.setdefault(str(dims[-1]))
            if not self.accept(","):
                break
        self.expect("]", f"after the sizes of {param.text}")
        return TensorType(dtype, tuple(dims))

    def line(self) -> None:
        if self.sees("size", "index") and self.peek().kind == "name":
            word = self.next().text
            kind = self.names.sizes if word == "size" else self.names.indices
            kind.setdefault(self.identifier(f"a {word}").text)
            while self.accept(","):
                kind.setdefault(self.identifier(f"a {word}").text)
            return
        target = self.identifier("a tensor")
        if self.accept(":"):
            self.shape(target)
        else:
            self.equation(target)

    def shape(self, target: Token) -> None:
        self.expect("[", f"and the extents of {target.text}, as in {target.text}: [M, N]")
        if target.text in self.names.shapes:
            raise fail(f"the shape of {target.text} is declared twice", target.loc)
        self.shaped.append(target)
        dims = self.expressions("]", f"after the extents of {target.text}")
        self.names.declare(target.text, dims)

    def equation(self, target: Token) -> None:
        names = self.names
        names.begin()
        names.spot(target)
        lhs: tuple[Expr, ...] = ()
        if self.accept("["):
            lhs = self.expressions("]", f"after the indices of {target.text}")
        names.on_left(lhs)
        names.tensors.setdefault(target.text, len(lhs))
        reducer = self.assignment(target)
        rhs = self.expression()
        ranges: list[Range] = []
        conditions: list[Expr] = []
        if self.token.kind == "newline" and self.peek().text == "where":
            self.next()
        if self.accept("where"):
            self.clause(ranges, conditions)
        names.end(
            Draft(
                target.text, lhs, rhs, tuple(ranges), tuple(conditions), reducer,
                target.loc, names.spots,
            )
        )  # fmt: skip

    def assignment(self, target: Token) -> str | None:
        token = self.next()
        if token.kind == "op" and token.text in ASSIGNMENTS:
            return ASSIGNMENTS[token.text]
        if token.text in REDUCERS and self.accept("="):
            return token.text
        self.at -= token.kind != "end"
        if token.text in ("-=", "/="):
            better = "+= -(...)" if token.text == "-=" else "*= 1 / (...)"
            raise fail(f"{token.text} is no reduction; write {better}", token.loc)
        if token.text in ("(", "=="):
            wrong = {"(": "[ for the indices", "==": "= to define a tensor"}[token.text]
            raise fail(f"expected {wrong}, got '{token.text}'", token.loc)
        self.unexpected(f"'=' or one of += *= max= min= after {target.text}[...]")
        return None

    def clause(self, ranges: list[Range], conditions: list[Expr]) -> None:
        """`k in lo:hi, i < j, ...` after `where`."""
        while True:
            if self.token.kind == "name" and self.peek().text == "in":
                ranges.append(self.range())
            else:
                conditions.append(self.condition())
            if not self.accept(","):
                return

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

    # -- expressions

    def expression(self, lowest: int = 0) -> Expr:
        left = self.unary()
        while self.token.kind == "op":
            operation = BY_SYMBOL.get((self.token.text, 2))
            if operation is None or operation.precedence <= lowest:
                break
            if operation.precedence == _COMPARISON:
                left = self.comparison(left)
            else:
                self.next()
                left = Call(operation.name, (left, self.expression(operation.precedence)))
        if self.sees("and", "or"):
            word = self.token.text
            raise fail(f"write {_INSTEAD[word]} instead of '{word}'", self.token.loc)
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
            return self.unary()
        if sign.text == "-" and self.peek().text != "**":
            number = self.number()
            if number is not None:
                return Const(-number)
        operation = BY_SYMBOL[sign.text, 1]
        return Call(operation.name, (self.unary(),))

    def power(self) -> Expr:
        base = self.atom()
        if self.accept("**"):
            return Call("pow", (base, self.unary()))
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
        if self.accept("["):
            indices = self.expressions("]", f"after the indices of {token.text}")
            return self.names.access(token, indices)
        if token.text in CONSTANTS:
            return Const(CONSTANTS[token.text])
        if token.text in RESERVED:
            raise fail(f"expected an expression, got '{token.text}'", token.loc)
        return self.names.bare(token)

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
        name = ALIASES.get(token.text, token.text)
        known = name in REDUCERS or name in FUNCTIONS or name in BY_NAME
        if not known:
            close = suggestion(token.text, [*FUNCTIONS, *REDUCERS, *BY_NAME, *ALIASES])
            hint = close or f"; tensors are read with brackets: {token.text}[...]"
            raise fail(f"unknown function '{token.text}'{hint}", token.loc)
        args: list[Expr] = []
        options: dict[str, Token] = {}
        over: tuple[str, ...] = OPEN
        ranges: tuple[Range, ...] = ()
        where: Expr | None = None
        dtype = None
        while not self.sees(")"):
            if self.token.kind == "name" and self.peek().text == "=":
                option = self.next()
                self.next()
                if option.text in options:
                    raise fail(f"{option.text}= is given twice", option.loc)
                options[option.text] = option
                if option.text == "over":
                    over, ranges = self.over()
                elif option.text == "where":
                    where = self.condition()
                elif option.text == "dtype":
                    word = self.identifier("an element type")
                    dtype = BY_NAME.get(word.text)
                    if dtype is None:
                        hint = suggestion(word.text, BY_NAME) or ""
                        raise fail(f"unknown element type '{word.text}'{hint}", word.loc)
                else:
                    raise fail(
                        f"unknown option '{option.text}='; reducers take over=, where= and dtype=",
                        option.loc,
                    )
            elif options:
                self.unexpected("an option such as over=, after the first option")
            else:
                args.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", f"after the arguments of {token.text}")
        if name in REDUCERS and len(args) == 1 and token.text not in ALIASES:
            self.names.spot(token)
            return Reduce(name, over, args[0], ranges, where, dtype)
        if options:
            option = next(iter(options.values()))
            what = f"{token.text} of {_count(len(args))}" if name in REDUCERS else token.text
            raise fail(f"{option.text}= belongs to a reduction, which {what} is not", option.loc)
        return self.apply(token, name, args)

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


def _value(token: Token) -> int | float:
    word = token.text.replace("_", "")
    try:
        return (
            int(word, 0)
            if word[:2] in ("0x", "0X")
            else int(word)
            if word.isdigit()
            else float(word)
        )
    except ValueError:
        raise fail(f"'{token.text}' is no number", token.loc) from None


def _count(arguments: int) -> str:
    return "1 argument" if arguments == 1 else f"{arguments} arguments"


def _shown(token: Token) -> str:
    if token.kind == "end":
        return "the end of the text"
    return "the end of the line" if token.kind == "newline" else f"'{token.text}'"
