"""Operators for batches: each element gets what the operator gives for it."""

from __future__ import annotations

from itertools import product

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.batch import batched
from diptych.algo.tensor_expr.settle import settled_on

ONLINE = (
    "reducer online(m, s; n, t) = max(m, n), s*exp(m - max(m,n)) + t*exp(n - max(m,n)) from -inf, "
    "0.0\nm[i], s[i] = online(x[i,j], w[j])\nr[i] = m[i] + log(s[i])"
)
OPERATORS = {
    "contraction": ("C[i,j] = sum(A[i,k]*B[k,j])", [(3, 4), (4, 5)]),
    "temporaries": ("m[i] = max(x[i,j])\ny[i] = sum(exp(x[i,j] - m[i]))", [(3, 4)]),
    "recurrence": (
        "h[0,d] = h0[d]\nh[t,d] = tanh(x[t,d] + sum(U[d,e]*h[t-1,e])) where t in 1:T",
        [(3,), (5, 3), (3, 3)],
    ),
    "scatter": ("H: [5]\nH[n[k]] += w[k]", [(6,), (6,)]),
    "boundary": ("y[i] = x.edge[i-1] + x[i]", [(6,)]),
    "index": ("y[i] = argmax(x[i,j])", [(3, 6)]),
    "a part of what is given": ("a[i] = x[i] * 2\nb[i] = w[i] + 1", [(3,), (4,)]),
    "formulas": ("f(x: [N], w: [K]) -> y:\n  y[i] = sum(x[i+k] * w[k])", [(9,), (3,)]),
    "names that are taken": ("f(x: [BATCH]) -> y:\n  y[batch] = x[batch] * 2", [(3,)]),
    "numbers": ("f(x: [H, W]) -> y:\n  y[n] = x[n//W, n%W] where n in 0:H*W", [(2, 3)]),
    "joint reduction": (ONLINE, [(3, 6), (6,)]),
}


@pytest.mark.parametrize(("text", "shapes"), OPERATORS.values(), ids=OPERATORS.keys())
def test_each_element_gets_what_the_operator_gives(
    text: str, shapes: list[tuple[int, ...]]
) -> None:
    op, random = dt.op(text), np.random.default_rng(0)

    def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return random.integers(0, 5, shape) if name == "n" else random.random(shape)

    names = [p.name for p in op.params]
    for many in product((0, 1), repeat=len(names)):
        arrays = [array(n, (2,) * m + s) for n, m, s in zip(names, many, shapes, strict=True)]
        each = [[a[b] if m else a for a, m in zip(arrays, many, strict=True)] for b in range(2)]
        chosen = tuple(name for name, m in zip(names, many, strict=True) if m)
        made, results = batched(settled_on(op, each[0]), chosen)
        found = _listed(made(*arrays))
        assert any(results) is any(many)
        for b in range(2):
            for have, want, is_many in zip(found, _listed(op(*each[b])), results, strict=True):
                np.testing.assert_allclose(have[b] if is_many else have, want, rtol=1e-12)


def test_what_reads_no_batch_has_none() -> None:
    text = "b(x: [I], w: [I]) -> a, b:\n  a[i] = x[i] * 2\n  b[i] = w[i] + a[i]"
    made, many = batched(dt.op(text), ("w",))
    assert many == (False, True)
    assert made.text == (
        "b_batched(x: [I], w: [BATCH, I]) -> a, b:\n"
        "    a[i] = x[i] * 2 where i in 0:I\n"
        "    b[batch,i] = w[batch,i] + a[i] where batch in 0:BATCH, i in 0:I"
    )


def _listed(results: object) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)
