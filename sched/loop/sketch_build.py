"""A sketch as the primitives that users write: nests by themselves first, then what joins them.

A step that is not legal for the operator is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...algo.dtypes import DType
from ...algo.tensor_expr.op import Op
from .access import Group, groups
from .compute import ComputeAt
from .draft import Draft, laid_out
from .machine import Machine
from .marks import Unroll
from .schedule import Schedule
from .sketch import Choice, Sketch
from .sketch_across import write_across
from .sketch_beside import write_beside
from .sketch_nest import NestWriter
from .store_at import StoreAt
from .tree import around_stmt


def build(
    op: Op,
    dtypes: Mapping[str, DType] | None,
    sizes: Mapping[str, int],
    sketch: Sketch,
    machine: Machine,
) -> Schedule:
    """The schedule that a sketch stands for, every primitive legal at these sizes."""
    draft = Draft(op, dtypes, sizes)
    made = laid_out(op, dtypes, sizes)
    found = groups(made) if made else []
    nests: dict[str, NestWriter] = {}
    for group in found:
        choice = sketch.choices.get(group.name, Choice())
        if choice.vector in group.free and choice.turned is None:
            width = choice.vectors * machine.lanes(group.widest)
            write_across(
                draft, group, choice.vector, width, machine.l2 // 2,
                shared=choice.outer is not None,
            )  # fmt: skip
        elif choice.join is None:
            nests[group.name] = NestWriter(draft, group, choice, machine, alone=len(found) == 1)
            nests[group.name].tile()
            if choice.beside:
                write_beside(draft, [g for g in found if g.name in choice.beside], group)
    # Consumers first: what a nest is joined to must have its final loops.
    for group in reversed(found):
        choice = sketch.choices.get(group.name, Choice())
        host = sketch.choices.get(choice.join[0], Choice()) if choice.join else Choice()
        kept = host.outer if choice.slides and not host.tile else None
        if choice.join is not None and _join(draft, group, choice.join, kept, bool(host.beside)):
            nest = NestWriter(draft, group, choice, machine, alone=False)
            if choice.tile:
                nest.tile(_above(draft, group, nests.get(choice.join[0])))
            else:
                nest.lay()
            nest.mark()
            if choice.slides and host.tile:
                draft.attempt(Unroll(f"{group.name}.{group.outs[0]}"))
    for nest in nests.values():
        nest.finish()
    return draft.schedule


def _join(
    draft: Draft, group: Group, join: tuple[str, str], kept: str | None, single: bool
) -> bool:
    """Computes a nest inside a loop of its consumer; its values stay over a block of `kept`.

    A `single` iteration of the loop has what it needs, not a block of them.
    """
    consumer, index = join
    if kept is not None:
        inside = [f"{consumer}.{i}{end}" for i in (index, kept) for end in ("i", "")]
        store = StoreAt(group.name, f"{consumer}.{kept}o")
        return any(
            draft.attempt(ComputeAt(group.name, loop), store) for loop in inside if draft.has(loop)
        )
    ends = ("i", "") if single else ("b", "", "o")
    for loop in (f"{consumer}.{index}{end}" for end in ends):
        if draft.has(loop):
            return draft.attempt(ComputeAt(group.name, loop))
    return False


def _above(draft: Draft, group: Group, consumer: NestWriter | None) -> list[tuple[str, str, bool]]:
    """The consumer's loops around a joined nest, each with an index of the nest, and whether it
    fixes that or only a block of it."""
    if consumer is None:
        return []
    around = [loop.name for loop in around_stmt(draft.nest.tree, group.main.name)]
    loops_of = dict(zip(consumer.group.outs, group.outs, strict=False))
    return [
        (mine, name, name == f"{consumer.group.name}.{theirs}")
        for name in around
        for theirs, mine in loops_of.items()
        if name in [f"{consumer.group.name}.{theirs}{end}" for end in ("", "b", "o")]
    ]
