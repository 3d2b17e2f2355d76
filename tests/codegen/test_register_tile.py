"""A register tile of a matrix product: accumulators in registers, and only multiply-adds."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from codegen.levels import level
from diptych.codegen import host_code, jit
from diptych.codegen.emit import emit
from diptych.codegen.host import machine
from diptych.codegen.host_code import host_target
from diptych.lower.ir_parse import parse_function

LANES = machine().lanes(4)
ROWS, VECTORS = (8, 3) if machine().registers == 32 else (4, 2)
COLUMNS = VECTORS * LANES
K = 64


def tile(rows: int = ROWS) -> str:
    """C[r, v] += A[r, k] * B[k, v] in a register buffer, its loops unrolled."""
    cells = [(r, v * LANES) for r in range(rows) for v in range(VECTORS)]

    def each(pad: int, body: str) -> str:
        lines = []
        for r, first in cells:
            loop = f"for j{pad} in {first} .. {first + LANES} vector({LANES}):"
            lines += [" " * pad + loop, " " * (pad + 4) + body.format(r=r, j=f"j{pad}")]
        return "\n".join(lines)

    size = f"f32[{rows}, {COLUMNS}]"
    return f"""
function tile(A: param f32[{rows}, {K}] align 4, B: param f32[{K}, {COLUMNS}] align 4, C: param {size}):
    alloc acc: register {size}:
{each(8, "acc[{r}, {j}] = 0.0:f32")}
        for k in 0 .. {K}:
{each(12, "acc[{r}, {j}] sum= A[{r}, k] * B[k, {j}]")}
{each(8, "C[{r}, {j}] = acc[{r}, {j}]")}
"""  # noqa: E501


@pytest.mark.skipif("x86" not in host_code.host_target().triple, reason="reads x86 assembly")
@pytest.mark.skipif(not host_code.host_target().fma, reason="needs fused multiply-add")
def test_the_inner_loop_spills_nothing(native: Any) -> None:
    kernel = native(tile())
    asm = host_code.Source(kernel.emitted).asm
    blocks = re.split(r"^\.L\w+:.*$", asm, flags=re.MULTILINE)
    inner = max(blocks, key=lambda block: block.count("vfmadd"))
    body = inner.split("\n\tj")[0]  # up to the jump back
    assert body.count("vfmadd") % (ROWS * VECTORS) == 0 and "vfmadd" in body
    assert "rsp" not in body and "vmulps" not in body and "vaddps" not in body
    assert set(re.findall(r"\tv(\w+)", body)) <= {"fmadd231ps", "fmadd213ps", "fmadd132ps",
                                                  "broadcastss", "movups", "movaps"}  # fmt: skip


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_spilled_vectors_lie_in_one_cache_line(name: str) -> None:
    """Else how fast a kernel is depends on where its caller's stack happens to be."""
    target, compiler = level(name)
    emitted = emit(parse_function(tile(4 * ROWS)), target)
    with jit.LOCK:
        asm = compiler.emit_assembly(jit.optimize(str(emitted.module), compiler))
    spills = re.findall(r"\tv(mov\w+)\t%[yz]mm\d+, -?\d*\(%rsp\)", asm)
    assert set(spills) == {"movaps"}


def test_its_values(native: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((ROWS, K), np.float32), rng.random((K, COLUMNS), np.float32)
    c = np.zeros((ROWS, COLUMNS), np.float32)
    assert native(tile())(a, b, c) == 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_a_tile_within_a_block_is_staged_by_itself() -> None:
    """What a split of a split needs is its own block, not that of the split around it."""
    op = dt.op("y[i,j] = x[j,i]")
    schedule = (
        op.schedule()
        .split("i", 64, into=("ib", "ir"))
        .split("ir", 16, into=("io", "ii"))
        .split("j", 16)
        .reorder("ib", "jo", "io", "ii", "ji")
        .stage("x", at="io", scope="register")
    )
    x = np.random.default_rng(0).standard_normal((130, 200), np.float32)
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_array_equal(run(x), x.T)
    assert "register f32[16, 16]" in run.last.loop_ir


def test_a_product_is_added_in_one_instruction_in_partial_tiles_too() -> None:
    """Lanes of a tail are widened where they are turned; that is no reason to round twice."""
    if not (host_target().fma and host_target().avx512):
        pytest.skip("vectors of 512 bits and fused operations")
    op = dt.op("y[f,q] = sum(x[c,q] * w[f,c])")
    schedule = (
        op.schedule()
        .split("f", 32, into=("fo", "fi"))
        .split("q", 14, into=("qo", "qi"))
        .reorder("fo", "qo", "c", "qi", "fi")
        .stage("y", at="qo", scope="register", layout=("q", "f"))
        .unroll("y.qi")
        .unroll("y.init.qi")
        .vectorize("y.fi")
        .vectorize("y.init.fi")
        .reorder("y.store.fi", "y.store.qi")
        .unroll("y.store.fi")
        .vectorize("y.store.qi")
    )
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, s).astype(np.float32) for s in ((40, 28), (39, 40)))
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_array_equal(run(x, w), w @ x)
    assert "vmulps" not in run.last.asm
