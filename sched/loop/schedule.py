"""Loop schedules as users hold them: an operator and the primitives applied to it, in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...algo.dtypes import DType
from ...algo.errors import ScheduleError
from ...algo.tensor_expr.check import check
from ...algo.tensor_expr.op import Op
from ...algo.tensor_expr.stages import kernel
from ...algo.upward import open_upward
from .arguments import pairs
from .atomic import Atomic
from .compute import ComputeAt
from .compute_with import ComputeWith
from .fuse import Fuse
from .initial import initial
from .inline import Inline
from .marks import Bind, Parallel, Unroll, Vectorize
from .memory import Align, Layout, Pad, Stream
from .nest import Nest
from .prefetch import Prefetch
from .primitive import Primitive
from .privatize import Privatize
from .reorder import Reorder
from .rfactor import Rfactor
from .show import html, show
from .specialize import Specialize
from .split import Split, Tile
from .stage import Stage
from .store_at import StoreAt
from .tensorize import Tensorize
from .validate import validate
from .values import Reverse, Shift, Skew

Key = tuple[frozenset[tuple[str, DType]] | None, frozenset[tuple[str, int]] | None]
"""Element types and sizes for which a nest was made."""


def _key(dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int] | None) -> Key:
    return (
        None if dtypes is None else frozenset(dtypes.items()),
        None if sizes is None else frozenset(sizes.items()),
    )


class NoPrimitive(ScheduleError, AttributeError):
    """A primitive that this version does not have; also what `hasattr` looks for."""


@open_upward
class Schedule:
    """An immutable loop schedule of one operator; every method returns a new one.

    A primitive is checked when it is added, for all sizes (types that the operator leaves open
    are taken as f32), and again for the sizes at which the schedule is used (`nest`). Loops are
    named `stage.index` or by the last component where that is unique. Raises `ScheduleError`.
    """

    __slots__ = ("_memo", "_nest", "op", "primitives")
    op: Op
    primitives: tuple[Primitive, ...]
    _nest: tuple[Key, Nest] | None
    _memo: dict[str, Any]

    def __init__(self, op: Op, primitives: tuple[Primitive, ...] = ()) -> None:
        set_ = object.__setattr__
        set_(self, "op", op)
        set_(self, "primitives", tuple(primitives))
        set_(self, "_nest", None)
        set_(self, "_memo", {})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Schedule is immutable; its methods return new ones")

    def then(self, primitive: Primitive) -> Schedule:
        """The schedule with one more primitive, which is checked at once."""
        nest = primitive.step(self.nest())
        return Schedule(self.op, (*self.primitives, primitive)).with_nest(nest, None, None)

    def with_nest(
        self, nest: Nest, dtypes: Mapping[str, DType] | None, sizes: Mapping[str, int] | None
    ) -> Schedule:
        """The schedule, remembering the nest that its primitives made when they were checked."""
        new = Schedule(self.op, self.primitives)
        object.__setattr__(new, "_nest", (_key(dtypes, sizes), nest))
        return new

    def nest(
        self,
        dtypes: Mapping[str, DType] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> Nest:
        """The loop nest for element types of the inputs and for sizes, every primitive checked.

        Without sizes they stay symbols.
        """
        if self._nest is not None and self._nest[0] == _key(dtypes, sizes):
            return self._nest[1]
        nest = initial(kernel(check(self.op), dtypes or {}, sizes))
        for primitive in self.primitives:
            nest = primitive.step(nest)
        if self._nest is None or (dtypes is None and sizes is None):
            object.__setattr__(self, "_nest", (_key(dtypes, sizes), nest))
        return nest

    # The primitives. What each does stands at its class.

    def split(
        self, loop: str, factor: int, into: tuple[str, str] | None = None, tail: str = "guard"
    ) -> Schedule:
        """for i ==> for io: for ii in 0:factor. See `Split`."""
        return self.then(Split(loop, factor, into, tail))

    def tile(self, loops: Mapping[str, int] | None = None, /, **factors: int) -> Schedule:
        """tile(i=8, j=48): for i: for j ==> for io: for jo: for ii: for ji. See `Tile`."""
        return self.then(Tile(pairs(loops, factors)))

    def fuse(self, outer: str, inner: str, into: str | None = None) -> Schedule:
        """for io: for jo ==> for io_jo. See `Fuse`."""
        return self.then(Fuse(outer, inner, into))

    def reorder(self, *order: str) -> Schedule:
        """Loops of one nest, outermost first. See `Reorder`."""
        listed = len(order) == 1 and isinstance(order[0], (list, tuple))
        return self.then(Reorder(*order if listed else (order,)))

    def vectorize(self, loop: str, n: int | None = None) -> Schedule:
        """Runs a loop in lanes; with n, splits it first. See `Vectorize`."""
        return self.then(Vectorize(loop, n))

    def unroll(self, loop: str) -> Schedule:
        """Writes a loop's iterations out. See `Unroll`."""
        return self.then(Unroll(loop))

    def parallel(self, loop: str, sharing: str = "static") -> Schedule:
        """Runs a loop on several threads, a share each ("dynamic": who is free). See `Parallel`."""
        return self.then(Parallel(loop, sharing))

    def bind(self, loop: str, axis: str) -> Schedule:
        """Runs a loop on a GPU axis, block.x to thread.z. See `Bind`."""
        return self.then(Bind(loop, axis))

    def tensorize(self, *loops: str) -> Schedule:
        """Runs an innermost loop as a dot product, or three as products of matrices, of bytes or
        bf16. See `Tensorize`."""
        return self.then(Tensorize(loops))

    def compute_at(self, stage: str, loop: str) -> Schedule:
        """Computes what an iteration needs of a temporary just there. See `ComputeAt`."""
        return self.then(ComputeAt(stage, loop))

    def store_at(
        self, stage: str, loop: str | None = None, fold: Mapping[str, int] | None = None
    ) -> Schedule:
        """Keeps a stage's values over the iterations of loops inside `loop`. See `StoreAt`."""
        return self.then(StoreAt(stage, loop, None if fold is None else pairs(fold, {})))

    def compute_with(self, stage: str, other: str, loop: str) -> Schedule:
        """Joins the outer loops of two neighbouring nests. See `ComputeWith`."""
        return self.then(ComputeWith(stage, other, loop))

    def stage(
        self,
        tensor: str,
        at: str,
        scope: str = "stack",
        layout: tuple[str, ...] | None = None,
        double: bool = False,
    ) -> Schedule:
        """Keeps the tile of a tensor that loop `at` touches in a buffer there. See `Stage`."""
        return self.then(Stage(tensor, at, scope, layout, double))

    def rfactor(self, loop: str, into: str | None = None) -> Schedule:
        """Partial results for every iteration of a reduction's loop. See `Rfactor`."""
        return self.then(Rfactor(loop, into))

    def privatize(self, loop: str, copies: int | None = None) -> Schedule:
        """A reduction's loop in parallel, with private copies, combined after. See `Privatize`."""
        return self.then(Privatize(loop, copies))

    def atomic(self, target: str) -> Schedule:
        """Makes the updates of a stage, or under a loop, atomic. See `Atomic`."""
        return self.then(Atomic(target))

    def layout(self, tensor: str, *axes: str) -> Schedule:
        """The axes of a temporary's storage, outermost first. See `Layout`."""
        return self.then(Layout(tensor, axes))

    def pad(
        self, tensor: str, multiples: Mapping[str, int] | None = None, /, **named: int
    ) -> Schedule:
        """Extents of a temporary's storage rounded up: pad("t", j=16). See `Pad`."""
        return self.then(Pad(tensor, pairs(multiples, named)))

    def align(self, tensor: str, bytes: int) -> Schedule:
        """Aligns a temporary's storage to a power of two of bytes. See `Align`."""
        return self.then(Align(tensor, bytes))

    def stream(self, tensor: str) -> Schedule:
        """Stores to an output or temporary go past the caches. See `Stream`."""
        return self.then(Stream(tensor))

    def prefetch(self, tensor: str, loop: str, distance: int) -> Schedule:
        """Brings near what the iteration so much further on reads. See `Prefetch`."""
        return self.then(Prefetch(tensor, loop, distance))

    def inline(self, stage: str) -> Schedule:
        """Computes a pointwise temporary wherever it is read. See `Inline`."""
        return self.then(Inline(stage))

    def reverse(self, loop: str) -> Schedule:
        """Runs a loop from its last iteration to its first. See `Reverse`."""
        return self.then(Reverse(loop))

    def shift(self, stage: str, loop: str, n: int) -> Schedule:
        """Runs a stage n iterations later than the others in a loop. See `Shift`."""
        return self.then(Shift(stage, loop, n))

    def skew(self, inner: str, outer: str, factor: int = 1) -> Schedule:
        """Starts a loop later with every iteration of a loop around it. See `Skew`."""
        return self.then(Skew(inner, outer, factor))

    def specialize(self, condition: str) -> Schedule:
        """A version of the nest for sizes with a condition: "N % 8 == 0". See `Specialize`."""
        return self.then(Specialize(condition))

    def validate(self) -> None:
        """Checks the whole nest anew: dependences, concurrent loops, value flow."""
        validate(self.nest())

    # Text, files, comparison.

    @property
    def text(self) -> str:
        """The calls that made it: `.tile(i=8, j=48).reorder("io", "jo")`."""
        return "".join(f".{primitive.text}" for primitive in self.primitives)

    @staticmethod
    def parse(op: Op, text: str) -> Schedule:
        """The schedule that `text` makes; `ScheduleError` where it is not such text."""
        return _parsed(op, text)

    def call(self, name: str, *args: Any, **keywords: Any) -> Schedule:
        """One more primitive by its name, as replaying does."""
        method = getattr(self, name, None) if name in PRIMITIVES else None
        if method is None:
            known = ", ".join(sorted(PRIMITIVES))
            raise NoPrimitive(f"there is no primitive {name}; this version has {known}")
        try:
            made: Schedule = method(*args, **keywords)
        except TypeError as err:
            said = str(err).replace("Schedule.", "").removeprefix(f"{name}() ")
            raise ScheduleError(f"{name}: {said}") from None
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(sorted(PRIMITIVES))
        raise NoPrimitive(f"there is no primitive {name}; this version has {known}")

    def save(
        self,
        path: str | Path,
        sizes: Mapping[str, int] | None = None,
        figures: Mapping[str, str] | None = None,
    ) -> None:
        """Writes a schedule file; `sizes` and `figures` (such as gflops) stand in its header."""
        from .file import write

        write(self.op, self.primitives, Path(path), sizes or {}, figures or {})

    @staticmethod
    def load(op: Op, path: str | Path) -> Schedule:
        """The schedule in a file; `FileFormatError` where the file does not fit."""
        from .file import read

        return read(op, Path(path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.op == other.op and self.primitives == other.primitives

    def __hash__(self) -> int:
        return hash((self.op, self.primitives))

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, (self.op, self.primitives)

    def __str__(self) -> str:
        return show(self.nest())

    def __repr__(self) -> str:
        return f"<schedule of {self.op.name}: {self.text or 'as written'}>"

    def _repr_html_(self) -> str:
        return html(self.nest())


@lru_cache(maxsize=512)
def _parsed(op: Op, text: str) -> Schedule:
    """Remembered, because plans and the tuner replay the same texts again and again."""
    from .text import calls

    schedule = Schedule(op)
    for name, args, keywords in calls(text):
        schedule = schedule.call(name, *args, **keywords)
    return schedule


PRIMITIVES = {
    primitive.called: primitive
    for primitive in (
        Split,
        Tile,
        Fuse,
        Reorder,
        Vectorize,
        Unroll,
        Parallel,
        Bind,
        Tensorize,
        Stage,
        ComputeAt,
        StoreAt,
        ComputeWith,
        Inline,
        Rfactor,
        Privatize,
        Atomic,
        Layout,
        Pad,
        Align,
        Stream,
        Prefetch,
        Reverse,
        Shift,
        Skew,
        Specialize,
    )
}
"""Every primitive by the name of its method; names that are not here are refused."""
