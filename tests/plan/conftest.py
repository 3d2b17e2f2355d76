"""Two training steps as graphs, and kernels that the interpreter runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from diptych.algo.graph import build
from diptych.algo.graph.graph import Graph
from diptych.algo.graph.trace import trace
from diptych.algo.graph.tree import flatten, map_tree, unflatten
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.graph import gradients

DENSE = parse(
    "dense(x: f32[N, K], w: f32[K, M], b: f32[M]) -> y:\n  y[n,m] = sum(x[n,k] * w[k,m]) + b[m]"
)
RELU = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")
CONV = parse(
    "conv(x: f32[N, C, H, W], w: f32[F, C, 3, 3], b: f32[F]) -> y:\n"
    "  y[n,f,h,v] = max(sum(x[n,c,h+r,v+s] * w[f,c,r,s]) + b[f], 0)"
)
POOL = parse(
    "pool(x: f32[N, F, H, W]) -> y:\n"
    "  y[n,f,h,v] = max(x[n,f,2*h+p,2*v+q], over=(p,q)) where p in 0:2, q in 0:2"
)
FLATTEN = parse(
    "flatten(x: f32[N, 3, 3, 3]) -> y:\n  y[n,k] = x[n,k//9,k//3%3,k%3] where k in 0:27"
)
LOSS = parse(
    """
    cross_entropy(z: f32[N, M], label: i64[N]) -> loss:
        m[n]   = max(z[n,o])
        l[n]   = log(sum(exp(z[n,o] - m[n]))) + m[n]
        loss[] = sum(l[n] - z[n,label[n]]) / N
    """
)


def sgd(params: Any, grads: Any, lr: Any) -> Any:
    return map_tree(lambda p, g: p - lr * g, params, grads)


def finished(loss: Any, params: Any, lr: Any) -> Any:
    leaves, structure = flatten(params)
    return loss, sgd(params, unflatten(structure, gradients(loss, leaves)), lr)


def mlp(params: Any, x: Any, y: Any, lr: Any) -> Any:
    h = x
    for layer in params[:-1]:
        h = build.call(RELU, build.call(DENSE, h, layer["w"], layer["b"]))
    z = build.call(DENSE, h, params[-1]["w"], params[-1]["b"])
    return finished(build.call(LOSS, z, y), params, lr)


def convnet(params: Any, x: Any, y: Any, lr: Any) -> Any:
    h = build.call(POOL, build.call(CONV, x, *params["conv"]))
    z = build.call(DENSE, build.call(FLATTEN, h), *params["dense"])
    return finished(build.call(LOSS, z, y), params, lr)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    fan = max(1, int(np.prod(shape[:-1])))
    return (rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)


def mlp_arguments(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    sizes = (6, 16, 16, 5)
    params = [{"w": normal(rng, a, b), "b": np.zeros(b, np.float32)} for a, b in pairwise(sizes)]
    x, y = normal(rng, 12, 6) * 3, rng.integers(0, 5, 12)
    return params, x.astype(np.float32), y, np.float32(0.3)


def convnet_arguments(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    params = {
        "conv": (normal(rng, 3, 2, 3, 3), np.zeros(3, np.float32)),
        "dense": (normal(rng, 27, 4), np.zeros(4, np.float32)),
    }
    x = rng.standard_normal((8, 2, 8, 8)).astype(np.float32)
    return params, x, rng.integers(0, 4, 8), np.float32(0.2)


STEPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, mlp_arguments()),
    "convnet": (convnet, convnet_arguments()),
}


@pytest.fixture(scope="session")
def graphs() -> dict[str, Graph]:
    return {name: trace(step, args) for name, (step, args) in STEPS.items()}


@pytest.fixture(scope="session")
def inputs() -> dict[str, list[Any]]:
    return {name: flatten(args)[0] for name, (_, args) in STEPS.items()}


@pytest.fixture(scope="session")
def interpreted() -> Callable[[Op, Any, str | None], Any]:
    """Kernels run by the interpreter: the executor alone is under test. Results are poisoned
    first."""

    def compile(op: Op, types: Any, schedule: str | None) -> Any:
        def run(arrays: Sequence[Any], outs: Sequence[Any]) -> None:
            found = interpret(op, *arrays)
            for out, value in zip(
                outs, found if isinstance(found, tuple) else (found,), strict=True
            ):
                out.fill(77)
                np.copyto(out, value)

        return run

    return compile
