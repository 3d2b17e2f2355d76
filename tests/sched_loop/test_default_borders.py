"""Default schedules of operators with borders and of contractions inside of others."""

from __future__ import annotations

from dataclasses import replace

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine

WIDE = Machine(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, threads=2)

CONV = """
    conv(x: [N, C, H, L], w: [F, C, 3, 3]) -> y:
        y[n,f,p,q] = sum(x.zero[n,c,p+r-1,q+s-1] * w[f,c,r,s]) where p in 0:H, q in 0:L
"""
ATTENTION = """
    attention(Q: [H, M, D], K: [H, N, D], V: [H, N, D]) -> O:
        s[h,i,j] = sum(Q[h,i,d] * K[h,j,d])
        m[h,i] = max(s[h,i,j])
        p[h,i,j] = exp(s[h,i,j] - m[h,i])
        O[h,i,e] = sum(p[h,i,j] * V[h,j,e]) / sum(p[h,i,l])
"""


@pytest.mark.parametrize("side", [56, 14])
def test_a_convolution_asks_for_borders_while_it_copies(side: int) -> None:
    op = parse(CONV)
    sizes = {"N": 1, "C": 64, "H": side, "L": side, "F": 64}
    lines = str(default(op, {}, sizes, WIDE)).splitlines()
    assert any(line.strip().startswith("x.") and "where(" in line for line in lines)
    (update,) = [line for line in lines if "] += " in line]
    assert "where" not in update
    assert any(line.strip().startswith("y.register: f32 register") for line in lines)


def test_lanes_across_an_output_lie_side_by_side_in_its_tile() -> None:
    """Where they do not, the tile is in memory, and every update gathers."""
    sizes = {"N": 1, "C": 256, "H": 14, "L": 14, "F": 256}
    made = str(default(parse(CONV), {}, sizes, WIDE))
    assert "vector for y.fi" in made
    assert "y.register: f32 register buffer of y laid out [d0, d2, d3, d1]" in made


def test_a_filter_is_copied_along_taps_and_channels_as_one_walk() -> None:
    """A row of three taps is too short for the squares by which what lies across rows is turned."""
    op = parse(CONV)
    sizes = {"N": 1, "C": 256, "H": 14, "L": 14, "F": 256}
    made = default(op, {}, sizes, WIDE)
    assert '.fuse("w.pack.r", "w.pack.s").fuse("w.pack.c", "w.pack.r_s")' in made.text
    assert "for w.pack.c_r_s in 0 .. 2304" in made.source("ir", **sizes)


GROUPS = """
    groups(x: [N, G, C, H, L], w: [G, F, C, 3, 3]) -> y:
        y[n,g,f,p,q] = sum(x.zero[n,g,c,p+r-1,q+s-1] * w[g,f,c,r,s]) where p in 0:H, q in 0:L
"""


@pytest.mark.parametrize("side, first", [(28, ["y.no", "x.heap", "y.p"]), (14, ["x.heap", "y.p"])])
def test_images_are_copied_with_their_border_once(side: int, first: list[str]) -> None:
    """Where a cache does not hold all images of a group, some go through all rows."""
    sizes = {"N": 32, "G": 4, "C": 8, "F": 8, "H": side, "L": side}
    lines = str(default(parse(GROUPS), {}, sizes, replace(WIDE, l2=1 << 20))).splitlines()
    order = [line.strip().removeprefix("for ").split()[0].rstrip(":") for line in lines]
    assert [name for name in order if name in ("y.no", "x.heap", "y.p")][: len(first)] == first


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_has_blocks_of_rows_and_both_products_in_tiles(threads: int) -> None:
    """A block is a whole number of both tiles, and heads go on outside of it."""
    op = parse(ATTENTION)
    sizes = {"H": 12, "M": 512, "N": 512, "D": 64}
    made = str(default(op, {}, sizes, replace(WIDE, threads=threads)))
    assert f"{'parallel ' if threads > 1 else ''}for O.h:" in made.split("for O.ib")[0]
    assert "for O.ib = i // 60" in made
    assert "s.io = i // 6" in made and "O_sum.io = i // 6" in made
    assert made.index("K.heap: f32 heap buffer of K laid out") < made.index("for O.ib")
    for tile in ("s.register: f32 register buffer", "O_sum.register: f32 register buffer"):
        assert tile in made


@pytest.mark.parametrize(("rows", "keys", "width"), [(70, 37, 20), (9, 64, 16), (1, 5, 3)])
def test_attention_of_any_size(rows: int, keys: int, width: int) -> None:
    op = dt.op(ATTENTION)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, n, width), np.float32) for n in (rows, keys, keys))
    np.testing.assert_allclose(op(q, k, v), dt.interpret(op, q, k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(2, 3, 9, 17, 20), (1, 20, 5, 5, 3), (1, 1, 1, 1, 1)])
def test_convolutions_of_any_size(shape: tuple[int, ...]) -> None:
    n, c, h, w, f = shape
    op = dt.op(CONV)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (n, c, h, w)).astype(np.float32)
    k = rng.integers(-4, 5, (f, c, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(op(x, k), dt.interpret(op, x, k))


MLP = """
mlp(x: [B, I], v: [I, J], w: [J, K]) -> y:
    h[b,j] = max(sum(x[b,i] * v[i,j]), 0)
    y[b,k] = sum(h[b,j] * w[j,k])
"""


def test_layers_of_a_perceptron_are_whole_where_a_cache_holds_them() -> None:
    """Row by row a layer would load its weights for each; a long one is no temporary to keep."""
    sizes = {"B": 128, "I": 128, "J": 64, "K": 32}
    made = str(default(parse(MLP), {}, sizes, WIDE))
    assert "h.acc: f32 register" in made and "for h.bo = b // " in made
    assert "y.register: f32 register" in made
    long = str(default(parse(MLP), {}, sizes | {"B": 1 << 16}, WIDE))
    assert "h.bo" not in long


@pytest.mark.parametrize("shape", [(128, 128, 64, 32), (13, 7, 40, 2), (1, 1, 1, 1)])
def test_perceptrons_of_any_size(shape: tuple[int, ...]) -> None:
    b, i, j, k = shape
    op = dt.op(MLP)
    rng = np.random.default_rng(0)
    x, v, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((b, i), (i, j), (j, k)))
    np.testing.assert_array_equal(op(x, v, w), dt.interpret(op, x, v, w))


SKEWED = """
f(d: [A, B, C]) -> z:
    z[y,x] = sum(d[a,b,x-(a+b)%2], where=((a + b) // 2 == y) & (x - (a + b) % 2 >= 0)
        & (x - (a + b) % 2 < C)) + sum(d[a,b,0])
        where y in 0:{rows}, x in 0:{columns}, a in 0:A, b in 0:B
"""


@pytest.mark.parametrize("columns", [3, 5, 9, 17])
@pytest.mark.parametrize("shape", [(2, 3, 2), (3, 5, 2), (2, 3, 7), (1, 1, 1)])
def test_rows_of_registers_from_which_terms_start_apart(
    shape: tuple[int, ...], columns: int
) -> None:
    """Loops that start where others say are anchored within their rows."""
    op = dt.op(SKEWED.format(rows=(sum(shape[:2]) + 2) // 2, columns=columns))
    d = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float64)
    np.testing.assert_array_equal(op(d), dt.interpret(op, d))


def test_the_gradient_of_a_skewed_read_twice() -> None:
    op = dt.op("""
f(A: [3, 4]) -> y:
    y[a,b,c] = A[(a+b)//2,(a+b)%2+c]**2 where a in 0:2, b in 0:3, c in 0:2
""")
    dt.check_grads(op, [np.random.default_rng(0).standard_normal((3, 4))], order=2)
