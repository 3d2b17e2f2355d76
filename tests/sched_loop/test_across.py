"""Default schedules of recurrences: lanes across what is independent."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine

MACHINE = Machine(vector_bytes=64, registers=32, threads=2)
WARPED = """
warped(C: [B, M, N]) -> r:
    R[b,0,0] = C[b,0,0]
    R[b,i,0] = R[b,i-1,0] + C[b,i,0] where i in 1:M
    R[b,0,j] = R[b,0,j-1] + C[b,0,j] where j in 1:N
    low[b,i,j] = min(min(R[b,i,j+1], R[b,i+1,j]), R[b,i,j]) where i in 0:M-1, j in 0:N-1
    R[b,i,j] = C[b,i,j] + low[b,i-1,j-1] - log(exp(low[b,i-1,j-1] - R[b,i-1,j])
        + exp(low[b,i-1,j-1] - R[b,i,j-1])) where i in 1:M, j in 1:N
    r[b] = R[b,M-1,N-1]
"""
SUMS = "sums(x: [N, M]) -> c:\n  c[i,0] = x[i,0]\n  c[i,j] = c[i,j-1] + x[i,j] where j in 1:M"


def steps(text: str, **sizes: int) -> str:
    op = dt.op(text)
    return default(op, {op.params[0].name: dt.f32}, sizes, MACHINE).text


def test_a_batch_runs_in_lanes() -> None:
    found = steps(WARPED, B=32, M=256, N=256)
    assert found.startswith(
        '.split("R.3.b", 16).reorder("R.3.bo", "R.3.i", "R.3.j", "R.3.bi").vectorize("R.3.bi")'
        '.layout("R", "d1", "d2", "d0").layout("low", "d1", "d2", "d0").parallel("R.3.bo")'
    )


def test_little_work_is_not_worth_reads_across_rows() -> None:
    """Each of the 16 lanes of a running sum would read a line of its own for one addition."""
    found = steps(SUMS, N=4096, M=1024)  # rows are turned in registers, and read along memory
    assert '.stage("x", at="c.1.jo", scope="register").vectorize("x.pack.j")' in found


def test_tiles_that_are_turned_leave_registers() -> None:
    """A recurrence has two tiles of 16 cells a row, so of 8 rows; a transpose has one."""
    assert '.split("c.1.i", 8).split("c.1.j", 16)' in steps(SUMS, N=4096, M=1024)
    assert '.split("j", 16).split("i", 16)' in steps("y[i,j] = x[j,i]", I=4096, J=4096)


def test_a_small_batch_has_no_lanes() -> None:
    assert "vectorize" not in steps(WARPED, B=7, M=256, N=256).replace('vectorize("r.b")', "")


@pytest.mark.parametrize("batch", [16, 37])
def test_results_are_right_for_every_batch(batch: int) -> None:
    op = dt.op(WARPED)
    costs = np.random.default_rng(batch).random((batch, 19, 23), np.float32)
    np.testing.assert_allclose(op(costs), dt.interpret(op, costs), rtol=1e-4)


def test_rows_whose_lanes_lie_apart_are_copied() -> None:
    """A result that is read again, not an argument of which each element is read once."""
    text = WARPED.replace("-> r:", "-> r, R:")
    found = steps(text, B=32, M=256, N=256)
    assert '.stage("R", at="R.3.i", scope="heap", layout=("d1", "d2", "d0"))' in found
    assert 'stage("C", at="R.3.i"' not in found
    far = steps(text, B=32, M=256, N=100_000)  # no cache holds two such rows
    assert 'stage("R", at="R.3.i"' not in far
    op = dt.op(text)
    costs = np.random.default_rng(0).random((37, 19, 23), np.float32)
    for mine, theirs in zip(op(costs), dt.interpret(op, costs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
