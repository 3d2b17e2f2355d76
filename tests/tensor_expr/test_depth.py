"""Deep expressions, and expressions whose parts are shared again and again, cost what they weigh.

Nothing may depend on what is still remembered: caches are emptied between the steps.
"""

from __future__ import annotations

from collections.abc import Callable

import diptych as dt
import numpy as np
import pytest
from caches import forget
from diptych.algo.dtypes import f16, f32, i64
from diptych.algo.tensor_expr.affine import (
    bounds,
    is_affine,
    is_integer,
    linear,
    normalize,
    to_isl,
)
from diptych.algo.tensor_expr.elaborate import elaborate
from diptych.algo.tensor_expr.expr import Access, Call, Const, Expr, Index, Reduce, Size, walk
from diptych.algo.tensor_expr.sizes import evaluate
from diptych.autodiff.signs import signed
from diptych.lower.ranges import parts_of
from diptych.sched.graph.sharding import SAME, Split, localise

DEEP = 5000
i, n = Index("i"), Size("N")
x = Access("x", (i,))


def forget_all() -> None:
    forget("algo", "autodiff", "sched", "lower")


@pytest.fixture(autouse=True)
def forgotten() -> None:
    forget_all()


def nested(step: Callable[[Expr], Expr], start: Expr, times: int = DEEP) -> Expr:
    for _ in range(times):
        start = step(start)
    return start


def test_questions_about_deep_expressions() -> None:
    squared = nested(lambda e: Call("mul", (e, e)), x)
    assert not is_integer(squared) and not is_affine(squared)
    summed = nested(lambda e: Call("add", (e, i)), n)
    assert is_integer(summed) and is_affine(summed)
    assert to_isl(summed).endswith("N" + " + i)" * DEEP)
    condition = nested(lambda e: Call("and", (Call("lt", (i, n)), e)), Call("le", (n, i)))
    assert is_affine(condition) and not is_integer(condition)


def test_what_is_left_of_a_memory_makes_no_difference() -> None:
    squared = nested(lambda e: Call("mul", (e, e)), x)
    assert normalize(squared) is squared
    forget_all()  # but of normal forms
    more = Call("add", (squared, Const(1)))
    assert normalize(more) is more and not is_integer(more)


def test_forms_of_deep_index_expressions() -> None:
    doubled = nested(lambda e: Call("add", (e, e)), i, 60)
    form = linear(doubled)
    assert form is not None and form.of(i) == 2**60
    least = i
    for k in range(100):
        least = Call("min", (Call("floordiv", (Call("add", (least, Size(f"S{k}"))), Const(2))), n))
    assert bounds(least, {"i": (0, 7)})[0] == 0
    gathered = nested(lambda e: Access("x", (Call("mul", (e, e)),)), i, 1000)
    both = Call("add", (gathered, Access("x", (gathered,))))
    assert normalize(both) in (both, Call("add", both.args[::-1]))


def test_formulas_of_sizes() -> None:
    assert evaluate(nested(lambda e: Call("add", (e, Const(1))), n), {"N": 3}) == DEEP + 3
    assert evaluate(nested(lambda e: Call("add", (e, e)), n, 60), {"N": 1}) == 2**60
    most = nested(lambda e: Call("max", (e, n)), i)
    assert parts_of("max", most) == [i] + [n] * DEEP


def test_widened_sums_and_literals_keep_what_is_shared() -> None:
    total = Reduce("sum", ("i",), nested(lambda e: Call("add", (e, e)), x, 500))
    assert len(list(walk(elaborate(total, {"x": f16})))) < 600
    chosen: Expr = Const(0)
    for k in range(300):
        chosen = Call("where", (Call("gt", (x, Const(k))), Const(k), chosen))
    typed = elaborate(Call("add", (x, chosen)), {"x": f32})
    consts = {item.dtype for item in walk(typed) if isinstance(item, Const)}
    assert consts == {f32, i64} - {i64}


def test_signs_go_to_the_first_of_many_factors() -> None:
    product = nested(lambda e: Call("mul", (e, x)), x)
    wanted = nested(lambda e: Call("mul", (e, x)), Call("neg", (x,)))
    assert signed(Call("neg", (product,))) is wanted


def traced(step: Callable[[dt.Term, dt.Term], dt.Term], times: int) -> dt.Op:
    j = dt.indices("j")

    @dt.op
    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        e = x[j]
        for _ in range(times):
            e = step(e, x[j])
        y[j] = e
        return y

    return f


def test_shared_parts_are_sharded_once() -> None:
    op = traced(lambda e, x: e * e, 2000)
    local = localise(op, [Split(0)], [(8,)])
    assert local.args == (Split(0),) and local.results == (Split(0),)
    assert localise(op, [SAME], [(8,)]).results == (SAME,)


@pytest.mark.parametrize("step", [lambda e, x: e * e, lambda e, x: x - e])
def test_r18_all_steps_of_a_deep_operator(step: Callable[[dt.Term, dt.Term], dt.Term]) -> None:
    op = traced(step, 1500)
    ones = np.ones(3)
    forget_all()
    assert dt.op(op.text) == op
    forget_all()
    wanted = dt.interpret(op, ones)
    forget_all()
    np.testing.assert_array_equal(op(ones), wanted)
    forget_all()
    assert len(op.gradient("x").text) < 100 * 1500
