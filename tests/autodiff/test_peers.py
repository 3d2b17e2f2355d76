"""Gradients of forty operators against the automatic differentiation of JAX and of torch, each
where it is installed: values in float64, every parameter."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest

IDX, BIN = np.array([[1, 4, 1], [0, 1, 4]]), np.array([0, 2, 2, 1])
LABEL = np.array([2, 0, 1, 2])


class Namespace:
    """What both libraries have, by one name."""

    def __init__(self, module: Any, **more: Any) -> None:
        self.module, self.more = module, more

    def __getattr__(self, name: str) -> Any:
        return self.more.get(name) or getattr(self.module, name)


Function = Callable[..., Any]
Shape = tuple[int, ...]


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.amax(x, -1)[..., None])
    return e / e.sum(-1)[..., None]


def standard(xp: Any, x: Any) -> Any:
    d = x - x.mean(-1)[..., None]
    return d * (1 / xp.sqrt((d * d).mean(-1)[..., None] + 1e-5))


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.erf(x / np.sqrt(2)))


def conv(xp: Any, x: Any, w: Any, stride: int, dilation: int = 1) -> Any:
    """Sums over windows, tap by tap."""
    taps_y, taps_x = w.shape[2], w.shape[3]
    high = (x.shape[2] - (taps_y - 1) * dilation - 1) // stride + 1
    wide = (x.shape[3] - (taps_x - 1) * dilation - 1) // stride + 1
    total: Any = 0
    for r in range(taps_y):
        for s in range(taps_x):
            y0, x0 = r * dilation, s * dilation
            part = x[:, :, y0 : y0 + stride * (high - 1) + 1 : stride,
                     x0 : x0 + stride * (wide - 1) + 1 : stride]  # fmt: skip
            total = total + xp.einsum("ncyx,kc->nkyx", part, w[:, :, r, s])
    return total


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return softmax(xp, q @ k.T / np.sqrt(q.shape[1])) @ v


def rnn(xp: Any, x: Any, u: Any, h0: Any) -> Any:
    rows = [h0]
    for t in range(1, x.shape[0]):
        rows.append(xp.tanh(x[t] + u @ rows[-1]))
    return xp.stack(rows)


def lstm(xp: Any, x: Any, u: Any) -> Any:
    h = c = x[0, 0] * 0
    rows = []
    for t in range(x.shape[0]):
        g = x[t] + xp.einsum("qde,e->qd", u, h)
        c = xp.sigmoid(g[1]) * c + xp.sigmoid(g[0]) * xp.tanh(g[2])
        h = xp.sigmoid(g[3]) * xp.tanh(c)
        rows.append(h)
    return xp.stack(rows)


def soft_dtw(xp: Any, c: Any) -> Any:
    table: dict[tuple[int, int], Any] = {}
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            before = [table[p] for p in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if p in table]
            least = -xp.log(sum(xp.exp(-b) for b in before)) if before else 0
            table[i, j] = c[i, j] + least
    return table[c.shape[0] - 1, c.shape[1] - 1]


LSTM = """
lstm(x: [T, 4, D], u: [4, D, D]) -> h:
    g[t,q,d] = x[t,q,d] + sum(u[q,d,e] * h.zero[t-1,e])
    c[t,d] = sigmoid(g[t,1,d]) * c.zero[t-1,d] + sigmoid(g[t,0,d]) * tanh(g[t,2,d])
    h[t,d] = sigmoid(g[t,3,d]) * tanh(c[t,d])
"""
RNN = """
rnn(x: [T, D], u: [D, D], h0: [D]) -> h:
    h[0,d] = h0[d]
    h[t,d] = tanh(x[t,d] + sum(u[d,e] * h[t-1,e])) where t in 1:T
"""
DTW = """
dtw(c: [N, M]) -> s:
    r[0,0] = c[0,0]
    r[0,j] = c[0,j] + r[0,j-1] where j in 1:M
    r[i,0] = c[i,0] + r[i-1,0] where i in 1:N
    r[i,j] = c[i,j] - log(exp(-r[i-1,j]) + exp(-r[i,j-1]) + exp(-r[i-1,j-1]))
        where i in 1:N, j in 1:M
    s[] = r[N-1,M-1]
"""
SOFTMAX = "e[i,j] = exp(x[i,j] - max(x[i,l]))\ny[i,j] = e[i,j] / sum(e[i,l])"
STANDARD = """
    m[i]   = sum(x[i,j]) / J
    v[i]   = sum((x[i,j] - m[i])**2) / J
"""
ATTENTION = """
attention(q: [T, D], k: [S, D], v: [S, E]) -> o:
    s[t,u] = sum(q[t,d] * k[u,d]) / sqrt(D)
    e[t,u] = exp(s[t,u] - max(s[t,w]))
    p[t,u] = e[t,u] / sum(e[t,w])
    o[t,f] = sum(p[t,u] * v[u,f])
"""
CASES: dict[str, tuple[str, tuple[Any, ...], Function]] = {
    "matmul": ("y[i,j] = sum(a[i,k] * b[k,j])", ((3, 4), (4, 5)), lambda xp, a, b: a @ b),
    "A B^T": ("y[i,j] = sum(a[i,k] * b[j,k])", ((3, 4), (5, 4)), lambda xp, a, b: a @ b.T),
    "batched": ("y[n,i,j] = sum(a[n,i,k] * b[n,k,j])", ((2, 3, 4), (2, 4, 2)),
                lambda xp, a, b: a @ b),
    "matrix and vector": ("y[i] = sum(a[i,k] * x[k])", ((3, 4), (4,)), lambda xp, a, x: a @ x),
    "inner product": ("y[] = sum(a[i] * b[i])", ((5,), (5,)), lambda xp, a, b: a @ b),
    "outer product": ("y[i,j] = a[i] * b[j]", ((3,), (4,)), lambda xp, a, b: a[:, None] * b),
    "bilinear": ("y[n] = sum(x[n,i] * w[i,j] * z[n,j])", ((2, 3), (3, 4), (2, 4)),
                 lambda xp, x, w, z: xp.einsum("ni,ij,nj->n", x, w, z)),
    "Kronecker": ("y[i,k,j,l] = a[i,j] * b[k,l]", ((2, 3), (3, 2)),
                  lambda xp, a, b: xp.einsum("ij,kl->ikjl", a, b)),
    "MTTKRP": ("y[i,r] = sum(t[i,j,k] * b[j,r] * c[k,r])", ((2, 3, 4), (3, 2), (4, 2)),
               lambda xp, t, b, c: xp.einsum("ijk,jr,kr->ir", t, b, c)),
    "trace": ("y[] = sum(a[i,i])", ((4, 4),), lambda xp, a: xp.einsum("ii->", a)),
    "transpose": ("y[j,i] = a[i,j] * a[i,j]", ((3, 4),), lambda xp, a: (a * a).T),
    "dense relu": ("y[n,f] = max(sum(x[n,d] * w[d,f]) + b[f], 0)", ((3, 4), (4, 2), (2,)),
                   lambda xp, x, w, b: xp.maximum(x @ w + b, xp.zeros_like(x @ w))),
    "gelu": ("y[n,f] = 0.5 * (x[n,f] + b[f]) * (1 + erf((x[n,f] + b[f]) / sqrt(2)))",
             ((3, 4), (4,)), lambda xp, x, b: gelu(xp, x + b)),
    "silu": ("y[i] = x[i] * sigmoid(x[i])", ((5,),), lambda xp, x: x * xp.sigmoid(x)),
    "softplus": ("y[i] = softplus(x[i])", ((5,),), lambda xp, x: xp.log1p(xp.exp(x))),
    "mish": ("y[i] = x[i] * tanh(softplus(x[i]))", ((5,),),
             lambda xp, x: x * xp.tanh(xp.log1p(xp.exp(x)))),
    "softmax": (SOFTMAX, ((3, 5),), softmax),
    "log-softmax": ("m[i] = max(x[i,j])\ny[i,j] = x[i,j] - m[i] - log(sum(exp(x[i,l] - m[i])))",
                    ((3, 5),), lambda xp, x: xp.log(softmax(xp, x))),
    "logsumexp": ("m[i] = max(x[i,j])\ny[i] = m[i] + log(sum(exp(x[i,j] - m[i])))", ((3, 5),),
                  lambda xp, x: xp.log(xp.exp(x).sum(-1))),
    "cross entropy": ("f(z: [B, O], label: [B]) -> loss:\n"
                      " l[n] = log(sum(exp(z[n,o])))\n loss[] = sum(l[n] - z[n,label[n]]) / B",
                      ((4, 3), LABEL),
                      lambda xp, z, at: -xp.log(softmax(xp, z))[np.arange(4), at].mean()),
    "layernorm": (f"layernorm(x: [I, J], g: [J], b: [J]) -> y:{STANDARD}"
                  "    y[i,j] = (x[i,j] - m[i]) * rsqrt(v[i] + 1e-5) * g[j] + b[j]",
                  ((3, 6), (6,), (6,)), lambda xp, x, g, b: standard(xp, x) * g + b),
    "rmsnorm": ("y[i,j] = x[i,j] * rsqrt(sum(x[i,l]**2) / 6 + 1e-5) * g[j]", ((3, 6), (6,)),
                lambda xp, x, g: x / xp.sqrt((x * x).mean(-1)[..., None] + 1e-5) * g),
    "variance": (f"variance(x: [I, J]) -> v:{STANDARD}", ((3, 6),),
                 lambda xp, x: ((x - x.mean(-1)[..., None]) ** 2).mean(-1)),
    "attention": (ATTENTION, ((3, 4), (5, 4), (5, 2)), attention),
    "norm": ("y[i] = sqrt(sum(x[i,j]**2))", ((3, 4),), lambda xp, x: xp.sqrt((x * x).sum(-1))),
    "cosine": ("d[] = sum(a[i] * b[i])\ny[] = d[] / sqrt(sum(a[i]**2) * sum(b[i]**2))",
               ((5,), (5,)), lambda xp, a, b: a @ b / xp.sqrt((a * a).sum() * (b * b).sum())),
    "distances": ("y[i,j] = sum((a[i,k] - b[j,k])**2)", ((3, 2), (4, 2)),
                  lambda xp, a, b: ((a[:, None] - b) ** 2).sum(-1)),
    "Chamfer": ("d[i,j] = sum((a[i,k] - b[j,k])**2)\ny[] = sum(min(d[i,j], over=(j,)), over=(i,))",
                ((3, 2), (4, 2)),
                lambda xp, a, b: xp.amin(((a[:, None] - b) ** 2).sum(-1), -1).sum()),
    "product": ("y[i] = prod(x[i,j])", ((3, 4),), lambda xp, x: xp.prod(x, -1)),
    "max of rows": ("y[i] = max(x[i,j])", ((3, 4),), lambda xp, x: xp.amax(x, -1)),
    "conv": ("y[n,k,h,w] = sum(x[n,c,h+r,w+s] * f[k,c,r,s])", ((2, 2, 6, 5), (3, 2, 3, 2)),
             lambda xp, x, f: conv(xp, x, f, 1)),
    "strided conv": ("y[n,k,h,w] = sum(x[n,c,2*h+r,2*w+s] * f[k,c,r,s])",
                     ((2, 2, 8, 7), (3, 2, 3, 2)), lambda xp, x, f: conv(xp, x, f, 2)),
    "dilated conv": ("y[n,k,h,w] = sum(x[n,c,h+2*r,w+2*s] * f[k,c,r,s])",
                     ((1, 2, 8, 7), (3, 2, 3, 2)), lambda xp, x, f: conv(xp, x, f, 1, 2)),
    "max pool": ("y[i] = max(x[2*i+k]) where k in 0:2", ((8,),),
                 lambda xp, x: xp.amax(x.reshape(4, 2), -1)),
    "embedding": ("y[b,t,d] = w[idx[b,t],d]", ((5, 3), IDX), lambda xp, w, at: w[at]),
    "embedding bag": ("y[b,d] = sum(w[idx[b,t],d])", ((5, 3), IDX),
                      lambda xp, w, at: w[at].sum(1)),
    "histogram": ("h(b: [N], x: [N]) -> H:\n H: [3]\n H[b[n]] += x[n] * x[n]", (BIN, (4,)),
                  lambda xp, b, x: xp.stack([(x * x)[np.flatnonzero(n == BIN)].sum()
                                             for n in range(3)])),
    "cumsum": ("cumsum(x: [N]) -> y:\n y[0] = x[0]\n y[i] = y[i-1] + x[i] where i in 1:N", ((6,),),
               lambda xp, x: xp.cumsum(x, 0)),
    "RNN": (RNN, ((4, 3), (3, 3), (3,)), rnn),
    "LSTM": (LSTM, ((3, 4, 2), (4, 2, 2)), lstm),
    "soft DTW": (DTW, ((3, 4),), soft_dtw),
    "blur": ("y[i] = (x.edge[i-1] + x[i] + x.edge[i+1]) / 3", ((6,),),
             lambda xp, x: (xp.stack([x[0], *x[:-1]]) + x + xp.stack([*x[1:], x[-1]])) / 3),
    "Lennard-Jones": ("d[i,j] = sum((x[i,k] - x[j,k])**2)\n"
                      "y[] = sum(d[i,j]**-6 - d[i,j]**-3, over=(i,j), where=i < j)", ((4, 3),),
                      lambda xp, x: sum(d**-6 - d**-3 for i in range(4) for j in range(i + 1, 4)
                                        for d in [((x[i] - x[j]) ** 2).sum()])),
}  # fmt: skip


def of_jax(function: Function, arrays: list[Any], g: Any) -> list[Any]:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    special = importlib.import_module("jax.scipy.special")
    jnp = importlib.import_module("jax.numpy")
    xp = Namespace(jnp, erf=special.erf, sigmoid=jax.nn.sigmoid)
    floats = [n for n, a in enumerate(arrays) if a.dtype.kind == "f"]

    def total(*given: Any) -> Any:
        every = list(arrays)
        for n, a in zip(floats, given, strict=True):
            every[n] = a
        return (function(xp, *every) * g).sum()

    return list(jax.grad(total, tuple(range(len(floats))))(*(arrays[n] for n in floats)))


def of_torch(function: Function, arrays: list[Any], g: Any) -> list[Any]:
    torch = pytest.importorskip("torch")
    xp = Namespace(torch)
    given = [
        torch.tensor(a, requires_grad=True) if a.dtype.kind == "f" else torch.tensor(a)
        for a in arrays
    ]
    (function(xp, *given) * torch.tensor(g)).sum().backward()
    return [t.grad.numpy() for t in given if t.requires_grad]


@pytest.mark.parametrize("peer", [of_jax, of_torch], ids=["jax", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_agree(name: str, peer: Callable[..., list[Any]]) -> None:
    text, given, function = CASES[name]
    op = dt.op(text) if "->" in text else dt.op(text, returns="y")
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(a)) if isinstance(a, tuple) else a for a in given]
    y, pull = dt.vjp(op, *arrays)
    g = rng.standard_normal(y.shape)
    wanted = peer(function, arrays, g)
    found = [a for a in pull(g) if a is not None]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-9, atol=1e-11)


def test_forty_operators() -> None:
    assert len(CASES) >= 40
