"""The last, partial vector: no lane is handled alone, on machines with and without masks."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import host_code, jit
from diptych.codegen.target import Target

from .test_emit import agree

ROWS = """
function rows(n: param i64[], x: param T[5, 64] align A, y: param T[5, 63] align A):
    let end = min(max(n[], 0), LANES):
        for r in 0 .. 5:
            for i in 0 .. BOUND vector(LANES):
                y[r, i] = x[r, i + 1] + x[r, i]
"""
LEVELS = {"masks": ("", 1), "some masks": ("haswell", 4), "no masks": ("x86-64", 0)}


def kernel(native: Any, level: str, dtype: str, lanes: int, bound: str) -> Any:
    cpu, masks = LEVELS[level]
    host = host_code.host_target()
    if cpu and not host.triple.startswith("x86_64"):
        pytest.skip("levels of x86")
    if masks == 4 and not jit.host_features().get("avx2"):
        pytest.skip("this processor has no AVX2")
    text = ROWS.replace("BOUND", bound).replace("LANES", str(lanes)).replace("T[", f"{dtype}[")
    size = {"u8": 1, "i16": 2, "f32": 4, "f64": 8}[dtype]
    target = host if not cpu else Target(host.triple, fma=False, rounding=False, masks=masks)
    machine = jit.target_machine(cpu, "") if cpu else None
    return native(text.replace("align A", f"align {size}"), target, machine)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype", "lanes"), [("u8", 32), ("i16", 16), ("f32", 8), ("f64", 2)])
def test_every_length(native: Any, level: str, dtype: str, lanes: int) -> None:
    """Known when it is compiled, and when it runs."""
    varying = kernel(native, level, dtype, lanes, "end")
    for n in {*range(-1, lanes + 2), 99}:
        x = (np.arange(5 * 64) % 97).reshape(5, 64).astype(varying.function.params[1].dtype.numpy)
        y, want = np.full((5, 63), 77, x.dtype), np.full((5, 63), 77, x.dtype)
        count = min(max(n, 0), lanes)
        want[:, :count] = x[:, 1 : count + 1] + x[:, :count]
        assert varying(np.array(n), x, y) == 0
        np.testing.assert_array_equal(y, want)
    for n in {1, lanes // 2 + 1, lanes - 1}:
        agree(kernel(native, level, dtype, lanes, str(n)))


@pytest.mark.parametrize("level", LEVELS)
def test_no_lane_is_tested_alone(native: Any, level: str) -> None:
    """31 bytes are five pieces: tests of as many bits, or none; lanes one by one took 93 tests."""
    cpu, _ = LEVELS[level]
    for bound, tests, instructions in (("31", 2, 60), ("end", 40, 150)):
        made = kernel(native, level, "u8", 32, bound)
        machine = jit.target_machine(cpu, "") if cpu else jit.target_machine()
        code = machine.emit_assembly(jit.optimize(made.text, machine))
        lines = [line for line in code.splitlines() if line.startswith("\t") and line[1:2] != "."]
        jumps = [line for line in lines if line.startswith("\tj") and line[1:4] != "jmp"]
        assert len(jumps) <= tests and len(lines) <= 5 * instructions


@pytest.mark.parametrize("bound", ["31", "end"])
def test_pieces_are_as_aligned_as_they_say(native: Any, bound: str) -> None:
    """A run begins where a cache line does; a piece of it lies behind larger ones."""
    text = ROWS.replace("BOUND", bound).replace("LANES", "32").replace("T[", "i16[")
    host = host_code.host_target()
    target = Target(host.triple, fma=False, rounding=False, masks=0)
    made = native(text.replace("align A", "align 64").replace("r, ", "0, "), target)
    pieces = re.findall(r"(?:load|store) (?:i16|<(\d+) x i16>).* align (\d+)", made.text)
    assert {int(cells or 1) for cells, _ in pieces} >= {1, 2, 4, 8, 16}
    for cells, align in pieces:
        assert int(align) <= 2 * 2 * int(cells or 1)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("tail", ["guard", "separate"])
def test_r21_fifteen_columns_cost_what_sixteen_do(lanes: int, tail: str) -> None:
    op = dt.op("Y[r,i] = 2*A[r,i] + B[r,i]")
    schedule = op.schedule().split("i", lanes, tail=tail).vectorize("ii")
    calls = {}
    for columns in (15, 16):
        a, b = np.random.default_rng(0).random((2, 4096, columns), np.float32)
        whole = np.full((4096, 17), -1, np.float32)
        np.testing.assert_array_equal(schedule(a, b), 2 * a + b)
        schedule(a, b, out=whole[:, :columns])
        assert (whole[:, columns:] == -1).all()
        calls[columns] = partial(schedule, a, b, out=np.empty_like(a))
    least: dict[int, float] = {}
    for _ in range(40):
        for columns, call in calls.items():
            start = time.process_time()
            call()
            took = time.process_time() - start
            least[columns] = min(took, least.get(columns, took))
    assert least[15] <= 2 * least[16] + 50e-6
