"""Eight operators that no library has a kernel for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from case import EXP, Case, floats


def _chamfer(x: Any, y: Any) -> Any:
    d = ((x[:, None] - y[None]) ** 2).sum(-1)
    return d.min(1), d.min(0)


def _torch_chamfer(torch: Any, x: Any, y: Any) -> Any:
    d = ((x[:, None] - y[None]) ** 2).sum(-1)
    return d.amin(1).mean() + d.amin(0).mean()


def _jax_softdtw(jnp: Any, c: Any) -> Any:
    import jax

    batch, m, n = c.shape
    i = jnp.arange(m)
    j = jnp.arange(m + n - 1)[:, None] - i
    costs = c[:, i, jnp.clip(j, 0, n - 1)]  # [batch, diagonal, row]
    inside = (j >= 0) & (j < n)
    far = jnp.full((batch, m), 1e10, c.dtype)

    def below(r: Any) -> Any:
        return jnp.concatenate([far[:, :1], r[:, :-1]], 1)

    def step(carry: Any, given: Any) -> Any:
        before, last = carry
        cost, valid = given
        a, b, d = last, below(last), below(before)
        low = jnp.minimum(jnp.minimum(a, b), d)
        soft = low - jnp.log(jnp.exp(low - a) + jnp.exp(low - b) + jnp.exp(low - d))
        new = jnp.where(valid, cost + soft, 1e10)
        return (last, new), None

    first = jnp.where(i == 0, costs[:, 0], 1e10)
    (_, last), _ = jax.lax.scan(step, (far, first), (costs[:, 1:].swapaxes(0, 1), inside[1:]))
    return last[:, -1]


def _torch_softdtw(torch: Any, c: Any) -> Any:
    _, m, n = c.shape
    i = torch.arange(m)
    j = torch.arange(m + n - 1)[:, None] - i
    inside = (j >= 0) & (j < n)
    costs = torch.where(inside, c[:, i, j.clamp(0, n - 1)], 1e10)
    before = torch.full((len(c), m), 1e10)
    last = torch.where(i == 0, costs[:, 0], 1e10)
    step = _compiled_step(torch)
    for t in range(1, m + n - 1):
        before, last = last, step(before, last, costs[:, t], inside[t])
    return last[:, -1]


@functools.cache
def _compiled_step(torch: Any) -> Any:
    """One antidiagonal; all 511 of them as one graph would take torch.compile minutes."""

    def step(before: Any, last: Any, cost: Any, valid: Any) -> Any:
        far = torch.full((len(last), 1), 1e10)
        b, d = torch.cat([far, last[:, :-1]], 1), torch.cat([far, before[:, :-1]], 1)
        low = torch.minimum(torch.minimum(last, b), d)
        soft = low - torch.log(torch.exp(low - last) + torch.exp(low - b) + torch.exp(low - d))
        return torch.where(valid, cost + soft, 1e10)

    return torch.compile(step)


def _bilateral(exp: Any, g: Any) -> Any:
    h, w = g.shape[0] - 4, g.shape[1] - 4
    middle, total, weights = g[2:-2, 2:-2], 0, 0
    for r in range(5):
        for s in range(5):
            near = g[r : r + h, s : s + w]
            weight = exp(-0.5 * ((r - 2) ** 2 + (s - 2) ** 2) - 8 * (near - middle) ** 2)
            total, weights = total + weight * near, weights + weight
    return total / weights


def _neighbours(module: Any, pad: Any, q: Any, k: Any, v: Any) -> Any:
    """Windows of 7 x 7 keys around each query; what lies outside has no weight."""
    _, rows, cols, dims = q.shape
    k, v, inside = pad(k), pad(v), pad(module.ones((1, rows, cols, 1)))
    windows = [(r, s) for r in range(7) for s in range(7)]
    scores = module.stack(
        [(q * k[:, r : r + rows, s : s + cols]).sum(-1) for r, s in windows], -1
    ) * (dims**-0.5)
    seen = module.stack([inside[:, r : r + rows, s : s + cols, 0] for r, s in windows], -1)
    p = module.exp(scores) * seen
    total = 0
    for n, (r, s) in enumerate(windows):
        total = total + p[..., n, None] * v[:, r : r + rows, s : s + cols]
    return total / p.sum(-1)[..., None]


def _forces(module: Any, x: Any) -> Any:
    d = x[:, None] - x[None]
    r = (d**2).sum(-1)
    s = module.where(module.eye(len(x)) > 0, 0.0, 1 / module.clip(r, 1e-4, None))
    return ((48 * s**7 - 24 * s**4)[..., None] * d).sum(1)


def _involution(pad: Any, x: Any, w: Any) -> Any:
    rows, cols = x.shape[-2:]
    x, total = pad(x), 0
    for r in range(7):
        for s in range(7):
            total = total + w[:, :, r, s, None] * x[..., r : r + rows, s : s + cols]
    return total


def _around(x: Any) -> Any:
    """Zeros around the second and third dimensions, in jax."""
    import jax.numpy as jnp

    return jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)))


CASES = [
    Case(
        "chamfer-4096x4096x3",
        """
        chamfer(x: [N, 3], y: [M, 3]) -> loss:
            d[i,j] = sum((x[i,c] - y[j,c]) ** 2)
            a[i] = min(d[i,j])
            b[j] = min(d[i,j])
            loss[] = sum(a[i]) / N + sum(b[j]) / M
        """,
        lambda rng: (floats(rng, 4096, 3), floats(rng, 4096, 3)),
        operations=10 * 4096**2,
        torch=_torch_chamfer,
        jax=lambda jnp, x, y: sum(a.mean() for a in _chamfer(x, y)),
        compiled=True,
    ),
    Case(
        "softdtw-32x256x256",
        """
        softdtw(C: [B, M, N]) -> r:
            R[b,0,0] = C[b,0,0]
            R[b,i,0] = R[b,i-1,0] + C[b,i,0] where i in 1:M
            R[b,0,j] = R[b,0,j-1] + C[b,0,j] where j in 1:N
            low[b,i,j] = min(min(R[b,i,j+1], R[b,i+1,j]), R[b,i,j])
                where i in 0:M-1, j in 0:N-1
            R[b,i,j] = C[b,i,j] + low[b,i-1,j-1] - log(exp(low[b,i-1,j-1] - R[b,i-1,j])
                + exp(low[b,i-1,j-1] - R[b,i,j-1]) + exp(low[b,i-1,j-1] - R[b,i-1,j-1]))
                where i in 1:M, j in 1:N
            r[b] = R[b,M-1,N-1]
        """,
        lambda rng: (floats(rng, 32, 256, 256) ** 2,),
        operations=32 * 256 * 256 * (3 * EXP + 20 + 9),
        torch=_torch_softdtw,
        jax=_jax_softdtw,
    ),
    Case(
        "bilateral-1024",
        """
        w[y,x,r,s] = exp(-0.5 * ((r-2) ** 2 + (s-2) ** 2) - 8 * (g[y+r,x+s] - g[y+2,x+2]) ** 2)
            where r in 0:5, s in 0:5
        b[y,x] = sum(w[y,x,r,s] * g[y+r,x+s]) / sum(w[y,x,p,q])
        """,
        lambda rng: (rng.random((1028, 1028), np.float32),),
        operations=1024**2 * 25 * (EXP + 7),
        torch=lambda torch, g: _bilateral(torch.exp, g),
        jax=lambda jnp, g: _bilateral(jnp.exp, g),
        compiled=True,
        returns="b",
    ),
    Case(
        "neighbourhood-4x56x56x32",
        """
        near(Q: [H, Y, X, D], K: [H, Y, X, D], V: [H, Y, X, D]) -> O:
            a[h,y,x,r,s] = sum(Q[h,y,x,d] * K.zero[h,y+r-3,x+s-3,d]) * rsqrt(f32(D))
                where r in 0:7, s in 0:7
            p[h,y,x,r,s] = (exp(a[h,y,x,r,s])
                * where((0 <= y + r - 3 < Y) & (0 <= x + s - 3 < X), 1.0, 0.0))
            O[h,y,x,d] = sum(p[h,y,x,r,s] * V.zero[h,y+r-3,x+s-3,d]) / sum(p[h,y,x,t,u])
        """,
        lambda rng: tuple(floats(rng, 4, 56, 56, 32) for _ in range(3)),
        operations=4 * 56 * 56 * 49 * (4 * 32 + EXP + 3),
        torch=lambda torch, q, k, v: _neighbours(
            torch, lambda x: torch.nn.functional.pad(x, (0, 0, 3, 3, 3, 3)), q, k, v
        ),
        jax=lambda jnp, q, k, v: _neighbours(jnp, _around, q, k, v),
        compiled=True,
    ),
    Case(
        "lennard-jones-2048",
        """
        forces(x: [N, 3]) -> f:
            r[i,j] = sum((x[i,c] - x[j,c]) ** 2)
            s[i,j] = where(i == j, 0.0, 1 / max(r[i,j], 0.0001)) where i in 0:N, j in 0:N
            f[i,c] = sum((48 * s[i,j] ** 7 - 24 * s[i,j] ** 4) * (x[i,c] - x[j,c]), over=j)
        """,
        lambda rng: (12 * rng.random((2048, 3), np.float32),),
        operations=2048**2 * 30,
        torch=_forces,
        jax=_forces,
        compiled=True,
    ),
    Case(
        "involution-8x16x16x56",
        """
        involution(x: [N, G, C, H, W], w: [N, G, 7, 7, H, W]) -> y:
            y[n,g,c,p,q] = sum(x.zero[n,g,c,p+r-3,q+s-3] * w[n,g,r,s,p,q]) where p in 0:H, q in 0:W
        """,
        lambda rng: (floats(rng, 1, 8, 16, 56, 56), floats(rng, 1, 8, 7, 7, 56, 56)),
        operations=2 * 8 * 16 * 56 * 56 * 49,
        torch=lambda torch, x, w: _involution(
            lambda x: torch.nn.functional.pad(x, (3, 3, 3, 3)), x, w
        ),
        jax=lambda jnp, x, w: _involution(
            lambda x: jnp.pad(x, ((0, 0), (0, 0), (0, 0), (3, 3), (3, 3))), x, w
        ),
        compiled=True,
    ),
    Case(
        "kron-128x16",
        """
        kron(A: [M, N], B: [16, 16]) -> K:
            K[i,j] = A[i//16,j//16] * B[i%16,j%16] where i in 0:16*M, j in 0:16*N
        """,
        lambda rng: (floats(rng, 128, 128), floats(rng, 16, 16)),
        operations=2048**2,
        numpy=np.kron,
        torch=lambda torch, a, b: torch.kron(a, b),
        jax=lambda jnp, a, b: jnp.kron(a, b),
        compiled=True,
    ),
    Case(
        "mttkrp-128x32",
        "M[i,r] = sum(X[i,j,k] * (B[j,r] * C[k,r]))",
        lambda rng: (floats(rng, 128, 128, 128), floats(rng, 128, 32), floats(rng, 128, 32)),
        operations=2 * 128**3 * 32,
        torch=lambda torch, x, b, c: torch.einsum("ijk,jr,kr->ir", x, b, c),
        jax=lambda jnp, x, b, c: jnp.einsum("ijk,jr,kr->ir", x, b, c),
        compiled=True,
    ),
]
