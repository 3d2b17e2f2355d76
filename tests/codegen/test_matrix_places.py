"""Products of matrices at the edges of what the unit takes: blocks of one row or column, sums held
over many loops, and primitives that follow `tensorize`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from codegen.levels import V4
from codegen.test_dot import numbers
from codegen.test_matrices import MATMUL, UNIT, bits, floats, lowered
from diptych.codegen import emit_pieces, host_code, matrix_unit
from diptych.codegen.emit import emit

LINES = [(1, 16), (16, 1), (1, 64), (64, 1), (16, 16)]
SHAPES = [(2, 150, 64), (70, 150, 1), (1, 64, 70)]
BF16 = "f(A: bf16[M,K], B: bf16[N,K]) -> C:\n  C[i,j] = sum(f32(A[i,k]) * f32(B[j,k]))"


def blocks(op: Any, rows: int, columns: int, staged: str = "") -> Any:
    made = op.schedule().split("i", rows).split("j", columns)
    made = made.reorder("io", "jo", "k", "ii", "ji")
    for tensor in staged:
        made = made.stage(tensor, at="jo")
    return made.tensorize("C.ii", "C.ji", "C.k")


@pytest.mark.parametrize("staged", ["A", "B", "ABC"])
@pytest.mark.parametrize("size", LINES)
def test_blocks_of_one_row_or_column(size: tuple[int, int], staged: str) -> None:
    """A factor that no row or no column moves is known all the same."""
    rng = np.random.default_rng(1)
    made = blocks(MATMUL, *size, staged)
    for m, k, n in SHAPES:
        a, b = numbers(rng, np.uint8, m, k), numbers(rng, np.int8, k, n)
        want = a.astype(np.int32) @ b.astype(np.int32)
        np.testing.assert_array_equal(made(a, b), want, err_msg=f"{made.text}\n{m, k, n}")


@pytest.mark.parametrize("staged", ["A", "B"])
@pytest.mark.parametrize("size", [(1, 16), (16, 1), (16, 16)])
def test_blocks_of_one_row_or_column_of_bf16(size: tuple[int, int], staged: str) -> None:
    """Of whole numbers this small every sum is exact."""
    rng = np.random.default_rng(2)
    made = blocks(dt.op(BF16), *size, staged)
    for m, k, n in [(2, 32, 16), (1, 63, 5), (5, 64, 1)]:
        a, b = (bits(rng.integers(-4, 5, (rows, k))) for rows in (m, n))
        np.testing.assert_array_equal(made(a, b), floats(a) @ floats(b).T, err_msg=made.text)


@pytest.mark.parametrize("piece", [1, 8])
@pytest.mark.parametrize("staged", ["C", "BC"])
def test_pieces_of_any_length(monkeypatch: Any, staged: str, piece: int) -> None:
    """However short the functions are: what configures the unit also releases it."""
    monkeypatch.setattr(emit_pieces, "PIECE", piece)
    features = dict.fromkeys((*V4, *matrix_unit.FEATURES), True)
    target = host_code.target_of("x86_64-unknown-linux-gnu", features)
    a, b = np.zeros((200, 150), np.int8), np.zeros((150, 90), np.int8)
    module = str(emit(lowered(blocks(MATMUL, 32, 32, staged), UNIT, a, b), target).module)
    calls = [module.count(f'call void @"llvm.x86.{n}"') for n in ("ldtilecfg", "tilerelease")]
    assert calls[0] == calls[1] >= 1
    assert "tdpbssd" in module


def test_long_rows_of_equations_beside_a_product() -> None:
    rng = np.random.default_rng(4)
    lines = ["m[i,j] = sum(A[i,k] * B[k,j])", "t0[i,j] = m[i,j] + 1"]
    lines += [f"t{n}[i,j] = t{n - 1}[i,j] * 3 + max(t{n - 1}[l,j])" for n in range(1, 20)]
    lines += ["z[i,j] = t19[i,j] + m[j,i]"]
    op = dt.op("f(A: i8[M,K], B: i8[K,M]) -> z:\n  " + "\n  ".join(lines))
    made = op.schedule().split("m.i", 32).split("m.j", 32)
    made = made.reorder("m.io", "m.jo", "m.k", "m.ii", "m.ji").tensorize("m.ii", "m.ji", "m.k")
    a, b = numbers(rng, np.int8, 40, 50), numbers(rng, np.int8, 50, 40)
    np.testing.assert_array_equal(made(a, b), dt.interpret(op, a, b))


TWO = dt.op(
    "f(A: i8[M,K], B: i8[K,N]) -> y:\n  m[i,j] = sum(A[i,k] * B[k,j])\n"
    "  z[i,j] = sum(A[i,l] * B[l,j])\n  y[i,j] = z[i,j] + m[i,j]"
)
LATER: dict[str, Callable[[Any], Any]] = {
    "reorder elsewhere": lambda made: made.reorder("z.j", "z.i"),
    "reorder a sum elsewhere": lambda made: made.reorder("z.l", "z.j"),
    "stage a factor": lambda made: made.stage("A", at="m.i" if "ki" in made.text else "m.io"),
    "stage the sums": lambda made: made.stage("m", at="m.i" if "ki" in made.text else "m.io"),
    "parallel": lambda made: made.parallel("m.i" if "ki" in made.text else "m.io"),
}


@pytest.mark.parametrize(("later", "loops"), list(itertools.product(LATER, (1, 3))))
def test_primitives_after_tensorize(later: str, loops: int) -> None:
    """The loops of `tensorize` are one sum in one thread: nothing that follows is in conflict."""
    rng = np.random.default_rng(5)
    made = TWO.schedule()
    if loops == 3:
        made = made.split("m.i", 32).split("m.j", 32)
        made = made.reorder("m.io", "m.jo", "m.k", "m.ii", "m.ji").tensorize("m.ii", "m.ji", "m.k")
    else:
        made = made.split("m.k", 4).reorder("m.ko", "m.j", "m.ki").tensorize("m.ki")
    made = LATER[later](made)
    a, b = numbers(rng, np.int8, 40, 50), numbers(rng, np.int8, 50, 33)
    np.testing.assert_array_equal(made(a, b), dt.interpret(TWO, a, b), err_msg=made.text)


@pytest.mark.parametrize("cell", ["C[i//2,j]", "C[i,j//2]", "C[p[i],j]", "C[i,p[j]]"])
@pytest.mark.parametrize("size", [(32, 32), (1, 16), (16, 1)])
def test_rows_that_meet_in_a_cell(cell: str, size: tuple[int, int]) -> None:
    """Cells of a block that are one cell of the result are added up."""
    rng = np.random.default_rng(6)
    data = ["p: i64[M]"] if "p[" in cell else []
    header = ", ".join(["A: i8[M,K]", "B: i8[K,N]", *data])
    op = dt.op(f"f({header}) -> C:\n  C: [M, N]\n  {cell} += i32(A[i,k]) * i32(B[k,j])")
    made = blocks(op, *size)
    arrays = [numbers(rng, np.int8, 40, 50), numbers(rng, np.int8, 50, 40)]
    arrays += [rng.integers(0, 40, 40) for _ in data]
    np.testing.assert_array_equal(made(*arrays), dt.interpret(op, *arrays), err_msg=made.text)
