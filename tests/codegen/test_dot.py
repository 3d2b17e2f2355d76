"""Dot products of bytes: the same integers everywhere, by the instruction where there is one."""

from __future__ import annotations

import random
from typing import Any

import diptych as dt
import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen.levels import V3, V4
from diptych.algo.dtypes import from_numpy
from diptych.codegen import host, host_code, jit
from diptych.codegen.emit import emit
from diptych.lower.ir import For, walk
from diptych.lower.ir_print import print_function
from diptych.lower.kernel import translate
from diptych.lower.passes import run
from diptych.lower.run import run as execute
from diptych.sched.loop.machine import Machine

TYPES = (np.int8, np.uint8)
MATMUL = dt.op("mm(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])")
EXTREMES = {np.int8: (-128, 127), np.uint8: (0, 255)}


def packed(tail: str = "guard") -> Any:
    """Both operands packed in words of four, a register tile of 3 by 32 cells."""
    return (
        MATMUL.schedule()
        .split("k", 4, tail=tail)
        .tile(i=3, j=32)
        .reorder("jo", "io", "ko", "ii", "ji", "ki")
        .stage("B", at="jo", scope="heap", layout=("j//32", "k//4", "j%32", "k%4"))
        .stage("A", at="io", layout=("k//4", "i", "k%4"))
        .stage("C", at="io", scope="register")
        .unroll("C.ii")
        .vectorize("C.ji")
        .tensorize("C.ki")
    )


def numbers(rng: Any, dtype: Any, *shape: int) -> Any:
    """Bytes of all sizes, the least and the greatest often."""
    low, high = EXTREMES[dtype]
    made = rng.integers(low, high, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.3, rng.choice([low, high], shape), made).astype(dtype)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.int64) @ b.astype(np.int64)


@pytest.mark.parametrize(
    ("one", "two", "tail"),
    [*((one, two, "guard") for one in TYPES for two in TYPES), (np.int8, np.int8, "separate")],
)
def test_all_signs_and_tails(one: Any, two: Any, tail: str) -> None:
    rng = np.random.default_rng(0)
    made = packed(tail)
    for m, k, n in (6, 16, 32), (7, 13, 45):
        a, b = numbers(rng, one, m, k), numbers(rng, two, k, n)
        np.testing.assert_array_equal(made(a, b), product(a, b))
    if 4 in host.machine().dots:
        assert "vpdpbusd" in made.source("asm")


def lowered(a: Any, b: Any, machine: Machine) -> Any:
    """The function of loop IR for a machine, each pass verified."""
    types = {"A": from_numpy(a.dtype), "B": from_numpy(b.dtype)}
    sizes = {"I": a.shape[0], "K": a.shape[1], "J": b.shape[1]}
    return run(translate(packed().nest(types, sizes), "mm"), machine, check=True)


@pytest.mark.parametrize("dots", [True, False])
@pytest.mark.parametrize("two", TYPES)
@pytest.mark.parametrize("one", TYPES)
def test_loop_ir_is_exact(one: Any, two: Any, dots: bool) -> None:
    """What the pass writes means the same in the executor of loop IR, with dot loops or without."""
    rng = np.random.default_rng(1)
    a, b = numbers(rng, one, 4, 10), numbers(rng, two, 10, 33)
    function = lowered(a, b, Machine(dots=(4,) if dots else ()))
    kinds = {item.kind for item in walk(function.body) if isinstance(item, For)}
    assert ("dot" in kinds) == dots
    c = np.zeros((4, 33), np.int32)
    execute(function, a, b, c)
    np.testing.assert_array_equal(c, product(a, b))


def test_packing_flips_and_rows_share_what_it_adds() -> None:
    """A is packed as u8, and three rows meet one sum of the columns of B for each vector."""
    rng = np.random.default_rng(2)
    a, b = numbers(rng, np.int8, 3, 8), numbers(rng, np.int8, 8, 32)
    text = print_function(lowered(a, b, Machine(vector_bytes=64, registers=32, dots=(4,))))
    assert "A.stack: stack u8" in text
    assert "B.heap: heap i8" in text or "B.heap: stack i8" in text
    assert text.count(" dot:") == 2 * (3 + 1)


MACHINES = {
    "x86-64-v3": (V3, 32, ""),
    "AVX-VNNI": ((*V3, "avxvnni"), 32, "+avxvnni"),
    "AVX-512 VNNI": ((*V4, "avx512vnni"), 64, "+avx512vnni"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_code_for_machines(name: str, native: Any) -> None:
    """The instruction is used where it is known to exist, and nowhere else; LLVM takes the code."""
    features, width, more = MACHINES[name]
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("x86-64's extensions")
    rng = np.random.default_rng(3)
    a, b = numbers(rng, np.int8, 6, 19), numbers(rng, np.int8, 19, 40)
    machine = Machine(vector_bytes=width, registers=16, dots=(4,) if more else ())
    target = host_code.target_of(llvm.get_process_triple(), dict.fromkeys(features, True))
    assert bool(target.dots) == bool(more)
    emitted = emit(lowered(a, b, machine), target)
    level = "x86-64-v4" if width == 64 else "x86-64-v3"
    with jit.LOCK:
        compiler = jit.target_machine(level, more)
        asm = compiler.emit_assembly(jit.optimize(str(emitted.module), compiler))
    assert ("vpdpbusd" in asm) == bool(more)


OPERATORS = [
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])", ("i", "j"), [(9, 14), (14, 37)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i,k] * B[j,k])", ("i", "j"), [(5, 23), (18, 23)]),
    ("f(A, B) -> C:\n  C[j,i] = sum(A[k,i] * B[k,j])", ("i", "j"), [(23, 5), (23, 18)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[i+k] * B[k,j])", ("i", "j"), [(25,), (9, 33)]),
    ("f(A, B) -> C:\n  C[i,j] = sum(A[2*i+k] * B[j])", ("i", "j"), [(40,), (33,)]),
    (
        "f(A, B) -> C:\n  C[i,j] = sum(A.zero[i+k-3] * B[k,j]) where i in 0:25",
        ("i", "j"),
        [(25,), (7, 33)],
    ),
]


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules(seed: int) -> None:
    """Other operators, orders, tiles, layouts and types than a product of matrices is fast with."""
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    text, (i, j), shapes = OPERATORS[seed % len(OPERATORS)]
    if "B[j])" in text:
        text = text.replace("B[j])", "B[j]) where k in 0:6")
    op = dt.op(text)
    arrays = [numbers(rng, draw.choice(TYPES), *shape) for shape in shapes]
    height, width = draw.choice([1, 2, 5]), draw.choice([4, 8, 16, 24])
    made = op.schedule().split("k", 4, tail=draw.choice(["guard", "separate"]))
    made = made.tile({i: height, j: width})
    outer = [f"{i}o", f"{j}o"]
    draw.shuffle(outer)
    inner = draw.choice(
        [("ko", "ii", "ji", "ki"), ("ii", "ji", "ko", "ki"), ("ii", "ko", "ji", "ki")]
    )
    made = made.reorder(*outer, *inner)
    if draw.random() < 0.7:
        made = made.stage("C", at=outer[1], scope="register")
    for tensor in "AB":
        if draw.random() < 0.5:
            made = made.stage(tensor, at=draw.choice(outer), scope=draw.choice(["heap", "stack"]))
    if draw.random() < 0.5:
        made = made.unroll("C.ii")
    if draw.random() < 0.8:
        made = made.vectorize("C.ji")
    made = made.tensorize("C.ki")
    want = dt.interpret(op, *arrays)
    np.testing.assert_array_equal(made(*arrays), want, err_msg=made.text)


def test_a_flipped_factor_that_is_not_packed() -> None:
    """LLVM 22 never ends on the exclusive or of a word that was copied into all lanes before."""
    rng = np.random.default_rng(4)
    a, b = numbers(rng, np.int8, 5, 22), numbers(rng, np.int8, 22, 19)
    made = MATMUL.schedule().split("k", 4).tile(i=2, j=16)
    made = made.reorder("io", "jo", "ko", "ii", "ji", "ki")
    made = made.stage("C", at="io", scope="register").vectorize("C.ji").tensorize("C.ki")
    np.testing.assert_array_equal(made(a, b), product(a, b))
