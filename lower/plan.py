"""Execution plans: what the executor runs, with no planner loaded.

Block 0 says where: devices, replicas, communicators, arenas. Block 1 says what: launches, copies,
collectives, each with the places of its values; it is written once and every replica runs it. A
value lives in an arena at a fixed offset, in an argument, in a constant, or in an output array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..algo.graph.graph import ArrayType, Literal
from ..algo.tensor_expr.op import Op

ALIGN = 64  # bytes; every value in an arena starts at a multiple


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value lives. `home` is input, const, output (`index` says which) or arena (`offset`
    in bytes, in the arena of `device`). `type` is what one replica sees."""

    name: str
    type: ArrayType
    home: str
    index: int = 0
    offset: int = 0
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.name}@{self.offset}" if self.home == "arena" else self.name


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """An operator to compile: argument types, and its loop schedule as text (None: default)."""

    id: str
    op: Op
    types: tuple[ArrayType, ...]
    schedule: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """results = kernel(args). `again` marks a recomputation; `region` is for readers."""

    kernel: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    device: str = "cpu"
    again: bool = False
    region: str = "forward"


@dataclass(frozen=True, slots=True)
class Copy:
    """target = source, elsewhere."""

    source: str
    target: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Slice:
    """target = this replica's part of source along `dim`."""

    source: str
    target: str
    dim: int


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Every value becomes the reduction over all replicas, in place.

    The values lie side by side in the arena: `length` elements of one type from `offset` on.
    """

    values: tuple[str, ...]
    reducer: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class AllGather:
    """target = the parts of all replicas along `dim`."""

    source: str
    target: str
    dim: int
    reason: str = ""


Step = Launch | Copy | Slice | AllReduce | AllGather


@dataclass(frozen=True, slots=True)
class PlanInput:
    """An argument: the type of the whole array, and the axis along which replicas share it."""

    name: str
    type: ArrayType
    split: int | None = None


@dataclass(frozen=True, slots=True)
class PlanOutput:
    """A result: the slot that holds it, the whole type, the axis along which replicas hold it."""

    name: str
    slot: str
    type: ArrayType
    split: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A program ready to run. `arenas` are bytes by device, for each replica."""

    name: str
    replicas: int
    mesh: str
    arenas: Mapping[str, int]
    inputs: tuple[PlanInput, ...]
    literals: tuple[Literal, ...]
    outputs: tuple[PlanOutput, ...]
    slots: Mapping[str, Slot]
    kernels: Mapping[str, KernelSpec]
    steps: tuple[Step, ...]
    structure: Any = None

    @property
    def peak(self) -> int:
        """Bytes that one replica keeps for intermediate values."""
        return sum(self.arenas.values())

    @property
    def text(self) -> str:
        """All of the plan but `structure`, as text that `plan_parse.parse_plan` reads back."""
        from .plan_print import plan_text

        return plan_text(self)

    def __repr__(self) -> str:
        return f"<plan of {self.name}: {len(self.steps)} steps, {self.peak} bytes between them>"

    def __str__(self) -> str:
        from .plan_print import print_plan

        return print_plan(self)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"
