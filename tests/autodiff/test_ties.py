"""Who gets the derivative of a maximum that several attain: all evenly, or the first."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.forward import tangent
from diptych.autodiff.reverse import adjoint

X = np.array([[1.0, 3, 3], [2, 2, 2], [np.nan, 1, np.nan]])
SUM = dt.op("s[] = sum(y[i])", name="total")


def test_the_first_instance_takes_all() -> None:
    op = dt.op("m[i] = max(x[i,k])")
    first = op.gradient("x", ties="first")
    assert first.text.strip() == (
        "m_dx(x: [I, K], dm: [I]) -> dx:\n"
        "    m[i] = max(x[i,k])\n"
        "    m_first[i] = min(k, where=x[i,k] == m[i])\n"
        "    dx[i,k] = where(k == m_first[i], dm[i], 0) where k in 0:K"
    )
    assert first(X, np.ones(3)).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert dt.interpret(first, X, np.ones(3)).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert op.gradient("x")(X[:2], np.ones(2)).tolist() == [[0, 0.5, 0.5], [1 / 3] * 3]
    assert op.gradient("x", ties="even") is op.gradient("x")


@pytest.mark.parametrize("reducer", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_maximum_that_is_nan_shows_in_the_gradient(reducer: str, dtype: type) -> None:
    """Of all that it is taken of, and of no other row."""
    back = dt.op(f"m[i] = {reducer}(x[i,j])").gradient("x")
    x, g = X.astype(dtype), np.array([1, 1, -1], dtype)
    for run in (back, lambda *arrays: dt.interpret(back, *arrays)):
        with np.errstate(all="ignore"):
            found, none = run(x, g), run(x, 0 * g)
        assert np.isfinite(found[:2]).all() and not np.isfinite(found[2]).any()
        assert (none[:2] == 0).all() and np.isnan(none[2]).all()


def test_the_first_of_several_loops_in_their_order() -> None:
    x = np.array([[0.0, 5], [5, 5]])
    rows, columns = dt.op("m = min(-x[i,k])"), dt.op("m = min(-x[i,k], over=(k, i))")
    assert rows.gradient("x", ties="first")(x, 1.0).tolist() == [[0, -1], [0, 0]]
    assert columns.gradient("x", ties="first")(x, 1.0).tolist() == [[0, 0], [-1, 0]]
    x = x[:, ::-1]
    assert rows.gradient("x", ties="first")(x, 1.0).tolist() == [[-1, 0], [0, 0]]
    odd = dt.op("m = max(x[i,k], over=(k in 1:K, i in 0:I))")
    assert odd.gradient("x", ties="first")(np.ones((2, 3)), 1.0).tolist() == [[0, 1, 0], [0, 0, 0]]


def test_the_first_argument_takes_all() -> None:
    a, b = np.array([1.0, 2, np.nan]), np.array([1.0, 3, 1])
    for name, wanted in (("max", ([1, 0], [0, 1])), ("min", ([1, 1], [0, 0]))):
        op = dt.op(f"y[i] = {name}(a[i], b[i])")
        found = dt.vjp(op, a, b, ties="first")[1](np.ones(3))
        even = dt.vjp(op, a, b)[1](np.ones(3))
        assert [g[:2].tolist() for g in found] == list(wanted)
        assert found[0][2] + found[1][2] == 1 and [g[0] for g in even] == [0.5, 0.5]
    relu = dt.op("y[i] = max(x[i], 0)")
    assert relu.gradient("x", ties="first")(np.zeros(1), np.ones(1)).tolist() == [1]


def test_scatters_pools_and_recurrences() -> None:
    bins = dt.op("h(b: [N], x: [N]) -> H:\n H: [3]\n H[b[n]] max= x[n]")
    found = bins.gradient("x", ties="first")(np.array([0, 2, 2, 0]), np.ones(4), np.arange(1, 4.0))
    assert found.tolist() == [1, 3, 0, 0]
    pool = dt.op("Y[y,x] = max(X[2*y+p,2*x+q]) where p in 0:2, q in 0:2")
    found = pool.gradient("X", ties="first")(np.ones((4, 4)), np.ones((2, 2)))
    assert found.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0]] * 2
    best = dt.op("h[0,s] = e[0,s]\nh[t,s] = max(h[t-1,r] + A[r,s]) * e[t,s] where t in 1:T")
    found = adjoint(best, "A", ties="first")(np.ones((3, 2)), np.zeros((2, 2)), np.ones((3, 2)))
    assert found.tolist() == [[4, 2], [0, 0]]


@pytest.mark.parametrize(
    "schedule",
    [
        lambda s: s.parallel("m.i"),
        lambda s: s.split("m_first.k", 4).vectorize("m_first.ki"),
        lambda s: s.split("m_first.k", 4).rfactor("m_first.ko"),
        lambda s: s.split("m_first.i", 2).reverse("m_first.io"),
    ],
)
def test_no_schedule_changes_it(schedule: Callable[[Any], Any]) -> None:
    op = dt.op("m[i] = max(x[i,k])").gradient("x", ties="first")
    x = np.random.default_rng(0).integers(0, 3, (5, 13)).astype(np.float32)
    wanted = np.arange(13) == x.argmax(1)[:, None]
    np.testing.assert_array_equal(schedule(op.schedule())(x, np.ones(5, np.float32)), wanted)


def test_programs_functions_and_forward_mode() -> None:
    one = np.ones(2)
    for wrap in (lambda f: f, dt.program):
        f = wrap(lambda a, b: SUM(dt.maximum(a, b)))
        assert [g.tolist() for g in dt.grad(f, (0, 1), ties="first")(one, one)] == [[1, 1], [0, 0]]
        assert [g.tolist() for g in dt.grad(f, (0, 1))(one, one)] == [[0.5, 0.5]] * 2
        value, (da, _) = dt.value_and_grad(f, (0, 1), ties="first")(one, one)
        assert value == 2 and da.tolist() == [1, 1]
        assert dt.vjp(f, one, one, ties="first")[1](1.0)[1].tolist() == [0, 0]
        assert dt.jvp(f, (one, one), (one, 3 * one), ties="first")[1] == 2
        assert dt.jvp(f, (one, one), (one, 3 * one))[1] == 4

    @dt.program
    def step(a: Any, b: Any) -> Any:
        return dt.grad(SUM(dt.maximum(a, b)), [a, b], ties="first")

    assert [g.tolist() for g in step(one, one)] == [[1, 1], [0, 0]]
    op = dt.op("m = max(x[i])")
    assert dt.jvp(op, (one,), (np.array([5.0, 7]),), ties="first")[1] == 5
    assert dt.grad(op, ties="first")(one).tolist() == [1, 0]


def test_second_order_keeps_the_choice() -> None:
    op = dt.op("m[i] = max(x[i,k] * x[i,k])")
    x, g = np.array([[2.0, -2, 1]]), np.ones(1)
    second = adjoint(op.gradient("x", ties="first"), "x", ties="first")
    assert second(x, g, np.ones((1, 3))).tolist() == [[2, 0, 0]]


def test_where_there_are_no_ties_there_is_no_difference(case: tuple[str, list[Any]]) -> None:
    text, arrays = case
    op = parse(text)
    given = {p.name: np.asarray(a) for p, a in zip(op.params, arrays, strict=True)}
    wrt = tuple(name for name, a in given.items() if a.dtype.kind == "f")
    results = dt.interpret(op, *arrays, exact=True)
    results = results if isinstance(results, tuple) else (results,)
    rng = np.random.default_rng(1)
    g = [rng.standard_normal(np.shape(r)) for r in results]
    found = []
    for ties in ("even", "first"):
        back = adjoint(op, wrt, ties=ties)
        out = dt.interpret(back, *(given[p.name] for p in back.params[: -len(g)]), *g, exact=True)
        found.append(out if isinstance(out, tuple) else (out,))
        assert tangent(op, wrt, ties).returns
    for even, first in zip(*found, strict=True):
        np.testing.assert_allclose(even, first, rtol=1e-12, atol=1e-12)


def test_ties_in_torch() -> None:
    torch = pytest.importorskip("torch")
    op = dt.op("m[i] = max(x[i,k])")
    x = torch.ones((2, 3), dtype=torch.float64, requires_grad=True)
    for layer in (
        dt.torch(op, ties="first"),
        pickle.loads(pickle.dumps(dt.torch(op, ties="first"))),
    ):
        (found,) = torch.autograd.grad(layer(x).sum(), x)
        assert found.tolist() == [[1, 0, 0]] * 2
    (found,) = torch.autograd.grad(dt.torch(op)(x).sum(), x)
    np.testing.assert_allclose(found.numpy(), 1 / 3)


def test_other_names() -> None:
    message = r"^ties='last': expected 'even' or 'first', who gets what a tie of max gets$"
    f = dt.op("m = max(x[i])")
    x = np.ones(2)
    calls: list[Callable[[], Any]] = [
        lambda: f.gradient("x", ties="last"),
        lambda: dt.vjp(f, x, ties="last"),
        lambda: dt.vjp(lambda x: f(x), x, ties="last"),
        lambda: dt.jvp(f, (x,), (x,), ties="last"),
        lambda: dt.jvp(lambda x: f(x), (x,), (x,), ties="last"),
        lambda: dt.grad(f, ties="last"),
        lambda: dt.value_and_grad(f, ties="last"),
    ]
    for call in calls:
        with pytest.raises(dt.GradientError, match=message):
            call()


def test_ties_of_computed_values_in_nests_of_their_own() -> None:
    """A product in what is compared is rounded alike in each nest, a sum's update or not."""
    op = dt.op(
        "f(B: [9], L: [9, 9]) -> T:\n"
        "    T = min(L[2*k,l+1] + 0.05 * tanh(B[k]), over=(k in 0:3, l in 0:2))"
    )
    gradient = op.gradient(("B", "L"))
    rows = dt.op(
        "f(B: [9], L: [9, 9], d: []) -> T, dL:\n"
        "    T[] = min(L[2*k,l+1] + 0.05 * tanh(B[k]), over=(k in 0:3, l in 0:2))\n"
        "    dL[y,l] = sum(where(L[y,l] + 0.05 * tanh(B[k]) == T[], d[], 0), where=(2 * k == y) & "
        "(l >= 1) & (l < 3)) where k in 0:3, y in 0:9, l in 0:9"
    )
    rng = np.random.default_rng(0)
    for _ in range(600):
        values = rng.standard_normal(9), rng.permutation(81).reshape(9, 9) / 4 - 10
        assert rows(*values, 1.0)[1].sum() == 1
        assert gradient(*values, 1.0)[1].sum() == 1


def test_counts_that_two_derivatives_need_are_declared_once() -> None:
    """Of equal temporaries one is left, and of what is left out no extents are declared."""
    op = dt.op("""f(x: f64[3,2], b: i64[3,2]) -> y:
        T: [3]
        T[b[i,j]] min= 0.2 * x[i,j]
        y[i] = 2 * tanh(T[i])
    """)
    rng = np.random.default_rng(0)
    back = op.gradient("x").gradient(("x", "dy"))
    assert [name for name in back.shapes if name.startswith("T_ties")] == ["T_ties_1"]
    dt.check_grads(op, (rng.random((3, 2)), np.array([[0, 1], [2, 0], [1, 2]])), order=2)
