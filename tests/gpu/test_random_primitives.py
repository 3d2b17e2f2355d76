"""Random primitives on random operators, most of them GPU ones: refused at once, or right.

No primitive may raise anything but `ScheduleError`. What is accepted either is refused when it is
lowered, again by a `ScheduleError`, or agrees with the oracle, has no race, and becomes PTX.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.gpu import emulate_op, kernel_of
from diptych.codegen.nvptx import ptx
from diptych.sched.loop.nest import loops
from diptych.sched.loop.schedule import Schedule

OPS = {
    "matmul": ("C[i,j] = sum(A[i,k] * B[k,j])", lambda n: ((n, n + 1), (n + 1, n))),
    "abt": ("C[i,j] = sum(A[i,k] * B[j,k])", lambda n: ((n, n + 3), (n + 1, n + 3))),
    "bias": ("y[n,f] = max(x[n,f] + b[f], 0)", lambda n: ((n, n + 2), (n + 2,))),
    "conv": (
        "y[n,o,h,w] = sum(x[n,c,2*h+r,2*w+s] * k[o,c,r,s])",
        lambda n: ((2, 2, n + 3, n + 4), (3, 2, 3, 3)),
    ),
    "norm": (
        "v[n] = sum(x[n,d] * x[n,d])\ny[n,d] = x[n,d] / (v[n] + 1)",
        lambda n: ((n, n + 2),),
    ),
    "scan": ("c[0,j] = x[0,j]\nc[i,j] = c[i-1,j] + x[i,j] where i in 1:N", lambda n: ((n, n),)),
}
HEADERS = {"scan": "scan(x: f32[N,M]) -> c:\n"}
AXES = ("block.x", "block.x", "block.y", "thread.x", "thread.y")
STEPS = ("split", "bind", "bind", "bind", "stage", "stage", "reorder", "compute_at", "unroll")
CASES = 36


def draw(schedule: Schedule, choose: random.Random) -> str:
    """The text of a primitive that may or may not fit."""
    nest = schedule.nest()
    names = [loop.name for loop in loops(nest.tree)]
    tensors = sorted({buffer.tensor for buffer in nest.buffers.values()})
    loop, tensor = choose.choice(names), choose.choice(tensors)
    step = choose.choice(STEPS)
    if step == "split":
        return f'split("{loop}", {choose.choice([2, 3, 4, 8])})'
    if step == "bind":
        return f'bind("{loop}", "{choose.choice(AXES)}")'
    if step == "stage":
        scope = choose.choice(["shared", "register", "local"])
        return f'stage("{tensor}", at="{loop}", scope="{scope}")'
    if step == "compute_at":
        return f'compute_at("{tensor}", "{loop}")'
    if step == "unroll":
        return f'unroll("{loop}")'
    return f'reorder("{loop}", "{choose.choice(names)}")'


def drawn(name: str, choose: random.Random, tally: Counter[str]) -> Schedule:
    """A schedule of up to eight primitives; those that are refused are counted and left out."""
    text, _ = OPS[name]
    lines = text if name not in HEADERS else HEADERS[name] + re.sub(r"^", "  ", text, flags=re.M)
    schedule = Schedule(parse(lines, name=name, returns="y" if name == "norm" else None))
    for _ in range(choose.randint(3, 8)):
        step = draw(schedule, choose)
        try:
            schedule = Schedule.parse(schedule.op, f"{schedule.text}.{step}")
            tally["taken"] += 1
        except ScheduleError as refused:
            tally["refused"] += 1
            tally["elsewhere"] += "to its own" in str(refused) or "by the threads" in str(refused)
    return schedule


@pytest.mark.parametrize("part", range(2))
def test_random_primitives(part: int):
    tally: Counter[str] = Counter()
    for seed in range(CASES * part, CASES * (part + 1)):
        choose = random.Random(seed)
        name, size = choose.choice(list(OPS)), choose.choice([1, 3, 5, 8, 13])
        schedule = drawn(name, choose, tally)
        if not any("." in loop.kind for loop in loops(schedule.nest().tree)):
            continue
        rng = np.random.default_rng(seed)
        shapes = OPS[name][1](size)
        arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
        try:
            got = emulate_op(schedule.op, arrays, schedule, seed)
        except ScheduleError:
            tally["late"] += 1
            continue
        tally["run"] += 1
        tally["staged"] += "stage(" in schedule.text
        where = f"seed {seed}, size {size}: {name}{schedule.text}"
        wanted = interpret(schedule.op, *arrays)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=where)
        if size in (1, 5):
            types = [(f32, array.shape) for array in arrays]
            assert ".visible .entry" in ptx(kernel_of(schedule.op, types, schedule), "sm_80"), where
    # The random choices reach what this test is about, and most of what is accepted runs.
    assert tally["elsewhere"] >= 2
    assert tally["staged"] >= 6
    assert tally["run"] >= 15
    assert tally["late"] <= tally["run"] // 5
