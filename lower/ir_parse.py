"""Reads the text that `ir_print` writes, back to the same nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ..algo.dtypes import BY_NAME, DType
from ..algo.errors import ParseError
from ..algo.steps import Steps, finish
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index
from ..algo.tensor_expr.operations import BY_SYMBOL, OPERATIONS
from .ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    Update,
    block,
    contiguous,
)

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([^\W\d]\w*(?:\.\w+)*)"
    r"|(\$\d+)|(\.\.|//|\*\*|<=|>=|==|!=|[-+*/%<>&|~()\[\],:=]))"
)
T = TypeVar("T")

_WORDS = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}


def parse_function(text: str) -> Function:
    """The function that prints as `text`; `ParseError` with the line if there is none."""
    parts: dict[str, Expr] = {}
    lines = [
        _Line(number, raw, parts)
        for number, raw in enumerate(text.splitlines(), 1)
        if raw.strip() and not raw.lstrip().startswith("#")
    ]
    if not lines:
        raise ParseError("loop IR is empty; expected `function name(...):`")
    head = lines[0]
    head.expect("function")
    name = head.name()
    head.expect("(")
    params = []
    while not head.take(")"):
        params.append(head.buffer())
        if not head.take(","):
            head.expect(")")
            break
    head.expect(":")
    head.end()
    body, rest = _body(lines, 1, head.indent)
    if rest != len(lines):
        raise lines[rest].error("the end of the function")
    return Function(name, tuple(params), body)


def parse_expr(text: str) -> Expr:
    """The scalar expression that prints as `text`."""
    line = _Line(1, text, {})
    expr = line.expr()
    line.end()
    return expr


def _body(lines: list[_Line], at: int, outside: int) -> tuple[Stmt, int]:
    """The statements from line `at` on that are deeper than `outside`, and the line after them."""
    if at == len(lines) or lines[at].indent <= outside:
        raise lines[at - 1].error("an indented body below it")
    indent, stmts = lines[at].indent, []
    while at < len(lines) and lines[at].indent == indent:
        while lines[at].part():
            at += 1
            if at == len(lines) or lines[at].indent != indent:
                raise lines[at - 1].error("the statement that has this part below it")
        stmt, at = _stmt(lines, at)
        stmts.append(stmt)
    if at < len(lines) and lines[at].indent > outside:
        raise lines[at].error(f"an indentation of {indent}")
    return block(*stmts), at


def _stmt(lines: list[_Line], at: int) -> tuple[Stmt, int]:
    line = lines[at]
    if line.take("barrier"):
        line.end()
        return Barrier(), at + 1
    if line.take("pass"):
        line.end()
        return Block(()), at + 1
    if line.take("for"):
        return _for(lines, at)
    if line.take("if"):
        cond = line.expr()
        line.open()
        then, at = _body(lines, at + 1, line.indent)
        orelse = None
        if at < len(lines) and lines[at].indent == line.indent and lines[at].take("else"):
            lines[at].open()
            orelse, at = _body(lines, at + 1, line.indent)
        return If(cond, then, orelse), at
    if line.take("let"):
        var = line.name()
        line.expect("=")
        value = line.expr()
        line.open()
        body, at = _body(lines, at + 1, line.indent)
        return Let(var, value, body), at
    if line.take("alloc"):
        buffers = [line.buffer()]
        while line.take(","):
            buffers.append(line.buffer())
        line.open()
        body, at = _body(lines, at + 1, line.indent)
        return Alloc(tuple(buffers), body), at
    ahead = line.take("prefetch")
    cell = line.expr()
    if not isinstance(cell, Access):
        raise line.error("a statement")
    if ahead:
        line.end()
        return Prefetch(cell), at + 1
    atomic = line.take("atomic")
    reducer = None if not atomic and line.take("=") else line.name()
    if reducer is not None:
        line.expect("=")
    value = line.expr()
    line.end()
    if reducer is None:
        return Store(cell.tensor, cell.indices, value), at + 1
    return Update(cell.tensor, cell.indices, reducer, value, atomic), at + 1


def _for(lines: list[_Line], at: int) -> tuple[Stmt, int]:
    line = lines[at]
    var = line.name()
    line.expect("in")
    lo = line.expr()
    line.expect("..")
    hi = line.expr()
    step = line.integer() if line.take("step") else 1
    kind, lanes = "serial", 1
    if line.peek() not in (":", "separate", "until"):
        kind = line.name()
        if line.take("("):
            lanes = line.integer()
            line.expect(")")
    separate = line.take("separate")
    until = line.expr() if line.take("until") else None
    line.open()
    body, at = _body(lines, at + 1, line.indent)
    return For(var, lo, hi, body, kind, step, lanes, separate, until), at


class _Line:
    """The tokens of one line, read from left to right; `parts` are the expressions with names."""

    def __init__(self, number: int, raw: str, parts: dict[str, Expr]) -> None:
        self.parts = parts
        self.number, self.text, self.at = number, raw.strip(), 0
        self.indent = len(raw) - len(raw.lstrip())
        self.tokens: list[str] = []
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise ParseError(f"loop IR line {number}: cannot read {self.text[at:]!r}")
            self.tokens.append(match[0].strip())
            at = match.end()

    def error(self, wanted: str) -> ParseError:
        got = self.peek() or "the end of the line"
        return ParseError(
            f"loop IR line {self.number}: expected {wanted}, got {got}\n    {self.text}"
        )

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.error(repr(token))

    def open(self) -> None:
        self.expect(":")
        self.end()

    def end(self) -> None:
        if self.peek():
            raise self.error("the end of the line")

    def name(self) -> str:
        if not re.match(r"[^\W\d]", self.peek()):
            raise self.error("a name")
        return self.next()

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        if not self.peek().isdigit():
            raise self.error("an integer")
        return sign * int(self.next())

    def integers(self) -> tuple[int, ...]:
        return self.bracketed(self.integer)

    def lengths(self) -> tuple[int | str, ...]:
        """Integers and names."""

        def length() -> int | str:
            return self.integer() if self.peek().isdigit() or self.peek() == "-" else self.name()

        return self.bracketed(length)

    def bracketed(self, item: Callable[[], T]) -> tuple[T, ...]:
        self.expect("[")
        values: list[T] = []
        while not self.take("]"):
            values.append(item())
            if not self.take(","):
                self.expect("]")
                break
        return tuple(values)

    def dtype(self) -> DType:
        if self.peek() not in BY_NAME:
            raise self.error("an element type")
        return BY_NAME[self.next()]

    def buffer(self) -> Buffer:
        name = self.name()
        self.expect(":")
        scope, dtype, shape = self.name(), self.dtype(), self.integers()
        strides = self.lengths() if self.take("strides") else contiguous(shape)
        bytewise = self.take("bytes")
        extents = self.lengths() if self.take("extents") else ()
        align = self.integer() if self.take("align") else 1
        stream = self.take("stream")
        return Buffer(name, dtype, shape, strides, scope, align, bytewise, stream, extents)

    def part(self) -> bool:
        """Reads the line if it is one that names a part: `$0 = x[i] * x[i]`."""
        if not self.peek().startswith("$"):
            return False
        name = self.next()
        self.expect("=")
        self.parts[name] = self.expr()
        self.end()
        return True

    def expr(self) -> Expr:
        """An expression; sums may nest thousands deep."""
        read: Expr = finish(self._expr(0))
        return read

    def _expr(self, least: int) -> Steps:
        """An expression of operators that bind at least as tightly as `least`."""
        left = yield self._operand()
        while True:
            rule = BY_SYMBOL.get((self.peek(), 2))
            if rule is None or rule.precedence < least:
                return left
            self.at += 1
            left = Call(rule.name, (left, (yield self._expr(rule.precedence + 1))))

    def _operand(self) -> Steps:
        if self.take("("):
            inner = yield self._expr(0)
            self.expect(")")
            return inner
        if self.take("-"):
            if re.match(r"\d|inf$|nan$", self.peek()):
                return self._const(-1)
            return Call("neg", ((yield self._expr(OPERATIONS["neg"].precedence)),))
        if self.take("~"):
            return Call("not", ((yield self._expr(OPERATIONS["not"].precedence)),))
        if re.match(r"\d|(inf|nan|true|false)$", self.peek()):
            return self._const(1)
        if self.peek() in self.parts:
            return self.parts[self.next()]
        name = self.name()
        if self.take("["):
            return Access(name, (yield self._list("]")))
        if not self.take("("):
            return Index(name)
        args = yield self._list(")")
        if name in BY_NAME and len(args) == 1:
            return Cast(BY_NAME[name], args[0])
        if name not in OPERATIONS or len(args) != OPERATIONS[name].arity:
            raise self.error(f"a type or an operation of {len(args)} arguments (not {name})")
        return Call(name, args)

    def _list(self, close: str) -> Steps:
        items: list[Expr] = []
        while not self.take(close):
            items.append((yield self._expr(0)))
            if not self.take(","):
                self.expect(close)
                break
        return tuple(items)

    def _const(self, sign: int) -> Const:
        text = self.next()
        value: bool | int | float
        value = _WORDS[text] if text in _WORDS else int(text) if text.isdigit() else float(text)
        if sign < 0:
            value = -value
        # A colon before a type belongs to the constant, one at the end of the line does not.
        typed = self.peek() == ":" and self.at + 1 < len(self.tokens)
        self.at += typed
        return Const(value, self.dtype() if typed else None)
