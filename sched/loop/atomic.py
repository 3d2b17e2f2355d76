"""`atomic`: updates that meet on an element may run at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from .dependences import folding
from .names import find_loops, suggest_from, where
from .nest import Nest, Stmt, leaves, loops
from .primitive import Primitive
from .witness import at


@dataclass(frozen=True)
class Atomic(Primitive):
    """Makes updates atomic, so that loops whose only conflicts they are may run at once.

        for n: H[b[n]] += x[n]   ==>   for n: atomic H[b[n]] += x[n]

    `target` is a stage (`H.update`, or `H` for short) or a loop, for all updates under it. Where no
    iterations run at once, an atomic update is a plain one. Floats are added in any order.
    """

    called: ClassVar[str] = "atomic"
    target: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.target,), {}

    def legal(self, nest: Nest) -> None:
        self._updates(nest)

    def apply(self, nest: Nest) -> Nest:
        made = {stmt.name: replace(stmt, atomic=True) for stmt in self._updates(nest)}
        return replace(nest, stmts={**nest.stmts, **made})

    def _updates(self, nest: Nest) -> list[Stmt]:
        stage = nest.stmts.get(self.target) or nest.stmts.get(f"{self.target}.update")
        if stage is not None:
            if stage.name in folding(nest.kernel):
                raise ScheduleError(
                    f"{self.who}: {stage.name}{at(stage)} combines by a reducer of yours, which no "
                    "instruction does at once; only sum, prod, max, min, any and all can be atomic"
                )
            if stage.reducer is None:
                raise ScheduleError(
                    f"{self.who}: {stage.name}{at(stage)} writes its elements and updates "
                    "none; only updates, such as C.update of a reduction, can be atomic"
                )
            return [stage]
        names = [loop.name for loop in loops(nest.tree)]
        short = {name.rpartition(".")[2] for name in names}
        if self.target not in names and self.target not in short:
            updates = [stmt.name for stmt in nest.stmts.values() if stmt.reducer is not None]
            raise ScheduleError(
                f"{self.who}: there is no stage or loop {self.target}"
                f"{suggest_from(self.target, [*updates, *names])}"
            )
        found = find_loops(nest, self.target, self.who)
        under = [nest.stmts[name] for loop in found for name in leaves(loop)]
        updates_under = [stmt for stmt in under if stmt.reducer is not None]
        if not updates_under:
            loop = found[0]
            raise ScheduleError(
                f"{self.who}: under loop {loop.name}{where(nest, loop)} no element is updated; "
                "only updates, such as C.update of a reduction, can be atomic"
            )
        return updates_under
