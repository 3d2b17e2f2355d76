"""The operators and sizes of Tensor Comprehensions (Vasilache et al., 2018)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from case import EXP, Case, floats

from .contractions import kronecker, transposed


def grouped(channels: int, side: int) -> Case:
    """A 3 x 3 convolution of 32 images in 32 groups, with bias."""
    return Case(
        f"gconv-{channels}x{side}",
        """
        gconv(x: [N, G, C, H, W], w: [G, F, C, 3, 3], b: [G, F]) -> y:
            y[n,g,f,p,q] = sum(x.zero[n,g,c,p+r-1,q+s-1] * w[g,f,c,r,s]) + b[g,f]
                where p in 0:H, q in 0:W
        """,
        lambda rng: (
            floats(rng, 32, 32, channels, side, side),
            floats(rng, 32, channels, channels, 3, 3),
            floats(rng, 32, channels),
        ),
        operations=2 * 32 * 32 * channels**2 * side**2 * 9,
        torch=lambda torch, x, w, b: torch.nn.functional.conv2d(
            x.flatten(1, 2), w.flatten(0, 1), b.flatten(), padding=1, groups=32
        ).unflatten(1, (32, channels)),
    )


def layers(depth: int, widths: tuple[int, ...]) -> Case:
    """Dense layers with ReLU, one after another."""
    lines = [
        f"h{n}[b,i{n}] = max(sum({f'h{n - 1}' if n > 1 else 'x'}[b,i{n - 1}] * w{n}[i{n - 1},i{n}])"
        f" + b{n}[i{n}], 0)"
        for n in range(1, depth + 1)
    ]
    names = ", ".join(f"w{n}, b{n}" for n in range(1, depth + 1))

    def run(larger: object, x: object, *given: object) -> object:
        for n in range(0, 2 * depth, 2):
            x = larger(x @ given[n] + given[n + 1])  # type: ignore[operator]
        return x

    return Case(
        f"mlp{depth}",
        f"mlp(x, {names}) -> h{depth}:\n" + "\n".join("    " + line for line in lines),
        lambda rng: (
            floats(rng, 128, widths[0]),
            *(floats(rng, *s) / np.float32(8) for a, b in pairwise(widths)
              for s in ((a, b), (b,))),
        ),
        operations=sum(2 * 128 * a * b for a, b in pairwise(widths)),
        numpy=lambda *given: run(lambda v: np.maximum(v, 0), *given),
        torch=lambda torch, *given: run(torch.relu, *given),
        jax=lambda jnp, *given: run(lambda v: jnp.maximum(v, 0), *given),
    )  # fmt: skip


def groupnorm(batch: int, side: int) -> Case:
    return Case(
        f"groupnorm-{batch}x{side}",
        """
        groupnorm(x: [N, G, C, H, W], gamma: [G, C], beta: [G, C]) -> y:
            mean[n,g] = sum(x[n,g,c,h,w]) / (C*H*W)
            var[n,g] = sum((x[n,g,c,h,w] - mean[n,g]) ** 2) / (C*H*W)
            y[n,g,c,h,w] = ((x[n,g,c,h,w] - mean[n,g]) * rsqrt(var[n,g] + 0.00001) * gamma[g,c]
                            + beta[g,c])
        """,
        lambda rng: (
            floats(rng, batch, 32, 16, side, side), floats(rng, 32, 16), floats(rng, 32, 16)
        ),
        operations=6 * batch * 512 * side**2,
        torch=lambda torch, x, gamma, beta: torch.nn.functional.group_norm(
            x.flatten(1, 2), 32, gamma.flatten(), beta.flatten()
        ).unflatten(1, (32, 16)),
        jax=lambda jnp, x, gamma, beta: (
            (x - x.mean((2, 3, 4), keepdims=True))
            / jnp.sqrt(x.var((2, 3, 4), keepdims=True) + 1e-5)
            * gamma[:, :, None, None] + beta[:, :, None, None]
        ),
    )  # fmt: skip


def lookup(rng: np.random.Generator, rows: int = 1_000_000) -> tuple[object, object]:
    return floats(rng, rows, 64), rng.integers(0, rows, (128, 50))


def _wavenet(torch: Any, x: Any, wf: Any, wg: Any, bf: Any, bg: Any, *rest: Any) -> Any:
    wr, br, ws, bs = rest
    conv = torch.nn.functional.conv1d
    early = torch.nn.functional.pad(x, (8, 0))
    z = torch.tanh(conv(early, wf, bf, dilation=8))
    z = z * torch.sigmoid(conv(early, wg, bg, dilation=8))
    return conv(z, wr[..., None], br) + x, conv(z, ws[..., None], bs)


CASES = [
    transposed("tmm-128x256x32", 128, 256, 32),
    transposed("tmm-128x16384x4096", 128, 16384, 4096),
    *(grouped(channels, side) for channels, side in ((4, 56), (8, 28), (16, 14), (32, 7))),
    Case(
        "lut1",
        "O[b,d] = sum(T[I[b,l],d])",
        lookup,
        operations=128 * 50 * 64,
        moved=128 * 51 * 64 * 4 + 128 * 50 * 8,
        torch=lambda torch, table, at: torch.nn.functional.embedding_bag(at, table, mode="sum"),
        jax=lambda jnp, table, at: table[at].sum(1),
    ),
    Case(
        "lut2",
        "O[b,d] = sum(T[I[b,l],d])\nP[b,d] = sum(U[J[b,m],d])",
        lambda rng: (*lookup(rng), *lookup(rng)),
        operations=2 * 128 * 50 * 64,
        moved=2 * (128 * 51 * 64 * 4 + 128 * 50 * 8),
        torch=lambda torch, t, i, u, j: (
            torch.nn.functional.embedding_bag(i, t, mode="sum"),
            torch.nn.functional.embedding_bag(j, u, mode="sum"),
        ),
        jax=lambda jnp, t, i, u, j: (t[i].sum(1), u[j].sum(1)),
        returns=("O", "P"),
    ),
    Case(
        "c3-128x1000x1024",
        "C[b,y] = sum(I[b,x] * W[y,x])",
        lambda rng: (floats(rng, 128, 1024), floats(rng, 1000, 1024)),
        operations=2 * 128 * 1000 * 1024,
        numpy=lambda i, w: i @ w.T,
        torch=lambda torch, i, w: i @ w.T,
        jax=lambda jnp, i, w: i @ w.T,
    ),
    layers(1, (2000, 128)),
    layers(3, (128, 64, 32, 2)),
    kronecker("kru3-32", (32, 32, 32)),
    kronecker("kru3-64", (64, 64, 64)),
    kronecker("kru3-64x128x128", (64, 128, 128)),
    groupnorm(4, 12),
    groupnorm(32, 48),
    Case(
        "wavenet",
        """
        wavenet(x: [B, C, T], wf: [C, C, 2], wg: [C, C, 2], bf: [C], bg: [C], wr: [C, C], br: [C],
                ws: [S, C], bs: [S]) -> res, skip:
            f[b,o,t] = tanh(sum(x.zero[b,c,t+8*k-8] * wf[o,c,k]) + bf[o]) where t in 0:T
            g[b,o,t] = sigmoid(sum(x.zero[b,c,t+8*k-8] * wg[o,c,k]) + bg[o]) where t in 0:T
            z[b,o,t] = f[b,o,t] * g[b,o,t]
            res[b,o,t] = sum(z[b,c,t] * wr[o,c]) + br[o] + x[b,o,t]
            skip[b,s,t] = sum(z[b,c,t] * ws[s,c]) + bs[s]
        """,
        lambda rng: (
            floats(rng, 1, 32, 4000),
            *(floats(rng, *s) / np.float32(8)
              for s in ((32, 32, 2), (32, 32, 2), (32,), (32,), (32, 32), (32,), (256, 32),
                        (256,))),
        ),
        operations=4000 * (2 * 2 * 32 * 64 + 2 * 32 * EXP + 2 * 32 * 32 + 2 * 32 * 256),
        torch=_wavenet,
    ),
]  # fmt: skip
