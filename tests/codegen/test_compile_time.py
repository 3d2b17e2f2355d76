"""What compiling costs: in proportion to the operator, and never seconds for small ones."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import specialize
from diptych.codegen.jit import object_code
from sched_loop.speed import REFERENCE, seconds, slowness, work

Array = np.ndarray


def compiled(text: str, x: Array) -> tuple[Array, float]:
    """The result of an operator, and the processor seconds of its first call."""
    op = dt.op(text)
    results: list[Array] = []
    spent = seconds(lambda: results.append(op(x)))
    return results[0], spent


def sums(stages: int) -> str:
    return "\n".join(f"F{n + 1}[i] = F{n}[i] + F{n}[i+1]" for n in range(stages))


def test_r18_a_chain_of_stages_costs_in_proportion() -> None:
    warm, _ = compiled(sums(3), np.ones(64))
    np.testing.assert_array_equal(warm, np.full(61, 8.0))
    result, once = compiled(sums(20), np.ones(64))
    np.testing.assert_array_equal(result, np.full(44, 1048576.0))
    assert once < 5
    result, twice = compiled(sums(40), np.ones(64))
    np.testing.assert_array_equal(result, np.full(24, 2.0**40))
    assert twice < 4 * once


def squares(stages: int) -> str:
    return "\n".join(f"F{n + 1}[i] = F{n}[i] * F{n}[i]" for n in range(stages))


def products(stages: int) -> str:
    return "\n".join(f"F{n + 1}[i,j] = sum(F{n}[i,k] * W[k,j])" for n in range(stages))


def rows(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """A sum in lanes for each row, all within one loop: as many accumulators."""
    made = dt.op("C[i] = sum(A[i,k])").schedule().split("i", count).reorder("k", "ii")
    return made.unroll("ii").vectorize("k", 8), (np.ones((2 * count, 64)),)


def nests(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """Two loops for each row, one row after the other."""
    made = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").schedule().split("i", count).unroll("ii")
    return made, (np.ones((2 * count, 16)), np.ones((16, 16)))


def triangle(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """As many sums, each under a condition of its own."""
    text = "y[i] = sum(L[i,j] * x[j], over=(j,), where=j <= i)"
    made = dt.op(text).schedule().split("i", count).unroll("ii").vectorize("j", 8)
    return made, (np.ones((2 * count, 2 * count)), np.ones(2 * count))


def equations(
    text: Callable[[int], str], *arrays: Array
) -> Callable[[int], tuple[Callable[..., Array], tuple[Array, ...]]]:
    return lambda count: (dt.op(text(count)), arrays)


def statements(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """As many stores in a row, in no loop."""
    made = dt.op("y[i] = x[i] * 2 + x[i] / 3").schedule().unroll("i")
    return made, (np.ones(count, np.float32),)


def looped(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """As many updates in a row, in a loop that LLVM could run in lanes."""
    made = dt.op("C[i,j] = sum(A[i,k] & B[j,k])").schedule()
    made = made.compute_at("C.init", "C.k").unroll("C.k").skew("C.j", "C.i", -1).split("C.j", 3)
    return made.shift("C", "C.ji", 3), (np.ones((17, count), bool), np.ones((40, count), bool))


def laned(count: int) -> tuple[dt.Schedule, tuple[Array, ...]]:
    """As many nests of loops in a row, all in lanes along columns."""
    made = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").schedule().split("i", 7).unroll("j")
    return made.vectorize("ii").split("k", 7), (np.ones((97, 31), int), np.ones((31, count), int))


CASES = {
    "squares": (equations(squares, np.ones(100)), 40, 160, 120),
    "sums": (equations(sums, np.ones(300)), 20, 80, 120),
    "products": (equations(products, np.ones((8, 8)), np.full((8, 8), 0.125)), 20, 60, 350),
    "rows": (rows, 64, 256, 100),
    "nests": (nests, 16, 64, 100),
    "triangle": (triangle, 32, 128, 200),
    "statements": (statements, 350, 1400, 150),
    "looped": (looped, 100, 400, 80),
    "laned": (laned, 16, 64, 130),
}
"""What is compiled, two lengths, and how many times as long as the fixed work of `speed.py` the
longer one may take: about twice what it takes on a machine with nothing else to do."""

LONGER = 1.8
"""By how much more than in proportion to its length something may take."""


@pytest.mark.parametrize("name", CASES)
def test_what_is_longer_costs_in_proportion(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, short, long, limit = CASES[name]
    make(3)[0](*make(3)[1])  # what is imported when first used
    spent: dict[int, list[float]] = {short: [], long: []}
    fixed: list[float] = []
    for again in range(2):  # the better of two, for what else runs
        monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / str(again)))
        specialize.codes.clear()
        for length, times in spent.items():
            call, arrays = make(length)
            times.append(seconds(partial(call, *arrays)))
            fixed.append(seconds(work))
    assert min(spent[long]) < LONGER * long / short * min(spent[short])
    assert min(spent[long]) < limit * REFERENCE * slowness(fixed)


def compiles_soon(
    call: Callable[[], Array], expected: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of three first calls at most, for what else runs."""
    spent: list[float] = []
    fixed: list[float] = []
    results: list[Array] = []
    for again in range(3):
        monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / str(again)))
        specialize.codes.clear()
        spent.append(seconds(lambda: results.append(call())))
        np.testing.assert_allclose(results.pop(), expected, rtol=1e-4)
        fixed.append(seconds(work))
        if min(spent) < 80 * REFERENCE * slowness(fixed):
            return
    pytest.fail(f"{spent} seconds; the fixed work took {fixed}")


TURNED = {
    "transpose": "y[j,i] = x[i,j]",
    "sums": "c[i,0] = x[i,0]\nc[i,j] = c[i,j-1] + x[i,j] where j in 1:300",
}
"""Tiles of these are turned in registers; more lanes of narrower types are no reason to wait."""


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "f8"])
def test_tiles_that_are_turned_compile_soon(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(0, 2, (255, 300)).astype(dtype)
    dt.op(TURNED[name])(x[:40].astype("i4"))  # what is imported when first used
    expected = x.T if name == "transpose" else np.cumsum(x, 1, x.dtype)
    compiles_soon(lambda: dt.op(TURNED[name])(x), expected, tmp_path, monkeypatch)


def repeated(times: int, step: Callable[[dt.Term, dt.Term], dt.Term]) -> dt.Op:
    """One equation whose right side is made by a step that is done again and again."""
    i = dt.indices("i")

    @dt.op
    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        e = x[i]
        for _ in range(times):
            e = step(e, x[i])
        y[i] = e
        return y

    return f


def test_r18_one_expression_squared_500_times() -> None:
    start = time.process_time()
    op = repeated(500, lambda e, x: e * e)
    np.testing.assert_array_equal(op(np.ones(5)), np.ones(5))
    np.testing.assert_array_equal(dt.interpret(op, np.ones(5)), np.ones(5))
    assert dt.op(op.text) == op
    assert len(op.text) < 500 * 30
    slope = op.gradient("x")(np.ones(5), np.ones(5))
    np.testing.assert_allclose(slope, np.full(5, 2.0**500), rtol=1e-15)
    assert time.process_time() - start < 8


def test_sums_of_a_thousand_terms_are_no_depth() -> None:
    for step in (lambda e, x: e + x), (lambda e, x: x + e):
        op = repeated(1000, step)
        np.testing.assert_array_equal(op(np.ones(5)), np.full(5, 1001.0))
        assert dt.op(op.text) == op
    assert dt.interpret(op.gradient("x"), np.ones(5))[0] == 1001.0


def scatter(a: int, b: int, c: int) -> str:
    return (
        f"scatter(X: [{a}, {b}, {c}]) -> S:\n"
        f"    S[t] = sum(where(({b * c}*a + {c}*b + c - t) % 1024 == 0, X[a,b,c], 0)) "
        f"where t in 0:1024, a in 0:{a}, b in 0:{b}, c in 0:{c}"
    )


def test_r19_a_sum_guarded_by_a_remainder_compiles_soon() -> None:
    compiled("y[i] = x[i] * 2", np.ones(3, np.float32))
    result, one = compiled(scatter(4, 14, 14), np.ones((4, 14, 14), np.float32))
    np.testing.assert_array_equal(result, np.arange(1024) < 784)
    assert one < 5
    result, other = compiled(scatter(4, 16, 16), np.ones((4, 16, 16), np.float32))
    np.testing.assert_array_equal(result, np.ones(1024))
    assert other < 3 * max(one, 0.3)  # other tiles are chosen, so what is short may differ


def test_compiling_again_and_again_takes_no_memory() -> None:
    """LLVM's passes are freed after each module; they take some 60 KiB."""
    text = "define double @f(double %x) {\n  ret double %x\n}\n"

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    for _ in range(20):
        object_code(text)
    before = resident()
    for _ in range(100):
        object_code(text)
    assert resident() - before < 100 * 8 * 1024


def test_the_gradient_of_a_window_with_strides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sum has one instance a cell at most: a tile of those would be code for each cell."""
    op = dt.op(
        "b[y,x] = max(max(g[2*y,2*x], g[2*y+1,2*x]), max(g[2*y,2*x+1], g[2*y+2,2*x+1]))"
    ).gradient("g")
    x = np.random.default_rng(0).integers(-2, 3, (33, 43)).astype(np.float32)
    ones = np.ones((16, 21), np.float32)
    compiles_soon(lambda: op(x, ones), dt.interpret(op, x, ones), tmp_path, monkeypatch)


def test_sums_of_what_takes_much_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile has as many rows as its code is worth: here 30 took 14 times as long as 4."""
    op = dt.op("re[k] = sum(x[n] * cos(6.25 * (k * n % 64) / 64)) where k in 0:1300", returns="re")
    x = np.random.default_rng(0).random(300, np.float32)
    op(x[:40])  # what is imported when first used
    k, n = np.ogrid[:1300, :300]
    expected = (x * np.cos(6.25 * (k * n % 64) / 64)).sum(1)
    compiles_soon(lambda: op(x), expected, tmp_path, monkeypatch)
