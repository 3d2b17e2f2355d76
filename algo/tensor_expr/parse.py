"""Operator text to `Op`.

    name(A: f32[M, K], x) -> C, D:                 header, optional
        T: [V, D]                                  declared extents
        size N; index K                            what a name is, where the rules would not know
        dynamic N <= 256                           a size that stays a symbol in compiled code
        reducer online(m, s; n, t) = ... from -inf, 0.0    a user's own, see `parse_reducer.py`
        C[i, j] = sum(A[i,k] * B[k,j])             also += *= max= min= any= all=
        m[i], s[i] = online(x[i,j], 1.0)
        c[i] = c[i-1] + x[i] where i in 1:N, i < j

Expressions are parsed in `parse_expr.py`; what a bare name means is decided in `names.py`, which
reduction binds an index in `binding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dtypes import TensorType
from ..location import Loc
from .expr import Expr, Range
from .folds import Fold
from .lexer import Token, fail, tokenize
from .op import Op, Param
from .parse_reducer import lifted, split_lifts
from .parse_scalar import ScalarParser
from .reducers import REDUCERS
from .scalar import Scalar
from .surface import Draft, make_op

ASSIGNMENTS = {"=": None, "+=": "sum", "*=": "prod"}


def parse(
    text: str,
    *,
    name: str | None = None,
    returns: str | Sequence[str] | None = None,
    loc: Loc | None = None,
    reducers: Mapping[str, Fold] | None = None,
    functions: Mapping[str, Scalar] | None = None,
) -> Op:
    """The operator that `text` describes; `loc` is where its first line stands in a file.

    `name` and `returns` win over a header's; the text may use `reducers` and `functions` by these
    names. Raises
    `ParseError` for text that does not follow the grammar and `OpError` for equations that make no
    operator, both with the line and a caret.
    """
    start = loc or Loc("<text>", 1)
    text, lifts = split_lifts(text)
    parser = _Parser(tokenize(text, Loc(start.file, start.line)))
    parser.folds.update(reducers or {})
    parser.functions.update(functions or {})
    parser.lifts = {n: lifted(part, line, start, parse) for n, (part, line) in lifts.items()}
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
    return make_op(
        name or parser.name, drafts, parser.params, asked, names.shapes, where, parser.maxima
    )


class _Parser(ScalarParser):
    """The lines of an operator: header, declarations, equations."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.name: str | None = None
        self.params: list[Param] | None = None
        self.returned: list[Token] = []
        self.shaped: list[Token] = []
        self.maxima: dict[str, int] = {}

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
        self.name = self.next().text
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
        dtype = self.dtype() if self.token.kind == "name" else None
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
        if self.sees("dynamic") and self.peek().kind == "name":
            self.next()
            self.maximum()
            while self.accept(","):
                self.maximum()
            return
        if self.sees("reducer") and self.peek().kind == "name":
            self.next()
            self.reducer()
            return
        if self.sees("function", "derivative") and self.peek().kind == "name":
            self.function() if self.next().text == "function" else self.derivative()
            return
        if self.sees("let") and self.peek().kind == "name":
            self.next()
            self.let()
            return
        target = self.identifier("a tensor")
        if self.accept(":"):
            self.shape(target)
        else:
            self.equation(target)

    def let(self) -> None:
        """`e = x[i] * x[i]` after `let`: from here on the name stands for the expression."""
        name = self.identifier("an expression")
        self.expect("=", f"and what {name.text} stands for")
        self.names.begin()
        self.names.let(name, self.expression())

    def maximum(self) -> None:
        """`N <= 256` after `dynamic`."""
        size = self.identifier("a size")
        if size.text in self.maxima:
            raise fail(f"size {size.text} is declared dynamic twice", size.loc)
        self.expect("<=", f"and the most that {size.text} can be, as in {size.text} <= 256")
        self.names.sizes.setdefault(size.text)
        most = self.token
        self.maxima[size.text] = self.integer()
        if self.maxima[size.text] < 1:
            raise fail(
                f"size {size.text} can be at most {most.text}; expected at least 1", most.loc
            )

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
        targets = [target]
        left = [self.left_side(target)]
        while self.accept(","):
            targets.append(self.identifier("a tensor"))
            left.append(self.left_side(targets[-1]))
        reducer = self.assignment(target)
        rhs = [self.expression()] if len(targets) == 1 else self.joint(targets)
        ranges: list[Range] = []
        conditions: list[Expr] = []
        if self.token.kind == "newline" and self.peek().text == "where":
            self.next()
        if self.accept("where"):
            self.clause(ranges, conditions)
        for target, lhs, value in zip(targets, left, rhs, strict=True):
            names.end(
                Draft(
                    target.text, lhs, value, tuple(ranges), tuple(conditions), reducer,
                    target.loc, names.spots,
                )
            )  # fmt: skip

    def left_side(self, target: Token) -> tuple[Expr, ...]:
        """The indices of a tensor that is defined."""
        self.names.spot(target)
        lhs: tuple[Expr, ...] = ()
        if self.accept("["):
            lhs = self.expressions("]", f"after the indices of {target.text}")
        self.names.on_left(lhs)
        self.names.tensors.setdefault(target.text, len(lhs))
        return lhs

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
