"""Default schedules of nests that are bound by memory: their texts on a given machine, and that
they compute what the interpreter does where sizes are odd."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine

MACHINE = Machine(vector_bytes=32, registers=16, threads=2)

TURN = "turn(x: [N, M]) -> y:\n y[i,j] = x[j,i]"
SCAN = "scan(x: [B, N]) -> c:\n c[b,0] = x[b,0]\n c[b,i] = c[b,i-1] + x[b,i] where i in 1:N"
TOTAL = "total(x: [N, M]) -> y:\n y[] = sum(x[i,j])"
COLUMNS = "columns(x: [N, M]) -> y:\n y[j] = sum(x[i,j])"
BIGGEST = "biggest(x: [N, M]) -> y:\n y[i] = argmax(x[i,j])"
BLUR = "blur(x: [H, W]) -> y:\n h[i,j] = x[i,j] + x[i,j+1]\n y[i,j] = h[i,j] + h[i+1,j] + h[i+2,j]"
SLOW = BLUR.replace("blur", "slow").replace("x[i,j] + x[i,j+1]", "tanh(exp(x[i,j]))")
CENTRE = "centre(x: [G, H, W]) -> y:\n mu[g] = sum(x[g,h,w]) / (H*W)\n y[g,h,w] = x[g,h,w] - mu[g]"

TEXTS = {
    TURN: '.split("j", 8).split("i", 8).reorder("jo", "io", "ii", "ji")'
    '.stage("x", at="io", scope="register").vectorize("x.pack.i").unroll("ii").vectorize("ji")'
    '.stream("y").parallel("jo")',
    SCAN: '.split("c.1.b", 4).split("c.1.i", 8).reorder("c.1.bo", "c.1.io", "c.1.ii", "c.1.bi")'
    '.stage("x", at="c.1.io", scope="register").vectorize("x.pack.i")'
    '.stage("c", at="c.1.io", scope="register", layout=("d1", "d0")).vectorize("c.load.b")'
    '.vectorize("c.load2.b").reorder("c.store.b", "c.store.i").vectorize("c.store.i")'
    '.unroll("c.1.ii").vectorize("c.1.bi").parallel("c.0.b").parallel("c.1.bo")',
    TOTAL: '.split("i", 256).rfactor("io").vectorize("j").parallel("io")',
    COLUMNS: '.split("j", 512).reorder("jo", "i", "ji").vectorize("ji").parallel("jo")',
    BIGGEST: '.compute_at("y_max", "y.i").vectorize("y_max.j").vectorize("y.j").parallel("y.i")',
    BLUR: '.split("y.i", 4).split("y.j", 16).reorder("y.io", "y.jo", "y.ii", "y.ji")'
    '.compute_at("h", "y.jo").vectorize("h.j").unroll("h.i").vectorize("y.ji").unroll("y.ii")'
    '.parallel("y.io")',
    SLOW: '.split("y.i", 64).compute_at("h", "y.j").store_at("h", "y.io").vectorize("y.j")'
    '.stream("y").parallel("y.io")',
}


def chosen(text: str, *shape: int) -> str:
    op = dt.op(text)
    sizes = bind_sizes(check(op), {op.params[0].name: shape})
    return default(op, {op.params[0].name: dt.f32}, sizes, MACHINE).text


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.partition("(")[0])
def test_text(text: str) -> None:
    assert chosen(text, 2048, 1024) == TEXTS[text]


def test_neighbouring_indices_of_a_sum_are_one_loop() -> None:
    assert '.fuse("mu.h", "mu.w").vectorize("mu.h_w")' in chosen(CENTRE, 512, 12, 12)


@pytest.mark.parametrize("shape", [(67, 129), (9, 7), (1, 300)])
@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.partition("(")[0])
def test_values(text: str, shape: tuple[int, int]) -> None:
    shape = (max(shape[0], 3), shape[1]) if text in (BLUR, SLOW) else shape
    op: Any = dt.op(text)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sizes = bind_sizes(check(op), {"x": shape})
    run = op.with_schedule(default(op, {"x": dt.f32}, sizes, MACHINE), strict=True)
    np.testing.assert_allclose(run(x), dt.interpret(op, x), rtol=1e-4, atol=1e-4)


SLIDING = {
    "two temporaries": "h[i,j] = {x[i,j]}\nk[i,j] = {x[i,j+1]}\n"
    "y[i,j] = h[i+2,j] - h[i,j] + k[i+1,j] where j in 0:W-1",
    "lanes of neighbours": "h[i,j] = {x[i,j]}\ny[i,j] = h[i,j] + h[i+1,j+1] + h[i+1,j]",
    "rows ahead": "h[i,j] = {x[i,j]}\ny[i,j] = h[i+2,j] / (1 + abs(h[i+1,j]))",
    "under a condition": "h[i,j] = {x[i,j]}\ny[i,j] = where(i % 3 == 0, h[i,j], h[i+1,j])"
    " where i in 0:H-1",
}
SLOWLY, QUICKLY = ("tanh(exp(", "))"), ("(", " * 2)")
WIDE = Machine(vector_bytes=64, registers=32, threads=2)


def sliding(text: str, value: tuple[str, str]) -> Any:
    text = text.replace("{", value[0]).replace("}", value[1])
    return dt.op(f"slide(x: [H, W]) -> y:\n {text}".replace("\n", "\n "))


@pytest.mark.parametrize("shape", [(67, 129), (200, 40), (9, 7), (3, 300)])
@pytest.mark.parametrize("text", SLIDING.values(), ids=SLIDING)
def test_rows_that_slide(text: str, shape: tuple[int, int]) -> None:
    op = sliding(text, SLOWLY)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    schedule = default(op, {"x": dt.f32}, bind_sizes(check(op), {"x": shape}), MACHINE)
    assert "store_at" in schedule.text or shape[0] < 10
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_allclose(run(x), dt.interpret(op, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(67, 129), (200, 40), (9, 7), (3, 300)])
@pytest.mark.parametrize("text", SLIDING.values(), ids=SLIDING)
def test_rows_at_once(text: str, shape: tuple[int, int]) -> None:
    """What is cheap is computed again for a block of rows, where it is read in its own lanes."""
    op = sliding(text, QUICKLY)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    schedule = default(op, {"x": dt.f32}, bind_sizes(check(op), {"x": shape}), WIDE)
    own, long = "j+1] +" not in text, shape[0] > 9 and shape[1] > 16
    assert ('.unroll("h.i")' in schedule.text) == (own and long)
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_allclose(run(x), dt.interpret(op, x), rtol=1e-5, atol=1e-5)


LAPLACE = "y[i,j] = x[i,j+1] + x[i+1,j] + x[i+1,j+2] + x[i+2,j+1] - 4 * x[i+1,j+1]"
SIDES = "y[i,j] = x.zero[i-1,j] - x[i,j] + b[j]"


@pytest.mark.parametrize("shape", [(67, 129), (200, 40), (9, 7), (3, 300)])
@pytest.mark.parametrize("text", [LAPLACE, SIDES])
def test_rows_that_neighbours_read_too(text: str, shape: tuple[int, int]) -> None:
    op: Any = dt.op(f"near(x: [H, W]{', b: [W]' if text == SIDES else ''}) -> y:\n {text}")
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(s).astype(np.float32) for s in (shape, shape[1:])]
    given = given[: len(op.params)]
    types = dict.fromkeys((p.name for p in op.params), dt.f32)
    schedule = default(op, types, {"H": shape[0], "W": shape[1]}, WIDE)
    assert ('.split("i", 8)' in schedule.text) == (shape[0] > 9 and shape[1] > 17)
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_allclose(run(*given), dt.interpret(op, *given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "y[i,j] = x[i,j] + b[j]",  # the same for all rows
        "y[i,j] = x[2*i,j] + x[2*i+1,j] + b[j]",  # of its own
        "y[i,j] = exp(exp(exp(exp(x[i,j] - x[i+1,j])))) / b[j]",  # more work than loads
    ],
)
def test_rows_by_themselves(text: str) -> None:
    op: Any = dt.op(f"alone(x: [H, W], b: [W]) -> y:\n {text}")
    sizes = bind_sizes(check(op), {"x": (512, 512), "b": (512,)})
    assert "unroll" not in default(op, {"x": dt.f32, "b": dt.f32}, sizes, WIDE).text


def test_planes_of_neighbours() -> None:
    """Rows of several planes come and go anew whatever is done at once."""
    op: Any = dt.op("y[i,j,k] = x[i,j,k] + x[i+1,j,k] + x[i,j+1,k]")
    sizes = bind_sizes(check(op), {"x": (130, 130, 260)})
    assert "unroll" not in default(op, {"x": dt.f32}, sizes, WIDE).text


def test_planes_slide_along_the_outermost_loop() -> None:
    op: Any = dt.op(
        "planes(x: [D, H, W]) -> y:\n h[i,j,k] = tanh(exp(x[i,j,k])) + x[i,j,k+1]\n"
        " y[i,j,k] = h[i,j,k] * h[i+1,j,k]"
    )
    x = np.random.default_rng(2).standard_normal((37, 5, 301)).astype(np.float32)
    schedule = default(op, {"x": dt.f32}, bind_sizes(check(op), {"x": x.shape}), MACHINE)
    assert '.compute_at("h", "y.k").store_at("h", "y.io")' in schedule.text
    run = op.with_schedule(schedule, strict=True)
    np.testing.assert_allclose(run(x), dt.interpret(op, x), rtol=1e-5, atol=1e-5)


MINUS = "minus(x: [N, M], y: [N, M]) -> z:\n z[i,j] = x[i,j] - y[i,j]"


def test_large_results_of_what_no_cache_holds_are_streamed() -> None:
    def steps(text: str, *shapes: tuple[int, int]) -> str:
        op = dt.op(text)
        names = [p.name for p in op.params]
        sizes = bind_sizes(check(op), dict(zip(names, shapes, strict=True)))
        return default(op, dict.fromkeys(names, dt.f32), sizes, MACHINE).text

    assert steps(MINUS, (1024, 1024), (1024, 1024)).endswith('.stream("z").parallel("i")')
    small = steps(MINUS, (256, 1024), (256, 1024))  # 1 MiB each: all of it stays
    apart = steps(MINUS, (1024, 1023), (1024, 1023))  # rows start within vectors
    read_again = steps(f"{MINUS}\n s[] = sum(z[i,j])", (1024, 1024), (1024, 1024))
    assert "stream" not in small + apart + read_again


def test_streamed_results_are_right() -> None:
    op: Any = dt.op(MINUS)
    x, y = np.random.default_rng(0).random((2, 1024, 1024), np.float32)
    run = op.with_schedule(
        default(op, {"x": dt.f32, "y": dt.f32}, {"N": 1024, "M": 1024}, MACHINE), strict=True
    )
    np.testing.assert_array_equal(run(x, y), x - y)
    rows = np.empty((1024 * 1024 + 1,), np.float32)[1:].reshape(1024, 1024)  # starts in a line
    run(x, y, out=rows)
    np.testing.assert_array_equal(rows, x - y)


WIDE_ROWS = [
    ("y[i,j] = sum(x[i,k,j])", (3, 70, 5001)),
    ("y[i,j] = sum(x[i,k,j])", (3, 4, 5001)),
    ("y[i,j] = sum(x[i,j,k])", (3, 2100, 3)),
    ("y[i,j] = max(x[i,j,k])", (3, 2100, 7)),
    ("y[i,j] = argmax(x[i,j,k], over=k)", (3, 2100, 4)),
    ("y[i,j] = max(x[i+p,j,0], over=p) where p in 0:3", (9, 4100, 1)),
    ("m[i,j] = max(x[i,k,j])\ny[i,k,j] = exp(x[i,k,j] - m[i,j])", (2, 5, 4100)),
]


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "u1"])
@pytest.mark.parametrize(("text", "shape"), WIDE_ROWS)
def test_rows_of_sums_wider_than_all_registers(
    text: str, shape: tuple[int, ...], dtype: str
) -> None:
    """No register holds such a row: parts of it do, or memory near by."""
    op, x = dt.op(text), np.random.default_rng(0).integers(0, 4, shape).astype(dtype)
    np.testing.assert_allclose(op(x), dt.interpret(op, x), rtol=1e-3 if dtype == "f2" else 1e-6)


@pytest.mark.parametrize(
    ("rows", "columns", "part"),
    [(50, 64, 0), (50, 65, 0), (50, 4096, 0), (50, 4097, 4096), (8, 65, 32)],
)
def test_parts_of_rows_of_sums(rows: int, columns: int, part: int) -> None:
    """What half of the registers hold is whole; else the first cache holds it, or, where few
    elements are added, four registers."""
    text = chosen("y[i,j] = sum(x[i,k,j])", 9, rows, columns)
    assert (f'.split("j", {part})' in text) == bool(part)
    assert ('scope="register"' in text) == (columns == 64 or rows == 8)
