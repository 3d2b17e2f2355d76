"""`rfactor` of a user's reducer: partial results from the identity, as the whole was made before.

for i: { m.init ..; for jo: for ji: { o.update; m.update } }
    ==>   for i: { m.init ..; for jo: { m.rf.init ..; for ji: { o.rf.update; m.rf.update } }
                   for jo_rf: { o.update; m.update } }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...algo.tensor_expr.build import add, sub
from ...algo.tensor_expr.expr import Access, Expr, Index, transform
from ...algo.tensor_expr.fold_stages import start
from ...algo.tensor_expr.op import Stage as KernelStage
from ...algo.tensor_expr.op import Turn
from .factored import Factored, Parts, loops_over
from .initial import statement
from .nest import Leaf, Loop, Nest, Seq, Tree
from .tree import seq


def accumulated(fold: Factored) -> Nest:
    """The nest in which the fold's own updates accumulate partial results."""
    parts = fold.parts()
    cells = _cells(fold, parts)
    first = [fold.stage(w, parts.partial) for w in start(parts.partial)]
    middle = {s.name: _partial(s, parts, cells) for s in fold.updates}
    kernel = fold.kernel(parts, [*first, *middle.values(), *parts.last])
    stmts = dict(fold.nest.stmts)
    for old, stage in middle.items():
        stmt = stmts.pop(old)
        stmts[stage.name] = replace(
            stmt,
            name=stage.name,
            buffer=stage.tensor,
            lhs=stage.lhs,
            value=_moved(stmt.value, cells),
            instance=(stage.name, stmt.instance[1]),
        )
    stmts |= {s.name: statement(s) for s in (*first, *parts.last)}
    outer, split = fold.around()
    owner = {s.name: m for s, m in zip(first, fold.joint.members, strict=True)}
    owner |= fold.owners(parts)
    values = {item.name: {n: fold.follow(m, item) for n, m in owner.items()} for item in outer}
    inside = split is fold.loop  # each iteration then starts its own
    begun: list[Tree] = []
    for stage in first:
        known = [levels[stage.name] for levels in values.values()]
        known += [Index(parts.dim)] if inside else []
        begun.append(loops_over(stmts[stage.name], known, fold.taken))
    ended = fold.combining(stmts, parts, list(values.values()))
    at_loop = {s.name: add(Index(parts.dim), fold.origin) for s in first} if inside else {}
    names = {old: stage.name for old, stage in middle.items()}

    def walk(tree: Tree) -> Tree:
        match tree:
            case Leaf(stmt):
                return Leaf(names.get(stmt, stmt))
            case Seq(items):
                return seq([walk(item) for item in items])
            case Loop():
                own = {names.get(name, name): value for name, value in tree.values.items()}
                own |= values.get(tree.name, {})
                body = walk(tree.body)
                if tree.name != split.name:
                    return replace(tree, values=own, body=body)
                if inside:
                    loop = replace(tree, values=own | at_loop, body=seq([*begun, body]))
                    return seq([loop, ended])
                return seq([*begun, replace(tree, values=own, body=body), ended])
        raise TypeError(f"no tree: {tree!r}")

    return fold.with_buffers(kernel, stmts, walk(fold.nest.tree))


def _cells(fold: Factored, parts: Parts) -> dict[Access, Access]:
    """The cell of a partial result for each that the updates write."""
    group = sub(fold.loop.values[fold.widest.name], fold.origin)
    written = {stage.name: stage for stage in fold.updates}
    cells: dict[Access, Access] = {}
    for member in fold.joint.members:
        old = written[f"{member.stem}.update"]
        cell = Access(f"{member.stem}{parts.mark}", (group, *old.lhs))
        cells[Access(old.tensor, old.lhs)] = cell
    return cells


def _partial(stage: KernelStage, parts: Parts, cells: Mapping[Access, Access]) -> KernelStage:
    """An update of the fold as one of its partial results."""
    assert stage.turn is not None
    own = Access(stage.tensor, stage.lhs)
    cell = cells.get(own, own)
    stem, _, part = stage.name.rpartition(".")
    return replace(
        stage,
        name=f"{stem}{parts.mark}.{part}",
        tensor=cell.tensor,
        lhs=cell.indices,
        value=_moved(stage.value, cells),
        turn=Turn(parts.partial, stage.turn.at),
        joined=0,
    )


def _moved(value: Expr, cells: Mapping[Access, Access]) -> Expr:
    return transform(value, lambda e: cells.get(e, e) if isinstance(e, Access) else e)
