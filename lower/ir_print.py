"""Loop IR as text; `ir_parse` reads it back to the same nodes.

    function scale(x: param f32[100], y: param f32[100] align 64):
        for io in 0 .. 13 parallel:
            for ii in 0 .. min(8, 100 - io * 8) vector(8):
                y[io * 8 + ii] = x[io * 8 + ii] * 2.0:f32

A constant carries its type behind a colon, an i64 none. `f32(e)` is a cast. What an expression that
would be large repeats is said once, in a line before its statement: `$0 = x[i] * x[i]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, children, walk
from ..algo.tensor_expr.operations import OPERATIONS
from ..algo.tensor_expr.shared import named_parts
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
    contiguous,
    expressions,
)

_PRIMARY = 100
NO_NAMES: Mapping[Expr, str] = {}
_UNCHAINED = ("**", "<", "<=", ">", ">=", "==", "!=")


def print_function(function: Function) -> str:
    """The text of a function, ending in a newline."""
    params = ", ".join(map(print_buffer, function.params))
    return f"function {function.name}({params}):\n{print_stmt(function.body, 1)}\n"


def print_stmt(stmt: Stmt, depth: int = 0) -> str:
    """The text of a statement, its lines indented by `depth` steps."""
    return "\n".join("    " * (depth + extra) + line for extra, line in _lines(stmt))


def print_buffer(buffer: Buffer) -> str:
    """`name: scope dtype[shape]`, then strides and alignment where they are not the plain ones."""
    text = f"{buffer.name}: {buffer.scope} {buffer.dtype}{list(buffer.shape)}"
    if buffer.bytewise or buffer.strides != contiguous(buffer.shape):
        strides = ", ".join(map(str, buffer.strides))
        text += f" strides [{strides}]" + " bytes" * buffer.bytewise
    if buffer.extents:
        text += f" extents [{', '.join(map(str, buffer.extents))}]"
    text += f" align {buffer.align}" if buffer.align != 1 else ""
    return text + " stream" * buffer.stream


def _lines(stmt: Stmt) -> list[tuple[int, str]]:
    names: dict[Expr, str] = {}
    lines: list[tuple[int, str]] = []
    for part in named_parts(expressions(stmt)):
        name = f"${len(names)}"
        lines.append((0, f"{name} = {print_expr(part, names)}"))
        names[part] = name
    return lines + _own_lines(stmt, names)


def _own_lines(stmt: Stmt, names: Mapping[Expr, str]) -> list[tuple[int, str]]:
    """The lines of a statement in which some parts are named before."""

    def said(expr: Expr) -> str:
        return print_expr(expr, names)

    match stmt:
        case Block(stmts):
            return [line for s in stmts for line in _lines(s)] or [(0, "pass")]
        case For(var, lo, hi, body, kind, step, lanes, separate, until):
            extra = f" step {step}" if step != 1 else ""
            extra += f" {kind}" if kind != "serial" else ""
            extra += f"({lanes})" if lanes != 1 else ""
            extra += " separate" if separate else ""
            extra += "" if until is None else f" until {said(until)}"
            return _under(f"for {var} in {said(lo)} .. {said(hi)}{extra}:", body)
        case If(cond, then, orelse):
            lines = _under(f"if {said(cond)}:", then)
            return lines if orelse is None else lines + _under("else:", orelse)
        case Let(var, value, body):
            return _under(f"let {var} = {said(value)}:", body)
        case Alloc(buffers, body):
            return _under(f"alloc {', '.join(map(print_buffer, buffers))}:", body)
        case Store(buffer, index, value):
            return [(0, f"{_cell(buffer, index, said)} = {said(value)}")]
        case Update(buffer, index, reducer, value, atomic):
            how = f"atomic {reducer}" if atomic else reducer
            return [(0, f"{_cell(buffer, index, said)} {how}= {said(value)}")]
        case Prefetch(cell):
            return [(0, f"prefetch {said(cell)}")]
        case Barrier():
            return [(0, "barrier")]
    raise InternalError(f"no loop IR statement: {stmt!r}")


def _under(head: str, body: Stmt) -> list[tuple[int, str]]:
    return [(0, head), *((depth + 1, line) for depth, line in _lines(body))]


def _cell(buffer: str, index: tuple[Expr, ...], said: Callable[[Expr], str]) -> str:
    return f"{buffer}[{', '.join(map(said, index))}]"


def print_expr(expr: Expr, names: Mapping[Expr, str] = NO_NAMES) -> str:
    """The text of a scalar expression, in which some parts may have names."""
    done = {part: (name, _PRIMARY) for part, name in names.items()}
    for item in walk(expr, done):
        done[item] = _text(item, [done[child] for child in children(item)])
    return done[expr][0]


def _text(item: Expr, args: list[tuple[str, int]]) -> tuple[str, int]:
    """Text and precedence of one node, given those of its children."""
    match item:
        case Const(value, dtype):
            text = str(value).lower() if isinstance(value, bool) else repr(value)
            return text + ("" if dtype is None else f":{dtype}"), _PRIMARY
        case Index(name):
            return name, _PRIMARY
        case Access(buffer, _):
            return f"{buffer}[{', '.join(text for text, _ in args)}]", _PRIMARY
        case Cast(dtype, _):
            return f"{dtype}({args[0][0]})", _PRIMARY
        case Call(op, operands):
            rule = OPERATIONS[str(op)]
            if rule.symbol is None or (op == "neg" and isinstance(operands[0], Const)):
                return f"{op}({', '.join(text for text, _ in args)})", _PRIMARY
            if rule.arity == 1:
                return rule.symbol + _wrap(args[0], rule.precedence), rule.precedence
            least = rule.precedence + (rule.symbol in _UNCHAINED)
            left, right = _wrap(args[0], least), _wrap(args[1], rule.precedence + 1)
            return f"{left} {rule.symbol} {right}", rule.precedence
    raise InternalError(f"not an expression of loop IR: {item!r}")


def _wrap(arg: tuple[str, int], least: int) -> str:
    return arg[0] if arg[1] >= least else f"({arg[0]})"
