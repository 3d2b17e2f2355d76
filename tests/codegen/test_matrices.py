"""Products of matrices by the matrix unit: the same integers everywhere, at all sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import diptych as dt
import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen.levels import V4
from codegen.test_dot import TYPES, numbers, product
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.codegen import emit_pieces, host, host_code, jit, kept, matrix_unit
from diptych.codegen.emit import emit
from diptych.lower.ir import For, walk
from diptych.lower.kernel import translate
from diptych.lower.passes import run
from diptych.lower.run import run as execute
from diptych.sched.loop.machine import Machine

MATMUL = dt.op("mm(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])")
HALVES = dt.op("mh(A: bf16[M, K], B: bf16[K, N]) -> C:\n  C[i,j] = sum(f32(A[i,k]) * B[k,j])")
UNIT = Machine(vector_bytes=64, registers=32, matrices=True)
LACKING = [
    Machine(vector_bytes=64, registers=32, dots=(4,)),
    Machine(vector_bytes=32, registers=16, pairs=True),
    Machine(vector_bytes=16, registers=32),
]


def blocks(op: Any = MATMUL, word: int = 4, rows: int = 32, columns: int = 32) -> Any:
    """The columns' operand packed in words, and blocks that stay in the unit along the sum."""
    layout = ("j//16", f"k//{word}", "j%16", f"k%{word}")
    return (
        op.schedule()
        .tile(i=rows, j=columns)
        .reorder("jo", "io", "k", "ii", "ji")
        .stage("B", at="jo", scope="heap", layout=layout)
        .stage("C", at="C.io", scope="stack")
        .tensorize("C.ii", "C.ji", "C.k")
    )


def lowered(made: Any, machine: Machine, *arrays: Any) -> Any:
    """The function of loop IR for a machine, each pass verified."""
    op = made.op
    types = {
        p.name: p.type.dtype or from_numpy(a.dtype) for p, a in zip(op.params, arrays, strict=True)
    }
    sizes = bind_sizes(check(op), {p.name: a.shape for p, a in zip(op.params, arrays, strict=True)})
    return run(translate(made.nest(types, sizes), "mm"), machine, check=True)


@pytest.mark.parametrize(
    "shape", [(32, 64, 32), (64, 200, 96), (37, 71, 53), (1, 5, 3), (33, 64, 16)]
)
@pytest.mark.parametrize("one", TYPES)
@pytest.mark.parametrize("two", TYPES)
def test_all_signs_and_sizes(one: Any, two: Any, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    m, k, n = shape
    a, b = numbers(rng, one, m, k), numbers(rng, two, k, n)
    made = blocks()
    np.testing.assert_array_equal(made(a, b), product(a, b))
    if host.machine().matrices:
        signs = "".join("u" if t is np.uint8 else "s" for t in (one, two))
        assert f"tdpb{signs}d" in made.source("asm")


def test_sums_wrap_around() -> None:
    """131,072 products of -128 by -128 are 2**31, one more than an i32 holds."""
    a = np.full((16, 1 << 17), -128, np.int8)
    b = np.full((1 << 17, 16), -128, np.int8)
    made = blocks(rows=16, columns=16)
    np.testing.assert_array_equal(made(a, b), np.full((16, 16), -(1 << 31), np.int32))


OPERATORS = [
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])", [(19, 70), (70, 37)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[j,k])", [(37, 70), (19, 70)]),
    ("f(A, B) -> C:\n  C[j,i] = sum(A[k,i] * B[k,j])", [(9, 35), (9, 18)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i+k] * B[k,j])", [(60,), (30, 33)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[2*i+k] * B[j]) where k in 0:6", [(40,), (33,)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A.zero[i+k-3] * B[k,j]) where i in 0:25", [(25,), (7, 33)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k,r] * B[r,k,j])", [(20, 5, 3), (3, 5, 34)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j]) where k <= i", [(20, 20), (20, 34)]),
    ("f(A, B) -> C:\n  C[b,i,j] = sum(A[b,i,k] * B[b,k,j])", [(2, 17, 9), (2, 9, 33)]),
]


def drawn(draw: random.Random, text: str) -> Any:
    """A schedule with blocks of random sizes, copies and orders."""
    op = dt.op(text)
    made = op.schedule()
    rows, columns = draw.choice([(16, 16), (32, 32), (5, 7), (16, 64), (64, 16), (20, 32)])
    made = made.tile(i=rows, j=columns)
    depth = ["k"]
    if draw.random() < 0.5:
        made = made.split("k", draw.choice([4, 64, 10]), tail=draw.choice(["guard", "separate"]))
        depth = ["ko", "ki"]
    outer = ["io", "jo"]
    draw.shuffle(outer)
    outer[:0] = ["b"] if "C[b" in text else []
    inner = [*(["r"] if "r]" in text else []), *depth]
    made = made.reorder(*outer, *inner, "ii", "ji")
    last = f"C.{inner[-1]}"
    if "k <= i" not in text:
        ends = [["C.ii", "C.ji", last], ["C.ii", last, "C.ji"], [last, "C.ii", "C.ji"]]
        made = made.reorder(*draw.choice(ends))
    if draw.random() < 0.7:
        made = made.stage("C", at=outer[-1], scope=draw.choice(["stack", "heap"]))
    for tensor in "AB":
        if draw.random() < 0.5:
            made = made.stage(tensor, at=draw.choice(outer), scope=draw.choice(["heap", "stack"]))
    if draw.random() < 0.3:
        made = made.parallel(outer[0])
    return made.tensorize("C.ii", "C.ji", last)


@pytest.mark.parametrize("seed", range(27))
def test_random_schedules(seed: int) -> None:
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    text, shapes = OPERATORS[seed % len(OPERATORS)]
    arrays = [numbers(rng, draw.choice(TYPES), *shape) for shape in shapes]
    made = drawn(draw, text)
    want = dt.interpret(made.op, *arrays)
    np.testing.assert_array_equal(made(*arrays), want, err_msg=made.text)


@pytest.mark.parametrize("machine", [UNIT, *LACKING])
@pytest.mark.parametrize("seed", range(9))
def test_loop_ir_is_exact(seed: int, machine: Machine) -> None:
    """What the pass writes means the same in the executor of loop IR, with the unit or without."""
    rng, draw = np.random.default_rng(seed), random.Random(100 + seed)
    text, shapes = OPERATORS[seed]
    arrays = [numbers(rng, draw.choice(TYPES), *shape) for shape in shapes]
    made = drawn(draw, text)
    function = lowered(made, machine, *arrays)
    kinds = {item.kind for item in walk(function.body) if isinstance(item, For)}
    assert ("matrix" in kinds) == (machine.matrices and "k <= i" not in text)
    want = dt.interpret(made.op, *arrays)
    got = np.zeros_like(want)
    execute(function, *arrays, got)
    np.testing.assert_array_equal(got, want, err_msg=made.text)


@pytest.fixture
def permission(monkeypatch: Any) -> Iterator[Callable[[bool], None]]:
    """Says whether the unit may be used, which keys of kept code know once a process."""

    def say(allowed: bool) -> None:
        monkeypatch.setattr(matrix_unit, "permitted", lambda: allowed)
        kept._processor.cache_clear()

    yield say
    monkeypatch.undo()
    kept._processor.cache_clear()


@pytest.mark.parametrize("seed", range(9))
def test_code_of_other_machines(seed: int, permission: Callable[[bool], None]) -> None:
    """A machine without the unit, or that refuses it, computes the same by other instructions."""
    rng, draw = np.random.default_rng(seed), random.Random(200 + seed)
    text, shapes = OPERATORS[seed]
    arrays = [numbers(rng, draw.choice(TYPES), *shape) for shape in shapes]
    made = drawn(draw, text)
    want = dt.interpret(made.op, *arrays)
    permission(False)
    np.testing.assert_array_equal(dt.Schedule.parse(made.op, made.text)(*arrays), want)


def test_permission_is_part_of_what_is_kept(permission: Callable[[bool], None]) -> None:
    """Code for the unit is not taken from the disk by a process that may not use it."""
    keys = []
    for allowed in (True, False, True):
        permission(allowed)
        keys.append(kept.object_key("a"))
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("two", TYPES)
@pytest.mark.parametrize("one", TYPES)
def test_code_for_the_unit(one: Any, two: Any, native: Any) -> None:
    """The instruction of each pair of types, in code for a machine that has it."""
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("x86-64's extension")
    rng = np.random.default_rng(3)
    a, b = numbers(rng, one, 37, 70), numbers(rng, two, 70, 40)
    asm = assembly(lowered(blocks(), UNIT, a, b))
    signs = "".join("u" if t is np.uint8 else "s" for t in (one, two))
    assert f"tdpb{signs}d" in asm
    assert asm.count("ldtilecfg") == asm.count("tilerelease") == 1


def unit() -> Any:
    """The emitter's view of a machine with the unit."""
    features = dict.fromkeys((*V4, *matrix_unit.FEATURES), True)
    return host_code.target_of(llvm.get_process_triple(), features)


def assembly(function: Any) -> str:
    more, emitted = matrix_unit.FEATURES, emit(function, unit())
    with jit.LOCK:
        compiler = jit.target_machine("x86-64-v4", ",".join(f"+{name}" for name in more))
        text: str = compiler.emit_assembly(jit.optimize(str(emitted.module), compiler))
    return text


def test_sums_stay_in_the_unit() -> None:
    """Over all loops around that only add to them: one load and store of a square for each."""
    op = dt.op("f(A, B) -> C:\n  C[i,j] = sum(A[i,r,k] * B[r,k,j])")
    layout = ("j//16", "r", "k//4", "j%16", "k%4")
    made = op.schedule().tile(i=32, j=32).reorder("io", "jo", "r", "k", "ii", "ji")
    made = made.stage("B", at="io", scope="heap", layout=layout)
    made = made.stage("C", at="C.jo", scope="stack").tensorize("C.ii", "C.ji", "C.k")
    a, b = np.zeros((32, 50, 64), np.int8), np.zeros((50, 64, 64), np.int8)
    emitted = str(emit(lowered(made, UNIT, a, b), unit()).module)
    counts = {n: emitted.count(f"llvm.x86.{n}") - 1 for n in ("tdpbssd", "tileloadd64")}
    assert counts == {"tdpbssd": 4, "tileloadd64": 4 + 4}


def test_many_threads_use_their_own_unit() -> None:
    rng = np.random.default_rng(5)
    made = (
        MATMUL.schedule()
        .tile(i=32, j=32)
        .reorder("io", "jo", "k", "ii", "ji")
        .stage("B", at="io", scope="heap", layout=("j//16", "k//4", "j%16", "k%4"))
        .tensorize("C.ii", "C.ji", "C.k")
        .parallel("C.io")
    )
    pairs = [(numbers(rng, np.int8, 200, 90), numbers(rng, np.uint8, 90, 70)) for _ in range(12)]
    with ThreadPoolExecutor(4) as threads:
        for (a, b), c in zip(pairs, threads.map(lambda pair: made(*pair), pairs), strict=True):
            np.testing.assert_array_equal(c, product(a, b))


def test_dynamic_sizes() -> None:
    op = dt.op(
        "mm(A: i8[M, K], B: i8[K, N]) -> C:\n  dynamic M <= 100\n  C[i,j] = sum(A[i,k] * B[k,j])"
    )
    rng = np.random.default_rng(6)
    made = blocks(op)
    b = numbers(rng, np.int8, 70, 40)
    for m in (100, 1, 33, 64, 0):
        a = numbers(rng, np.int8, m, 70)
        np.testing.assert_array_equal(made(a, b), product(a, b))


# bf16


def bits(values: Any) -> Any:
    """The nearest bf16, as its bits."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16)


def floats(raw: Any) -> Any:
    return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def dot_of_two() -> Any:
    layout = ("j//32", "k//2", "j%32", "k%2")
    return (
        HALVES.schedule()
        .split("k", 2)
        .tile(i=4, j=32)
        .reorder("jo", "io", "ko", "ii", "ji", "ki")
        .stage("B", at="jo", scope="heap", layout=layout)
        .stage("C", at="io", scope="register")
        .unroll("C.ii")
        .vectorize("C.ji")
        .tensorize("C.ki")
    )


BF16 = {"blocks": lambda: blocks(HALVES, 2), "dots": dot_of_two}


@pytest.mark.parametrize("name", BF16)
@pytest.mark.parametrize("shape", [(32, 64, 32), (37, 71, 53), (1, 5, 3)])
def test_bf16_within_the_bound_of_reassociation(name: str, shape: tuple[int, int, int]) -> None:
    """Products are exact in f32, and n additions in any order err by n eps sum |a b| at most."""
    rng = np.random.default_rng(7)
    m, k, n = shape
    made = BF16[name]()
    nan = np.full((m, k), 0x7FC0, np.uint16), np.full((k, n), 0x7FC0, np.uint16)
    assert np.isnan(made(*nan)).all()  # what memory holds beyond the sum's end must not matter
    a, b = bits(rng.standard_normal((m, k))), bits(rng.standard_normal((k, n)))
    bound = k * 2.0**-23 * (abs(floats(a)) @ abs(floats(b)))
    assert (abs(made(a, b) - floats(a) @ floats(b)) <= bound).all()
    machine = host.machine()
    if machine.matrices if name == "blocks" else 2 in machine.dots:
        assert "dpbf16ps" in made.source("asm")


@pytest.mark.parametrize("name", BF16)
def test_special_values_of_bf16(name: str) -> None:
    rng = np.random.default_rng(8)
    a, b = bits(rng.standard_normal((20, 40))), bits(rng.standard_normal((40, 20)))
    a[3, 7], a[4, 8], b[9, 5] = 0x7F80, 0x7FC0, 0xFF80  # inf, NaN, -inf
    with np.errstate(invalid="ignore"):
        want = floats(a) @ floats(b)
    got = BF16[name]()(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite])


def test_subnormal_bf16_is_taken_as_zero_only_where_it_was_asked_for() -> None:
    """The documented difference: by default they count, as IEEE 754 says."""
    a = np.full((16, 32), 0x0040, np.uint16)  # half of the least normal number
    b = bits(np.ones((32, 16)))
    exact = np.float32(32 * 2.0**-127)
    assert (HALVES(a, b) == exact).all()
    for name in BF16:
        assert set(np.unique(BF16[name]()(a, b))) <= {np.float32(0), exact}


def test_squares_stay_in_one_function(monkeypatch: Any) -> None:
    """Long rows of loops are cut into functions, and registers of the unit are not passed."""
    monkeypatch.setattr(emit_pieces, "PIECE", 3)
    rng = np.random.default_rng(9)
    a, b = numbers(rng, np.int8, 37, 71), numbers(rng, np.int8, 71, 53)
    made = blocks(dt.op("pieces(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])"))
    assert assembly(lowered(made, UNIT, a, b)).count("tdpbssd") > 4
    np.testing.assert_array_equal(made(a, b), product(a, b))
