"""Default schedules of gradients: reductions over a batch and all of its positions."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import f32, i64
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from diptych.sched.loop.default import choose, default
from diptych.sched.loop.extent import at_once
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.nest import loops
from diptych.sched.loop.schedule import Schedule

WIDE = Machine(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20, threads=2)
CONV = """
    conv(x: [N, C, H, L], w: [F, C, 3, 3]) -> y:
        y[n,f,p,q] = sum(x.zero[n,c,p+r-1,q+s-1] * w[f,c,r,s]) where p in 0:H, q in 0:L
"""


def by_weights(**sizes: int):  # type: ignore[no-untyped-def]
    op = adjoint(parse(CONV), "w")
    types = {p.name: f32 for p in op.params}
    return choose(op, types, sizes, WIDE).choices["dw"], str(default(op, types, sizes, WIDE))


def test_a_gradient_by_weights_is_accumulated_image_by_image() -> None:
    """One image's cotangents stay in the second cache; all of them would be read from behind it
    for each pair of channels."""
    choice, made = by_weights(N=8, C=64, H=56, L=56, F=64)
    assert (choice.vector, choice.blocks, choice.outer) == ("f", (("n", 1),), "c")
    assert "parallel for dy.pack.p" in made  # that of one image
    assert made.index("for dw.so") < made.index("x.pack") < made.index("for dw.r:")
    (update,) = [line for line in made.splitlines() if "] += " in line]
    assert "where" not in update
    assert "vector for dw.load.si" in made and "vector for dw.store.si" in made


def test_small_images_are_taken_together() -> None:
    choice, _ = by_weights(N=256, C=64, H=7, L=7, F=64)
    ((index, images),) = choice.blocks
    assert index == "n" and images * 49 >= 2048 and images < 256


@pytest.mark.parametrize(
    "shape", [(3, 5, 9, 17, 20), (2, 20, 48, 50, 16), (70, 3, 6, 6, 33), (1, 1, 1, 1, 1)]
)
def test_gradients_by_weights_of_any_size(shape: tuple[int, ...]) -> None:
    n, c, h, w, f = shape
    op = adjoint(dt.op(CONV), "w")
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (n, c, h, w)).astype(np.float32)
    dy = rng.integers(-4, 5, (n, f, h, w)).astype(np.float32)
    np.testing.assert_array_equal(op(x, dy), dt.interpret(op, x, dy))


def test_a_loop_has_as_many_iterations_as_it_has_at_once() -> None:
    """The copy of one row after the other runs over all rows, one at a time."""
    made = Schedule(parse("y[i,j] = x[i,j] + x[i,0]")).stage("x", at="i", scope="heap")
    nest = made.nest({}, {"I": 5, "J": 7})
    counts = {loop.name: at_once(nest, loop) for loop in loops(nest.tree)}
    assert counts == {"y.i": 5, "x.pack.i": 1, "x.pack.j": 7, "y.j": 7}


def test_rows_of_a_result_hold_what_it_needs_though_another_result_is_last() -> None:
    """The mean is read by the last sum, too, and is whole before both."""
    op = parse("""
        f(x: [M, N], z: [M, L]) -> y, s:
            m[i] = sum(x[i,j])
            d[i] = sum(x[i,j] ** 2)
            y[i,j] = x[i,j] * m[i] - d[i]
            s[j] = sum(z[i,j] * m[i])
    """)
    types = {p.name: f32 for p in op.params}
    made = choose(op, types, {"M": 4096, "N": 1024, "L": 1000}, WIDE).choices
    assert (made["d"].join, made["m"].join, made["m"].outer) == (("y", "i"), None, "i")
    assert (made["y"].outer, made["s"].outer, made["s"].vectors) == ("i", "j", 0)
    rng = np.random.default_rng(0)
    x, z = rng.integers(-4, 5, (2, 37, 50)).astype(np.float32)
    for got, want in zip(dt.op(op.text)(x, z), dt.interpret(op, x, z), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_long_product_is_not_repeated_in_blocks_of_what_reads_it() -> None:
    op = parse("""
        f(w: [M, N], dz: [B, N], z: [B, M]) -> d:
            dx[b,m] = sum(dz[b,n] * w[m,n])
            d[b,m] = where(z[b,m] > 0.0, dx[b,m], 0)
    """)
    types = {p.name: f32 for p in op.params}
    made = choose(op, types, {"B": 256, "M": 1024, "N": 512}, WIDE).choices
    assert (made["dx"].join, made["dx"].pack) == (None, ("w",))


def test_threads_share_columns_where_private_results_are_more_work() -> None:
    op = parse("f(at: [B], dy: [B, D], w: [V]) -> h:\n    h: [V, D]\n    h[at[b],d] += dy[b,d]\n")
    types = {"at": i64, "dy": f32, "w": f32}
    few = choose(op, types, {"B": 200_000, "D": 16, "V": 50}, WIDE).choices["h"]
    many = choose(op, types, {"B": 20_000, "D": 128, "V": 10_000}, WIDE).choices["h"]
    assert (few.outer, many.outer, many.chunk) == ("b", "d", 64)
    made = str(default(op, types, {"B": 20_000, "D": 128, "V": 10_000}, WIDE))
    assert "parallel for h.init.d0" in made and "parallel for h.do" in made


@pytest.mark.parametrize(("rows", "width"), [(5000, 128), (5000, 5), (50, 64)])
def test_scatters_of_any_size(rows: int, width: int) -> None:
    op = dt.op("f(at: [B], dy: [B, D], w: [V]) -> h:\n    h: [V, D]\n    h[at[b],d] += dy[b,d]\n")
    rng = np.random.default_rng(0)
    at = rng.integers(0, rows, 3000)
    dy = rng.integers(-4, 5, (3000, width)).astype(np.float32)
    expected = np.zeros((rows, width), np.float32)
    np.add.at(expected, at, dy)
    np.testing.assert_array_equal(op(at, dy, np.zeros(rows, np.float32)), expected)
