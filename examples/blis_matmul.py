"""A dense layer as GotoBLAS and BLIS compute it: five loops around a register tile.

Blocks of B lie in the outer cache and blocks of A in the inner one, packed in the order in which
the innermost loops read them; the epilogue runs in the tile, in the last block of k, while it is
still in registers. The schedule is `blis_matmul.sched`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import diptych as dt
import numpy as np
from timing import interleaved

dense = dt.op(
    """
    dense(A: f32[M, K], B: f32[K, N], bias: f32[N]) -> C:
        C[i,j] = max(sum(A[i,k] * B[k,j]) + bias[j], 0)
    """
)

SCHEDULE = (
    dense.schedule()
    .split("j", 1536, into=("jc", "jb"))
    .split("jb", 48, into=("jr", "ji"))
    .split("k", 256, into=("pc", "kp"))
    .split("i", 96, into=("ic", "ib"))
    .split("ib", 8, into=("ir", "ii"))
    .reorder("jc", "pc", "ic", "jr", "ir", "kp", "ii", "ji")
    .compute_at("C.final", "ir")
    .compute_at("C.init", "ir")
    .stage("C", at="ir", scope="register")
    .stage("B", at="pc", scope="heap", layout=("j//48", "k", "j%48"))
    .stage("A", at="ic", layout=("i//8", "k", "i%8"))
    .unroll("ii")
    .vectorize("ji")
    .parallel("ic")
)


def main(size: int = 1024) -> None:
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    bias = rng.standard_normal(size, np.float32)
    fast = dense.with_schedule(Path(__file__).with_suffix(".sched"), strict=True)
    print(fast.schedule)
    got, want = fast(A, B, bias), np.maximum(A @ B + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    ours, numpy = interleaved(5, lambda: fast(A, B, bias), lambda: np.maximum(A @ B + bias, 0))
    print(f"{size}^3: {ours * 1e3:.2f} ms, {2 * size**3 / ours / 1e9:.0f} GF/s; "
          f"NumPy {numpy * 1e3:.2f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
