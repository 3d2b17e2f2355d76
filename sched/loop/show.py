"""A loop nest as text that people read: loops, where buffers live, statements."""

from __future__ import annotations

import html as markup

from ...algo.tensor_expr.affine import normalize
from ...algo.tensor_expr.expr import Expr, Index, indices_of
from ...algo.tensor_expr.printer import print_expr
from ...algo.tensor_expr.reducers import REDUCERS
from .extent import UNKNOWN
from .nest import Buffer, Leaf, Loop, Nest, Seq, Stmt, Tree

_SIGN = {"sum": "+=", "prod": "*=", "max": "max=", "min": "min="}


def show(nest: Nest) -> str:
    """The nest, one line a loop, buffer or statement."""
    lines = [_buffer(b) for b in nest.buffers.values() if b.scope != "param" and b.at is None]
    _tree(nest, nest.tree, 0, lines)
    lines = [*(f"a version for {print_expr(cond)}" for cond in nest.versions), *lines]
    return "\n".join(lines)


def html(nest: Nest) -> str:
    """The nest for notebooks."""
    return f"<pre>{markup.escape(show(nest))}</pre>"


def _tree(nest: Nest, tree: Tree, depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    match tree:
        case Leaf(stmt):
            lines.append(pad + shown(nest, nest.stmts[stmt]))
        case Seq(parts):
            for part in parts:
                _tree(nest, part, depth, lines)
        case Loop() as loop:
            lines.append(pad + _loop(loop))
            for name, distance in loop.ahead:
                lines.append(f"{pad}  prefetch {name}, {distance} ahead")
            for buffer in nest.buffers.values():
                if buffer.scope != "param" and buffer.at == loop.name:
                    lines.append(pad + "  " + _buffer(buffer))
            _tree(nest, loop.body, depth + 1, lines)


def _loop(loop: Loop) -> str:
    kind = "dynamic parallel" if loop.kind == "dynamic" else loop.kind
    head = "for" if kind == "serial" else f"{kind} for"
    count = f" in 0:{loop.extent}" if loop.extent is not None else ""
    tail = f", tail {loop.tail}" if loop.tail != "guard" else ""
    first, *others = dict.fromkeys(loop.values.values())
    # Statements at other iterations say so; a bare dim of another only says that it is repeated.
    shifted = [
        value
        for value in others
        if not isinstance(value, Index) or indices_of(value) == indices_of(first)
    ]
    said = list(dict.fromkeys(map(_value, [first, *shifted])))
    is_plain = said == [loop.name.rpartition(".")[2]]
    values = "" if is_plain else f" = {' and '.join(said)}"
    return f"{head} {loop.name}{count}{values}{tail}:"


def _value(value: Expr) -> str:
    if str(UNKNOWN) in print_expr(value):
        return "fused"
    return min(print_expr(normalize(value)), print_expr(value), key=len)


def _buffer(buffer: Buffer) -> str:
    layout = ""
    if buffer.layout is not None:
        layout = f" laid out [{', '.join(map(print_expr, buffer.layout))}]"
    if any(multiple > 1 for multiple in buffer.pad):
        layout += f" padded to multiples of [{', '.join(map(str, buffer.pad))}]"
    if buffer.align > 1:
        layout += f" aligned to {buffer.align}"
    of = "" if buffer.tensor == buffer.name else f" of {buffer.tensor}"
    folds = [f"d{dim} % {count}" for dim, count in buffer.fold]
    folded = f" folded [{', '.join(folds)}]" if folds else ""
    return f"{buffer.name}: {buffer.dtype} {buffer.scope} buffer{of}{layout}{folded}"


def shown(nest: Nest, stmt: Stmt) -> str:
    """A statement as a line."""
    target = f"{stmt.buffer}[{_list(stmt.lhs)}]"
    value = print_expr(stmt.value)
    if stmt.reducer is None:
        how = "stream " if nest.buffers[stmt.buffer].stream else ""
        return f"{how}{target} = {value}"
    target = f"atomic {target}" if stmt.atomic else target
    sign = _SIGN.get(stmt.reducer)
    if sign is None:
        return f"{target} = {REDUCERS[stmt.reducer].name}({target}, {value})"
    return f"{target} {sign} {value}"


def _list(exprs: tuple[Expr, ...]) -> str:
    return ",".join(print_expr(normalize(expr)) for expr in exprs)
