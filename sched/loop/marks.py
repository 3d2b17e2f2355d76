"""`vectorize`, `unroll`, `parallel` and `bind`: how the iterations of a loop are run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from ...algo.errors import ScheduleError
from .arguments import Rule
from .carried import check_concurrent, check_lanes
from .extent import at_once, extent
from .names import find_loops, index_of, where
from .nest import PARALLEL, Loop, Nest, Seq, Tree, loops
from .primitive import Primitive
from .split import Split
from .storage import place
from .tree import around_loop, edit, with_tree
from .validate import check_blocks

UNROLL_BUDGET = 1536
"""Copies of statements that unrolled loops within each other may make: some seconds of LLVM."""

LOOP_WEIGHT = 8
"""Statements that a loop in an unrolled body counts for, in LLVM's time; a vector loop is one."""

AXES = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")

Sharing = Annotated[str, Rule("static or dynamic", lambda value: value in ("static", "dynamic"))]


@dataclass(frozen=True)
class Mark(Primitive):
    """The common part: the loops get `kind`."""

    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,), {}

    @property
    def kind(self) -> str:
        """The loop's kind afterwards."""
        return self.called

    def legal(self, nest: Nest) -> None:
        for loop in find_loops(nest, self.loop, self.who):
            if loop.kind != "serial":
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} is {loop.kind} already"
                )
            self.fits(nest, loop)

    def fits(self, nest: Nest, loop: Loop) -> None:
        """Raises where this loop cannot be run so."""

    def apply(self, nest: Nest) -> Nest:
        def mark(loop: Loop) -> Loop:
            return replace(loop, kind=self.kind)

        targets = {loop.name for loop in find_loops(nest, self.loop, self.who)}
        return with_tree(nest, edit(nest.tree, dict.fromkeys(targets, mark)))


@dataclass(frozen=True)
class Parallel(Mark):
    """Runs iterations in any order, on any thread.

        for i: S(i)   ==>   parallel for i: S(i)

    No value may flow between iterations, and no element be updated by two of them. `sharing` is
    "static", where a thread has its own contiguous share and takes of the others' when it is
    through, or "dynamic", where a few iterations at a time go to whoever is free: for iterations
    that differ much in their work.
    """

    called: ClassVar[str] = "parallel"
    sharing: Sharing = "static"

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,) if self.sharing == "static" else (self.loop, self.sharing), {}

    @property
    def kind(self) -> str:
        return "parallel" if self.sharing == "static" else self.sharing

    def fits(self, nest: Nest, loop: Loop) -> None:
        outer = [item for item in around_loop(nest.tree, loop.name) if item.kind in PARALLEL]
        outer += [item for item in loops(loop.body) if item.kind in PARALLEL]
        if outer:
            raise ScheduleError(
                f"{self.who}: loop {outer[0].name} of the same nest is parallel already; "
                "fuse the two, or keep one"
            )
        check_concurrent(nest, loop, self.who)


@dataclass(frozen=True)
class Unroll(Mark):
    """Writes the iterations out one after the other.

    for ii in 0:2: S(ii)   ==>   S(0); S(1)
    """

    called: ClassVar[str] = "unroll"

    def fits(self, nest: Nest, loop: Loop) -> None:
        count = at_once(nest, loop)
        if count is None:
            checked, known = nest.kernel.checked, nest.kernel.sizes
            if all(size in known or size in checked.op.maxima for size in checked.sizes):
                raise ScheduleError(
                    f"{self.who}: loop {loop.name}{where(nest, loop)} has no constant extent; "
                    f"split it and unroll the inner loop"
                )
            return  # known when sizes are
        around = around_loop(nest.tree, loop.name)
        whole = next((item for item in around if item.kind == "unroll"), loop)
        copies = _weight(nest, whole, loop.name)
        if copies > UNROLL_BUDGET:
            raise ScheduleError(
                f"{self.who}: the unrolled body of loop {whole.name}{where(nest, whole)} would "
                f"have {copies} statements, limit {UNROLL_BUDGET}, an inner loop counting for "
                f"{LOOP_WEIGHT}; split it and unroll the inner loop"
            )


def _weight(nest: Nest, tree: Tree, loop: str) -> int:
    """Statements that a tree becomes where `loop` is unrolled too, loops counting for several."""
    match tree:
        case Loop(name=name, body=body, kind=kind):
            inner = _weight(nest, body, loop)
            if kind == "unroll" or name == loop:
                return inner * max(1, at_once(nest, tree) or 1)
            return inner if kind == "vector" else inner + LOOP_WEIGHT
        case Seq(parts):
            return sum(_weight(nest, part, loop) for part in parts)
    return 1


@dataclass(frozen=True)
class Vectorize(Mark):
    """Runs iterations at once, in lanes.

        for ji in 0:16: S(ji)   ==>   vector for ji in 0:16: S(ji)

    With `n`, the loop is split by n first: `vectorize("j", 16)` makes `jo` and the vector `ji`.
    A reduction is vectorized over its own loop too; its lanes are combined in the end.
    """

    called: ClassVar[str] = "vectorize"
    n: int | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,) if self.n is None else (self.loop, self.n), {}

    @property
    def kind(self) -> str:
        return "vector"

    def legal(self, nest: Nest) -> None:
        if self.n is None:
            return super().legal(nest)
        if self.n < 1:
            raise ScheduleError(f"{self.who}: expected at least 1 lane, got {self.n!r}")
        for loop in find_loops(nest, self.loop, self.who):
            known = extent(nest, loop)
            if known is not None and known < self.n and loop.extent is not None:
                raise ScheduleError(
                    f"{self.who}: loop {loop.name} has extent {known}{where(nest, loop)}; use at "
                    f"most {known} lanes, or split {_origin(loop.name)} by {self.n} first"
                )
        if not self._is_split(nest):
            self._split.legal(nest)
        self._lanes(nest).legal(self._blocks(nest))

    def fits(self, nest: Nest, loop: Loop) -> None:
        chain = [*around_loop(nest.tree, loop.name), *loops(loop.body)]
        other = next((item for item in chain if item.kind == "vector"), None)
        if other is not None:
            raise ScheduleError(
                f"{self.who}: loop {other.name} of the same nest is a vector loop already"
            )
        check_lanes(nest, loop, self.who)

    def apply(self, nest: Nest) -> Nest:
        if self.n is None:
            return super().apply(nest)
        return self._lanes(nest).apply(self._blocks(nest))

    def _is_split(self, nest: Nest) -> bool:
        """Has the loop exactly n iterations already?"""
        return all(loop.extent == self.n for loop in find_loops(nest, self.loop, self.who))

    def _blocks(self, nest: Nest) -> Nest:
        """The nest in which the loop of the lanes is one of its own."""
        return nest if self._is_split(nest) else place(self._split.apply(nest))

    def _lanes(self, nest: Nest) -> Vectorize:
        return Vectorize(self.loop if self._is_split(nest) else self.loop + "i")

    @property
    def _split(self) -> Split:
        assert self.n is not None
        return Split(self.loop, self.n)


def _origin(name: str) -> str:
    """`j` of `C.ji`: the loop that was probably split."""
    index = index_of(name)
    return index[:-1] if len(index) > 1 and index[-1] == "i" else index


@dataclass(frozen=True)
class Bind(Mark):
    """Runs the iterations of a loop on an axis of a GPU's grid or block.

        for io: S(io)   ==>   io = blockIdx.x: S(io)

    `axis` is one of block.x to block.z and thread.x to thread.z.
    """

    called: ClassVar[str] = "bind"
    axis: str = ""

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop, self.axis), {}

    @property
    def kind(self) -> str:
        return self.axis

    def legal(self, nest: Nest) -> None:
        if self.axis not in AXES:
            raise ScheduleError(
                f"{self.who}: {self.axis!r} is no GPU axis; choose one of {', '.join(AXES)}"
            )
        super().legal(nest)
        check_blocks(self.after(nest), self.who)

    def fits(self, nest: Nest, loop: Loop) -> None:
        chain = [*around_loop(nest.tree, loop.name), *loops(loop.body)]
        other = next((item for item in chain if item.kind == self.axis), None)
        if other is not None:
            raise ScheduleError(
                f"{self.who}: loop {other.name} of the same nest is bound to {self.axis} already"
            )
        check_concurrent(nest, loop, self.who)
