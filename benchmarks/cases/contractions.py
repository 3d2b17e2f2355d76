"""Matrix products and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Array, Case, floats


def matmul(name: str, m: int, n: int, k: int) -> Case:
    return Case(
        name,
        "C[i,j] = sum(A[i,k] * B[k,j])",
        lambda rng: (floats(rng, m, k), floats(rng, k, n)),
        operations=2 * m * n * k,
        numpy=lambda a, b: a @ b,
        torch=lambda torch, a, b: a @ b,
        jax=lambda jnp, a, b: a @ b,
    )


def transposed(name: str, m: int, n: int, k: int) -> Case:
    return Case(
        name,
        "C[i,j] = sum(A[i,k] * B[j,k])",
        lambda rng: (floats(rng, m, k), floats(rng, n, k)),
        operations=2 * m * n * k,
        numpy=lambda a, b: a @ b.T,
        torch=lambda torch, a, b: a @ b.T,
        jax=lambda jnp, a, b: a @ b.T,
    )


def kronecker(name: str, outs: tuple[int, int, int]) -> Case:
    """A factor after the other of a Kronecker product of three matrices, times a batch."""
    a, b, c = outs
    return Case(
        name,
        """
        p[m,i,j,z] = sum(X[m,i,j,k] * W2[z,k])
        q[m,i,y,z] = sum(p[m,i,j,z] * W1[y,j])
        Y[m,x,y,z] = sum(q[m,i,y,z] * W0[x,i])
        """,
        lambda rng: (
            floats(rng, 256, 16, 16, 16), floats(rng, c, 16), floats(rng, b, 16), floats(rng, a, 16)
        ),
        operations=2 * 256 * 16 * c * (16 * 16 + 16 * b + a * b),
        torch=lambda torch, x, w2, w1, w0: torch.einsum(
            "miyz,xi->mxyz",
            torch.einsum("mijz,yj->miyz", torch.einsum("mijk,zk->mijz", x, w2), w1), w0,
        ),
        jax=lambda jnp, x, w2, w1, w0: jnp.einsum(
            "miyz,xi->mxyz",
            jnp.einsum("mijz,yj->miyz", jnp.einsum("mijk,zk->mijz", x, w2), w1), w0,
        ),
        returns="Y",
    )  # fmt: skip


def halves(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal numbers cut to bf16, as their bits."""
    return (floats(rng, *shape).view(np.uint32) >> 16).astype(np.uint16)


def bf16_matmul(jnp: Any, a: Any, b: Any) -> Any:
    """The product of what bits mean, in f32."""
    from jax.lax import bitcast_convert_type

    a, b = (bitcast_convert_type(part, jnp.bfloat16) for part in (a, b))
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


CASES = [
    matmul("matmul-1024", 1024, 1024, 1024),
    matmul("matmul-512", 512, 512, 512),
    matmul("matmul-128x1024x1024", 128, 1024, 1024),
    matmul("matmul-37x53x71", 37, 53, 71),
    transposed("matmul-nt-128x1024x1024", 128, 1024, 1024),
    Case(
        "batched-nt-500x26x72x26",
        "Z[b,n,k] = sum(X[b,n,m] * Y[b,k,m])",
        lambda rng: (floats(rng, 500, 26, 72), floats(rng, 500, 26, 72)),
        operations=2 * 500 * 26 * 72 * 26,
        numpy=lambda x, y: x @ y.transpose(0, 2, 1),
        torch=lambda torch, x, y: x @ y.transpose(1, 2),
        jax=lambda jnp, x, y: x @ y.transpose(0, 2, 1),
    ),
    Case(
        "matvec-4096",
        "y[i] = sum(A[i,j] * x[j])",
        lambda rng: (floats(rng, 4096, 4096), floats(rng, 4096)),
        operations=2 * 4096**2,
        numpy=lambda a, x: a @ x,
        torch=lambda torch, a, x: a @ x,
        jax=lambda jnp, a, x: a @ x,
    ),
    Case(
        "dense-relu-128x1024x512",
        "y[n,o] = max(sum(x[n,i] * w[o,i]) + b[o], 0)",
        lambda rng: (floats(rng, 128, 1024), floats(rng, 512, 1024), floats(rng, 512)),
        operations=2 * 128 * 1024 * 512,
        numpy=lambda x, w, b: np.maximum(x @ w.T + b, 0),
        torch=lambda torch, x, w, b: torch.relu(torch.nn.functional.linear(x, w, b)),
        jax=lambda jnp, x, w, b: jnp.maximum(x @ w.T + b, 0),
    ),
    kronecker("kru3-16", (16, 16, 16)),
    Case(
        "int8-matmul-1024",
        "C[i,j] = sum(A[i,k] * B[k,j])",
        lambda rng: tuple(rng.integers(-128, 128, (1024, 1024), np.int8) for _ in range(2)),
        operations=2 * 1024**3,
        torch=lambda torch, a, b: torch._int_mm(a, b),
        jax=lambda jnp, a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32),
    ),
    Case(
        "bf16-matmul-1024",
        "mm(A: bf16[M, K], B: bf16[K, N]) -> C:\n  C[i,j] = sum(f32(A[i,k]) * f32(B[k,j]))",
        lambda rng: tuple(halves(rng, 1024, 1024) for _ in range(2)),
        operations=2 * 1024**3,
        torch=lambda torch, a, b: (a.view(torch.bfloat16) @ b.view(torch.bfloat16)).float(),
        jax=bf16_matmul,
        tolerance=1e-2,  # torch rounds the result to bf16
    ),
]
