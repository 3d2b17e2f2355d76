"""Normalisations, scans, lookups, filters: what moves memory more than it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import ERF, EXP, Case, floats

ROWS = (4096, 1024)


def _scipy_erf(x: Any) -> Any:
    from jax.scipy.special import erf

    return erf(x)


def _softmax(jnp: Any, x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _blur(x: Any) -> Any:
    h = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (h[:-2] + h[1:-1] + h[2:]) / 3


CASES = [
    Case(
        "softmax-4096x1024",
        "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])",
        lambda rng: (floats(rng, *ROWS),),
        operations=(4 + EXP) * 2**22,
        numpy=lambda x: _softmax(np, x),
        torch=lambda torch, x: torch.softmax(x, 1),
        jax=_softmax,
        returns="y",
    ),
    Case(
        "layernorm-4096x1024",
        """
        layernorm(x: [M, N], gamma: [N], beta: [N]) -> y:
            mu[i] = sum(x[i,j]) / N
            v[i] = sum((x[i,j] - mu[i]) ** 2) / N
            y[i,j] = (x[i,j] - mu[i]) * rsqrt(v[i] + 0.00001) * gamma[j] + beta[j]
        """,
        lambda rng: (floats(rng, *ROWS), floats(rng, 1024), floats(rng, 1024)),
        operations=8 * 2**22,
        torch=lambda torch, x, g, b: torch.nn.functional.layer_norm(x, (1024,), g, b),
        jax=lambda jnp, x, g, b: (x - x.mean(1, keepdims=True))
        / jnp.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b,
    ),
    Case(
        "bias-gelu-4096x1024",
        "z[i,j] = x[i,j] + b[j]\ny[i,j] = 0.5 * z[i,j] * (1 + erf(z[i,j] * 0.7071067811865476))",
        lambda rng: (floats(rng, *ROWS), floats(rng, 1024)),
        operations=(5 + ERF) * 2**22,
        torch=lambda torch, x, b: torch.nn.functional.gelu(x + b),
        jax=lambda jnp, x, b: 0.5 * (x + b) * (1 + _scipy_erf((x + b) * np.float32(0.5**0.5))),
        returns="y",
    ),
    Case(
        "attention-12x512x64",
        """
        attention(Q: [H, M, 64], K: [H, N, 64], V: [H, N, 64]) -> O:
            s[h,i,j] = sum(Q[h,i,d] * K[h,j,d]) * 0.125
            m[h,i] = max(s[h,i,j])
            p[h,i,j] = exp(s[h,i,j] - m[h,i])
            O[h,i,e] = sum(p[h,i,j] * V[h,j,e]) / sum(p[h,i,l])
        """,
        lambda rng: tuple(floats(rng, 12, 512, 64) for _ in range(3)),
        operations=12 * 512 * 512 * (4 * 64 + 3 + EXP),
        torch=lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None]
        )[0],
        jax=lambda jnp, q, k, v: _softmax(jnp, q @ k.swapaxes(1, 2) * np.float32(0.125)) @ v,
    ),
    Case(
        "embedding-bag-128x50x64",
        "y[b,d] = sum(w[at[b,t],d])",
        lambda rng: (floats(rng, 1_000_000, 64), rng.integers(0, 1_000_000, (128, 50))),
        operations=128 * 50 * 64,
        moved=128 * 51 * 64 * 4 + 128 * 50 * 8,
        torch=lambda torch, w, at: torch.nn.functional.embedding_bag(at, w, mode="sum"),
        jax=lambda jnp, w, at: w[at].sum(1),
    ),
    Case(
        "transpose-4096",
        "y[i,j] = x[j,i]",
        lambda rng: (floats(rng, 4096, 4096),),
        operations=0,
        numpy=lambda x: np.ascontiguousarray(x.T),
        torch=lambda torch, x: x.T.contiguous(),
        jax=lambda jnp, x: x.T,
    ),
    Case(
        "cumsum-4096x1024",
        """
        cumsum(x: [N, M]) -> c:
            c[i,0] = x[i,0]
            c[i,j] = c[i,j-1] + x[i,j] where j in 1:M
        """,
        lambda rng: (floats(rng, *ROWS),),
        operations=2**22,
        numpy=lambda x: np.cumsum(x, 1),
        torch=lambda torch, x: torch.cumsum(x, 1),
        jax=lambda jnp, x: jnp.cumsum(x, 1),
    ),
    Case(
        "argmax-4096x1024",
        "y[i] = argmax(x[i,j])",
        lambda rng: (floats(rng, *ROWS),),
        operations=2**22,
        numpy=lambda x: x.argmax(1),
        torch=lambda torch, x: x.argmax(1),
        jax=lambda jnp, x: x.argmax(1),
    ),
    Case(
        "blur-1600x2560",
        """
        h[y,x] = (g[y,x] + g[y,x+1] + g[y,x+2]) / 3
        b[y,x] = (h[y,x] + h[y+1,x] + h[y+2,x]) / 3
        """,
        lambda rng: (floats(rng, 1602, 2562),),
        operations=6 * 1600 * 2560,
        numpy=_blur,
        torch=lambda torch, x: _blur(x),
        jax=lambda jnp, x: _blur(x),
        returns="b",
    ),
]  # fmt: skip
