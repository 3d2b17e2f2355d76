"""R01: random trees of `//` and `%` equal Python's integers at every point, simplified or not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.stages import kernel
from diptych.lower.kernel import translate
from diptych.lower.run import run
from diptych.sched.loop.initial import initial

ROUNDS = {"sample": 8, "full": 120, "fuzz": 10**6}[os.environ.get("DIPTYCH_TEST", "sample")]
TREES = 6
ROWS, COLUMNS = 23, 11
SCHEDULES = (
    "",
    '.split("z0.i", 7).split("z1.j", 8).vectorize("z2.i", 8).unroll("z3.j")',
    '.split("z0.i", 8, tail="separate").vectorize("z0.j").fuse("z1.i", "z1.j").split("z1.i_j", 7)'
    '.parallel("z1.i_jo").reverse("z2.i").split("z2.i", 8).skew("z3.j", "z3.i", 2)'
    '.split("z4.j", 7).vectorize("z4.ji").tile({"z5.i": 8, "z5.j": 7})',
)


def tree(rng: random.Random, depth: int) -> str:
    """Sums, products by constants, quotients and remainders, with constants of either sign."""
    if depth == 0:
        return rng.choice(["i", "j", "i", str(rng.randint(-100, 100))])
    a, b = tree(rng, depth - 1), tree(rng, rng.randrange(depth))
    n = rng.choice([k for k in range(-100, 101) if k])
    small = rng.choice([-9, -4, -3, -2, 2, 3, 4, 8, 16])
    return rng.choice(
        [f"({a} + {b})", f"({a} - {b})", f"({a}) * {small}", f"({a}) // {n}", f"({a}) // {small}",
         f"({a}) % {n}", f"({a}) % {small}"]
    ).replace("* -", "* (-1) * ").replace("+ -", "- ")  # fmt: skip


@pytest.mark.parametrize("seed", range(min(ROUNDS, 10**5)))
def test_quotients_are_those_of_python(seed: int) -> None:
    rng = random.Random(seed)
    texts = [f"({tree(rng, rng.randint(2, 5))}) + 0*i + 0*j" for _ in range(TREES)]
    names = [f"z{n}" for n in range(TREES)]
    lines = [
        f"  {z}[i,j] = {text} where i in 0:{ROWS}, j in 0:{COLUMNS}"
        for z, text in zip(names, texts, strict=True)
    ]
    op = dt.op("\n".join([f"trees() -> {', '.join(names)}:", *lines]))
    want = [table(eval(f"lambda i, j: {text}")) for text in texts]
    for calls in SCHEDULES:
        schedule = dt.Schedule.parse(op, calls)
        same(op.with_schedule(schedule, strict=True)(), want, texts, calls)
    same(op(), want, texts, "default")
    same(dt.interpret(op), want, texts, "interpreter")
    function = translate(initial(kernel(check(op), {}, {})), "trees")  # before any pass
    outs = [np.zeros(p.shape, p.dtype.numpy) for p in function.params]
    run(function, *outs)
    same(tuple(outs), want, texts, "as isl says it")


def table(function: Callable[[int, int], int]) -> np.ndarray:
    return np.array([[function(i, j) for j in range(COLUMNS)] for i in range(ROWS)], np.int64)


def same(got: tuple[np.ndarray, ...], want: list[np.ndarray], texts: list[str], how: str) -> None:
    for one, other, text in zip(got, want, texts, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"{how}: {text}")


def test_the_example_of_the_report() -> None:
    op = dt.op("z() -> z:\n  z[i] = (-8040*(i-158)) // 69 where i in 0:400")
    want = [(-8040 * (i - 158)) // 69 for i in range(400)]
    assert [want[i] for i in (0, 157, 158, 159, 399)] == [18410, 116, 0, -117, -28082]
    for calls in ("", '.split("i", 7)', '.split("i", 8)', '.vectorize("i", 8)'):
        schedule = dt.Schedule.parse(op, calls)
        np.testing.assert_array_equal(op.with_schedule(schedule, strict=True)(), want)
