"""From isl's AST to loop IR: loops get their own names back, statements their instances.

A mark says whose loop the next `for` is. A mark without one is a loop of one iteration, whose
value isl has put into the expressions; where statements run one after the other in it, isl repeats
the mark for each of them, and they are brought together again, for they share the buffers that
live there. A domain that is not convex gives a mark several loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

from ..algo import isl
from ..algo.isl import raw
from ..algo.tensor_expr import build
from ..algo.tensor_expr.affine import from_isl, normalize
from ..algo.tensor_expr.expr import Access, Call, Const, Expr, Index, substitute, transform
from ..sched.loop.carried import meets
from ..sched.loop.nest import PARALLEL, Loop, Nest, Stmt, loops
from ..sched.loop.tree import around_stmt
from . import ir
from .context import NOTHING, Context
from .inverse import divided, inverse
from .prefetch import prefetches
from .scan import Visit
from .storage import Window

Names = Mapping[str, Expr]
Entered = frozenset[str]
_LE: Any = raw.ast_expr_op_type.le
NO_GUARDS: Mapping[str, tuple[Expr, ...]] = MappingProxyType({})
_NODE: Any = raw.ast_node_type  # islpy's annotations say int where isl's enumerations are


def walk(
    node: raw.AstNode,
    nest: Nest,
    windows: Mapping[str, Window],
    context: Context = NOTHING,
    asked: Mapping[str, tuple[Expr, ...]] = NO_GUARDS,
) -> tuple[ir.Stmt, list[Visit]]:
    """The statement that isl's AST says, with the allocations of buffers in their loops.

    Statements run where the conditions hold that are `asked` for them, on their dims.
    The visits say where, under which loops and conditions, each of the nest's statements stands.
    """
    named = {loop.name: loop for loop in loops(nest.tree)}
    homes: dict[str | None, list[ir.Buffer]] = {}
    for name, buffer in nest.buffers.items():
        if buffer.scope != "param" and name in windows:
            homes.setdefault(buffer.at, []).append(windows[name].stored)
    atomic = frozenset(name for name, stmt in nest.stmts.items() if meets(nest, stmt))
    stored = {name: window.stored for name, window in windows.items()}
    walker = _Walker(nest, windows, named, homes, stored, atomic, context.values, asked, [])
    body = walker.within(None, walker.walk_all([node], _Here()))
    return body, walker.visits


@dataclass(frozen=True, slots=True)
class _Here:
    """What is around a node: values of isl's iterators and of the nest's loops, marks that have no
    loop and whose allocations are made, loops, conditions."""

    names: Names = field(default_factory=dict)
    values: Names = field(default_factory=dict)
    entered: Entered = frozenset()
    loops: tuple[ir.For, ...] = ()
    conditions: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class _Walker:
    nest: Nest
    windows: Mapping[str, Window]
    loops: Mapping[str, Loop]
    homes: Mapping[str | None, list[ir.Buffer]]
    stored: Mapping[str, ir.Buffer]
    atomic: frozenset[str]
    symbols: Mapping[Expr, Expr]
    asked: Mapping[str, tuple[Expr, ...]]
    visits: list[Visit]

    def within(self, loop: str | None, body: ir.Stmt) -> ir.Stmt:
        """`body` as the body of a loop: inside the allocations that live there."""
        return ir.allocate(self.homes.get(loop, []), body)

    def walk_all(self, nodes: list[raw.AstNode], here: _Here) -> ir.Stmt:
        """Nodes in order. Neighbours under one mark that ran once belong together again."""
        done: list[ir.Stmt] = []
        at = 0
        while at < len(nodes):
            mark = _mark(nodes[at], here.entered)
            if mark is None or _loops_under(nodes[at], mark):
                done.append(self.walk(nodes[at], here))
                at += 1
                continue
            end = at + 1
            while end < len(nodes) and _mark(nodes[end], here.entered) == mark:
                if _loops_under(nodes[end], mark):
                    break
                end += 1
            inner = replace(here, entered=here.entered | {mark})
            inside = self.walk_all(nodes[at:end], inner)
            done.append(self.once(mark, inside))
            at = end
        return ir.block(*done)

    def walk(self, node: raw.AstNode, here: _Here) -> ir.Stmt:
        """One node that is not a loop of several iterations."""
        kind: Any = node.get_type()
        if kind == _NODE.for_:  # one iteration, whose value is an expression
            iterator = node.for_get_iterator().get_id().get_name()
            value = _scalar(node.for_get_init(), here.names)
            inner = replace(here, names={**here.names, iterator: value})
            return self.walk_all([node.for_get_body()], inner)
        if kind == _NODE.block:
            return self.walk_all(_children(node), here)
        if kind == _NODE.if_:
            return self.choice(node, here, lambda inner, there: self.walk_all([inner], there))
        if kind == _NODE.mark:
            mark = node.mark_get_id().get_name()
            if mark in here.entered:
                return self.walk_all([node.mark_get_node()], here)
            return self.pieces(node.mark_get_node(), here, mark)
        user = node.user_get_expr()
        args = [user.get_op_arg(n) for n in range(user.get_op_n_arg())]
        stmt = self.nest.stmts.get(isl.name(args[0].get_id().get_name()))
        if stmt is None:
            return ir.block()  # a joint
        instance = self.instance(stmt, tuple(_scalar(arg, here.names) for arg in args[1:]), here)
        guards = self.guards(stmt, instance)
        conditions = (*here.conditions, *guards)
        self.visits.append(Visit(stmt.name, here.loops, conditions, instance))
        made = self.statement(stmt, instance)
        for guard in reversed(guards):
            made = ir.If(guard, made)
        ahead = {loop.var: self.loops[loop.var].ahead for loop in here.loops}
        return ir.block(*prefetches(made, here.loops, ahead, self.stored), made)

    def instance(self, stmt: Stmt, said: tuple[Expr, ...], here: _Here) -> tuple[Expr, ...]:
        """The dims of a statement, as isl says them where that needs no division."""
        if not any(map(divided, said)):
            return said
        around = around_stmt(self.nest.tree, stmt.name)
        known = {loop.values[stmt.name]: here.values.get(loop.name) for loop in around}
        found = inverse(stmt, known)
        return tuple(
            found.get(dim, value) if divided(value) else value
            for dim, value in zip(stmt.dims, said, strict=True)
        )

    def pieces(self, node: raw.AstNode, here: _Here, mark: str) -> ir.Stmt:
        """What stands under a mark: its loop, or several, or single iterations between them."""
        kind: Any = node.get_type()
        if kind == _NODE.for_ and not node.for_is_degenerate():
            return self.loop(node, here, mark)
        if kind == _NODE.block and _bare_for(node):
            parts = (self.pieces(child, here, mark) for child in _children(node))
            return ir.block(*parts)
        if kind == _NODE.if_ and _bare_for(node):
            return self.choice(node, here, lambda it, there: self.pieces(it, there, mark))
        return self.once(mark, self.walk_all([node], here))

    def once(self, mark: str, inside: ir.Stmt) -> ir.Stmt:
        """The single iteration of a loop. One over a GPU axis stays: it says this is a launch."""
        body, kind = self.within(mark, inside), self.loops[mark].kind
        return ir.For(mark, Const(0), Const(1), body, kind) if kind in ir.AXES else body

    def choice(
        self, node: raw.AstNode, here: _Here, inner: Callable[[raw.AstNode, _Here], ir.Stmt]
    ) -> ir.Stmt:
        cond = _scalar(node.if_get_cond(), here.names)
        holds = replace(here, conditions=(*here.conditions, cond))
        then = inner(node.if_get_then_node(), holds)
        if not node.if_has_else_node():
            return ir.If(cond, then)
        fails = replace(here, conditions=(*here.conditions, Call("not", (cond,))))
        return ir.If(cond, then, inner(node.if_get_else_node(), fails))

    def loop(self, node: raw.AstNode, here: _Here, mark: str) -> ir.Stmt:
        loop, var = self.loops[mark], Index(mark)
        iterator = node.for_get_iterator().get_id().get_name()
        cond = node.for_get_cond()
        stop = _scalar(cond.get_op_arg(1), here.names)
        ends: Any = cond.get_op_type()
        if ends == _LE:  # isl ends in `<` where it finds that shorter
            stop = _one_more(stop)
        start = _scalar(node.for_get_init(), here.names)
        inc = _scalar(node.for_get_inc(), here.names)
        assert isinstance(inc, Const)
        step, value = int(inc.value), cast(Expr, var)
        # Of statements whose values have strides isl shifts some, so that one loop has them all.
        said = {mark: value} if step == 1 else {}
        if step != 1 and loop.kind not in ("serial", *PARALLEL, "unroll"):
            # Lanes and threads are numbered one after the other.
            last = build.add(build.sub(stop, start), Const(step - 1))
            value = build.add(start, build.mul(var, inc))
            start, stop, step = Const(0), build.floordiv(last, inc), 1
        around = ir.For(mark, start, stop, ir.Block(()), loop.kind, step)
        inside = replace(
            here,
            names={**here.names, iterator: value},
            values={**here.values, **said},
            loops=(*here.loops, around),
        )
        body = self.within(mark, self.walk_all([node.for_get_body()], inside))
        if loop.kind == "vector":
            body = _in_lanes(body)
        separate = loop.tail == "separate"
        return ir.For(mark, start, stop, body, loop.kind, step, 1, separate)

    def guards(self, stmt: Stmt, instance: tuple[Expr, ...]) -> list[Expr]:
        """What has to be asked of an instance to be one of the statement's."""
        dims = self.dims(stmt, instance)
        return [normalize(substitute(c, dims)) for c in self.asked.get(stmt.name, ())]

    def dims(self, stmt: Stmt, instance: tuple[Expr, ...]) -> dict[Expr, Expr]:
        """What a statement's dims and the symbols are there."""
        own: dict[Expr, Expr] = {
            Index(dim): at for dim, at in zip(stmt.dims, instance, strict=True)
        }
        return own | dict(self.symbols)

    def statement(self, stmt: Stmt, instance: tuple[Expr, ...]) -> ir.Stmt:
        dims = self.dims(stmt, instance)

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
        atomic = stmt.name in self.atomic
        return ir.Update(stmt.buffer, index, stmt.reducer, place(stmt.value), atomic)


def _in_lanes(stmt: ir.Stmt) -> ir.Stmt:
    """The body of a vector loop: loops in it take their turns in every lane, one by one, since
    where a loop with a step starts may differ between lanes."""
    stmt = ir.rebuild(stmt, _in_lanes)
    if not isinstance(stmt, ir.For) or stmt.kind in ir.AXES:
        return stmt
    if stmt.kind in (*PARALLEL, "vector"):
        stmt = ir.with_(stmt, kind="serial")
    if stmt.step == 1:
        return stmt
    var, step = Index(stmt.var), Const(stmt.step)
    count = build.floordiv(build.sub(stmt.hi, build.sub(stmt.lo, Const(stmt.step - 1))), step)
    body = ir.substitute(stmt.body, {var: build.add(stmt.lo, build.mul(var, step))})
    return ir.with_(stmt, lo=Const(0), hi=count, step=1, body=body)


def _scalar(expr: raw.AstExpr, names: Names) -> Expr:
    return from_isl(expr, lambda name: names.get(name) or Index(name))


def _one_more(stop: Expr) -> Expr:
    if isinstance(stop, Call) and stop.op in ("min", "max"):
        return Call(stop.op, tuple(_one_more(arg) for arg in stop.args))
    return build.add(stop, Const(1))


def _children(block: raw.AstNode) -> list[raw.AstNode]:
    """The nodes of a block, blocks in it opened."""
    listed = block.block_get_children()
    found: list[raw.AstNode] = []
    for n in range(listed.n_ast_node()):
        child = listed.get_at(n)
        kind: Any = child.get_type()
        found.extend(_children(child) if kind == _NODE.block else [child])
    return found


def _branches(node: raw.AstNode) -> list[raw.AstNode]:
    """The nodes that stand in an `if`, a block, or the single iteration of a `for`."""
    kind: Any = node.get_type()
    if kind == _NODE.for_ and node.for_is_degenerate():
        return [node.for_get_body()]
    if kind == _NODE.block:
        return _children(node)
    if kind == _NODE.if_:
        other = [node.if_get_else_node()] if node.if_has_else_node() else []
        return [node.if_get_then_node(), *other]
    return []


def _bare_for(node: raw.AstNode) -> bool:
    """Is there a `for` without a mark of its own? It belongs to the mark above."""
    kind: Any = node.get_type()
    if kind == _NODE.for_ and not node.for_is_degenerate():
        return True
    return any(map(_bare_for, _branches(node)))


def _mark(node: raw.AstNode, entered: Entered) -> str | None:
    """The mark, not yet entered, under which the whole of a node stands."""
    kind: Any = node.get_type()
    if kind == _NODE.mark:
        name: str = node.mark_get_id().get_name()
        return _mark(node.mark_get_node(), entered) if name in entered else name
    found = {_mark(inner, entered) for inner in _branches(node)}
    return found.pop() if len(found) == 1 else None


def _loops_under(node: raw.AstNode, mark: str) -> bool:
    """Has that mark, where it occurs at or below the node, a loop of its own?"""
    kind: Any = node.get_type()
    if kind == _NODE.mark:
        below = node.mark_get_node()
        if node.mark_get_id().get_name() == mark:
            return _bare_for(below)
        return _loops_under(below, mark)
    return any(_loops_under(inner, mark) for inner in _branches(node))
