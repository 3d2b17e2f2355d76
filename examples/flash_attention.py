"""Attention with the online softmax of FlashAttention (arXiv:2205.14135), as one reduction.

The reducer says how the results of two sets of keys become one; its lift, what those of a whole
block are. `rfactor` then makes the tiled algorithm of it: for each block of queries and each block
of keys two small matrix products, and no score is ever kept for longer than its block.

    python -P examples/flash_attention.py        # checks it, and times it beside NumPy
"""

from __future__ import annotations

import sys
from math import inf, sqrt
from pathlib import Path

import diptych as dt
import numpy as np
from diptych import exp, f32, max, sum

sys.path.insert(0, str(Path(__file__).parent))

from timing import interleaved

i, j, c, d = dt.indices("i j c d")

BLOCK = dt.op("""
    block(x, w, v) -> m, s, o:
        m = max(x[k])
        p[k] = exp(x[k] - m)
        s = sum(p[k] * w[k])
        o[d] = sum(p[k] * v[k,d])
""")


def combine(a, b):
    """Two partial results: the greatest score, the sum of weights, the weighted sum of values."""
    m = max(a[0], b[0])
    x, y = exp(a[0] - m), exp(b[0] - m)
    return m, a[1] * x + b[1] * y, a[2] * x + b[2] * y


online = dt.reducer(combine, identity=(-inf, 0.0, 0.0), lift=BLOCK, name="online")


@dt.op
def attention(Q: f32["N", 64], K: f32["M", 64], V: f32["M", 64]):
    m, s, o, y = (dt.tensor(name) for name in ("m", "s", "o", "y"))
    m[i], s[i], o[i, d] = online(sum(Q[i, c] * K[j, c]) / sqrt(64), 1.0, V[j, d])
    y[i, d] = o[i, d] / s[i]
    return y


def schedule():
    """The schedule in flash_attention.sched: blocks of 32 queries and 64 keys."""
    return (
        attention.schedule()
        .tile({"o.i": 32, "o.j": 64})
        .rfactor("o.jo")
        .compute_at("m_sum", "o.jo")
        .stage("K", at="o.jo", layout=("c", "j"))
        .split("m_sum.i", 4)
        .reorder("m_sum.io", "m_sum.c", "m_sum.ii", "m_sum.j")
        .stage("m_sum", at="m_sum.io", scope="register")
        .unroll("m_sum.ii")
        .vectorize("m_sum.j")
        .vectorize("m.rf.k")
        .vectorize("o.rf.p.k")
        .vectorize("s.rf.k")
        .split("o.rf.ii", 4)
        .reorder("o.rf.iio", "o.rf.k", "o.rf.iii", "o.rf.d")
        .stage("o.rf", at="o.rf.iio", scope="register")
        .unroll("o.rf.iii")
        .vectorize("o.rf.d")
        .vectorize("o.update.d")
        .vectorize("y.d")
        .parallel("o.io")
    )


def plain(q, k, v):
    """The same in NumPy, with all scores at once."""
    scores = q @ k.T / np.float32(sqrt(64))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights @ v / weights.sum(1, keepdims=True)


def main() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(n, 64)).astype("f") for n in (1024, 2048, 2048))
    fast = attention.with_schedule(Path(__file__).with_suffix(".sched"), strict=True)
    error = np.abs(fast(q, k, v) - plain(q, k, v)).max()
    assert error < 1e-5, error
    ours, numpy = interleaved(5, lambda: fast(q, k, v), lambda: plain(q, k, v))
    print(f"1024 queries, 2048 keys: {ours * 1e3:.1f} ms, NumPy {numpy * 1e3:.1f} ms")
    print(f"largest difference {error:.1e}")


if __name__ == "__main__":
    main()
