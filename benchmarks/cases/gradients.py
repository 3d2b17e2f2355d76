"""Derivatives of operators of the other families, and of others that are worth it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from case import Array, Case, floats

from . import convolutions, own, rows

FORWARDS = {case.name: case for case in (*convolutions.CASES, *rows.CASES, *own.CASES)}
CONV = convolutions.conv("conv3-8x64x56", 64, 64, 56, 3, batch=8)
OWN = {
    "chamfer-4096x4096x3": ("x", "y"),
    "softdtw-32x256x256": ("C",),
    "bilateral-1024": ("g",),
    "neighbourhood-4x56x56x32": ("Q", "K", "V"),
    "lennard-jones-2048": ("x",),
    "involution-8x16x16x56": ("x", "w"),
    "kron-128x16": ("A", "B"),
    "mttkrp-128x32": ("X", "B", "C"),
}
"""The operators that no library has a kernel for, and all that they are differentiated by."""


def both(name: str, wrt: tuple[str, ...]) -> Case:
    """Results and gradients, in which each operation has at least two of its own."""
    case = FORWARDS[name]
    return replace(
        case, name=f"{name}-vjp", wrt=wrt, operations=3 * case.operations, numpy=None,
        tolerance=1e-3,
    )  # fmt: skip


def backward(name: str, wrt: str | tuple[str, ...], operations: float, case: Case) -> Case:
    """Gradients alone, where the results are known."""
    wrt = (wrt,) if isinstance(wrt, str) else wrt
    return replace(case, name=name, wrt=wrt, forward=False, operations=operations, numpy=None)


def _zipf(rng: np.random.Generator) -> list[Array]:
    """A table and places in it, many of them the same, as words of a text are."""
    at = np.minimum(rng.zipf(1.2, 16384) - 1, 9999)
    return [floats(rng, 10000, 128), at]


def _two_layers() -> Any:
    import diptych as dt

    layer = dt.op("z[b,n] = sum(x[b,m] * w[m,n]) + c[n]", returns="z")
    relu = dt.op("h[b,n] = max(z[b,n], 0.0)", returns="h")
    loss = dt.op("e[] = sum((y[b,n] - t[b,n]) ** 2) / f32(B)", returns="e")

    def error(x: Any, t: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        return loss(layer(relu(layer(x, w, b)), v, c), t)

    step = dt.value_and_grad(error, (2, 3, 4, 5))
    return lambda *arrays: step(*arrays)[1]


def _error(relu: Any, x: Any, t: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return ((relu(x @ w + b) @ v + c - t) ** 2).sum() / len(x)


def _torch_two_layers(torch: Any, x: Any, t: Any, *parameters: Any) -> Any:
    with torch.enable_grad():
        leaves = [p.requires_grad_() for p in parameters]
        return torch.autograd.grad(_error(torch.relu, x, t, *leaves), leaves)


def _jax_two_layers(jnp: Any, x: Any, t: Any, *parameters: Any) -> Any:
    import jax

    def error(*given: Any) -> Any:
        return _error(jax.nn.relu, x, t, *given)

    return jax.value_and_grad(error, (0, 1, 2, 3))(*parameters)[1]


CASES = [
    Case(
        "softmax-backward-4096x1024",
        """
        s[i] = sum(dy[i,j] * y[i,j])
        dx[i,j] = y[i,j] * (dy[i,j] - s[i])
        """,
        lambda rng: (floats(rng, 4096, 1024), rng.dirichlet(np.ones(1024), 4096).astype("f4")),
        operations=4 * 2**22,
        torch=lambda torch, dy, y: torch._softmax_backward_data(dy, y, 1, torch.float32),
        jax=lambda jnp, dy, y: y * (dy - (dy * y).sum(1, keepdims=True)),
        returns="dx",
    ),
    backward(
        "softmax-max-backward-4096x1024", "x", 4 * 2**22, FORWARDS["softmax-4096x1024"],
    ),
    backward(
        "layernorm-backward-4096x1024", ("x", "gamma", "beta"), 20 * 2**22,
        FORWARDS["layernorm-4096x1024"],
    ),
    backward("conv-by-input-8x64x56", "x", CONV.operations, CONV),
    backward("conv-by-weights-8x64x56", "w", CONV.operations, CONV),
    Case(
        "embedding-backward-10000x128",
        "y[b,d] = w[at[b],d]",
        _zipf,
        operations=16384 * 128,
        torch=lambda torch, w, at: torch.nn.functional.embedding(at, w),
        jax=lambda jnp, w, at: w[at],
        wrt=("w",),
        forward=False,
    ),
    Case(
        "mlp-256x512x1024x512-vjp",
        "two layers with a quadratic error: results, and gradients by the four parameters",
        lambda rng: (
            floats(rng, 256, 512), floats(rng, 256, 512), floats(rng, 512, 1024) / 20,
            floats(rng, 1024), floats(rng, 1024, 512) / 30, floats(rng, 512),
        ),
        operations=5 * 2 * 256 * 512 * 1024,
        torch=_torch_two_layers,
        jax=_jax_two_layers,
        program=_two_layers,
    ),
    *(both(name, wrt) for name, wrt in OWN.items()),
]  # fmt: skip
