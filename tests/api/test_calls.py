"""Calling operators: schedules attached and scoped, fallbacks with one warning, bad arguments."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.attached import attached

TEXT = "C[i,j] = sum(A[i,k] * B[k,j])"


def arrays(m: int, n: int, k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    return a.astype(np.float32), b.astype(np.float32)


def test_a_redefined_operator_is_never_stale() -> None:
    space: dict[str, Any] = {"dt": dt}
    x = np.arange(5, dtype=np.float32)
    results = []
    for body in ("x[i] + 1", "x[i] * 2"):
        cell = (
            "i = dt.indices('i')\n@dt.op\ndef f(x):\n"
            f"    y = dt.tensor('y')\n    y[i] = {body}\n    return y\n"
        )
        exec(compile(cell, "<cell>", "exec"), space)
        results.append(space["f"](x))
    np.testing.assert_array_equal(results[0], x + 1)
    np.testing.assert_array_equal(results[1], x * 2)


def test_attach_and_detach_reach_equal_operators() -> None:
    op, same = dt.op(TEXT), dt.op(TEXT)
    fast = op.schedule().split("i", 4).unroll("ii")
    a, b = arrays(9, 7, 5)
    assert "ii" not in same.source("ir", I=9, J=7, K=5)
    try:
        fast.attach()
        np.testing.assert_array_equal(same(a, b), a @ b)
        assert attached.get(same) == fast
    finally:
        fast.detach()
    assert attached.get(same) is None


def test_schedules_are_scoped() -> None:
    op = dt.op(TEXT)
    with dt.schedules(op.schedule().split("i", 4)):
        assert attached.get(op) is not None
    assert attached.get(op) is None


def test_a_schedule_that_does_not_fit_falls_back_with_one_warning() -> None:
    op = dt.op(TEXT)
    schedule = op.schedule().unroll("k")
    big = arrays(2, 3, 100_000)
    run = op.with_schedule(schedule)
    with pytest.warns(RuntimeWarning, match="the default runs instead: unroll") as seen:
        np.testing.assert_array_equal(run(*big), big[0] @ big[1])
        run(*big)
    assert len(seen) == 1
    with pytest.raises(dt.ScheduleError, match=r"unroll\(k\)"):
        op.with_schedule(schedule, strict=True)(*big)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = arrays(2, 3, 6)
        np.testing.assert_array_equal(run(*small), small[0] @ small[1])


def test_a_schedule_of_another_operator_is_refused() -> None:
    one, other = dt.op("y[i] = x[i] + 1"), dt.op("y[i] = x[i] + 2")
    with pytest.raises(dt.ScheduleError) as refused:
        one.with_schedule(other.schedule())
    assert str(refused.value) == (
        f"this schedule was made for another operator:\n{other.text}\nnot for\n{one.text}"
    )


def test_wrong_arguments_are_named() -> None:
    op = dt.op("f(A: f32[N], B: f32[N]) -> y:\n  y[i] = A[i] + B[i]")
    x = np.ones(3, np.float32)
    with pytest.raises(dt.ShapeError) as count:
        op(x)
    assert str(count.value) == "f takes 2 arrays (A, B), 1 given"
    with pytest.raises(dt.DTypeError) as dtype:
        op(x, x.astype(np.float64))
    assert str(dtype.value) == (
        "f: B is declared f32, an array of f64 came; convert it with .astype('float32')"
    )
    with pytest.raises(dt.ShapeError) as size:
        op(x, np.ones(4, np.float32))
    assert "3 from A dim 0, 4 from B dim 0" in str(size.value)


def test_python_scalars_take_a_fitting_type() -> None:
    op = dt.op("f(x: [N], a: []) -> y:\n  y[i] = x[i] * a")
    x = np.arange(4, dtype=np.float32)
    assert op(x, 2).dtype == np.float32
    assert op(x.astype(np.int16), 2).dtype == np.int16
    np.testing.assert_array_equal(op(x, 0.5), x * np.float32(0.5))
    assert op(x, 0.5).dtype == np.float32


def test_vjp_and_grad() -> None:
    op = dt.op("f(x: f64[N], n: i64[N]) -> y:\n  y[] = sum(x[i] ** 3 * n[i])")
    x, n = np.array([1.0, 2.0, -1.0]), np.array([1, 2, 3])
    value, pull = dt.vjp(op, x, n)
    gx, gn = pull(np.float64(2.0))
    np.testing.assert_allclose(value, np.sum(x**3 * n))
    np.testing.assert_allclose(gx, 2 * 3 * x**2 * n)
    assert gn is None
    np.testing.assert_allclose(dt.grad(op)(x, n), 3 * x**2 * n)
    with pytest.raises(dt.GradientError) as integer:
        dt.grad(op, 1)(x, n)
    assert str(integer.value) == "grad of f by n: it is an integer"
    vector = dt.op("g(x: f64[N]) -> y:\n  y[i] = x[i] ** 2")
    with pytest.raises(dt.GradientError) as shape:
        dt.grad(vector)(x)
    assert str(shape.value) == "grad of g: expected a scalar result, shape (3,) came; use dt.vjp"


def test_source_needs_sizes_or_a_call() -> None:
    op = dt.op(TEXT)
    with pytest.raises(dt.ShapeError) as unknown:
        op.source("llvm")
    assert str(unknown.value) == (
        "C: call it first, or give sizes: source('llvm', I=64, K=64, J=64)"
    )
    assert "define" in op.source("llvm", I=8, J=8, K=8)
    op(*arrays(5, 6, 7))
    assert "ret" in op.source("asm")
    with pytest.raises(dt.ScheduleError) as kind:
        op.source("pdf", I=8, J=8, K=8)
    assert str(kind.value) == "source('pdf'): expected llvm, asm, ir, ptx"
    with pytest.raises(dt.ShapeError) as size:
        op.source("ir", Q=8)
    assert str(size.value) == "C has no size Q; its sizes are I, K, J"


def test_a_first_call_compiles_quickly_and_later_ones_are_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loose bounds for a busy machine; the benchmark gives the figures."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path))
    op = dt.op("y[i] = a[i] + b[i]")
    a = np.ones(16, np.float32)
    op(a, a)
    best = min(_timed(op, a) for _ in range(50))
    assert best < 40e-6


def _timed(op: Any, a: Any) -> float:
    start = time.perf_counter()
    op(a, a)
    return time.perf_counter() - start


def test_a_fresh_process_can_use_everything() -> None:
    code = (
        "import numpy as np, diptych as dt\n"
        f"mm = dt.op({TEXT!r})\n"
        "a = np.ones((3, 4), np.float32); b = np.ones((4, 5), np.float32)\n"
        "assert (mm(a, b) == 4).all()\n"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 3), (3, 0, 4), (3, 4, 0)])
def test_empty_sizes_have_empty_or_zero_results(m: int, n: int, k: int) -> None:
    """R59, thin: a contraction of length zero gives zeros, whatever the buffer held before."""
    op = dt.op(TEXT)
    out = np.full((m, n), np.nan, np.float32)
    op(np.ones((m, k), np.float32), np.ones((k, n), np.float32), out=out)
    np.testing.assert_array_equal(out, np.zeros((m, n)))


def test_formulas_clamp_at_zero() -> None:
    assert dt.op("y[i] = x[i+1] - x[i]")(np.zeros(0, np.float32)).shape == (0,)


def test_shared_memory_is_refused_on_the_host() -> None:
    schedule = dt.op(TEXT).schedule().stage("B", at="C.i", scope="shared")
    with pytest.raises(dt.DeviceError) as refused:
        schedule(*arrays(4, 4, 4))
    assert str(refused.value) == (
        "C: B.shared is in shared memory, so this schedule is for a GPU and the call is for the "
        'CPU; use schedule.on("cuda:0")(...), or schedule.on("simt")(...) to emulate it'
    )


def test_only_arrays_take_the_quick_path() -> None:
    """NumPy scalars and look-alikes have shapes and strides too, but no array's layout."""
    op = dt.op("y[i] = x[i] * s")
    x = np.ones(3, np.float32)
    for s in (2.0, np.float32(2), np.array(2.0, np.float32), np.float32(2), x.sum() - 1):
        np.testing.assert_array_equal(op(x, s), [2, 2, 2])

    class LookAlike:
        shape, strides, dtype = (3,), (4,), np.dtype(np.float32)

    with pytest.raises(dt.DTypeError) as refused:
        op(LookAlike(), 2.0)
    assert str(refused.value) == "y: x: expected an array of numbers, a LookAlike came"
    with pytest.raises(dt.DTypeError) as out:
        op(x, 2.0, out=[1])
    assert str(out.value) == "y: out= must be an array of float32, [1] came"


def test_inputs_by_name() -> None:
    op = dt.op("y[i] = x[i] - z[i]")
    x, z = np.arange(3.0), np.ones(3)
    np.testing.assert_array_equal(op(z=z, x=x), x - z)
    np.testing.assert_array_equal(op(x, z=z), x - z)
    for args, named, message in (
        ((), {"q": x}, "y has no input q; its inputs are x, z"),
        ((x, z), {"z": z}, "y: z is given by position and by name"),
        ((x,), {}, "y takes 2 arrays (x, z), 1 given"),
        ((), {"x": x}, "y takes x, z; z is missing"),
    ):
        with pytest.raises(dt.ShapeError) as refused:
            op(*args, **named)
        assert str(refused.value) == message


def test_what_is_no_schedule_is_refused() -> None:
    op = dt.op(TEXT)
    with pytest.raises(dt.ScheduleError) as given:
        op.with_schedule(3)
    assert str(given.value) == (
        f"{op.name}: expected a schedule, as {op.name}.schedule() makes one, or the path of a "
        "schedule file, 3 came"
    )
    with pytest.raises(dt.ScheduleError) as attached, dt.schedules(3):  # type: ignore[arg-type]
        pass
    assert (
        str(attached.value) == "schedules: expected schedules, as mm.schedule() makes one, 3 came"
    )


REFUSED: dict[str, tuple[Any, type[dt.Error]]] = {
    "C: A: expected an array of numbers, None came": (
        lambda: dt.op(TEXT)(None, np.ones((2, 2))), dt.DTypeError),
    "C: B: expected an array of numbers, 'abc' came": (
        lambda: dt.op(TEXT)(np.ones((2, 2)), "abc"), dt.DTypeError),
    "C: A: expected an array of numbers, or lists of equal lengths, [[1, 2], [3]] came": (
        lambda: dt.op(TEXT)([[1, 2], [3]], np.ones((2, 2))), dt.DTypeError),
    "C: A: arrays of >f4 are not supported; expected one of bool, i8, i16, i32, i64, u8, u16, u32, "
    "u64, f16, bf16, f32, f64; convert it to the machine's byte order, .astype('float32')": (
        lambda: dt.op(TEXT)(np.ones((2, 2), ">f4"), np.ones((2, 2))), dt.DTypeError),
    "C takes 2 arrays (A, B), 1 given": (lambda: dt.op(TEXT)(np.ones((2, 2))), dt.ShapeError),
    "y takes 1 array (x), 0 given": (lambda: dt.op("y[i] = x[i]")(), dt.ShapeError),
    "interpret: expected an operator or a program, 3 came": (
        lambda: dt.interpret(3, 4), dt.GraphError),  # type: ignore[arg-type]
    "program: expected a Python function of arrays, 3 came": (lambda: dt.program(3), dt.GraphError),
    "gradient of C: expected names of parameters, 3 came; name at least one of A, B": (
        lambda: dt.op(TEXT).gradient(3), dt.GradientError),
    "grad of y: expected a float result, one of type bool came": (
        lambda: dt.grad(dt.op("y = any(x[i] > 0)"))(np.ones(3)), dt.GradientError),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_refused(message: str) -> None:
    act, kind = REFUSED[message]
    with pytest.raises(kind) as refused:
        act()
    assert str(refused.value) == message


def test_another_number_of_threads_chooses_default_schedules_again() -> None:
    op, before = dt.op("y[i,j] = exp(x[i,j])"), dt.threads()
    x = np.zeros((512, 512), np.float32)
    try:
        dt.threads(1)
        op(x)
        assert "parallel" not in op.source("ir")
        dt.threads(2)
        op(x)
        assert "parallel" in op.source("ir")
    finally:
        dt.threads(before)


def test_what_was_compiled_for_as_many_threads_is_found_again() -> None:
    op, before = dt.op("y[i,j] = exp(x[i,j]) + 3"), dt.threads()
    step = dt.program(lambda x: op(x) * 2)
    x = np.zeros((512, 512), np.float32)
    try:
        for n in (1, 2):
            dt.threads(n)
            op(x), step(x)
        info, source = dt.cache_info(), op.source("ir")
        for n in (1, 2):
            dt.threads(n)
            op(x), step(x)
        assert dt.cache_info() == info
        assert op.source("ir") == source
        other = op.schedule().reverse("j")
        with dt.schedules(other):
            op(x)
            assert op.source("ir") != source
        op(x)
        assert op.source("ir") == source
    finally:
        dt.threads(before)
