"""Default schedules of contractions: tiles, blocks, panels and threads."""

from __future__ import annotations

import time

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.default import choose, default
from diptych.sched.loop.machine import Machine

WIDE = Machine(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20, threads=2)
NARROW = Machine(threads=2)
MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"


def chosen(text: str, machine: Machine = WIDE, **sizes: int):  # type: ignore[no-untyped-def]
    op = parse(text)
    return choose(op, {p.name: f32 for p in op.params}, sizes, machine).choices


@pytest.mark.parametrize("machine", [WIDE, NARROW])
def test_tiles_fill_the_registers(machine: Machine) -> None:
    choice = chosen(MATMUL, machine, I=1024, J=1024, K=1024)["C"]
    ((index, height),) = choice.tile
    assert (choice.vector, index, choice.outer) == ("j", "i", "j")
    cells = height * choice.vectors
    assert cells >= 8 and cells + choice.vectors < machine.registers
    assert choice.pack == ("B",)
    blocks = dict(choice.blocks)
    assert 100 < blocks["k"] < 1024 and blocks["i"] % height == 0
    assert 1024 <= 2 * blocks["j"] <= 1.1 * 1024  # each thread packs panels of its own


def test_threads_share_rows_where_there_are_few_columns() -> None:
    choice = chosen(MATMUL, I=4096, J=100, K=1024)["C"]
    ((_, height),) = choice.tile
    blocks = dict(choice.blocks)
    assert (choice.outer, choice.pack, "j" in blocks) == ("i", ("B",), False)
    shares = [-(-4096 // blocks["i"]), 2]
    assert blocks["i"] % height == 0 and (shares[0] % 2 == 0 or shares[0] > 8)


def test_a_short_dimension_runs_in_lanes_across_the_output() -> None:
    """The tile is turned in registers, once: so the long operand needs no panels."""
    choice = chosen("C[i,j] = sum(A[i,k] * B[j,k])", I=128, J=16384, K=4096)["C"]
    assert (choice.vector, choice.pack) == ("i", ("A",))


def test_small_operands_are_not_packed() -> None:
    choice = chosen(MATMUL, I=37, J=71, K=53)["C"]
    assert (choice.pack, choice.blocks, choice.outer) == ((), (), None)


def test_the_smaller_operand_is_packed_into_columns() -> None:
    choice = chosen("C[i,j] = sum(A[i,k] * B[j,k])", I=128, J=1024, K=1024)["C"]
    assert (choice.vector, choice.pack) == ("i", ("A",))
    choice = chosen("C[i,j] = sum(A[i,k] * B[j,k])", I=1024, J=128, K=1024)["C"]
    assert (choice.vector, choice.pack) == ("j", ("B",))


def test_iterations_that_share_nothing_are_given_to_threads() -> None:
    choice = chosen("Z[b,n,k] = sum(X[b,n,m] * Y[b,k,m])", B=500, N=26, K=26, M=72)["Z"]
    assert choice.outer == "b"


def test_lanes_run_along_a_reduction_where_all_is_contiguous() -> None:
    choice = chosen("y[i] = sum(A[i,j] * x[j])", I=4096, J=4096)["y"]
    assert choice.vector == "j" and choice.outer == "i"


TRIANGLE = """
    f(A: [M, K], B: [K, N]) -> C:
        C[i,j] = sum(A[i,k] * B[k,j], where={}) where i in 0:M, k in 0:K
"""
TRANSPOSED = """
    f(x: [N, C, L], w: [C, O, R]) -> y:
        y: [N, O, 2*L + R]
        y[n,o,{}] += x[n,c,l] * w[c,o,r]
"""
CASES = [
    ("C[i,j] = sum(A[i,k] * B[j,k])", ((70, 90), (100, 90))),
    ("C[i,j] = sum(A[k,i] * B[k,j])", ((90, 33), (90, 100))),
    ("Z[b,n,k] = sum(X[b,n,m] * Y[b,k,m])", ((5, 26, 40), (5, 26, 40))),
    ("y[n,f,h,w] = sum(x[n,c,h+r,w+s] * k[f,c,r,s])", ((2, 8, 12, 23), (9, 8, 3, 3))),
    ("y[i,j] = max(sum(x[i,k] * w[j,k]) + b[j], 0)", ((30, 64), (45, 64), (45,))),
    ("M[i,r] = sum(X[i,j,k] * B[j,r] * D[k,r])", ((21, 8, 9), (8, 19), (9, 19))),
    ("m[i,j] = max(A[i,k] + B[k,j])", ((31, 40), (40, 53))),
    ("f(x: [N]) -> y:\n  y[i] = sum(x[j], where=j <= i) where i in 0:N, j in 0:N", ((301,),)),
    (TRANSPOSED.format("2*l+r"), ((2, 5, 100), (5, 6, 4))),
    (TRANSPOSED.format("l+r"), ((2, 5, 64), (5, 6, 4))),
    (TRIANGLE.format("k <= i"), ((90, 201), (201, 70))),
    (TRIANGLE.format("k <= i + j"), ((60, 65), (65, 233))),
    (TRIANGLE.format("(k >= i) & (k < j + 9)"), ((90, 201), (201, 70))),
]


@pytest.mark.parametrize(("text", "shapes"), CASES)
def test_values(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    op, rng = dt.op(text), np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, shape).astype(np.float32) for shape in shapes]
    np.testing.assert_array_equal(op(*arrays), dt.interpret(op, *arrays))


def test_choosing_is_quick() -> None:
    op = parse(MATMUL)
    best = min(_seconds(op) for _ in range(3))
    assert best < 0.6  # 0.2 s here; other machines are half as fast


def _seconds(op: object) -> float:
    start = time.process_time()
    default(op, {"A": f32, "B": f32}, {"I": 1000, "J": 1000, "K": 1000}, WIDE)  # type: ignore[arg-type]
    return time.process_time() - start


@pytest.mark.parametrize("at", ["2*l+r", "l+r"])
def test_sums_that_go_from_cell_to_cell_have_no_tile(at: str) -> None:
    """It would hold a whole row: long ones were refused, short ones took seconds to compile."""
    choice = chosen(TRANSPOSED.format(at), N=2, C=5, L=29, O=6, R=4)["y"]
    assert (choice.tile, choice.vectors, choice.pack) == ((), 0, ())


@pytest.mark.parametrize("hole", ["i != j", "i + j == k", "k // 16 == i", "k % 16 == j"])
def test_conditions_that_leave_holes_are_no_tiles(hole: str) -> None:
    """Each place of a tile would be scanned in pieces, before and after the hole."""
    text = f"y[i,j] = sum(A[i,k] * B[k,j], where={hole})"
    choice = chosen(text, I=300, J=300, K=300)["y"]
    assert choice.tile == ()
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, 300, 300)).astype(np.float32)
    k, i, j = np.ogrid[:300, :300, :300]
    kept = eval(hole, {"i": i, "j": j, "k": k})
    expected = np.einsum("ik,kj,kij->ij", a, b, np.broadcast_to(kept, (300,) * 3), optimize=True)
    np.testing.assert_array_equal(dt.op(text)(a, b), expected)


@pytest.mark.parametrize("rows", [15, 16, 17])
def test_no_tile_takes_the_loop_in_which_others_are_computed(rows: int) -> None:
    """It would be inside of the rest, and they would be computed anew in each iteration of that."""
    text = """
    p[m,i,j,z] = sum(X[m,i,j,k] * V[z,k])
    q[m,i,y,z] = sum(p[m,i,j,z] * W[y,j])
    Y[m,x,y,z] = sum(q[m,i,y,z] * U[x,i])
    """
    one = Machine(vector_bytes=64, registers=32, l1=32 << 10, l2=1 << 20, l3=32 << 20)
    sizes = {"M": 256, "I": rows, "J": 16, "K": 16, "Z": 16, "W_0": 16, "U_0": 16}
    choices = chosen(text, one, **sizes)
    assert choices["p"].join == choices["q"].join == ("Y", "m")
    assert choices["Y"].vector == "z"
    assert [index for index, _ in choices["Y"].tile] == ["y"]
