"""Matrix loops: squares go to the registers of the matrix unit, and back (x86's AMX).

What loop IR says of a square is one instruction: zeros, a load, a store, or a product of 16 rows
of 16 words by 16 rows of 16 words that is added to it. The unit has eight registers: four squares
of sums, and two for each factor. All are configured for whole squares, once around the outermost
loop in which no thread works for another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import llvmlite.ir as ir

from ..algo.dtypes import DType, bf16, i64, u8
from ..algo.errors import InternalError
from ..algo.tensor_expr.expr import Access, Expr, indices_of
from ..algo.tensor_expr.types import dtype_of
from ..lower.ir import Alloc, Block, For, Function, Stmt, Store, Update, children
from ..sched.loop.dot import factors
from ..sched.loop.nest import PARALLEL
from ..sched.loop.tensorize import ACCUMULATORS, SIDE
from .emit_address import offset_of, pointer_to
from .emit_expr import value
from .frame import Frame
from .target import Target
from .values import I8, I64, VOID, Value

WORD = 4  # bytes
LEFT, RIGHT = (ACCUMULATORS, ACCUMULATORS + 1), (ACCUMULATORS + 2, ACCUMULATORS + 3)
"""The registers of the factors."""


def places(function: Function, target: Target) -> frozenset[Stmt]:
    """The outermost statements that use the matrix unit and share out no loop to threads."""
    found: set[Stmt] = set()
    kinds: dict[Stmt, tuple[bool, bool]] = {}

    def uses(stmt: Stmt) -> tuple[bool, bool]:
        """Does it use the unit, and is a loop in it shared out?"""
        if stmt not in kinds:
            inner = [uses(child) for child in children(stmt)]
            tiles = isinstance(stmt, Alloc) and stmt.scope == "tile"
            shared = isinstance(stmt, For) and stmt.kind in PARALLEL and target.parallel
            kinds[stmt] = (
                tiles or any(part[0] for part in inner),
                shared or any(part[1] for part in inner),
            )
        return kinds[stmt]

    def visit(stmt: Stmt) -> None:
        tiles, shared = uses(stmt)
        if tiles and not shared:
            found.add(stmt)
        elif tiles:
            for child in children(stmt):
                visit(child)

    visit(function.body)
    return frozenset(found)


def configured(f: Frame, emit: Callable[[], None]) -> None:
    """Emits statements with the unit's registers configured."""
    name = "matrix.squares"
    shapes = [1, 0, *[0] * 14]  # palette 1, from the first row on
    rows = [SIDE] * 8 + [0] * 8
    widths = [part for _ in range(8) for part in (SIDE * WORD, 0)] + [0] * 16
    bytes_ = ir.ArrayType(I8, 64)
    table = f.unit.module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(f.unit.module, bytes_, name)
        table.initializer = ir.Constant(bytes_, [*shapes, *widths, *rows])
        table.global_constant, table.linkage, table.align = True, "internal", 64
    pointer = ir.PointerType()
    config = f.unit.intrinsic("llvm.x86.ldtilecfg", VOID, [pointer])
    f.configured = True
    f.ib.call(config, [f.ib.gep(table, [I64(0)], source_etype=I8)])
    emit()
    f.ib.call(f.unit.intrinsic("llvm.x86.tilerelease", VOID, []), [])
    f.configured = False


def square(f: Frame, loop: For) -> None:
    """Emits matrix loops."""
    loops = [loop]
    while isinstance(loops[-1].body, For):
        loops.append(loops[-1].body)
    body = loops[-1].body
    lefts, rights = _Factors(LEFT), _Factors(RIGHT)
    names = [item.var for item in loops]
    for number, stmt in enumerate(body.stmts if isinstance(body, Block) else (body,)):
        match stmt:
            case Store(name, _, Access(source, index)) if name in f.tiles:
                _move(f, "load", f.tiles[name], Access(source, index), names, names[0])
            case Store(name, _, _) if name in f.tiles:
                f.ib.call(f.unit.intrinsic("llvm.x86.tilezero", VOID, [I8]), [I8(f.tiles[name])])
            case Store(name, index, Access(tile)) if tile in f.tiles:
                _move(f, "store", f.tiles[tile], Access(name, index), names, names[0])
            case Update(name, _, "sum", expr) if name in f.tiles:
                _multiply(f, f.tiles[name], expr, names, lefts, rights)
            case _:
                raise InternalError(f"no square of the matrix unit: {stmt!r} ({number})")


class _Factors:
    """Which squares the registers of a factor hold; the one that was used last is at the end."""

    def __init__(self, registers: tuple[int, ...]) -> None:
        self.held: dict[int, Expr | None] = dict.fromkeys(registers)

    def take(self, square: Expr) -> tuple[int, bool]:
        """The register for a square, and whether it is there already."""
        found = next((n for n, held in self.held.items() if held is square), None)
        register = next(iter(self.held)) if found is None else found
        del self.held[register]
        self.held[register] = square
        return register, found is not None


def _multiply(
    f: Frame, total: int, expr: Expr, names: list[str], lefts: _Factors, rights: _Factors
) -> None:
    """Adds a product of squares, whose factors are loaded unless they are there."""
    row, column, word, _ = names
    types = {name: storage.buffer.dtype for name, storage in f.buffers.items()}
    found = factors(expr, types)
    if found is None:
        raise InternalError(f"no product of the matrix unit: {expr!r}")
    # Of one row the left factor may be read where it lies, and its cells say nothing of rows.
    left, right = sorted(found, key=lambda factor: column in indices_of(factor))
    registers = []
    for factor, choice, along in ((left, lefts, row), (right, rights, word)):
        register, there = choice.take(factor)
        if not there:
            _move(f, "load", register, factor, names, along)
        registers.append(register)
    name = _instruction(dtype_of(left, types), dtype_of(right, types))
    fn = f.unit.intrinsic(f"llvm.x86.{name}", VOID, [I8, I8, I8])
    f.ib.call(fn, [I8(n) for n in (total, *registers)])


def _instruction(left: DType, right: DType) -> str:
    if left is bf16:
        return "tdpbf16ps"
    signs = "".join("u" if dtype is u8 else "s" for dtype in (left, right))
    return f"tdpb{signs}d"


def _move(f: Frame, what: str, register: int, cell: Expr, names: list[str], along: str) -> None:
    """Loads or stores a square whose rows lie at equal distances along a variable."""
    if not isinstance(cell, Access):
        raise InternalError(f"no square in memory: {cell!r}")
    storage = f.buffers[cell.tensor]

    def offset(row: int) -> Value:
        with ExitStack() as stack:
            stack.enter_context(f.fresh_memo())
            for name in names:
                at = row if name == along else 0
                stack.enter_context(f.bound(name, Value(i64, None, at, span=(at, at))))
            return offset_of(f, storage, tuple(value(f, i) for i in cell.indices))

    first, second = offset(0), offset(1)
    size = storage.buffer.dtype.itemsize
    if first.llvm is second.llvm:
        stride: ir.Value = I64((second.bias - first.bias) * size)
    else:
        stride = f.ib.mul(f.ib.sub(f.scalar(second), f.scalar(first)), I64(size))
    pointer = pointer_to(f, storage, first)
    fn = f.unit.intrinsic(f"llvm.x86.tile{what}d64", VOID, [I8, pointer.type, I64])
    f.ib.call(fn, [I8(register), pointer, stride])
