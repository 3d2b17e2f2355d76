"""Rows on derivatives: gradient operators are operators, whose values no schedule changes.

Each gradient runs by the interpreter, by default, as it is written and under schedules written by
hand. What these values say of the rules is in `autodiff/test_user_reports.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.autodiff.reverse import adjoint
from reports.runs import agree


def gradient(
    text: str,
    wrt: str,
    want: Any,
    schedules: Sequence[str],
    *,
    gpu: Sequence[str] = (),
    **values: Any,
) -> None:
    """`want` is the gradient at the values, which hold more than it needs, cotangents too."""
    back = adjoint(dt.op(text), wrt)
    arrays = [np.asarray(values[p.name]) for p in back.params]
    agree(back, arrays, np.asarray(want, float), schedules, gpu=gpu)


DIAGONAL = [
    ".parallel('dX.i').vectorize('dX.y', 4)",
    ".reorder('dX.y', 'dX.i').split('dX.i', 3).unroll('dX.ii')",
    ".fuse('dX.i', 'dX.y', 'all').parallel('all')",
]


def test_r28_elements_beside_a_diagonal_are_written_under_every_schedule() -> None:
    seeds, gpu = np.array([2.0, 3, 5, 7]), [".bind('dX.i', 'block.x').bind('dX.y', 'thread.x')"]
    gradient("D[i] = X[i,i]", "X", np.diag(seeds), DIAGONAL, gpu=gpu, dD=seeds)
    wide = np.zeros((4, 8))
    wide[range(4), range(0, 8, 2)] = seeds
    gradient("D[i] = X[i,2*i]", "X", wide, DIAGONAL, gpu=gpu, X=np.ones((4, 8)), dD=seeds)
    text = "up(X: [N]) -> D:\n D[i] = X[i//2] where i in 0:2*N"
    schedules = [".parallel('dX.y')", ".unroll('dX.i')", ".split('dX.y', 4).vectorize('dX.yi')"]
    gradient(text, "X", [5, 12], schedules, X=np.ones(2), dD=seeds)


@pytest.mark.parametrize("name", ["A", "B"])
def test_r29_ties_share_evenly_under_every_schedule(name: str) -> None:
    ones, dy = np.ones(3), np.array([0.3, -2.0, 5.0])
    schedules = [f".vectorize('d{name}.i', 4)", f".split('d{name}.i', 2).parallel('d{name}.io')"]
    gpu = [f".bind('d{name}.i', 'thread.x')"]
    text = "Y[i] = max(A[i], B[i])"
    gradient(text, name, dy / 2, schedules, gpu=gpu, A=ones, B=ones, dY=dy)


@pytest.mark.parametrize(
    ("x", "want"),
    [([3, 3, 1], [0.5, 0.5, 0]), ([1, 3, 3, 0, 3, 2], [0, 1 / 3, 1 / 3, 0, 1 / 3, 0])],
    ids=str,
)
def test_r29_ties_of_a_reduction(x: list[float], want: list[float]) -> None:
    schedules = [
        ".split('M.k', 2).rfactor('M.ko').parallel('M.ko')",
        ".vectorize('M.k', 4).vectorize('M_ties.k', 4).vectorize('dx.k', 4)",
        ".split('M_ties.k', 2).rfactor('M_ties.ko').parallel('dx.k')",
    ]
    gradient("M[] = max(x[k])", "x", want, schedules, x=np.array(x, float), dM=1.0)


def test_r30_a_guarded_root_stays_clean_under_every_schedule() -> None:
    guarded = """
        q[] = sum(x[i]*x[i])
        s[] = sqrt(where(q[] > 0, q[], 1))
        L[] = where(q[] > 0, s[], 0)
    """
    schedules = [
        ".vectorize('q.i', 4).vectorize('dx.i', 4)",
        ".split('q.i', 2).rfactor('q.io').parallel('dx.i')",
        ".inline('ds')",
    ]
    gradient(guarded, "x", [0, 0], schedules, x=np.zeros(2), dL=1.0)
    schedules = [".vectorize('dx.i', 4)", ".split('dx.i', 2).parallel('dx.io')", ".unroll('dx.i')"]
    text, x = "y[i] = where(x[i] > 0, sqrt(x[i]), 0)", np.array([-1.0, 0, 4])
    gradient(text, "x", [0, 0, 0.25], schedules, gpu=[".bind('dx.i', 'thread.x')"], x=x,
             dy=np.ones(3))  # fmt: skip


def test_r32_repeated_gathers_accumulate_under_every_schedule() -> None:
    rng = np.random.default_rng(0)
    picks, dy = rng.integers(0, 4, 10000), rng.integers(-9, 9, 10000).astype(float)
    schedules = [
        ".atomic('dX').parallel('dX.i')",
        ".privatize('dX.i', copies=4)",
        ".reverse('dX.i')",
    ]
    want = np.bincount(picks, weights=dy, minlength=5)
    gpu = [".split('dX.i', 250).atomic('dX').bind('dX.io', 'block.x').bind('dX.ii', 'thread.x')"]
    gradient("Y[i] = X[J[i]]", "X", want, schedules, gpu=gpu, X=np.ones(5), J=picks, dY=dy)


@pytest.mark.parametrize(
    ("x", "want"),
    [([2, 0, 3], [0, 6, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 5, 3], [15, 6, 10])],
    ids=str,
)
def test_r33_products_with_zeros_under_every_schedule(x: list[float], want: list[float]) -> None:
    schedules = [
        ".parallel('dx.i')",
        ".unroll('dx.j')",
        ".split('dx.i', 2).vectorize('dx.ii')",
    ]
    gradient("P[] = prod(x[i])", "x", want, schedules, x=np.array(x, float), dP=1.0)


@pytest.mark.parametrize("text", ["exp(-x[b]**2)", "exp(-(x[b]*x[b]))"])
def test_r35_four_derivatives_of_a_gaussian_under_every_schedule(text: str) -> None:
    op = dt.op(f"y[b] = {text}")
    values: dict[str, Any] = {"x": np.zeros(5)}
    for want in (0, -2, 0, 12):
        op = adjoint(op, "x")
        values[op.params[-1].name] = np.ones(5)
        (name,) = op.returns
        loop = f"{name}.b"
        schedules = [f".vectorize('{loop}', 4)", f".split('{loop}', 2).parallel('{loop}o')"]
        arrays = [values[p.name] for p in op.params]
        agree(op, arrays, np.full(5, want, float), schedules, gpu=[f".bind('{loop}', 'thread.x')"])
