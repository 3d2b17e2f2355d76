"""A matrix product. To tune it:

autotune examples/matmul.py:matmul -s M=512 -s N=512 -s K=512 --time 30 -o matmul.sched
"""

from __future__ import annotations

import diptych as dt
from diptych import f32, sum

i, j, k = dt.indices("i j k")


@dt.op
def matmul(A: f32["M", "K"], B: f32["K", "N"]):
    C = dt.tensor("C")
    C[i, j] = sum(A[i, k] * B[k, j])
    return C
