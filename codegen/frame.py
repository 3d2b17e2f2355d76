"""The state of emission: the module, and the LLVM function that is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import llvmlite.ir as ir

from ..algo.dtypes import i64
from ..algo.tensor_expr.expr import Expr
from ..lower.ir import Buffer, Stmt
from .target import Target
from .values import (
    I1,
    I8,
    I32,
    I64,
    Value,
    constant,
    is_vector,
    lanes_of,
    memory_type,
)
from .workspace import ALIGN, PADDING, Workspace, cells, size_in_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A buffer's memory. `lanes` > 1: every lane has a copy, lanes innermost.

    `own`: no other thread sees it, and there is padding behind it.
    """

    buffer: Buffer
    pointer: ir.Value
    lanes: int = 1
    own: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """The active lanes. `some` says that there is one for certain, `count` that they are so many
    first ones, or all where it is more."""

    llvm: ir.Value
    some: bool
    count: ir.Value | None = None

    @property
    def first(self) -> int | None:
        """How many the first lanes are, where that is known."""
        return self.count.constant if isinstance(self.count, ir.Constant) else None


@dataclass(slots=True, eq=False)
class Unit:
    """The LLVM module under construction and what is shared by its functions.

    `sites` describes the checked data-dependent accesses: status n is sites[n - 1]. `narrow`
    counts lanes, see `emit_lanes`.
    """

    module: ir.Module
    target: Target
    noalias: bool
    workspace: Workspace
    sites: list[str] = field(default_factory=list)
    functions: dict[tuple[Any, ...], ir.Function] = field(default_factory=dict)
    scopes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    parallel: bool = False
    streams: bool = False
    matrices: frozenset[Stmt] = frozenset()
    narrow: int = 0

    def intrinsic(self, name: str, result: ir.Type, args: list[ir.Type]) -> ir.Function:
        """A declaration, made once."""
        key = ("intrinsic", name)
        if key not in self.functions:
            self.functions[key] = ir.Function(self.module, ir.FunctionType(result, args), name)
        return self.functions[key]

    def distinguish(self, buffers: Mapping[str, Mapping[str, None]]) -> None:
        """Makes the alias scopes: a buffer overlaps none of those that are used with it."""
        add = self.module.add_metadata
        domain = add([self.module.name])
        scope = {name: add([name, domain]) for name in buffers}
        for name in buffers:
            others = add([scope[other] for other in buffers[name] if other != name])
            self.scopes[name] = (add([scope[name]]), others)


class Frame:
    """Emission of one LLVM function. `lanes` and `mask` are those of the vector loop around.

    `tiles` are the registers of the matrix unit that buffers live in, `configured` says that they
    may be used, `crowded` that many loops stand in a row in lanes. `heap` is where this function's
    part of the workspace starts and `status` the cell for a failed check; `pool` is None inside a
    parallel loop, where another runs serially.
    """

    def __init__(self, unit: Unit, fn: ir.Function) -> None:
        self.unit = unit
        self.target = unit.target
        self.fn = fn
        self.entry = fn.append_basic_block("entry")
        self.ib = ir.IRBuilder(fn.append_basic_block("start"))
        self.vars: dict[str, Value] = {}
        self.buffers: dict[str, Storage] = {}
        self.crowded = False
        self.heap: ir.Value | None = None
        self.status: ir.Value | None = None
        self.pool: ir.Value | None = None
        self.lanes = 1
        self.mask: Mask | None = None
        self.flags: tuple[str, ...] = ()
        self.memo: dict[Expr, Value] = {}
        self.tiles: dict[str, int] = {}
        self.configured = False
        self._nowhere: ir.Value | None = None
        self._rounds: dict[Storage, tuple[ir.Block, dict[Any, ir.Value]]] = {}

    def close(self) -> None:
        """Ends the entry block, which holds the stack allocations.

        LLVM learns too late for it to align the stack that vectors are spilled.
        """
        ir.IRBuilder(self.entry).branch(self.fn.blocks[1])
        instructions = (item for block in self.fn.blocks for item in block.instructions)
        if self.target.stack and any(map(is_vector, instructions)):
            self.fn.attributes.add("nounwind")  # llvmlite prints no alignment that stands alone
            self.fn.attributes.alignstack = self.target.stack

    # Scopes

    @contextmanager
    def bound(self, var: str, value: Value) -> Iterator[None]:
        """Within: `var` has that value. Names are unique in a function, so nothing is hidden."""
        self.vars[var] = value
        try:
            yield
        finally:
            del self.vars[var]

    @contextmanager
    def allocated(self, buffers: Iterable[Buffer]) -> Iterator[None]:
        """Within: the buffers live, one copy a lane inside a vector loop."""
        tiles = [buffer.name for buffer in buffers if buffer.scope == "tile"]
        self.tiles.update((name, n) for n, name in enumerate(tiles))
        own = {buffer.name: self._storage(buffer) for buffer in buffers}
        self.buffers.update(own)
        try:
            yield
        finally:
            for name in own:
                del self.buffers[name]
            for name in tiles:
                del self.tiles[name]

    def _storage(self, buffer: Buffer) -> Storage:
        if buffer.scope == "tile":
            return Storage(buffer, ir.PointerType()(None))
        if self.target.in_workspace(buffer, size_in_bytes(buffer, self.lanes)):
            offset = I64(self.unit.workspace.offsets[self.pool is None][buffer.name])
            pointer = self.ib.gep(self.heap, [offset], inbounds=True, source_etype=I8)
            if buffer.align > ALIGN:
                short = self.ib.sub(I64(0), self.ib.ptrtoint(pointer, I64))
                skip = self.ib.and_(short, I64(buffer.align - 1))
                pointer = self.ib.gep(pointer, [skip], inbounds=True, source_etype=I8)
        else:
            pointer = self.target.allocate(self, buffer, cells(buffer) * self.lanes + PADDING)
        own = buffer.scope in ("register", "stack", "local")
        return Storage(buffer, pointer, self.lanes, own)

    def rounds(self, storage: Storage) -> dict[Any, ir.Value]:
        """What was read and shuffled of a buffer in this block, since it was last written."""
        block, known = self._rounds.get(storage, (None, {}))
        if block is not self.ib.block:
            known = {}
            self._rounds[storage] = self.ib.block, known
        return known

    def written(self, storage: Storage) -> None:
        """From here on, what was read of a buffer may no longer be in it."""
        self._rounds.pop(storage, None)

    # Values

    def scalar(self, value: Value) -> ir.Value:
        """The value as one LLVM scalar; it must be the same in all lanes."""
        assert not value.varies
        if value.dtype is not i64:
            return value.llvm
        return self._biased(value)

    def _biased(self, value: Value) -> ir.Value:
        if value.llvm is None:
            return constant(I64, _wrap(value.bias))
        return self.ib.add(value.llvm, I64(_wrap(value.bias))) if value.bias else value.llvm

    def vector(self, value: Value) -> ir.Value:
        """The value as an LLVM vector, or a scalar outside vector loops."""
        if self.lanes == 1:
            return self.scalar(value)
        if value.llvm is not None and is_vector(value.llvm):
            if value.dtype is i64 and value.llvm.type.element == I32:
                return self.ib.sext(value.llvm, ir.VectorType(I64, self.lanes))
            return value.llvm
        if value.dtype is not i64:
            return self.splat(value.llvm)
        steps = ir.Constant(
            ir.VectorType(I64, self.lanes),
            [_wrap(value.bias + value.step * lane) for lane in range(self.lanes)],
        )
        if value.llvm is None:
            return steps
        wide = self.splat(value.llvm)
        return self.ib.add(wide, steps) if value.bias or value.step else wide

    def splat(self, scalar: ir.Value) -> ir.Value:
        """The scalar in every lane."""
        if self.lanes == 1:
            return scalar
        if isinstance(scalar, ir.Constant):
            return ir.Constant(ir.VectorType(scalar.type, self.lanes), [scalar] * self.lanes)
        vec = ir.VectorType(scalar.type, self.lanes)
        one = self.ib.insert_element(vec(ir.Undefined), scalar, I32(0))
        return self.ib.shuffle_vector(one, vec(ir.Undefined), ir.VectorType(I32, self.lanes)(None))

    # Memory of the function

    def stack(self, typ: ir.Type, name: str, align: int | None = None) -> ir.Value:
        """Stack memory in the entry block, so that LLVM may promote it to registers."""
        memory = ir.IRBuilder(self.entry).alloca(typ, name=name)
        memory.align = align
        memory.type = ir.PointerType()  # llvmlite still says a typed pointer here
        return memory

    def alloca(self, buffer: Buffer, count: int) -> ir.Value:
        """Stack memory for `count` elements of a buffer.

        LLVM 22 puts the vector that the one load of an alloca reads where the last of its stores
        by address is, before what comes later; one whose life begins somewhere it leaves alone.
        """
        array = ir.ArrayType(memory_type(buffer.dtype), count)
        memory = self.stack(array, buffer.name, max(64, buffer.align))
        begin = self.unit.intrinsic("llvm.lifetime.start.p0", ir.VoidType(), [I64, memory.type])
        ir.IRBuilder(self.entry).call(begin, [I64(-1), memory])
        return memory

    def nowhere(self, pointer: ir.PointerType) -> ir.Value:
        """An address that may be read when no lane is active: a 0 is there. It means nothing, but
        code may branch on it, which undefined memory would make undefined behaviour."""
        if self._nowhere is None:
            self._nowhere = self.stack(I64, "nowhere", 64)
            ir.IRBuilder(self.entry).store(I64(0), self._nowhere, align=8)
        return self._nowhere

    def report(self, number: ir.Value) -> None:
        """A check has failed."""
        self.target.report(self, number)

    # Control flow

    def block(self, name: str) -> ir.Block:
        """A new basic block."""
        return self.fn.append_basic_block(name)

    def if_else(
        self, cond: ir.Value, then: Callable[[], None], orelse: Callable[[], None] | None = None
    ) -> None:
        """Control flow on a scalar condition."""
        yes, after = self.block("then"), self.block("endif")
        no = self.block("else") if orelse is not None else after
        self.ib.cbranch(cond, yes, no)
        self.ib.position_at_end(yes)
        then()
        self.ib.branch(after)
        if orelse is not None:
            self.ib.position_at_end(no)
            orelse()
            self.ib.branch(after)
        self.ib.position_at_end(after)

    @contextmanager
    def masked(self, mask: Mask | None) -> Iterator[None]:
        """Within: other active lanes."""
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    @contextmanager
    def fresh_memo(self, inherit: bool = False) -> Iterator[None]:
        """Within: a memo of its own, for code that does not dominate what follows."""
        before = self.memo
        self.memo = dict(before) if inherit else {}
        try:
            yield
        finally:
            self.memo = before

    # Masks

    def any(self, lanes: ir.Value) -> ir.Value:
        """Is some lane of a vector of i1 (or the scalar itself) true?"""
        if not is_vector(lanes):
            return lanes
        bits = ir.IntType(lanes_of(lanes))
        return self.ib.icmp_unsigned("!=", self.ib.bitcast(lanes, bits), bits(0))

    def narrow(self, cond: ir.Value) -> ir.Value:
        """The active lanes in which `cond` holds; poison of inactive lanes stays out."""
        if self.mask is None:
            return cond
        return self.ib.select(self.mask.llvm, cond, constant(I1, 0, self.lanes))


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
