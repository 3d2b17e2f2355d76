"""Operators that the tests of this folder share: all of the kinds that the language has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

SOFTMAX = """
softmax(x: [I, J]) -> y:
    m[i]   = max(x[i,j])
    e[i,j] = exp(x[i,j] - m[i])
    y[i,j] = e[i,j] / sum(e[i,l])
"""
LAYERNORM = """
layernorm(x: [I, J], g: [J], b: [J]) -> y:
    m[i]   = sum(x[i,j]) / J
    v[i]   = sum((x[i,j] - m[i])**2) / J
    y[i,j] = (x[i,j] - m[i]) * rsqrt(v[i] + 1e-5) * g[j] + b[j]
"""
CUMSUM = """
cumsum(x: [N]) -> y:
    y[0] = x[0]
    y[i] = y[i-1] + x[i] where i in 1:N
"""
RNN = """
rnn(x: [T, D], U: [D, D], h0: [D]) -> h:
    h[0,d] = h0[d]
    h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
"""
LSTM = """
lstm(x: [T, 4, D], U: [4, D, D]) -> h:
    g[t,q,d] = x[t,q,d] + sum(U[q,d,e] * h[t,e])
    c[0,d] = 0 where d in 0:D
    c[t,d] = sigmoid(g[t-1,1,d]) * c[t-1,d] + sigmoid(g[t-1,0,d]) * tanh(g[t-1,2,d])
        where t in 1:T+1
    h[0,d] = 0 where d in 0:D
    h[t,d] = sigmoid(g[t-1,3,d]) * tanh(c[t,d]) where t in 1:T+1
"""
LSTM_FROM_ZERO = """
lstm(x: [T, 4, D], U: [4, D, D]) -> h:
    g[t,q,d] = x[t,q,d] + sum(U[q,d,e] * h.zero[t-1,e])
    c[t,d] = sigmoid(g[t,1,d]) * c.zero[t-1,d] + sigmoid(g[t,0,d]) * tanh(g[t,2,d])
    h[t,d] = sigmoid(g[t,3,d]) * tanh(c[t,d])
"""
VITERBI = """
viterbi(e: [T, S], A: [S, S]) -> h:
    h[0,s] = e[0,s]
    h[t,s] = max(h[t-1,r] + A[r,s] * e[t,s]) where t in 1:T
"""
SHORTEST = """
shortest(c: [N, M]) -> T:
    T[0,0] = c[0,0]
    T[0,j] = T[0,j-1] + c[0,j] where j in 1:M
    T[i,0] = T[i-1,0] + c[i,0] where i in 1:N
    T[i,j] = min(min(T[i-1,j], T[i,j-1]), T[i-1,j-1]) + c[i,j] where i in 1:N, j in 1:M
"""
CROSS_ENTROPY = """
cross_entropy(z: [B, O], label: [B]) -> loss:
    m[n]   = max(z[n,o])
    l[n]   = log(sum(exp(z[n,o] - m[n]))) + m[n]
    loss[] = sum(l[n] - z[n,label[n]]) / B
"""
HISTOGRAM = """
histogram(bin: [N], w: [N], z: [M]) -> H:
    H: [M]
    H[bin[n]] += w[n] * w[n]
"""

Case = tuple[str, tuple[Any, ...]]
OPERATORS: dict[str, Case] = {
    "matmul": ("C[i,j] = sum(A[i,k] * B[k,j])", ((3, 4), (4, 5))),
    "a_bt": ("C[i,j] = sum(A[i,k] * B[j,k])", ((3, 4), (5, 4))),
    "bias_relu": ("y[i,j] = max(x[i,j] + b[j], 0)", ((3, 4), (4,))),
    "softmax": (SOFTMAX, ((3, 5),)),
    "layernorm": (LAYERNORM, ((3, 6), (6,), (6,))),
    "conv2d": ("O[n,k,h,w] = sum(X[n,c,2*h+r,2*w+s] * W[k,c,r,s])", ((2, 2, 6, 7), (3, 2, 2, 3))),
    "conv1d": ("O[n,k,h] = sum(X[n,c,h+r] * W[k,c,r])", ((2, 2, 6), (3, 2, 3))),
    "max_pool": ("Y[y,x] = max(X[2*y+p,2*x+q]) where p in 0:2, q in 0:2", ((6, 5),)),
    "embedding": ("o[b,t,d] = W[idx[b,t],d]", ((5, 3), np.array([[1, 4, 1], [0, 1, 4]]))),
    "cumsum": (CUMSUM, ((6,),)),
    "rnn": (RNN, ((5, 3), (3, 3), (3,))),
    "lstm": (LSTM, ((3, 4, 2), (4, 2, 2))),
    "lstm_from_zero": (LSTM_FROM_ZERO, ((3, 4, 2), (4, 2, 2))),
    "one_step_from_zero": (LSTM_FROM_ZERO, ((1, 4, 2), (4, 2, 2))),
    "viterbi": (VITERBI, ((4, 3), (3, 3))),
    "shortest_path": (SHORTEST, ((3, 4),)),
    "cross_entropy": (CROSS_ENTROPY, ((4, 3), np.array([2, 0, 1, 2]))),
    "histogram": (HISTOGRAM, (np.array([0, 3, 3, 1]), (4,), (5,))),
    "greatest_of_bins": ("h(b: [N], x: [N]) -> H:\n H: [3]\n H[b[n]] max= x[n]",
                         (np.array([0, 2, 2, 1]), (4,))),
    "guarded_gather": ("y[n] = where(at[n] >= 0, x[at[n]] * x[at[n]], 0)",
                       (np.array([1, -3, 0, 1]), (3,))),
    "guarded_scatter": ("s(b: [N], x: [N]) -> H:\n H: [3]\n H[b[n]] += x[n]**2 where b[n] >= 0",
                        (np.array([0, -5, 2, 0]), (4,))),
    "prod": ("y[i] = prod(x[i,j])", ((3, 4),)),
    "min_reduction": ("y[i] = min(x[i,j] * x[i,j])", ((3, 4),)),
    "stencil": ("y[i] = x[i+1] * x[i] + x[i+2]", ((7,),)),
    "upsample": ("up(x: [N], z: [M]) -> y:\n y[i] = x[i//2] * z[i]", ((4,), (8,))),
    "triangle": ("y[i] = sum(x[i,k], over=(k,), where=k <= i)", ((4, 4),)),
    "triangle_range": ("f(x: [N, N], z: [N]) -> y:\n"
                       " y[i] = z[i] * sum(x[i,k] * x[k,i], over=(k in 0:i+1,))",
                       ((4, 4), (4,))),
    "max_of_triangle": ("f(x: [N, N]) -> y:\n y[i] = max(x[i,k], over=(k in i:N,))", ((4, 4),)),
    "transpose": ("y[i,j] = x[j,i] * x[i,j]", ((3, 3),)),
    "two_results": ("two(x: [N]) -> s, y:\n s[i] = x[i]*x[i]\n y[i] = exp(s[i])", ((4,),)),
    "log_sum_exp": ("y[i] = log(sum(exp(x[i,j])))", ((3, 4),)),
    "nested": ("y[i] = sum(x[i,j] * max(w[j,k] * x[i,k]))", ((3, 4), (4, 4))),
    "guarded": ("pad(x: [N], z: [M]) -> y:\n y[i] = where(i < N, x[i], 0) * z[i]", ((3,), (5,))),
    "scalar": ("y[i] = a[] * x[i]", ((), (4,))),
    "unread": ("u(a: [N], b: [N]) -> y:\n y[i] = b[i] * b[i]", ((4,), (4,))),
}  # fmt: skip


def arrays_of(case: Case, seed: int = 0) -> list[Any]:
    """Arguments for a case: a shape becomes random numbers, an array stands for itself."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(a) if isinstance(a, tuple) else a for a in case[1]]


@pytest.fixture(params=sorted(OPERATORS))
def case(request: pytest.FixtureRequest) -> tuple[str, list[Any]]:
    """The text of an operator and arguments for it."""
    found = OPERATORS[request.param]
    return found[0], arrays_of(found)


@pytest.fixture
def texts() -> dict[str, str]:
    """The text of every operator by its name."""
    return {name: text for name, (text, _) in OPERATORS.items()}
