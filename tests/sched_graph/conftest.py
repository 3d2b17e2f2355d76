"""A two layer network without and with its gradient, as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.graph import build
from diptych.algo.graph.graph import ArrayType, Graph
from diptych.algo.graph.trace import trace
from diptych.algo.graph.tree import flatten, unflatten
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.graph import gradients

DENSE = parse("dense(x: f32[N, K], w: f32[K, M]) -> y:\n  y[n,m] = sum(x[n,k] * w[k,m])")
RELU = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")
LOSS = parse("loss(z: f32[N, M], t: f32[N, M]) -> l:\n  l[] = sum((z[n,m] - t[n,m]) ** 2) / N")
SOFTMAX = parse(
    "softmax(x: f32[N, M]) -> y:\n  m[n] = max(x[n,j])\n  e[n,j] = exp(x[n,j] - m[n])\n"
    "  y[n,j] = e[n,j] / sum(e[n,l])"
)


def forward(params: dict[str, Any], x: f32["B", "D"]) -> Any:
    h = build.call(RELU, build.call(DENSE, x, params["w1"]))
    return build.call(SOFTMAX, build.call(DENSE, h, params["w2"]))


def step(params: dict[str, Any], x: Any, t: Any) -> Any:
    h = build.call(RELU, build.call(DENSE, x, params["w1"]))
    loss = build.call(LOSS, build.call(DENSE, h, params["w2"]), t)
    leaves, structure = flatten(params)
    grads = unflatten(structure, gradients(loss, leaves))
    return loss, {name: params[name] - 0.1 * grads[name] for name in params}


PARAMS = {"w1": ArrayType((6, 5), f32), "w2": ArrayType((5, 4), f32)}
X, T = ArrayType((8, 6), f32), ArrayType((8, 4), f32)


@pytest.fixture(scope="session")
def net() -> Graph:
    return trace(forward, (PARAMS, X))


@pytest.fixture(scope="session")
def training() -> Graph:
    return trace(step, (PARAMS, X, T))


@pytest.fixture(scope="session")
def arrays() -> Callable[[Graph], list[Any]]:
    def make(graph: Graph) -> list[Any]:
        rng = np.random.default_rng(5)
        return [rng.standard_normal(v.type.shape).astype(v.type.dtype.numpy) for v in graph.inputs]

    return make
