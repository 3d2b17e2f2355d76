"""A product of tall matrices: the result is small, so blocks of k run in parallel.

Each gives partial results of its own, which are added in the end. The schedule is `split_k.sched`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import diptych as dt
import numpy as np
from timing import interleaved

gram = dt.op(
    """
    gram(A: f32[K, M], B: f32[K, N]) -> C:
        C[i,j] = sum(A[k,i] * B[k,j])
    """
)

SCHEDULE = (
    gram.schedule()
    .split("k", 4096, into=("block", "kb"))
    .tile(i=8, j=32)
    .reorder("block", "io", "jo", "kb", "ii", "ji")
    .rfactor("block")
    .stage("C.rf", at="C.jo", scope="register")
    .unroll("C.ii")
    .unroll("C.rf.init.ii")
    .unroll("C.rf.store.i")
    .vectorize("C.ji")
    .vectorize("C.rf.init.ji")
    .vectorize("C.rf.store.j")
    .parallel("C.block")
)


def main(tall: int = 200_000, small: int = 64) -> None:
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((tall, small), np.float32) for _ in range(2))
    fast = gram.with_schedule(Path(__file__).with_suffix(".sched"), strict=True)
    print(fast.schedule)
    np.testing.assert_allclose(fast(A, B), A.T @ B, rtol=1e-3, atol=0.1)
    ours, plain, numpy = interleaved(5, lambda: fast(A, B), lambda: gram(A, B), lambda: A.T @ B)
    print(f"{tall} x {small}: {ours * 1e3:.2f} ms; unscheduled {plain * 1e3:.2f} ms; "
          f"NumPy {numpy * 1e3:.2f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
