"""Default schedules of gradients: reductions over a batch and all of its positions."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from diptych.sched.loop.default import choose, default
from diptych.sched.loop.extent import at_once
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.nest import loops
from diptych.sched.loop.schedule import Schedule

WIDE = Machine(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20, threads=2)
CONV = """
    conv(x: [N, C, H, L], w: [F, C, 3, 3]) -> y:
        y[n,f,p,q] = sum(x.zero[n,c,p+r-1,q+s-1] * w[f,c,r,s]) where p in 0:H, q in 0:L
"""


def by_weights(**sizes: int):  # type: ignore[no-untyped-def]
    op = adjoint(parse(CONV), "w")
    types = {p.name: f32 for p in op.params}
    return choose(op, types, sizes, WIDE).choices["dw"], str(default(op, types, sizes, WIDE))


def test_a_gradient_by_weights_is_accumulated_image_by_image() -> None:
    """One image's cotangents stay in the second cache; all of them would be read from behind it
    for each pair of channels."""
    choice, made = by_weights(N=8, C=64, H=56, L=56, F=64)
    assert (choice.vector, choice.blocks, choice.outer) == ("f", (("n", 1),), "c")
    assert "parallel for dy.pack.p" in made  # that of one image
    assert made.index("for dw.so") < made.index("x.pack") < made.index("for dw.r:")
    (update,) = [line for line in made.splitlines() if "] += " in line]
    assert "where" not in update
    assert "vector for dw.load.si" in made and "vector for dw.store.si" in made


def test_small_images_are_taken_together() -> None:
    choice, _ = by_weights(N=256, C=64, H=7, L=7, F=64)
    ((index, images),) = choice.blocks
    assert index == "n" and images * 49 >= 2048 and images < 256


@pytest.mark.parametrize(
    "shape", [(3, 5, 9, 17, 20), (2, 20, 48, 50, 16), (70, 3, 6, 6, 33), (1, 1, 1, 1, 1)]
)
def test_gradients_by_weights_of_any_size(shape: tuple[int, ...]) -> None:
    n, c, h, w, f = shape
    op = adjoint(dt.op(CONV), "w")
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (n, c, h, w)).astype(np.float32)
    dy = rng.integers(-4, 5, (n, f, h, w)).astype(np.float32)
    np.testing.assert_array_equal(op(x, dy), dt.interpret(op, x, dy))


def test_a_loop_has_as_many_iterations_as_it_has_at_once() -> None:
    """The copy of one row after the other runs over all rows, one at a time."""
    made = Schedule(parse("y[i,j] = x[i,j] + x[i,0]")).stage("x", at="i", scope="heap")
    nest = made.nest({}, {"I": 5, "J": 7})
    counts = {loop.name: at_once(nest, loop) for loop in loops(nest.tree)}
    assert counts == {"y.i": 5, "x.pack.i": 1, "x.pack.j": 7, "y.j": 7}
