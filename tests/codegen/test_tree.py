"""The lanes of several cells' partial results are combined together, as a tree of vectors."""

from __future__ import annotations

import re
from typing import Any

import diptych as dt
import numpy as np
import pytest
from codegen.levels import LEVELS, level
from diptych.codegen.host import machine
from diptych.lower import passes
from diptych.lower.halves import Row, row_of
from diptych.lower.ir_parse import parse_function
from diptych.sched.loop.machine import Machine

from .test_emit import agree

BYTES = {"x86-64": 16, "x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64}
PLACES = {
    "beside": "y[0, r]",
    "behind": "y[r, 0]",
    "tile": "y[r // 3, r % 3]",
    "down": "y[0, 9 - r]",
}


def lowered(dtype: str, reducer: str, rows: int, width: int, cell: str, vector_bytes: int) -> Any:
    """Loop IR in which each of a few cells is reduced in lanes."""
    function = parse_function(
        f"function k(x: param {dtype}[{rows}, {3 * width}], y: param {dtype}[20, 20]):\n"
        "    for o in 0 .. 3:\n"
        f"        for r in 0 .. {rows} unroll:\n"
        f"            for i in 0 .. {width} vector:\n"
        f"                {cell} {reducer}= x[r, {width} * o + i]\n"
    )
    return passes.run(function, Machine(vector_bytes=vector_bytes, registers=16), check=True)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("cell", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("width", [2, 3, 8, 16, 40])
def test_rows_of_every_number_and_width(native: Any, name: str, width: int, cell: str) -> None:
    """With the bits that the executor has, which combines lane by lane."""
    target, compiler = level(name)
    for rows in (1, 2, 3, 5, 8, 9, 10):
        kernel = native(lowered("f32", "sum", rows, width, cell, BYTES[name]), target, compiler)
        agree(kernel, seed=rows)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize(
    ("dtype", "reducer"),
    [("f64", "sum"), ("f32", "prod"), ("f32", "max"), ("f16", "min"),
     ("i32", "sum"), ("i64", "prod"), ("u8", "max"), ("i16", "min"), ("bool", "any"),
     ("bool", "all")],
)  # fmt: skip
def test_all_reducers_and_types(native: Any, name: str, dtype: str, reducer: str) -> None:
    target, compiler = level(name)
    for rows in (2, 7):
        kernel = native(lowered(dtype, reducer, rows, 4, "y[0, r]", BYTES[name]), target, compiler)
        agree(kernel, seed=rows)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_a_square_takes_one_operation_less_than_it_has_rows(native: Any, lanes: int) -> None:
    text = native(lowered("f32", "sum", lanes, lanes, "y[0, r]", 4 * lanes)).text
    vectors = rf"fadd (contract )?<{lanes} x float>"
    # In the loop each row is added to, and at the end the cells.
    assert len(re.findall(vectors, text)) == lanes + (lanes - 1) + 1
    assert len(re.findall("shufflevector", text)) == 2 * (lanes - 1)
    assert "extractelement" not in text


def test_values_of_a_row_by_halves() -> None:
    row = Row("s", dt.algo.tensor_expr.expr.Index("v"), 8, "add")
    assert row_of(row.combined) == row
    assert row_of(row.combined.args[0]) is None  # every second cell


NT = dt.op("C[b,i,j] = sum(A[b,i,k] * B[b,j,k])")


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(
    ("i", "j", "k", "tile"),
    [(26, 26, 72, (3, 8, 8)), (5, 13, 40, (2, 13, 8)), (7, 9, 23, (2, 4, 16)), (1, 1, 1, (2, 2, 4)),
     (4, 17, 33, (1, 16, 4)), (6, 3, 64, (6, 1, 8))],
)  # fmt: skip
def test_products_of_rows(dtype: str, i: int, j: int, k: int, tile: tuple[int, int, int]) -> None:
    """Tiles whose sums run along memory, with ends in every direction."""
    rows, columns, lanes = tile
    schedule = (
        NT.schedule()
        .split("i", rows)
        .split("j", columns)
        .split("k", lanes)
        .reorder("b", "jo", "io", "ko", "ji", "ii", "ki")
        .stage("C", at="io", scope="register")
        .vectorize("ki")
        .vectorize("C.init.ji")
        .vectorize("C.store.ji")
        .unroll("C.ji")
        .unroll("ii")
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (2, n, k)).astype(dtype) for n in (i, j))
    np.testing.assert_array_equal(schedule(a, b), a @ b.transpose(0, 2, 1))


@pytest.mark.skipif(machine().lanes(4) < 8, reason="needs vectors of eight")
def test_sums_side_by_side_are_stored_as_vectors() -> None:
    """No lane of a tile's sums is taken out by itself."""
    schedule = (
        dt.op("y[i] = sum(A[i,j] * x[j])").schedule().split("i", 8).split("j", 8)
        .reorder("io", "jo", "ii", "ji").stage("y", at="io", scope="register")
        .vectorize("ji").unroll("y.ii").vectorize("y.init.ii").vectorize("y.store.ii")
    )  # fmt: skip
    a, x = np.ones((64, 64), np.float32), np.ones(64, np.float32)
    np.testing.assert_array_equal(schedule(a, x), a @ x)
    assert "extractelement" not in schedule.source("llvm")


@pytest.mark.parametrize("dtype", ["f4", "i4", "?"])
@pytest.mark.parametrize("op", ["<", "==", "*", "/"])
def test_only_what_has_the_type_of_its_cells_is_a_tree(op: str, dtype: str) -> None:
    f = dt.op(f"f(x: [I, 4]) -> y:\n    y[i] = (x[i,0] {op} x[i,2]) {op} (x[i,1] {op} x[i,3])")
    x = np.random.default_rng(0).integers(0, 3, (17, 4)).astype(dtype)
    for lanes in (2, 4, 8):
        by = f.schedule().split("i", lanes).stage("x", at="io", scope="register").vectorize("ii")
        np.testing.assert_array_equal(f.with_schedule(by, strict=True)(x), dt.interpret(f, x))
