"""Lowered nests compute what NumPy computes, after every pass."""

import time
from dataclasses import replace

import diptych as dt
import numpy as np
import pytest
from diptych.algo.errors import InternalError, ScheduleError, UnsupportedError
from diptych.algo.tensor_expr.expr import Const, Index
from diptych.lower.ir import Block, For, If, Update, allocated, walk
from diptych.lower.ir_parse import parse_expr
from diptych.lower.ir_print import print_expr, print_function
from diptych.lower.kernel import lower, translate
from diptych.lower.scan import Visit, asked, complete, determined
from diptych.sched.loop.machine import Machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WIDE = Machine(vector_bytes=64, registers=32)


@pytest.mark.parametrize("m, n, k", [(3, 4, 5), (1, 1, 1), (7, 19, 6)])
def test_plain_matmul(make, m, n, k):
    ij, ijk = {"i": (0, m), "j": (0, n)}, {"i": (0, m), "j": (0, n), "k": (0, k)}
    nest = make.nest(
        {"A": ("input", "f4", (m, k)), "B": ("input", "f4", (k, n)), "C": ("output", "f4", (m, n)),
         "C.acc": ("temp", "f4", (m, n))},
        [
            make.stmt("C.init", ij, "C.acc[i, j]", "0.0:f32"),
            make.stmt("C.update", ijk, "C.acc[i, j]", "A[i, k] * B[k, j]", "sum"),
            make.stmt("C.final", ij, "C[i, j]", "C.acc[i, j]"),
        ],
        make.loop("i", "i",
                  make.loop("j", "j", "C.init", make.loop("k", "k", "C.update"), "C.final")),
        [("C.acc", "C.acc", "heap", "j", None)],
    )  # fmt: skip
    a, b = make.whole(make.rng, (m, k)), make.whole(make.rng, (k, n))
    function = make.agrees(nest, {"A": a, "B": b}, {"C": a @ b})
    acc = next(allocated(function.body))
    assert acc.scope == "register" and acc.shape == (1, 1)


@pytest.mark.parametrize("order", ["ijk", "kij", "jki"])
def test_reduction_loop_outside(make, order):
    m, n, k = 5, 9, 4
    ij, ijk = {"i": (0, m), "j": (0, n)}, {"i": (0, m), "j": (0, n), "k": (0, k)}
    tree = "C.update"
    for index in reversed(order):
        tree = make.loop(index, index, tree, kind="vector" if index == order[-1] else "serial")
    init = make.loop("C.init.i", "i", make.loop("C.init.j", "j", "C.init"))
    both = make.loop("one", "0", init, tree)
    nest = make.nest(
        {"A": ("input", "f8", (m, k)), "B": ("input", "f8", (k, n)), "C": ("output", "f8", (m, n))},
        [
            make.stmt("C.init", ij, "C[i, j]", "0.0:f64"),
            make.stmt("C.update", ijk, "C[i, j]", "A[i, k] * B[k, j]", "sum"),
        ],
        both,
    )
    a, b = make.whole(make.rng, (m, k), "f8"), make.whole(make.rng, (k, n), "f8")
    make.agrees(nest, {"A": a, "B": b}, {"C": a @ b})


@settings(
    max_examples=12, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    m=st.integers(1, 20), n=st.integers(1, 40), k=st.integers(1, 5), mi=st.integers(1, 6),
    nj=st.integers(1, 20), width=st.sampled_from([8, 16, 32]),
    dtype=st.sampled_from(["float32", "int32"]),
)  # fmt: skip
def test_packed_matmul_at_any_size(make, m, n, k, mi, nj, width, dtype):
    a, b = make.whole(make.rng, (m, k), dtype), make.whole(make.rng, (k, n), dtype)
    nest = make.matmul(m, n, k, mi, nj, dtype=dtype)
    make.agrees(nest, {"A": a, "B": b}, {"C": a @ b}, Machine(vector_bytes=width),
                every_pass=False)  # fmt: skip


def test_packed_matmul(make):
    for m, n, k, mi, nj in [
        (21, 100, 7, 8, 48),
        (16, 96, 3, 8, 48),
        (5, 7, 2, 8, 48),
        (9, 21, 4, 4, 8),
    ]:
        a, b = make.whole(make.rng, (m, k)), make.whole(make.rng, (k, n))
        make.agrees(make.matmul(m, n, k, mi, nj), {"A": a, "B": b}, {"C": a @ b}, WIDE)


def inside(function, var):
    return [s for s in walk(function.body) if isinstance(s, For) and s.var == var]


def test_full_tile_is_straight_line_code(make):
    function = lower(make.matmul(1000, 1000, 64), "mm", machine=WIDE)
    full, partial = inside(function, "k")
    body = full.body.stmts
    assert len(body) == 8 * 3
    assert all(isinstance(s, For) and s.lanes == 16 and isinstance(s.body, Update) for s in body)
    assert not any(isinstance(s, If) for s in walk(full))
    assert {b.scope for b in allocated(function.body) if b.name == "C.acc"} == {"register"}
    # 1000 is 20 * 48 + 40, so of a partial tile only the last piece of a row is masked, to 8 lanes.
    pieces = [(s.lo.value, s.hi.value) for s in partial.body.stmts]
    assert pieces == [(0, 16), (16, 32), (32, 40)] * 8


def test_tails_on_two_sides_have_constant_bounds(make):
    function = lower(make.matmul(29, 100, 7), "mm", machine=WIDE)  # tiles of 8 by 48
    counts = [len(loop.body.stmts) for loop in inside(function, "k")]
    assert counts == [8 * 3, 8 * 1, 5 * 3, 5 * 1]
    inner = [s for s in walk(function.body) if isinstance(s, For) and s.kind == "vector"]
    assert all(isinstance(s.hi, Const) for s in inner if s.var == "ji")


def test_lowering_is_quick(make):
    nest = make.matmul(1000, 1000, 1000)
    times = []
    for _ in range(4):
        start = time.process_time()
        lower(nest, "mm", machine=WIDE)
        times.append(time.process_time() - start)
    assert min(times) < 0.15


def test_one_iteration_keeps_the_place_of_a_buffer(make):
    nest = make.matmul(8, 48, 5)
    text = print_function(translate(nest, "mm"))
    assert "for jo" not in text and "for io" not in text
    assert text.index("alloc B.pack") < text.index("for B.pack.k") < text.index("alloc C.acc")
    a, b = make.whole(make.rng, (8, 5)), make.whole(make.rng, (5, 48))
    make.agrees(nest, {"A": a, "B": b}, {"C": a @ b}, WIDE)


def test_conv2d_stride_2(make):
    h, w, ci, co, r = 4, 5, 3, 10, 3
    dims = {"y": (0, h), "x": (0, w), "o": (0, co)}
    taps = {"r": (0, r), "s": (0, r), "c": (0, ci)}
    nest = make.nest(
        {"X": ("input", "f4", (2 * h + 1, 2 * w + 1, ci)), "W": ("input", "f4", (r, r, ci, co)),
         "Y": ("output", "f4", (h, w, co))},
        [
            make.stmt("Y.init", dims, "Y[y, x, o]", "0.0:f32"),
            make.stmt("Y.update", dims | taps, "Y[y, x, o]",
                      "X[2*y+r, 2*x+s, c] * W[r, s, c, o]", "sum"),
        ],
        make.loop("y", "y", make.loop("xo", "x // 2",
            make.loop("Y.init.xi", "x % 2", make.loop("Y.init.o", "o", "Y.init", kind="vector")),
            make.loop("r", "r", make.loop("s", "s", make.loop("c", "c", make.loop("xi", "x % 2",
                make.loop("o", "o", "Y.update", kind="vector"), kind="unroll"))))),
            kind="parallel"),
    )  # fmt: skip
    x, f = make.whole(make.rng, (2 * h + 1, 2 * w + 1, ci)), make.whole(make.rng, (r, r, ci, co))
    expected = np.zeros((h, w, co), "f4")
    for dy in range(r):
        for dx in range(r):
            window = x[dy : dy + 2 * h : 2, dx : dx + 2 * w : 2]
            expected += window[:h, :w] @ f[dy, dx]
    make.agrees(nest, {"X": x, "W": f}, {"Y": expected})


def test_softmax_with_temporaries_of_a_row(make):
    n, d = 6, 37
    row, full = {"i": (0, n)}, {"i": (0, n), "j": (0, d)}
    j = {"kind": "vector"}
    nest = make.nest(
        {"x": ("input", "f4", (n, d)), "y": ("output", "f4", (n, d)), "m": ("temp", "f4", (n,)),
         "e": ("temp", "f4", (n, d)), "s": ("temp", "f4", (n,))},
        [
            make.stmt("m.init", row, "m[i]", "-inf:f32"),
            make.stmt("m.update", full, "m[i]", "x[i, j]", "max"),
            make.stmt("e", full, "e[i, j]", "exp(x[i, j] - m[i])"),
            make.stmt("s.init", row, "s[i]", "0.0:f32"),
            make.stmt("s.update", full, "s[i]", "e[i, j]", "sum"),
            make.stmt("y", full, "y[i, j]", "e[i, j] / s[i]"),
        ],
        make.loop("i", "i", "m.init", make.loop("m.j", "j", "m.update", **j),
                  make.loop("e.j", "j", "e", **j), "s.init",
                  make.loop("s.j", "j", "s.update", **j), make.loop("y.j", "j", "y", **j),
                  kind="parallel"),
        [(name, name, "heap", "i", None) for name in "mes"],
    )  # fmt: skip
    x = make.rng.standard_normal((n, d)).astype("f4")
    e = np.exp(x - x.max(1, keepdims=True))
    function = make.agrees(nest, {"x": x}, {"y": e / e.sum(1, keepdims=True)})
    scopes = {b.name: b.scope for b in allocated(function.body)}
    assert scopes["m"] == "register" and scopes["s"] == "register"
    assert {b.shape for b in allocated(function.body)} >= {(1, 37), (1, 40)}


def test_max_pool(make):
    h, w = 3, 7
    dims, taps = {"y": (0, h), "x": (0, w)}, {"r": (0, 2), "s": (0, 2)}
    nest = make.nest(
        {"X": ("input", "i4", (2 * h, 2 * w)), "Y": ("output", "i4", (h, w))},
        [
            make.stmt("Y.init", dims, "Y[y, x]", "-2147483648:i32"),
            make.stmt("Y.update", dims | taps, "Y[y, x]", "X[2*y+r, 2*x+s]", "max"),
        ],
        make.loop("y", "y", make.loop("x", "x", "Y.init",
            make.loop("r", "r", make.loop("s", "s", "Y.update", kind="unroll"), kind="unroll"))),
    )  # fmt: skip
    x = make.whole(make.rng, (2 * h, 2 * w), "i4")
    make.agrees(nest, {"X": x}, {"Y": x.reshape(h, 2, w, 2).max((1, 3))})


def test_gather_and_scatter(make):
    b, v, d = 5, 4, 6
    nest = make.nest(
        {"W": ("input", "f4", (v, d)), "idx": ("input", "i4", (b,)), "Y": ("output", "f4", (b, d)),
         "H": ("output", "f4", (v,))},
        [
            make.stmt("Y", {"b": (0, b), "d": (0, d)}, "Y[b, d]", "W[i64(idx[b]), d]"),
            make.stmt("H.init", {"v": (0, v)}, "H[v]", "0.0:f32"),
            make.stmt("H.update", {"b": (0, b)}, "H[i64(idx[b])]", "1.0:f32", "sum"),
        ],
        make.loop("one", "0", make.loop("Y.b", "b", make.loop("Y.d", "d", "Y", kind="vector")),
                  make.loop("v", "v", "H.init"), make.loop("H.b", "b", "H.update")),
    )  # fmt: skip
    w, idx = make.whole(make.rng, (v, d)), np.array([3, 0, 3, 1, 0], "i4")
    make.agrees(nest, {"W": w, "idx": idx}, {"Y": w[idx], "H": np.bincount(idx, minlength=v)})


def test_cumulative_sum(make):
    n = 9
    nest = make.nest(
        {"x": ("input", "i8", (n,)), "y": ("output", "i8", (n,))},
        [
            make.stmt("first", {"t": (0, 1)}, "y[0]", "x[0]"),
            make.stmt("rest", {"t": (1, n)}, "y[t]", "y[t - 1] + x[t]"),
        ],
        make.loop("t", "t", "first", "rest"),
    )
    x = make.whole(make.rng, (n,), "i8")
    make.agrees(nest, {"x": x}, {"y": np.cumsum(x)})


def test_determined_indices_are_no_loops(make):
    n, r = 9, 3  # dX[y] += dO[h] * w[r] where 2h + 3r = y, the gradient of a dilated convolution
    size = 2 * (n - 1) + 3 * (r - 1) + 1
    nest = make.nest(
        {"dO": ("input", "f4", (n,)), "w": ("input", "f4", (r,)), "dX": ("output", "f4", (size,))},
        [
            make.stmt("init", {"y": (0, size)}, "dX[y]", "0.0:f32"),
            make.stmt("update", {"y": (0, size), "h": (0, n), "r": (0, r)}, "dX[y]", "dO[h] * w[r]",
                      "sum", ["2*h + 3*r == y"]),
        ],
        make.loop("y", "y", "init", make.loop("r", "r", make.loop("h", "h", "update"))),
    )  # fmt: skip
    g, w = make.whole(make.rng, (n,)), make.whole(make.rng, (r,))
    expected = np.zeros(size, "f4")
    for h in range(n):
        for k in range(r):
            expected[2 * h + 3 * k] += g[h] * w[k]
    function = make.agrees(nest, {"dO": g, "w": w}, {"dX": expected})
    assert not inside(function, "h") and inside(function, "r")


def test_domain_that_is_not_convex(make):
    n = 11
    nest = make.nest(
        {"y": ("output", "f4", (n, n))},
        [
            make.stmt("zero", {"i": (0, n), "j": (0, n)}, "y[i, j]", "0.0:f32"),
            make.stmt("some", {"i": (0, n), "j": (0, n)}, "y[i, j]", "1.0:f32",
                      where=["(i % 3 == 0) | (i == j)"]),
        ],
        make.loop("one", "0", make.loop("a", "i", make.loop("b", "j", "zero")),
                  make.loop("i", "i", make.loop("j", "j", "some", kind="vector"))),
    )  # fmt: skip
    rows, cols = np.indices((n, n))
    make.agrees(nest, {}, {"y": ((rows % 3 == 0) | (rows == cols)) * 1.0})


def test_overlapped_tiles_store_a_window(make):
    n, tile = 30, 8  # t[i] = x[i] + x[i+1]; y[i] = t[i] * t[i+2], t computed in each tile
    nest = make.nest(
        {"x": ("input", "f4", (n + 3,)), "y": ("output", "f4", (n,)),
         "t": ("temp", "f4", (n + 2,))},
        [
            make.stmt("t", {"io": (0, 4), "i": (0, n + 2)}, "t[i]", "x[i] + x[i + 1]",
                      where=[f"{tile}*io <= i", f"i < {tile}*io + {tile + 2}"]),
            make.stmt("y", {"i": (0, n)}, "y[i]", "t[i] * t[i + 2]"),
        ],
        make.loop("io", {"t": "io", "y": f"i // {tile}"}, make.loop("t.i", f"i - {tile}*io", "t"),
                  make.loop("ii", f"i % {tile}", "y", kind="vector"), kind="parallel"),
        [("t", "t", "stack", "io", None)],
    )  # fmt: skip
    x = make.whole(make.rng, (n + 3,))
    t = x[:-1] + x[1:]
    function = make.agrees(nest, {"x": x}, {"y": t[:n] * t[2 : n + 2]})
    assert next(allocated(function.body)).shape == (tile + 2,)


def test_window_clamped_at_the_boundary(make):
    n, tile = 20, 8  # t holds max(0, 8io-1) .. min(n, 8io+9), a window whose start is not affine
    nest = make.nest(
        {"x": ("input", "f4", (n,)), "y": ("output", "f4", (n,)), "t": ("temp", "f4", (n,))},
        [
            make.stmt("t", {"io": (0, 3), "i": (0, n)}, "t[i]", "x[i] * 2.0:f32",
                      where=[f"{tile}*io - 1 <= i", f"i <= {tile}*io + {tile}"]),
            make.stmt("y", {"i": (0, n)}, "y[i]",
                      "where(0 < i, t[max(i - 1, 0)], 0.0:f32) + t[min(i + 1, 19)]"),
        ],
        make.loop("io", {"t": "io", "y": f"i // {tile}"}, make.loop("t.i", f"i - {tile}*io", "t"),
                  make.loop("ii", f"i % {tile}", "y")),
        [("t", "t", "stack", "io", None)],
    )  # fmt: skip
    x = make.whole(make.rng, (n,))
    expected = np.concatenate([[0], 2 * x[:-1]]) + 2 * x[np.minimum(np.arange(n) + 1, n - 1)]
    function = make.agrees(nest, {"x": x}, {"y": expected})
    assert next(allocated(function.body)).shape == (tile + 2,)


def test_fused_loop_gives_an_affine_window(make):
    n = 24
    nest = make.nest(
        {"x": ("input", "f4", (n, n)), "y": ("output", "f4", (n, n)), "t": ("temp", "f4", (n, n))},
        [
            make.stmt("t", {"f": (0, 18), "i": (0, n), "j": (0, n)}, "t[i, j]", "x[i, j] * x[i, j]",
                      where=["f == (i // 8) * 6 + j // 4"]),
            make.stmt("y", {"i": (0, n), "j": (0, n)}, "y[i, j]", "t[i, j] + 1.0:f32"),
        ],
        make.loop("f", {"t": "f", "y": "(i // 8) * 6 + j // 4"},
                  make.loop("t.i", "i % 8", make.loop("t.j", "j % 4", "t", kind="vector")),
                  make.loop("ii", "i % 8", make.loop("ji", "j % 4", "y", kind="vector")),
                  kind="parallel"),
        [("t", "t", "stack", "f", None)],
    )  # fmt: skip
    x = make.whole(make.rng, (n, n))
    function = make.agrees(nest, {"x": x}, {"y": x * x + 1})
    assert next(allocated(function.body)).shape == (8, 4)


@pytest.mark.parametrize("d", [5, 64, 1000])
@pytest.mark.parametrize("rows", [1, 3])
def test_long_rows_sum_in_lanes(make, d, rows):
    nest = make.nest(
        {"x": ("input", "f4", (rows, d)), "s": ("output", "f4", (rows,))},
        [
            make.stmt("init", {"i": (0, rows)}, "s[i]", "0.0:f32"),
            make.stmt("update", {"i": (0, rows), "k": (0, d)}, "s[i]", "x[i, k]", "sum"),
        ],
        make.loop("i", "i", "init", make.loop("k", "k", "update", kind="vector")),
    )
    x = make.whole(make.rng, (rows, d))
    function = make.agrees(nest, {"x": x}, {"s": x.sum(1)}, WIDE)
    lanes = list(allocated(function.body))
    assert [b.shape for b in lanes] == ([] if d < 16 else [(1, 64)])
    horizontal = [s for s in walk(function.body) if isinstance(s, Update) and s.buffer == "s"]
    assert len(horizontal) == 1  # lanes are combined once, at the end


def test_strided_parameters(make):
    nest = make.nest(
        {"x": ("input", "f4", (4, 5)), "y": ("output", "f4", (4, 5))},
        [make.stmt("y", {"i": (0, 4), "j": (0, 5)}, "y[i, j]", "x[i, j]")],
        make.loop("i", "i", make.loop("j", "j", "y")),
    )
    function = lower(nest, "copy", {"x": (1, 4)})
    assert [p.strides for p in function.params] == [(1, 4), (5, 1)]
    x = make.whole(make.rng, (5, 4)).T
    assert np.array_equal(make.outputs(function, nest, {"x": x})["y"], x)


def test_empty_sizes(make):
    a, b = np.zeros((4, 0), "f4"), np.zeros((0, 5), "f4")
    make.agrees(make.matmul(4, 5, 0), {"A": a, "B": b}, {"C": np.zeros((4, 5))})
    make.agrees(
        make.matmul(0, 5, 3), {"A": np.zeros((0, 3), "f4"), "B": np.zeros((3, 5), "f4")}, {}
    )


def test_vector_loop_over_every_other_element(make):
    n = 21
    nest = make.nest(
        {"y": ("output", "i4", (n,))},
        [
            make.stmt("even", {"i": (0, n)}, "y[i]", "i32(i)", where=["i % 2 == 0"]),
            make.stmt("odd", {"i": (0, n)}, "y[i]", "0:i32", where=["i % 2 == 1"]),
        ],
        make.loop("one", "0", make.loop("i", "i", "even", kind="vector"),
                  make.loop("odd.i", "i", "odd", kind="vector")),
    )  # fmt: skip
    expected = np.arange(n) * (np.arange(n) % 2 == 0)
    make.agrees(nest, {}, {"y": expected})


def test_statements_whose_strides_isl_shifts_into_one_loop(make):
    """Values 9, 14, .. and 17, 22, .. are both reached in a loop over 9, 14, ..: isl says where."""
    n = 4
    one, two = make.loop("one", "0", "y"), make.loop("two", "0", "z")
    value = {"y": "5 * i + 9", "z": "5 * j + 12"}
    nest = make.nest(
        {"x": ("input", "f4", (n,)), "y": ("output", "f4", (n,)), "z": ("output", "f4", (n,))},
        [
            make.stmt("y", {"i": (0, n)}, "y[i]", "x[i]"),
            make.stmt("z", {"j": (1, n)}, "z[j]", "x[j] + y[j - 1]"),
        ],
        make.loop("v", value, one, two),
    )
    x = make.whole(make.rng, (n,))
    z = np.array([77, *(x[1:] + x[:-1])])
    function = make.agrees(nest, {"x": x}, {"y": x, "z": z})
    assert [s.step for s in walk(function.body) if isinstance(s, For)] == [5]


def test_separate_tail_of_a_serial_loop(make):
    n = 21
    inner = make.loop("ii", "i % 8", "y")
    nest = make.nest(
        {"x": ("input", "f4", (n,)), "y": ("output", "f4", (n,))},
        [make.stmt("y", {"i": (0, n)}, "y[i]", "x[i]")],
        make.loop("io", "i // 8", replace(inner, tail="separate")),
    )
    x = make.whole(make.rng, (n,))
    function = make.agrees(nest, {"x": x}, {"y": x})
    assert [print_expr(s.hi) for s in inside(function, "ii")] == ["8", "5"]


def test_long_tiles_in_lanes_are_separated_before_they_are_cut(make):
    """Whole tiles of 100 and what is left are of known length, so that their strips are."""
    n = 317
    nest = make.nest(
        {"x": ("input", "f4", (n,)), "y": ("output", "f4", (n,))},
        [make.stmt("y", {"i": (0, n)}, "y[i]", "x[i]")],
        make.loop("io", "i // 100", make.loop("ii", "i % 100", "y", kind="vector")),
    )
    x = make.whole(make.rng, (n,))
    function = make.agrees(nest, {"x": x}, {"y": x})
    (choice,) = (s for s in walk(function.body) if isinstance(s, If))
    assert print_expr(choice.cond) == "317 - 100 * io >= 100"
    strips = [s.hi for s in walk(function.body) if isinstance(s, For) and s.var == "ii.strip"]
    assert list(map(print_expr, strips)) == ["3"]
    pieces = [print_expr(s.hi) for s in inside(function, "ii")]
    assert pieces == ["8", "16", "24", "32", "4", "8", "16"]  # 4 of 100 are left, and 17 of all


@pytest.mark.parametrize("k", [16, 100])
def test_tile_of_row_products_in_lanes(make, k):
    m, n = 5, 6  # C = A B^T: the reduction is the dimension that is contiguous in both
    ij, ijk = {"i": (0, m), "j": (0, n)}, {"i": (0, m), "j": (0, n), "k": (0, k)}

    def tile(prefix, *body):
        inner = make.loop(f"{prefix}ji", "j % 2", *body, kind="unroll")
        return make.loop(f"{prefix}ii", "i % 2", inner, kind="unroll")

    update = make.loop(
        "ko", "k // 16", tile("", make.loop("ki", "k % 16", "update", kind="vector"))
    )
    nest = make.nest(
        {"A": ("input", "f4", (m, k)), "B": ("input", "f4", (n, k)), "C": ("output", "f4", (m, n)),
         "acc": ("temp", "f4", (m, n))},
        [
            make.stmt("init", ij, "acc[i, j]", "0.0:f32"),
            make.stmt("update", ijk, "acc[i, j]", "A[i, k] * B[j, k]", "sum"),
            make.stmt("final", ij, "C[i, j]", "acc[i, j]"),
        ],
        make.loop("io", "i // 2", make.loop("jo", "j // 2", tile("init.", "init"), update,
                                           tile("final.", "final"))),
        [("acc", "acc", "register", "jo", None)],
    )  # fmt: skip
    a, b = make.whole(make.rng, (m, k)), make.whole(make.rng, (n, k))
    function = make.agrees(nest, {"A": a, "B": b}, {"C": a @ b.T}, WIDE)
    full = next(s for s in walk(function.body) if isinstance(s, If)).then
    lanes = [b for b in allocated(full) if ".lanes" in b.name]
    assert [b.shape for b in lanes] == ([(4, 16)] if k > 16 else [])
    updates = [s for s in walk(full) if isinstance(s, Update) and s.buffer == "acc"]
    assert len(updates) == (2 if k > 16 else 4)  # sums side by side get theirs as a vector


def test_bound_that_two_limits_share(make):
    n = 11  # in 10*io .. min(10*io + 10, 11) there are 10 iterations at most, not 11
    nest = make.nest(
        {"x": ("input", "f4", (n,)), "y": ("output", "f4", (n,)), "t": ("temp", "f4", (n,))},
        [
            make.stmt("t", {"io": (0, 2), "i": (0, n)}, "t[i]", "x[i]", where=["i // 10 == io"]),
            make.stmt("y", {"i": (0, n)}, "y[i]", "t[i]"),
        ],
        make.loop("io", {"t": "io", "y": "i // 10"}, make.loop("t.i", "i", "t", kind="unroll"),
                  make.loop("ii", "i % 10", "y")),
        [("t", "t", "stack", "io", None)],
    )  # fmt: skip
    x = make.whole(make.rng, (n,))
    make.agrees(nest, {"x": x}, {"y": x})


def test_lanes_of_a_cell_that_may_not_exist(make):
    n, k = 11, 3  # y[4*io + 3] is outside in the last tile, where nothing is added to it
    nest = make.nest(
        {"x": ("input", "f4", (n, k)), "y": ("output", "f4", (n,))},
        [
            make.stmt("init", {"i": (0, n)}, "y[i]", "0.0:f32"),
            make.stmt("update", {"i": (0, n), "k": (0, k)}, "y[i]", "x[i, k]", "sum"),
        ],
        make.loop("io", "i // 4", make.loop("init.ii", "i % 4", "init"),
                  make.loop("ii", "i % 4", make.loop("k", "k", "update", kind="vector"),
                            kind="unroll")),
    )  # fmt: skip
    x = make.whole(make.rng, (n, k))
    make.agrees(nest, {"x": x}, {"y": x.sum(1)})


def test_tile_with_two_ragged_sides(make):
    n = 13  # c[i] += a[k] where k <= i: the first and the last iteration of a tile of i vary
    nest = make.nest(
        {"a": ("input", "f4", (n,)), "c": ("output", "f4", (n,))},
        [
            make.stmt("init", {"i": (0, n)}, "c[i]", "0.0:f32"),
            make.stmt("update", {"i": (0, n), "k": (0, n)}, "c[i]", "a[k]", "sum", ["k <= i"]),
        ],
        make.loop("one", "0", make.loop("init.i", "i", "init"),
                  make.loop("k", "k", make.loop("io", "i // 5",
                            make.loop("ii", "i % 5", "update", kind="unroll")))),
    )  # fmt: skip
    a = make.whole(make.rng, (n,))
    function = make.agrees(nest, {"a": a}, {"c": np.cumsum(a)})
    assert (
        sum(isinstance(s, Update) for s in walk(function.body))
        == 5 + 5 + 3 + 3  # full or not at each end
    )  # full and partial on each side


def test_loops_that_isl_gets_wrong_are_said_in_other_words(make):
    n, h, k = 18, 6, 3  # from these loops alone isl makes code for even h only
    nest = make.nest(
        {"g": ("input", "f4", (h,)), "w": ("input", "f4", (k,)), "x": ("output", "f4", (n,))},
        [
            make.stmt("init", {"i": (0, n)}, "x[i]", "0.0:f32"),
            make.stmt("update", {"i": (0, n), "h": (0, h), "k": (0, k)}, "x[i]", "g[h] * w[k]",
                      "sum", ["3*h + k == i"]),
        ],
        make.loop("i", "i", "init", make.loop("a", "(h % 4) // 2", make.loop("b", "(h % 8) // 4",
                  make.loop("c", "h % 2", "update")))),
    )  # fmt: skip
    g, w = make.whole(make.rng, (h,)), make.whole(make.rng, (k,))
    expected = np.zeros(n, "f4")
    for i in range(n):
        expected[i] = g[i // 3] * w[i % 3]
    make.agrees(nest, {"g": g, "w": w}, {"x": expected})
    values = determined(nest.stmts["update"])
    assert {print_expr(d): print_expr(v) for d, v in values.items()} == {
        "h": "i // 3",
        "k": "i - 3 * h",
    }


def test_instances_that_are_missing_are_noticed(make):
    nest = make.nest(
        {"x": ("output", "f4", (9,))},
        [make.stmt("x", {"i": (0, 9)}, "x[i]", "1.0:f32", where=["i % 2 == 0"])],
        make.loop("i", "i", "x"),
    )
    i, step = Index("i"), For("i", Const(0), Const(9), Block(()), "serial", 2)
    every = For("i", Const(0), Const(9), Block(()))
    even = parse_expr("i % 2 == 0")
    pick = parse_expr("where(i < 4, 2 * i, 8)")
    assert complete(nest, [Visit("x", (step,), (), (i,))])
    assert complete(nest, [Visit("x", (every,), (even,), (i,))])
    assert complete(nest, [Visit("x", (For("i", Const(0), Const(5), Block(())),), (), (pick,))])
    assert not complete(nest, [Visit("x", (every,), (), (i,))])
    assert not complete(nest, [Visit("x", (every,), (even, parse_expr("i < 8")), (i,))])
    assert not complete(nest, [])


def test_nests_that_stay_incomplete_are_refused(make, monkeypatch):
    monkeypatch.setattr("diptych.lower.kernel.complete", lambda nest, visits, context: False)
    with pytest.raises(ScheduleError) as caught:
        lower(make.matmul(8, 48, 5), "mm")
    assert str(caught.value) == (
        "mm: isl generates loops that miss instances of this nest; split or reorder fewer loops "
        "over indices that others determine"
    )
    assert isinstance(caught.value, UnsupportedError)


LOST = (
    "f(A: f64[2,2], B: f64[2]) -> y:\n"
    "  y[] = sum(A[(i+1)//3,(3*i+j+k+1)//3%2]**2 * B[(1-i)%4]) where i in 0:2, j in 0:5, k in 0:1"
)


def test_instances_that_isl_loses_are_asked_for_one_by_one():
    op, rng = dt.op(LOST), np.random.default_rng(0)
    back = op.gradient(("A", "B"))
    arrays = rng.standard_normal((2, 2)), rng.standard_normal(2), rng.standard_normal(())
    for got, want in zip(back(*arrays), dt.interpret(back, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    dt.check_grads(op, arrays[:2], order=2)


@pytest.fixture
def third_way(monkeypatch):
    """isl's loops are taken to be incomplete twice: conditions are then asked of instances."""
    answers = []

    def third(nest, visits, context):
        answers.append(complete(nest, visits, context))
        return len(answers) == 3 and answers[-1]

    monkeypatch.setattr("diptych.lower.kernel.complete", third)
    yield
    assert answers == [True] * 3


@pytest.mark.parametrize("kind", ["serial", "vector"])
@pytest.mark.parametrize("where", ["(i // 2) % 3 == a", "(i + a) % 2 == 0", "i % 5 < a"])
def test_sums_by_conditions_on_instances(make, third_way, where, kind):
    dims = {"a": (0, 3), "i": (0, 13)}
    nest = make.nest(
        {"x": ("input", "f4", (13,)), "y": ("output", "f4", (3,))},
        [make.stmt("init", {"a": (0, 3)}, "y[a]", "0.0:f32"),
         make.stmt("y", dims, "y[a]", "x[i]", "sum", where=[where])],
        make.loop("one", "0", make.loop("init.a", "a", "init"),
                  make.loop("i", "i", make.loop("a", "a", "y", kind=kind))),
    )  # fmt: skip
    x = make.whole(make.rng, (13,))
    holds = [[eval(where, {"a": a, "i": i}) for i in range(13)] for a in range(3)]
    make.agrees(nest, {"x": x}, {"y": np.where(holds, x, 0).sum(1)}, WIDE)


def test_conditions_without_which_loops_do_not_tell_instances_apart_stay(make):
    nest = make.matmul(13, 50, 4)  # of the panel `B.pack` a loop gives j % 48 alone
    assert asked(nest, nest.stmts["B.pack"]) == ()
    where = ["i // 2 == a"]
    tensors = {"y": ("output", "f4", (3,))}
    for ranges, expected in [({"a": (0, 3)}, ()), ({"a": (0, 3), "i": (0, 9)}, (*where,))]:
        stmt = replace(make.stmt("y", ranges, "y[a]", "1.0:f32", where=where), dims=("a", "i"))
        nest = make.nest(tensors, [stmt], make.loop("a", "a", make.loop("i", "i", "y")))
        assert asked(nest, stmt) == tuple(map(parse_expr, expected))


def test_nests_that_exhaust_isl_are_refused(make, monkeypatch):
    monkeypatch.setattr("diptych.lower.kernel.QUOTA", 1000)
    with pytest.raises(ScheduleError) as caught:
        lower(make.matmul(8, 48, 5), "mm")
    assert str(caught.value) == (
        "mm: isl finds no loops for this nest within 1000 operations; split or fuse fewer loops"
    )


def test_a_tree_that_repeats_a_statement_is_refused(make):
    nest = make.nest(
        {"y": ("output", "f4", (4,))},
        [make.stmt("y", {"i": (0, 4)}, "y[i]", "0.0:f32")],
        make.loop("one", "0", make.loop("i", "i", "y"), make.loop("j", "i", "y")),
    )
    with pytest.raises(InternalError) as caught:
        lower(nest, "twice")
    assert str(caught.value) == ("the loop tree has the statements y, y; expected each of y once")


def test_layouts_that_cannot_be_are_refused(make):
    def copy(layout, scope):
        return make.nest(
            {"x": ("input", "f4", (9,)), "y": ("output", "f4", (9,)), "t": ("temp", "f4", (9,))},
            [
                make.stmt("t", {"i": (0, 9)}, "t[i]", "x[i]"),
                make.stmt("y", {"i": (0, 9)}, "y[i]", "t[i]"),
            ],
            make.loop("one", "0", make.loop("a", "i", "t"), make.loop("b", "i", "y")),
            [("t", "t", scope, None, layout)],
        )

    with pytest.raises(UnsupportedError) as caught:
        lower(copy(["d0 - 3"], "heap"), "copy")
    assert str(caught.value) == "layout of t: an axis must be bounded and start at 0"
    with pytest.raises(UnsupportedError) as caught:
        lower(copy(["d0 // 3", "d0 % 3"], "param"), "copy")
    assert str(caught.value) == (
        "t is an argument, whose layout is the caller's; stage a copy of it with layout= instead"
    )


def test_parallel_loop_inside_lanes(make):
    m, n = 4, 6
    nest = make.nest(
        {"x": ("input", "f4", (m, n)), "y": ("output", "f4", (m, n)), "t": ("temp", "f4", (m, n))},
        [
            make.stmt("t", {"i": (0, m), "j": (0, n)}, "t[i, j]", "x[i, j] + 1.0:f32"),
            make.stmt("y", {"i": (0, m), "j": (0, n)}, "y[i, j]", "t[i, j] * t[i, j]"),
        ],
        make.loop("j", "j", make.loop("t.i", "i", "t", kind="parallel"),
                  make.loop("i", "i", "y", kind="vector"), kind="vector"),
        [("t", "t", "stack", "j", None)],
    )  # fmt: skip
    x = make.whole(make.rng, (m, n))
    function = make.agrees(nest, {"x": x}, {"y": (x + 1) ** 2})
    assert {s.kind for s in walk(function.body) if isinstance(s, For)} == {"vector", "serial"}


@pytest.mark.parametrize("level", ["hi", "kk"])
def test_a_loop_that_runs_once_at_a_varying_place_keeps_its_buffer(make, level):
    n, h, k = 18, 6, 3  # h % 5 is determined by i, and t lives in its loop, among four statements
    dims, same = {"i": (0, n), "h": (0, h), "k": (0, k)}, ["3*h + k == i"]
    nest = make.nest(
        {"g": ("input", "f4", (h,)), "w": ("input", "f4", (k,)), "x": ("output", "f4", (n,)),
         "t": ("temp", "f4", (n,))},
        [
            make.stmt("start", dims, "t[i]", "0.0:f32", where=same),
            make.stmt("update", dims, "t[i]", "g[h] * w[k]", "sum", same),
            make.stmt("store", dims, "x[i]", "t[i]", where=same),
        ],
        make.loop("i", "i", make.loop("ho", "h // 5", make.loop("hi", "h % 5",
                  make.loop("kk", "k", "start", make.loop("ki", "k % 4", "update"), "store")))),
        [("t", "t", "stack", level, None)],
    )  # fmt: skip
    g, w = make.whole(make.rng, (h,)), make.whole(make.rng, (k,))
    expected = np.array([g[i // 3] * w[i % 3] for i in range(n)])
    function = make.agrees(nest, {"g": g, "w": w}, {"x": expected})
    assert len(list(allocated(function.body))) == 1
