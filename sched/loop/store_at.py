"""`store_at`: values are kept over iterations, so that each is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.expr import Expr, Index, indices_of, substitute
from .arguments import Rule
from .compute import check_moved, is_recurrence
from .copies import own_dims
from .fold import live_window
from .names import find_loop, suggest_from, where
from .nest import Buffer, Loop, Nest, Stmt, Tree, loops
from .placing import Placed, group_of, needed, runs_once
from .primitive import Primitive
from .storage import repeats, touching
from .tree import chains, common_loops, edit
from .witness import at


@dataclass(frozen=True)
class StoreAt(Primitive):
    """Keeps a temporary over the iterations of the loops between `loop` and where it is computed.

        for y: for x in y:y+3: T[x] = f(x)          for y in -2:N: T[(y+2) % 4] = f(y+2)
               Y[y] = T[y] + T[y+1] + T[y+2]  ==>                  Y[y] = ...  where y >= 0

    After `compute_at`. Each element is computed once in an iteration of `loop` (once, without a
    loop), in the first iteration in which it is needed: a sliding window. The loops start earlier
    where the first iterations need several. The storage folds to what is needed at once, in the
    dimensions where isl finds that this is a constant: `fold` gives other folds, {"y": 4} by the
    dimension's index or {"d0": 4}, or none with {}. Dependences and value flow are checked.
    """

    called: ClassVar[str] = "store_at"
    stage: str
    loop: str | None = None
    fold: Annotated[tuple[tuple[str, int], ...], Rule("{dimension: integer, ...}")] | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional = (self.stage,) if self.loop is None else (self.stage, self.loop)
        return positional, {} if self.fold is None else {"fold": dict(self.fold)}

    def legal(self, nest: Nest) -> None:
        names = {stmt.name for stmt in self._group(nest)}
        after = self.after(nest)
        for loop, other in zip(self._between(nest), self._between(after), strict=True):
            if loop.kind != "serial" and loop.values != other.values:
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind}, and values "
                    "are kept over its iterations; use store_at before marking loops"
                )
        check_moved(nest, after, names, self.who)

    def _group(self, nest: Nest) -> list[Stmt]:
        buffer = nest.buffers.get(self.stage)
        if buffer is None or nest.kernel.tensors[buffer.tensor].role != "temp":
            known = [b.name for b in nest.buffers.values() if b.scope != "param"]
            raise ScheduleError(
                f"{self.who}: there is no stage {self.stage} between inputs and results"
                f"{suggest_from(self.stage, sorted(known))}"
            )
        return group_of(nest, self.stage, self.who)

    def _around(self, nest: Nest) -> list[Loop]:
        """The loops around all that write or read the tensor."""
        around = chains(nest.tree)
        return common_loops([around[stmt] for stmt in touching(nest)[self.stage]])

    def _depth(self, nest: Nest) -> int:
        """How many of these loops are not inside the storage."""
        if self.loop is None:
            return 0
        loop, around = find_loop(nest, self.loop, self.who), self._around(nest)
        names = [item.name for item in around]
        if loop.name not in names:
            inside = (
                f"it is computed and read under {', '.join(names)}"
                if names
                else ("its nest shares no loop with that of its readers; use compute_at first")
            )
            raise ScheduleError(
                f"{self.who}: {self.stage} is not computed and read under loop {loop.name}; "
                f"{inside}"
            )
        return names.index(loop.name) + 1

    def _between(self, nest: Nest) -> list[Loop]:
        return self._around(nest)[self._depth(nest) :]

    def apply(self, nest: Nest) -> Nest:
        group, around, depth = self._group(nest), self._around(nest), self._depth(nest)
        used = {dim for stmt in group for dim in stmt.dims}
        used |= {f"d{n}" for stmt in group for n in range(len(stmt.lhs))}
        once = {loop.name for loop in around[depth:]}
        if once:
            self._check_repeated(nest, group, around[depth:])
            dims = own_dims(around, used)
            whole = any(map(is_recurrence, group))
            placed = needed(nest, group, around, dims, once, self.who, whole=whole)
            names = {stmt.name for stmt in group}
            levels = {level.name: level for level in placed.around}

            gone = _unrepeated(around, placed)

            def change(item: Loop) -> Tree:
                if item.name in levels:
                    return replace(levels[item.name], body=item.body)
                if not gone.keys().isdisjoint(item.values):
                    values = {s: substitute(v, gone.get(s, {})) for s, v in item.values.items()}
                    item = replace(item, values=values)
                moved = names.issuperset(item.values) and item.kind == "serial"
                return item.body if moved and runs_once(item, placed.around) else item

            everything = [item.name for item in loops(nest.tree)]
            tree = edit(nest.tree, dict.fromkeys(everything, change))
            nest = replace(nest, stmts={**nest.stmts, **placed.stmts}, tree=tree)
        home = around[depth - 1].name if depth else None
        buffer = replace(nest.buffers[self.stage], at=home, pinned=True, fold=())
        buffer = replace(buffer, fold=self._folds(nest, buffer))
        return replace(nest, buffers={**nest.buffers, self.stage: buffer})

    def _check_repeated(self, nest: Nest, group: Sequence[Stmt], between: Sequence[Loop]) -> None:
        """Raises where a loop that repeats a statement has other values than its iterations."""
        for stmt in group:
            own = set(stmt.dims[: repeats(stmt)])
            for loop in between:
                value = loop.values.get(stmt.name)
                if value is None or isinstance(value, Index):
                    continue
                if not own.isdisjoint(indices_of(value)):
                    raise ScheduleError(
                        f"{self.who}: {stmt.name}{at(stmt)} is repeated by loop {loop.name}"
                        f"{where(nest, loop)}, which is no more what it was at compute_at; use "
                        "store_at before its loops are split, fused or skewed"
                    )

    def _folds(self, nest: Nest, buffer: Buffer) -> tuple[tuple[int, int], ...]:
        if self.fold is None:
            return live_window(nest, buffer)
        writer = next(s for s in nest.stmts.values() if s.buffer == buffer.name)
        names = {f"d{n}": n for n in range(buffer.rank)}
        names |= {part.name: n for n, part in enumerate(writer.lhs) if isinstance(part, Index)}
        found = []
        for name, count in self.fold:
            if name not in names:
                raise ScheduleError(
                    f"{self.who}: {buffer.tensor} has no dimension {name}"
                    f"{suggest_from(name, list(names))}"
                )
            if count < 1:
                raise ScheduleError(
                    f"{self.who}: expected folds of at least 1, got {name}: {count}"
                )
            found.append((names[name], count))
        return tuple(sorted(found))


def _unrepeated(around: Sequence[Loop], placed: Placed) -> dict[str, dict[Expr, Expr]]:
    """By statement: what stands for the dims by which it is repeated no more.

    Loops that were skewed by the loops around may mention them.
    """
    gone: dict[str, dict[Expr, Expr]] = {name: {} for name in placed.stmts}
    for before, after in zip(around, placed.around, strict=True):
        for name, stmt in placed.stmts.items():
            value = before.values.get(name)
            if isinstance(value, Index) and value.name not in stmt.dims:
                gone[name][value] = after.values[name]
    return gone
