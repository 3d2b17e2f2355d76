"""Blocks of products of matrices in vector registers, on every level of x86-64."""

from __future__ import annotations

import random
import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from codegen.levels import LEVELS, level
from codegen.test_dot import TYPES, numbers, packed, product
from codegen.test_matrices import (
    HALVES,
    MATMUL,
    OPERATORS,
    bits,
    blocks,
    drawn,
    floats,
    lowered,
)
from diptych.codegen import jit
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.sched.loop.machine import Machine

MACHINES = {
    "x86-64": Machine(vector_bytes=16, registers=16, pairs=True),
    "x86-64-v2": Machine(vector_bytes=16, registers=16, pairs=True),
    "x86-64-v3": Machine(vector_bytes=32, registers=16, pairs=True),
    "x86-64-v4": Machine(vector_bytes=64, registers=32, pairs=True),
}
PRODUCT = re.compile(r"pmaddwd|fmadd|mulps")


@pytest.fixture(params=LEVELS)
def built(request: pytest.FixtureRequest, native: Any) -> Any:
    """Compiles a schedule for a level and the types of arrays."""
    target, compiler = level(request.param)

    def build(made: Any, *arrays: Any) -> Any:
        kernel = native(lowered(made, MACHINES[request.param], *arrays), target, compiler)
        assert undefined_symbols(kernel.object) <= ALLOWED
        return kernel

    return build


@pytest.mark.parametrize("two", TYPES)
@pytest.mark.parametrize("one", TYPES)
def test_bytes_of_all_signs(built: Any, one: Any, two: Any) -> None:
    """By blocks and by dot products, at extents that nothing divides."""
    rng = np.random.default_rng(0)
    for made, (m, k, n) in ((blocks(), (33, 70, 37)), (packed(), (7, 3, 5))):
        a, b = numbers(rng, one, m, k), numbers(rng, two, k, n)
        got = np.zeros((m, n), np.int32)
        assert built(made, a, b)(a, b, got) == 0
        np.testing.assert_array_equal(got, product(a, b), err_msg=made.text)


@pytest.mark.parametrize("seed", range(0, len(OPERATORS), 2))
def test_random_schedules(built: Any, seed: int) -> None:
    """Operands that lie in all manners, borders, and sums over several loops."""
    rng, draw = np.random.default_rng(seed), random.Random(300 + seed)
    text, shapes = OPERATORS[seed]
    arrays = [numbers(rng, draw.choice(TYPES), *shape) for shape in shapes]
    made = drawn(draw, text)
    want = dt.interpret(made.op, *arrays)
    got = np.zeros_like(want)
    assert built(made, *arrays)(*arrays, got) == 0
    np.testing.assert_array_equal(got, want, err_msg=made.text)


def test_bf16_is_exact_where_sums_are(built: Any) -> None:
    """Whole numbers have exact sums; subnormal ones count, as they are multiplied as f32."""
    rng = np.random.default_rng(1)
    for m, k, n in ((33, 71, 37), (7, 3, 5)):
        a, b = (bits(rng.integers(-9, 10, shape)) for shape in ((m, k), (k, n)))
        a[0] = 0x0040  # half of the least normal number
        got = np.zeros((m, n), np.float32)
        assert built(blocks(HALVES, 2), a, b)(a, b, got) == 0
        np.testing.assert_array_equal(got, floats(a) @ floats(b))


@pytest.mark.parametrize("name", ["bytes", "bf16"])
def test_sums_stay_in_registers(built: Any, name: str) -> None:
    """The loop that multiplies neither loads nor stores vectors on the stack."""
    op, word, dtype = {"bytes": (MATMUL, 4, np.int8), "bf16": (HALVES, 2, np.uint16)}[name]
    layout = ("i//16", f"k//{16 * word}", "i%16", f"k%{16 * word}")
    made = blocks(op, word).stage("A", at="C.io", scope="heap", layout=layout)
    kernel = built(made, np.zeros((64, 256), dtype), np.zeros((256, 64), dtype))
    inner = innermost(kernel)
    products = [line for line in inner if PRODUCT.search(line)]
    spilled = [line for line in inner if "(%rsp)" in line or "(%rbp)" in line]
    assert len(products) >= 8
    assert not [line for line in spilled if "mm" in line], "\n".join(inner)


def innermost(kernel: Any) -> list[str]:
    """The instructions of the loop with the most products."""
    with jit.LOCK:
        text = kernel.compiler.emit_assembly(jit.optimize(kernel.text, kernel.compiler))
    found: list[str] = []
    for part in re.split(r"^\.L", text, flags=re.MULTILINE):
        label, _, body = part.partition(":")
        lines = body.splitlines()
        ends = [n for n, line in enumerate(lines) if re.search(rf"\sj\w+\s+\.L{label}$", line)]
        loop = lines[: ends[-1]] if ends else []
        found = max(found, loop, key=lambda lines: sum(map(bool, map(PRODUCT.search, lines))))
    return found
