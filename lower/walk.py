"""From isl's AST to loop IR: loops get their own names back, statements their instances.

A mark says whose loop the next `for` is. A mark without one is a loop of one iteration, whose
value isl has put into the expressions; a domain that is not convex gives a mark several loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..algo import isl
from ..algo.isl import raw
from ..algo.tensor_expr import build
from ..algo.tensor_expr.affine import from_isl
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, substitute, transform
from ..sched.loop.nest import Loop, Nest, Stmt, loops
from . import ir
from .storage import Window

Names = Mapping[str, Expr]
_NODE: Any = raw.ast_node_type  # islpy's annotations say int where isl's enumerations are


def walk(node: raw.AstNode, nest: Nest, windows: Mapping[str, Window]) -> ir.Stmt:
    """The statement that isl's AST says, with the allocations of buffers in their loops."""
    named = {loop.name: loop for loop in loops(nest.tree)}
    homes: dict[str | None, list[ir.Buffer]] = {}
    for name, buffer in nest.buffers.items():
        if buffer.scope != "param":
            homes.setdefault(buffer.at, []).append(windows[name].stored)
    walker = _Walker(nest, windows, named, homes)
    return walker.within(None, walker.walk(node, {}, None))


@dataclass(frozen=True, slots=True)
class _Walker:
    nest: Nest
    windows: Mapping[str, Window]
    loops: Mapping[str, Loop]
    homes: Mapping[str | None, list[ir.Buffer]]

    def within(self, loop: str | None, body: ir.Stmt) -> ir.Stmt:
        """`body` as the body of a loop: inside the allocations that live there."""
        for buffer in reversed(self.homes.get(loop, [])):
            body = ir.Alloc(buffer, body)
        return body

    def walk(self, node: raw.AstNode, names: Names, mark: str | None) -> ir.Stmt:
        """`mark` was just passed: the next `for` is its loop, and if none comes it ran once."""
        kind: Any = node.get_type()
        if kind == _NODE.block and (mark is None or _bare_for(node)):
            return ir.block(*(self.walk(child, names, mark) for child in _children(node)))
        if kind == _NODE.if_ and (mark is None or _bare_for(node)):
            other = node.if_get_else_node() if node.if_has_else_node() else None
            return ir.If(
                _scalar(node.if_get_cond(), names),
                self.walk(node.if_get_then_node(), names, mark),
                None if other is None else self.walk(other, names, mark),
            )
        if kind == _NODE.for_:
            return self.loop(node, names, mark)
        if mark is not None:
            return self.within(mark, self.walk(node, names, None))
        if kind == _NODE.mark:
            return self.walk(node.mark_get_node(), names, node.mark_get_id().get_name())
        user = node.user_get_expr()
        args = [user.get_op_arg(n) for n in range(user.get_op_n_arg())]
        stmt = self.nest.stmts[isl.name(args[0].get_id().get_name())]
        return self.statement(stmt, [_scalar(arg, names) for arg in args[1:]])

    def loop(self, node: raw.AstNode, names: Names, mark: str | None) -> ir.Stmt:
        assert mark is not None  # every band has one
        loop = self.loops[mark]
        inner = {**names, node.for_get_iterator().get_id().get_name(): Index(mark)}
        cond = node.for_get_cond()
        stop = _scalar(cond.get_op_arg(1), inner)
        if (
            cond.get_op_type() == raw.ast_expr_op_type.le
        ):  # isl ends in `<` where it finds that shorter
            stop = _one_more(stop)
        step = _scalar(node.for_get_inc(), inner)
        assert isinstance(step, Const)
        body = self.within(mark, self.walk(node.for_get_body(), inner, None))
        start = _scalar(node.for_get_init(), inner)
        return ir.For(mark, start, stop, body, loop.kind, int(step.value))

    def statement(self, stmt: Stmt, instance: list[Expr]) -> ir.Stmt:
        dims: dict[Expr, Expr] = {
            Index(dim): at for dim, at in zip(stmt.dims, instance, strict=True)
        }

        def stored(expr: Expr) -> Expr:
            if not isinstance(expr, Access):
                return expr
            cell = self.windows[expr.tensor].cell(stmt, expr.indices)
            return Access(expr.tensor, cell)

        def place(expr: Expr) -> Expr:
            return substitute(transform(expr, stored), dims)

        lhs = self.windows[stmt.buffer].cell(stmt, tuple(transform(e, stored) for e in stmt.lhs))
        index = tuple(substitute(e, dims) for e in lhs)
        if stmt.reducer is None:
            return ir.Store(stmt.buffer, index, place(stmt.value))
        return ir.Update(stmt.buffer, index, stmt.reducer, place(stmt.value))


def _scalar(expr: raw.AstExpr, names: Names) -> Expr:
    return from_isl(expr, lambda name: names.get(name) or Index(name))


def _one_more(stop: Expr) -> Expr:
    if isinstance(stop, Call) and stop.op in ("min", "max"):
        return Call(stop.op, tuple(_one_more(arg) for arg in stop.args))
    return build.add(stop, Const(1))


def _children(block: raw.AstNode) -> list[raw.AstNode]:
    listed = block.block_get_children()
    return [listed.get_at(n) for n in range(listed.n_ast_node())]


def _bare_for(node: raw.AstNode) -> bool:
    """Is there a `for` without a mark of its own? It belongs to the mark above."""
    kind: Any = node.get_type()
    if kind == _NODE.if_:
        inside = [node.if_get_then_node()]
        inside += [node.if_get_else_node()] if node.if_has_else_node() else []
        return any(map(_bare_for, inside))
    if kind == _NODE.block:
        return any(map(_bare_for, _children(node)))
    return bool(kind == _NODE.for_)
