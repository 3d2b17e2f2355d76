"""Tiles of fused loops: dims come back by arithmetic, and tiles are stored by what was fused."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.build import add, compare, const, floordiv, mod, mul
from diptych.algo.tensor_expr.expr import Const, Expr, Index
from diptych.lower.inverse import inverse
from diptych.sched.loop.nest import Stmt

POINTWISE = dt.op("conv(X: f32[C, H, L], W: f32[F, C]) -> Y:\n Y[f,h,w] = sum(X[c,h,w] * W[f,c])")


def tiled(block: int, rows: int = 4) -> dt.Schedule:
    return (
        POINTWISE.schedule()
        .fuse("h", "w", into="p")
        .split("p", block, into=("po", "pi"))
        .split("f", rows, into=("fo", "fi"))
        .reorder("po", "fo", "c", "fi", "pi")
        .stage("Y", at="fo", scope="register")
        .unroll("fi")
        .vectorize("pi")
        .stage("X", at="po")
        .vectorize("X.pack.pi")
    )


def test_a_tile_of_fused_loops_is_in_registers_and_walks_through_memory() -> None:
    text = tiled(48).source("ir", C=8, H=14, L=24, F=8)
    assert "Y.register: register f32[4, 48]" in text
    assert "X.stack: stack f32[8, 48]" in text
    assert "//" not in text and "%" not in text


@pytest.mark.parametrize("block", [16, 48, 400])
@pytest.mark.parametrize("height", [1, 5, 14])
@pytest.mark.parametrize("width", [1, 7, 24])
def test_tiles_that_divide_or_not_agree_with_the_interpreter(
    block: int, height: int, width: int
) -> None:
    x = np.arange(3 * height * width, dtype=np.float32).reshape(3, height, width)
    w = np.arange(15, dtype=np.float32).reshape(5, 3)
    got = POINTWISE.with_schedule(tiled(block), strict=True)(x, w)
    np.testing.assert_array_equal(got, dt.interpret(POINTWISE, x, w))


def test_rows_that_data_choose_are_all_stored() -> None:
    """Pair 1420 of the random trials: the copy's loops count 2*d0 + d1, the gather says nothing."""
    op = dt.op("y[n,d] = w[at[n],d]")
    schedule = op.schedule().stage("w", at="y.n", scope="stack")
    schedule = schedule.skew("w.pack.d", "w.pack.d0", 2).split("w.pack.d", 3)
    w, at = np.arange(32, dtype=np.float32).reshape(16, 2), np.array([12, 15], np.int32)
    np.testing.assert_array_equal(schedule(w, at), w[at])


def test_a_histogram_in_parts_that_are_added_in_one_shifted_loop() -> None:
    """Pair 2788: the loop counts 11*(d1 - 1) + d0, which starts below 0."""
    op = dt.op("h: [13]\nh[b[l]] += z[l]\ny[j] = h[j] + 1", returns="y")
    schedule = op.schedule().privatize("h.l").shift("h", "h.update.d0", -1)
    schedule = schedule.fuse("h.update.d0", "h.l_rf")
    b, z = np.arange(11, dtype=np.int32) % 5 + 8, np.arange(11)
    np.testing.assert_array_equal(schedule(b, z), dt.interpret(op, b, z))


def statement(values: dict[str, tuple[int, int]]) -> Stmt:
    domain: list[Expr] = []
    for dim, (low, high) in values.items():
        domain += [compare("ge", Index(dim), Const(low)), compare("lt", Index(dim), Const(high))]
    return Stmt("s", tuple(values), tuple(domain), "y", (), Const(0), None, ("s", ()))


def test_digits_come_back_from_blocks_of_blocks() -> None:
    stmt = statement({"a": (0, 7), "b": (-1, 3), "c": (2, 5)})
    a, b, c = map(Index, "abc")
    whole = add(add(mul(a, const(13)), mul(b, const(3))), add(c, const(40)))
    values = {
        floordiv(whole, const(10)): Index("x"),
        floordiv(mod(whole, const(10)), const(5)): Index("y"),
        mod(mod(whole, const(10)), const(5)): Index("z"),
    }
    found = inverse(stmt, values)
    assert set(found) == {"a", "b", "c"}
    for one in range(7):
        for two in range(-1, 3):
            for three in range(2, 5):
                n = 13 * one + 3 * two + three + 40
                at = {"x": n // 10, "y": n % 10 // 5, "z": n % 10 % 5}
                got = [eval(print_(found[dim]), {}, at) for dim in "abc"]
                assert got == [one, two, three]


def test_a_sum_whose_parts_overlap_is_left() -> None:
    stmt = statement({"a": (0, 7), "b": (0, 4)})
    whole = add(mul(Index("a"), const(3)), Index("b"))
    assert inverse(stmt, {whole: Index("x")}) == {}
    assert inverse(stmt, {floordiv(whole, const(4)): Index("x")}) == {}


def print_(expr: Expr) -> str:
    from diptych.lower.ir_print import print_expr

    return print_expr(expr)
