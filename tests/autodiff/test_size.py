"""Higher derivatives stay small, and derivations quick: recorded sizes, and times in fixed work."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from autodiff.conftest import LAYERNORM, SOFTMAX
from caches import forget
from diptych.algo.tensor_expr.expr import walk
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from sched_loop.speed import seconds, slowness, work

GAUSSIAN = "y[i] = exp(-x[i]**2)"
TANH = "y[i] = tanh(x[i])"
SILU = "y[i] = x[i] * sigmoid(x[i])"
SIZES = {
    "gaussian": (GAUSSIAN, [(12, 90), (16, 130), (22, 169), (29, 253)]),
    "tanh": (TANH, [(10, 84), (15, 124), (20, 173), (26, 213)]),
    "silu": (SILU, [(10, 97), (18, 179), (32, 385), (52, 747)]),
    "softmax": (SOFTMAX, [(21, 186), (34, 334), (59, 649), (133, 1578)]),
    "layernorm": (LAYERNORM, [(36, 274), (78, 879), (204, 2523), (530, 7383)]),
}
"""Of the first to fourth derivative by x: distinct nodes of expressions, characters of text."""


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_higher_derivatives(name: str) -> None:
    text, recorded = SIZES[name]
    op = parse(text)
    for order, (nodes, characters) in enumerate(recorded, 1):
        op = adjoint(op, "x")
        found = {e for eq in op.equations for root in eq.roots for e in walk(root)}
        assert len(found) <= nodes and len(op.text) <= characters, (order, len(found), len(op.text))


@pytest.mark.parametrize(("text", "order"), [(GAUSSIAN, 3), (TANH, 3), (SILU, 3), (SOFTMAX, 3)])
def test_higher_derivatives_are_right(text: str, order: int) -> None:
    shape = (2, 3) if "j" in text else (3,)
    x = np.random.default_rng(0).standard_normal(shape)
    dt.check_grads(parse(text), (x,), order=order, interpreted=True)


TEN = """
block(x: [B, D], w: [D, F], b: [F], u: [F, D], g: [D]) -> y:
    h[n,f] = sum(x[n,d] * w[d,f]) + b[f]
    a[n,f] = 0.5 * h[n,f] * (1 + erf(h[n,f] / sqrt(2)))
    s[n,d] = sum(a[n,f] * u[f,d])
    r[n,d] = s[n,d] + x[n,d]
    m[n]   = sum(r[n,d]) / D
    v[n]   = sum((r[n,d] - m[n])**2) / D
    z[n,d] = (r[n,d] - m[n]) * rsqrt(v[n] + 1e-5) * g[d]
    p[n]   = max(z[n,d])
    e[n,d] = exp(z[n,d] - p[n])
    y[n,d] = e[n,d] / sum(e[n,c])
"""
LIMITS = (0.2, 1.5)
"""Seconds for its gradient, and for the gradient of that by all its parameters."""


def test_ten_equations_are_differentiated_at_once() -> None:
    """The best of three runs: what is measured is what it takes, not what disturbs it."""

    def fresh() -> Op:
        return parse(TEN)

    names = tuple(p.name for p in fresh().params)
    adjoint(fresh(), names)  # modules and tables are loaded
    first, second, fixed = [], [], [seconds(work)]
    for _ in range(3):
        forget("algo", "autodiff")  # what the run before proved
        op = fresh()
        first.append(seconds(lambda op=op: adjoint(op, names)))
        back = adjoint(op, names)
        by_all = tuple(p.name for p in back.params)
        second.append(seconds(lambda back=back, by=by_all: adjoint(back, by)))
        fixed.append(seconds(work))
    scale = slowness(fixed)
    assert min(first) <= LIMITS[0] * scale and min(second) <= LIMITS[1] * scale, (
        first, second, scale,
    )  # fmt: skip


CHAINS = {
    "products": "{t}[i] = sin({r}[i]) * {r}[i]",
    "sums": "{t}[i] = sum({r}[j]) * sin({r}[i])",
    "choices": "{t}[i,j] = where({r}[i,0] > 0, sum({r}[i,k] * {r}[k,j]), {r}[i,j])",
}
"""Equations that read the one before, twice."""
GROWTH = 6.5
"""How much more time the gradient of 40 of them may take than that of 10."""


@pytest.mark.parametrize("name", CHAINS)
def test_time_grows_with_the_number_of_equations(name: str) -> None:
    """The best of three runs each, in turns, so that what disturbs both spares one of each."""

    def taken(count: int) -> float:
        forget("algo", "autodiff")
        lines = [CHAINS[name].format(t=f"t{n + 1}", r=f"t{n}" if n else "x") for n in range(count)]
        op = parse("\n".join(lines), returns=f"t{count}")
        return seconds(lambda: adjoint(op, "x"))

    taken(10)  # modules and tables are loaded
    runs = [(taken(10), taken(40)) for _ in range(3)]
    ten, forty = map(min, zip(*runs, strict=True))
    assert forty <= GROWTH * ten, runs


NESTED = 40, 0.25
"""Sines in each other, and processor seconds for the second derivative, a sum of that many
products."""


def test_second_derivatives_of_deep_nests_take_no_time() -> None:
    depth, limit = NESTED
    back = adjoint(parse(f"y[i] = {'sin(' * depth}x[i]{')' * depth}"), "x")
    fixed = [seconds(work)]
    taken = seconds(lambda: adjoint(back, "x"))
    fixed.append(seconds(work))
    assert taken <= limit * slowness(fixed), (taken, fixed)
