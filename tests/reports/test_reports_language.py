"""Rows on crashes, messages, missing features and shapes, each under its number."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from reports.runs import agree, refusal

MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"


# R10: what a condition guards is never read


def test_r10_padding_by_nested_conditions() -> None:
    op = dt.op("pad(A: f32[N]) -> Y:\n Y[i] = where(i >= 2, where(i < N+2, A[i-2], 0), 0) "
               "where i in 0:N+4")  # fmt: skip
    for n in (61, 1, 8):
        a = np.arange(1, n + 1, dtype=np.float32)
        agree(op, [a], np.pad(a, 2), [
            ".vectorize('i', 8)", ".split('i', 4).unroll('ii')", ".split('i', 8)",
            ".split('i', 8, tail='separate').vectorize('ii')", ".parallel('i')", ".reverse('i')",
        ], gpu=[
            ".bind('i', 'thread.x')", ".split('i', 8).bind('io', 'block.x').bind('ii', 'thread.x')",
        ])  # fmt: skip


@pytest.mark.parametrize("access", ["where", "zero"])
def test_r10_a_padded_strided_dilated_convolution(access: str) -> None:
    read = "I[2*y+2*r-1,2*x+2*s-1]"
    guarded = f"where((0 <= 2*y+2*r-1 < H) & (0 <= 2*x+2*s-1 < W), {read} * K[r,s], 0)"
    body = guarded if access == "where" else f"{read.replace('I', 'I.zero')} * K[r,s]"
    op = dt.op(f"conv(I: f32[H, W], K: f32[3, 3]) -> Y:\n Y[y,x] = sum({body}, "
               "over=(r in 0:3, s in 0:3)) where y in 0:(H-3)//2+1, x in 0:(W-3)//2+1")  # fmt: skip
    rng = np.random.default_rng(1)
    image = rng.integers(-4, 5, (11, 14)).astype(np.float32)
    k = rng.integers(-4, 5, (3, 3)).astype(np.float32)
    around = np.pad(image, 1)
    want = np.array([
        [(around[2 * y : 2 * y + 5 : 2, 2 * x : 2 * x + 5 : 2] * k).sum() for x in range(6)]
        for y in range(5)
    ], np.float32)  # fmt: skip
    agree(op, [image, k], want, [
        ".vectorize('x', 8)", ".tile(y=2, x=4).parallel('yo')", ".unroll('r').unroll('s')",
        ".split('x', 4).unroll('xi')",
    ], gpu=[".bind('y', 'block.x').bind('x', 'thread.x')"])  # fmt: skip


# R13: a mismatch names the index and both arrays


def test_r13_mismatches_name_the_index() -> None:
    op = dt.op("O[b,o,x] = sum(F[b,i,x] * W[i,o,x])")
    both = np.zeros((12, 8192, 2), np.float32)
    for call in (lambda: op(both, both), lambda: dt.interpret(op, both, both)):
        said = refusal(call, dt.ShapeError)
        assert said.startswith(
            "index i: 8192 from F dim 1, 12 from W dim 0\n"
            "    in O[b,o,x] = sum(F[b,i,x] * W[i,o,x]) (test_reports_language.py:"
        )
    rank = dt.op("y[a] = A[a] * B[a]")
    assert refusal(lambda: rank(np.zeros(3), np.zeros((3, 3))), dt.ShapeError).startswith(
        "B has 2 dimensions (3, 3), but 1 dimension expected\n    in y[a] = A[a] * B[a] ("
    )
    twice = dt.op("y[a,b,c] = X[a,a,b,c,b]")
    assert refusal(lambda: twice(np.zeros((3, 3, 4, 5, 6))), dt.ShapeError).startswith(
        "index b: 4 from X dim 2, 6 from X dim 4\n    in y[a,b,c] = X[a,a,b,c,b] ("
    )


# R24: an index may stand twice in one access


def test_r24_diagonals() -> None:
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    agree(dt.op("D[i] = X[i,i]"), [x], np.diag(x), [".vectorize('i', 8)", ".parallel('i')",
          ".split('i', 2)", ".stage('X', at='D.i')"], gpu=[".bind('i', 'thread.x')"])  # fmt: skip
    agree(dt.op("T[] = sum(X[i,i])"), [x], np.float32(12), [".vectorize('i', 8)", ".split('i', 2)"])
    agree(dt.op("Y[i,j] = X[i,i] * W[i,j]"), [x, w], np.diag(x)[:, None] * w,
          [".vectorize('j', 8)", ".tile(i=2, j=3)"])  # fmt: skip
    said = refusal(lambda: dt.op("D[i] = X[i,i]")(np.zeros((3, 4))), dt.ShapeError)
    assert said.startswith("index i: 3 from X dim 0, 4 from X dim 1\n    in D[i] = X[i,i] (")


# R27: an output may be an input where that is proved harmless


def test_r27_writing_over_an_input() -> None:
    double = dt.op("Y[i] = 2 * A[i]")
    mirrored = dt.op("f(A: [N]) -> Y:\n Y[i] = A[i] + A[N-1-i]")
    schedules = ["", ".vectorize('i', 8)", ".parallel('i')", ".split('i', 5).vectorize('ii')",
                 ".split('i', 4, tail='separate').unroll('ii')"]  # fmt: skip
    overlap = (": out= overlaps the input A, which would be read after it is written; "
               "pass an array of its own")  # fmt: skip
    for text in schedules:
        for n in (1, 7, 32, 37):
            a = np.arange(1.0, n + 1)
            run = dt.Schedule.parse(double, text) if text else double
            assert run(a, out=a) is a
            np.testing.assert_array_equal(a, 2 * np.arange(1.0, n + 1))
            if n == 1:
                continue  # what follows would not overlap
            buf = np.arange(n + 1.0)
            assert refusal(lambda run=run, buf=buf: run(buf[:-1], out=buf[1:]), dt.ShapeError) == (
                "Y" + overlap
            )
            back = dt.Schedule.parse(mirrored, text) if text else mirrored
            said = refusal(lambda back=back, buf=buf: back(buf, out=buf), dt.ShapeError)
            assert said == "f" + overlap
            np.testing.assert_array_equal(buf, np.arange(n + 1.0))
    # Whatever reads an element again after it was written, such as a recomputed tail, is refused.
    a = np.arange(32.0)
    recomputed = dt.op("t[i] = 2 * A[i]\nY[i] = t[i] + t[i]")
    made = recomputed.schedule().compute_at("t", "Y.i")
    assert refusal(lambda: made(a, out=a), dt.ShapeError) == "Y" + overlap


def test_r27_two_outputs_and_views() -> None:
    op = dt.op("Y[i,j] = 2 * A[i,j]")
    a = np.arange(12.0).reshape(3, 4)
    view = a[::-1, ::2]
    want = 2 * view
    op(view, out=view)
    np.testing.assert_array_equal(view, want)
    said = refusal(lambda: op(a[:, :3], out=a.T[:3]), dt.ShapeError)
    assert said.startswith("Y: out= overlaps the input A")
    two = dt.op("Y[i] = A[i] + 1\nZ[i] = A[i] + 2", returns=("Y", "Z"))
    out = np.zeros(4)
    said = refusal(lambda: two(np.ones(3), out=(out[:3], out[1:])), dt.ShapeError)
    assert said == "Y: out= for Y and for Z overlap"


# R58: the range of an index is what all its uses allow


def test_r58_ranges_are_intersections() -> None:
    b = np.arange(5, dtype=np.float32)
    schedules = [".vectorize('i', 4)", ".split('i', 3)", ".parallel('i')"]
    for text, want in (
        ("A[i,j] = B[i] + B[j+3]", b[:, None] + b[3:]),
        ("A[i] = B[i] + B[i+3]", b[:2] + b[3:]),
        ("A[i] = B[2*i+1]", b[1::2]),
        ("A[i] = B[i] + B[i+4]", b[:1] + b[4:]),
    ):
        agree(dt.op(text), [b], want, schedules, gpu=[".bind('i', 'thread.x')"])
    said = refusal(lambda: dt.op("A[i] = B[i-1]"), dt.OpError)
    assert said.startswith(
        "output index i of A starts at 1, not at 0; shift it, or define the elements before by "
        "another equation\n    in A[i] = B[i-1] ("
    )
    said = refusal(lambda: dt.op("A[i] = where(i < 3, B[i], 0)"), dt.OpError)
    assert said.startswith(
        "index i is used only where a condition guards the access; give it a range, as in "
        "`where i in 0:I`\n"
    )


# R59: nothing to reduce over


def test_r59_contractions_of_length_zero() -> None:
    op = dt.op(MATMUL)
    a, b = np.zeros((4, 0), np.float32), np.zeros((0, 4), np.float32)
    agree(op, [a, b], np.zeros((4, 4), np.float32), [
        ".vectorize('j', 8)", ".parallel('i')", ".tile(i=3, j=3)", ".stage('C', at='C.i')",
        ".split('k', 4)",
    ])  # fmt: skip
    _, pull = dt.vjp(op, a, b)
    da, db = pull(np.ones((4, 4), np.float32))
    assert (da.shape, db.shape) == ((4, 0), (0, 4))
    agree(dt.op("p[] = prod(x[i])"), [np.zeros(0, np.float32)], np.float32(1))
    agree(dt.op("y[i,j] = x[i,j] + z[i,j]"), [np.zeros((0, 5))] * 2, np.zeros((0, 5)),
          [".vectorize('j', 8)", ".parallel('i')"], gpu=[".bind('i', 'block.x')"])  # fmt: skip
    for name in ("sum", "prod", "max", "min"):
        agree(dt.op(f"y[] = {name}(x[], over=())"), [np.float32(3)], np.float32(3))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_r59_no_extreme_of_nothing(name: str) -> None:
    start = {"max": "max= {} starts from the least value there is",
             "min": "min= {} starts from the greatest value there is"}  # fmt: skip
    for left, body, over, shape, at in (
        ("m[]", "x[i]", "", 0, "I=0"),
        ("m[j]", "x[i,j]", "", (0, 4), "I=0"),
        ("m[]", "x[i]", ", over=(i in 1:N)", 1, "N=1"),
    ):
        header = "f(x: [N]) -> m:\n " if over else ""
        op = dt.op(f"{header}{left} = {name}({body}{over})")
        help_ = f"; {left} {start[name].format(body)}" if name in start else ""
        for run in (op, lambda x, op=op: dt.interpret(op, x)):
            said = refusal(lambda run=run, shape=shape: run(np.zeros(shape)), dt.ShapeError)
            why = f"has no value at {at}: index i runs over nothing{help_}\n"
            assert said.startswith(f"{op.name}: {name}({body}) {why}")
    said = refusal(lambda: dt.op(f"f(x: f32[0]) -> m:\n m[] = {name}(x[i])"), dt.OpError)
    assert f"{name} over i has no value: there is nothing in its range, whatever" in said
    assert dt.op(f"m[i] = {name}(x[i,j])")(np.zeros((0, 0))).shape == (0,)


def test_r59_an_accumulated_extreme_of_nothing_is_where_it_starts() -> None:
    for name, start in (("max", -np.inf), ("min", np.inf)):
        op = dt.op(f"f(x: [N]) -> m:\n m[] {name}= x[i] where i in 0:N")
        agree(op, [np.zeros(0)], np.float64(start))


# R63: arrays of any layout


def test_r63_layouts_that_are_not_dense() -> None:
    op = dt.op("Y[y,x] = 2 * A[y,x] + B[x]")
    rng = np.random.default_rng(0)
    b = rng.random(10, np.float32)
    base = rng.random((24, 10), np.float32)
    image = rng.random((12, 10, 3), np.float32)
    raw = np.frombuffer(rng.integers(60, 63, 12 * 10 * 4 + 1, np.uint8).tobytes(), np.uint8)
    odd = np.frombuffer(raw.data, np.float32, 120, offset=1).reshape(12, 10)
    layouts = [
        base[::2, ::-1], base[:12].T.copy().T, image[:, :, 1],
        np.broadcast_to(base[0], (12, 10)), np.broadcast_to(base[:12, :1], (12, 10)), odd,
    ]  # fmt: skip
    runs = [op, *(dt.Schedule.parse(op, text) for text in (
        ".vectorize('x', 8)", ".tile(y=5, x=3).parallel('yo')",
        ".stage('A', at='Y.y')"))]  # fmt: skip
    for run in runs:
        run(base[:12], b)  # a kernel for dense arrays is there, and must not serve the others
        for a in layouts:
            want = (2 * a + b).astype(np.float32)
            strided = np.full((24, 30), np.nan, np.float32)[::-2, ::3]
            run(a, b[::-1].copy()[::-1], out=strided)
            np.testing.assert_allclose(strided, want, 1e-6)
    same_place = np.lib.stride_tricks.as_strided(np.zeros(10, np.float32), (12, 10), (0, 4))
    assert refusal(lambda: op(base[:12], b, out=same_place), dt.ShapeError) == (
        "Y: out= has stride 0, so several results would share an element; pass an array of its own"
    )
