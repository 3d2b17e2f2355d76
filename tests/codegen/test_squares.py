"""Copies across rows, and lanes behind the end of a row of registers."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen.host import machine

PRODUCT = dt.op("C[i,j] = sum(A[i,k] * B[j,k])")


def packed(width: int) -> Any:
    """The panels of B are filled across its rows."""
    return (
        PRODUCT.schedule()
        .split("k", 40)
        .split("j", width)
        .reorder("ko", "jo", "i", "ki", "ji")
        .compute_at("C.init", "i")
        .stage("B", at="ko", layout=(f"j//{width}", "k", f"j%{width}"))
        .vectorize("B.pack.ji")
        .vectorize("ji")
    )


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("shape", [(48, 80), (33, 47), (7, 5), (20, 41), (1, 9)])
def test_panels_of_rows(dtype: str, shape: tuple[int, int]) -> None:
    """Whole squares, a last one that overlaps, missing rows, and loops too short for one."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (n, shape[1])).astype(dtype) for n in (3, shape[0]))
    np.testing.assert_array_equal(packed(16)(a, b), dt.interpret(PRODUCT, a, b))


def test_a_square_is_turned_by_shuffles() -> None:
    lanes = machine().lanes(4)
    schedule = packed(lanes)
    a, b = np.zeros((3, 40), np.float32), np.zeros((lanes, 40), np.float32)
    schedule(a, b)
    source = schedule.source("llvm")
    vector = rf"= shufflevector <{lanes} x float>"
    assert len(re.findall(vector, source)) >= lanes * (lanes.bit_length() - 1)
    assert "gather" not in source


@pytest.mark.parametrize("rows", [17, 19, 21, 25, 32])
def test_rows_behind_whole_vectors_are_turned_as_well(rows: int) -> None:
    """A panel of 19 columns is one of 16 lanes and one of 4, each filled from squares."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (n, 40)).astype(np.float32) for n in (3, rows))
    schedule = packed(32)
    np.testing.assert_array_equal(schedule(a, b), a @ b.T)
    if rows > 17:  # a single row is copied cell by cell
        assert "gather" not in schedule.source("llvm")


@pytest.mark.skipif(machine().lanes(4) < 4, reason="needs vectors")
def test_lanes_behind_the_end_of_a_register_row_are_not_blended() -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    lanes = machine().lanes(4)
    schedule = (
        op.schedule()
        .split("i", 2)
        .reorder("io", "k", "ii", "j")
        .stage("C", at="io", scope="register")
        .unroll("ii")
        .vectorize("j")
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((5, 7), (7, 2 * lanes - 1)))
    np.testing.assert_array_equal(schedule(a, b), a @ b)
    assert not re.search(r"select <\d+ x i1>", schedule.source("llvm"))
