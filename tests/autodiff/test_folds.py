"""Derivatives of users' reducers: by their lift, or as recurrences over prefixes."""

from __future__ import annotations

from math import inf
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.forward import tangent
from diptych.autodiff.reverse import adjoint
from exact import cotangent_names, run


def softmax_of(a: Any, b: Any) -> Any:
    m = dt.max(a[0], b[0])
    x, y = dt.exp(a[0] - m), dt.exp(b[0] - m)
    return m, a[1] * x + b[1] * y, a[2] * x + b[2] * y


def welford(a: Any, b: Any) -> Any:
    n, step = a[0] + b[0], b[1] - a[1]
    part = dt.where(n > 0, b[0] / dt.where(n > 0, n, 1), 0.0)
    return n, a[1] + step * part, a[2] + b[2] + step * step * a[0] * part


def product(a: Any, b: Any) -> Any:
    rows = [(a[2 * (n // 2)], a[2 * (n // 2) + 1], b[n % 2], b[2 + n % 2]) for n in range(4)]
    return tuple(p * r + q * s for p, q, r, s in rows)


def best(a: Any, b: Any) -> Any:
    return dt.where(b[0] > a[0], b[0], a[0]), dt.where(b[0] > a[0], b[1], a[1])


REDUCERS = {
    "online": dt.reducer(softmax_of, (-inf, 0.0, 0.0)),
    "lifted": dt.reducer(
        softmax_of,
        (-inf, 0.0, 0.0),
        dt.op("""block(x, w, v) -> m, s, o:
            m = max(x[k])
            p[k] = exp(x[k] - m)
            s = sum(p[k] * w[k])
            o[d] = sum(p[k] * v[k,d])"""),
    ),
    "pair": dt.reducer(lambda a, b: softmax_of((*a, 0.0), (*b, 0.0))[:2], (-inf, 0.0), name="pair"),
    "moments": dt.reducer(welford, (0.0, 0.0, 0.0)),
    "variance": dt.reducer(
        welford,
        (0.0, 0.0, 0.0),
        dt.op("""block(n, x, q) -> c, m, v:
            c = sum(n[k])
            m = sum(n[k] * x[k]) / max(c, 1.0)
            v = sum(q[k] + n[k] * (x[k] - m)**2)"""),
    ),
    "product": dt.reducer(product, (1.0, 0.0, 0.0, 1.0), commutative=False),
    "best": dt.reducer(best, (-inf, 0), commutative=False),
    "absmax": dt.reducer(lambda a, b: dt.max(dt.abs(a), dt.abs(b)), 0.0),
    "times": dt.reducer(lambda a, b: a * b, 1.0),
    "plus": dt.reducer(lambda a, b: a + b, 0.0),
    "norm": dt.reducer(lambda a, b: dt.sqrt(a * a + b * b), 0.0),
}


def operator(text: str) -> Op:
    return dt.op(text, reducers=REDUCERS)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


AT = np.array([4, 1, 1, 0])
RNN = """f(x: [T, D], U: [D, D]) -> h:
 h[0,d] = x[0,d]
 h[t,d] = tanh(x[t,d] + {}(U[d,e] * h[t-1,e])) where t in 1:T"""

CASES: dict[str, tuple[str, list[Any]]] = {
    "attention": (
        "f(S: [N, M], V: [M, D]) -> y:\n m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])\n"
        " y[i,d] = o[i,d] / s[i]",
        [normal(3, 4), normal(4, 2)],
    ),
    "attention by its lift": (
        "f(S: [N, M], V: [M, D]) -> y:\n m[i], s[i], o[i,d] = lifted(S[i,j], 1.0, V[j,d])\n"
        " y[i,d] = o[i,d] / s[i]",
        [normal(3, 4), normal(4, 2)],
    ),
    "scores inside": (
        "f(Q: [N, C], K: [M, C], V: [M, D]) -> y:\n"
        " m[i], s[i], o[i,d] = online(sum(Q[i,c] * K[j,c]) / 2, 1.0, V[j,d])\n"
        " y[i,d] = o[i,d] / s[i]",
        [normal(3, 2), normal(4, 2), normal(4, 3)],
    ),
    "all results": (
        "m[i], s[i], o[i,d] = online(S[i,j], w[j], V[j,d])",
        [normal(3, 4), normal(4), normal(4, 2)],
    ),
    "more indices a component": (
        "m[i], s[i,h], o[i,h,d] = online(S[i,j], W[i,j,h], V[j,d] + W[i,j,h])",
        [normal(2, 3), normal(2, 3, 2), normal(3, 2)],
    ),
    "two reduced indices": (
        "m[i], s[i], o[i,d] = online(S[i,j,k], 1.0, V[j,k,d], where=j + k <= i + 1)",
        [normal(2, 3, 4), normal(3, 4, 2)],
    ),
    "two reduced indices by a lift": (
        "m[i], s[i], o[i,d] = lifted(S[i,j,k], 1.0, V[j,k,d], where=j + k <= i + 1)",
        [normal(2, 3, 4), normal(3, 4, 2)],
    ),
    "triangle": (
        "f(S: [N, N], V: [N, D]) -> m, s, o:\n"
        " m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d], over=(j in 0:i+1,))",
        [normal(4, 4), normal(4, 2)],
    ),
    "triangle by a lift": (
        "f(S: [N, N], V: [N, D]) -> m, s, o:\n"
        " m[i], s[i], o[i,d] = lifted(S[i,j], 1.0, V[j,d], over=(j in 0:i+1,))",
        [normal(4, 4), normal(4, 2)],
    ),
    "condition of data": (
        "m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d], where=S[i,j] > -0.3)",
        [normal(3, 6), normal(6, 2)],
    ),
    "condition of data by a lift": (
        "m[i], s[i], o[i,d] = lifted(S[i,j], 1.0, V[j,d], where=S[i,j] > -0.3)",
        [normal(3, 6), normal(6, 2)],
    ),
    "reads by data": (
        "m[i], s[i], o[i,d] = online(S[i,j], W[at[j],0], W[at[j],d])",
        [normal(3, 4), normal(5, 2), AT],
    ),
    "reads by data in a lift": (
        "m[i], s[i], o[i,d] = lifted(S[i,j], W[at[j],0], W[at[j],d])",
        [normal(3, 4), normal(5, 2), AT],
    ),
    "moments": ("n[i], m[i], q[i] = moments(1.0, x[i,j], 0.0)", [normal(3, 5)]),
    "moments of everything": ("n[], m[], q[] = moments(1.0, x[i,j], 0.0)", [normal(3, 4)]),
    "weighted moments": ("n[i], m[i], q[i] = moments(w[j]**2, x[i,j], 0.0)",
                         [normal(5), normal(3, 5)]),
    "moments by a lift": ("n[i], m[i], q[i] = variance(1.0, x[i,j], 0.0)", [normal(3, 5)]),
    "matrices": ("a[i], b[i], c[i], d[i] = product(p[i,k], q[i,k], r[i,k], s[i,k])",
                 [normal(2, 5), normal(5, 2).T.copy(), normal(2, 5) ** 2, normal(2, 5) + 1]),
    "greatest and its index": ("f(x: [N, M], w: [M]) -> y:\n v[i], at[i] = best(x[i,j], j)\n"
                               " y[i] = v[i]**2 + w[at[i]]", [normal(3, 5), normal(5)]),
    "greatest of many": ("y[i] = absmax(x[i,j])", [normal(3, 5)]),
    "product with zeros": ("y[i] = times(x[i,j])", [np.array([[1.0, 0, 2, 3], [0, 0, 1, 2.0]])]),
    "inside of an expression": (
        "y[i] = exp(absmax(x[i,j,k])) + plus(x[i,j,k]) * norm(x[k,l,i])", [normal(2, 3, 2)]
    ),
    "inside of a sum": ("y[i] = sum(absmax(x[i,j,k], over=(k,)) * w[j])",
                        [normal(2, 3, 4), normal(3)]),
    "of another": ("y[i] = norm(absmax(x[i,j,k], over=(k,)) * w[j], over=(j,))",
                   [normal(2, 3, 4), normal(3)]),
    "accumulated": ("f(x: [N, M], b: [N]) -> H:\n H: [3]\n H[b[n]] += absmax(x[n,m], over=(m,))",
                    [normal(4, 3), np.array([0, 2, 2, 1])]),
    "on a part": ("f(x: [N, M]) -> y:\n y[2*i] = norm(x[i,j])\n y[2*i+1] = x[i,0] where i in 0:N",
                  [normal(3, 4)]),
    "range that sizes may leave empty": (
        "f(x: [I, N]) -> y:\n y[i] = norm(x[i,j+2], over=(j in 0:N-2,)) + x[i,0]", [normal(3, 5)]
    ),
    "that range, empty": (
        "f(x: [I, N]) -> y:\n y[i] = plus(x[i,j+2], over=(j in 0:N-2,)) + x[i,0]", [normal(3, 1)]
    ),
    "in a recurrence": (RNN.format("norm"), [normal(4, 3), normal(3, 3)]),
    "linear in a recurrence": (RNN.format("plus"), [normal(4, 3), normal(3, 3)]),
    "of a recurrence": (
        "f(x: [T, D]) -> y:\n h[0,d] = x[0,d]\n h[t,d] = tanh(x[t,d] + h[t-1,d]) where t in 1:T\n"
        " m[d], s[d] = pair(h[t,d], 1.0)\n y[d] = m[d] + log(s[d])",
        [normal(4, 3)],
    ),
}  # fmt: skip


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Op, list[Any]]:
    text, arrays = CASES[request.param]
    return operator(text), arrays


def floats(op: Op, arrays: list[Any]) -> tuple[str, ...]:
    return tuple(p.name for p, a in zip(op.params, arrays, strict=True) if a.dtype.kind == "f")


def test_both_modes_first_and_second_order(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    dt.check_grads(op, arrays, order=2, interpreted=True)


def test_text_of_the_gradient_parses_back(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    back = adjoint(op, floats(op, arrays))
    assert parse(back.text) == back
    forth = tangent(op, floats(op, arrays))
    assert parse(forth.text) == forth


def test_compiled_gradients_agree_with_the_interpreter(case: tuple[Op, list[Any]]) -> None:
    op, arrays = case
    results, pull = dt.vjp(op, *arrays)
    listed = results if isinstance(results, tuple) else (results,)
    seeds = [np.cos(np.arange(a.size) + 1.0).reshape(a.shape) for a in listed]
    names = floats(op, arrays)
    back = adjoint(op, names)
    values = dict(zip((p.name for p in op.params), arrays, strict=True))
    wanted = run(back, values | dict(zip(cotangent_names(op, back), seeds, strict=True)))
    got = [g for g in pull(tuple(seeds) if len(seeds) > 1 else seeds[0]) if g is not None]
    for one, two in zip(got, wanted.values(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


PLAIN: dict[str, tuple[str, str]] = {
    "attention": ("attention", "f(S: [N, M], V: [M, D]) -> y:\n p[i,j] = exp(S[i,j])\n"
                  " y[i,d] = sum(p[i,j] * V[j,d]) / sum(p[i,k])"),
    "its lift": ("attention by its lift", "f(S: [N, M], V: [M, D]) -> y:\n p[i,j] = exp(S[i,j])\n"
                 " y[i,d] = sum(p[i,j] * V[j,d]) / sum(p[i,k])"),
    "moments": ("moments", "f(x: [I, J]) -> n, m, q:\n n[i] = sum(x[i,j]**0)\n"
                " m[i] = sum(x[i,j]) / J\n q[i] = sum((x[i,j] - m[i])**2)"),
    "log-sum-exp": ("of a recurrence", "f(x: [T, D]) -> y:\n h[0,d] = x[0,d]\n"
                    " h[t,d] = tanh(x[t,d] + h[t-1,d]) where t in 1:T\n"
                    " y[d] = log(sum(exp(h[t,d])))"),
    "argmax": ("greatest and its index", "f(x: [N, M], w: [M]) -> y:\n at[i] = argmax(x[i,j])\n"
               " y[i] = x[i,at[i]]**2 + w[at[i]]"),
    "product": ("product with zeros", "y[i] = prod(x[i,j])"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_gradients_agree_with_those_of_plain_formulas(name: str) -> None:
    text, arrays = CASES[PLAIN[name][0]]
    op, plain = operator(text), parse(PLAIN[name][1])
    values = dict(zip((p.name for p in op.params), arrays, strict=True))
    seeds = {
        r: np.sin(1.0 + np.arange(a.size)).reshape(a.shape) for r, a in run(op, values).items()
    }
    found = []
    for each in (op, plain):
        back = adjoint(each, floats(op, arrays))
        given = dict(zip(cotangent_names(each, back), seeds.values(), strict=True))
        found.append(run(back, values | given))
    for one, two in zip(found[0].values(), found[1].values(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reducer", ["online", "lifted"])
def test_of_no_instances_everything_is_zero(reducer: str) -> None:
    op = operator(
        f"f(S: [N, M], V: [M, D]) -> y:\n m[i], s[i], o[i,d] = {reducer}(S[i,j], 1.0, V[j,d])\n"
        " y[i,d] = o[i,d] + exp(s[i])"
    )
    y, pull = dt.vjp(op, np.zeros((3, 0)), np.zeros((0, 2)))
    np.testing.assert_array_equal(y, np.ones((3, 2)))
    assert [g.shape for g in pull(np.ones((3, 2)))] == [(3, 0), (0, 2)]


@pytest.mark.parametrize("reducer", ["online", "lifted"])
def test_rows_whose_condition_leaves_nothing_get_zeros(reducer: str) -> None:
    op = operator(
        "f(S: [N, M], V: [M, D]) -> y:\n"
        f" m[i], s[i], o[i,d] = {reducer}(S[i,j], 1.0, V[j,d], where=j < i)\n"
        " y[i,d] = o[i,d] * exp(s[i])"
    )
    dt.check_grads(op, (normal(3, 3), normal(3, 2)), order=2)
    _, pull = dt.vjp(op, normal(3, 3), normal(3, 2))
    dS, dV = pull(np.ones((3, 2)))
    assert not dS[0].any() and not dV[2].any() and dS[2, :2].all()


def test_halves_are_combined_in_single_precision() -> None:
    op = operator("f(x: f16[N]) -> y:\n y[] = norm(x[i])")
    back = op.gradient("x")
    assert "f32(x[i])" in back.text
    x = np.full(4096, 0.25, np.float16)
    _, pull = dt.vjp(op, x)
    (dx,) = pull(np.float16(1))
    assert dx.dtype == np.float16
    np.testing.assert_allclose(dx, 1 / 64, rtol=2e-3)


def test_what_is_linear_is_not_kept_prefix_by_prefix() -> None:
    back = operator("f(x: [N]) -> y:\n s[] = plus(x[i] * x[i])\n y[] = exp(s[])").gradient("x")
    equations = [eq.tensor for eq in back.equations]
    assert "s_prefix" not in equations and equations.count("s") == 1


def test_a_reduction_that_nothing_is_derived_of_stays_one() -> None:
    text = "f(S: [N, M], w: [N]) -> y:\n m[i], s[i] = pair(S[i,j], 1.0)\n y[i] = w[i] * s[i]"
    back = operator(text).gradient("w")
    assert "m[i], s[i] = pair(S[i,j], 1.0)" in back.text and "prefix" not in back.text


def test_some_of_the_results_saved() -> None:
    op = operator("f(S: [N, M], V: [M, D]) -> s, o:\n"
                  " m[i], s[i], o[i,d] = online(S[i,j], 1.0, V[j,d])")  # fmt: skip
    values = {"S": normal(3, 4), "V": normal(4, 2)}
    saved = run(op, values)
    seeds = {"ds": normal(3), "do": normal(3, 2)}
    plain, saving = adjoint(op, ("S", "V")), adjoint(op, ("S", "V"), saved=op.returns)
    for one, two in zip(run(plain, values | seeds).values(),
                        run(saving, values | saved | seeds).values(), strict=True):  # fmt: skip
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_programs_and_forward_mode() -> None:
    op = operator(CASES["attention"][0])
    squared = dt.op("s[] = sum(y[i,d]**2)")
    s, v = (a.astype("f4") for a in CASES["attention"][1])

    @dt.program
    def step(s: Any, v: Any) -> Any:
        return dt.grad(squared(op(s, v)), (s, v))

    y, pull = dt.vjp(op, s, v)
    for one, two in zip(step(s, v), pull(2 * y), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    direction = np.cos(s), np.sin(v)
    _, moved = dt.jvp(op, (s, v), direction)
    left = float((moved * y).sum())
    right = sum(float((g * d).sum()) for g, d in zip(pull(y), direction, strict=True))
    assert abs(left - right) < 1e-4 * abs(left)


PRINTED = {
    "product": """
f_dx(x: [N], dy: []) -> dx:
    y_prefix[0] = 1.0
    y_prefix[i+1] = y_prefix[i] * x[i]
    dy_prefix[i] = dy_prefix[i+1] * x[i]
    dy_prefix[i] = dy[] where i in N:N+1
    dx[i] = y_prefix[i] * dy_prefix[i+1] where i in 0:N
""",
    "attention by its lift": """
f_dS_dV(S: [N, M], V: [M, D], dy: [N, D]) -> dS, dV:
    m[i] max= S[i,k]
""",
}


def test_printed_forms() -> None:
    back = operator("f(x: [N]) -> y:\n y[] = times(x[i])").gradient("x")
    assert back.text.strip() == PRINTED["product"].strip()


@pytest.mark.parametrize("size", [0, 1, 2, 4])
@pytest.mark.parametrize("ends", ["0:N-1", "1:N", "0:N-2", "1:N-1"])
def test_prefixes_of_negative_numbers_of_instances(ends: str, size: int) -> None:
    """At N = 0 there are -1 instances in 0:N-1: no first state, and results are identities."""
    op = operator(
        "f(x: f64[N], u: f64[M]) -> s, t:\n"
        f" m[], s[] = pair(x[j], 1.0) where j in {ends}\n"
        f" t[i] = norm(x[j] * x[k] * u[i] + 1, over=(j in {ends}, k in {ends})) where i in 0:M"
    )
    dt.check_grads(op, [normal(size), normal(2)], interpreted=True)
    if size == 0:
        dt.check_grads(op, [normal(size), normal(2)], modes="reverse")


def test_a_first_state_is_asked_for_where_a_size_may_be_0() -> None:
    op = operator("f(x: f64[N]) -> y:\n y[] = norm(x[j]) where j in 0:N-1")
    assert [line.strip() for line in adjoint(op, "x").text.splitlines()[1:4]] == [
        "y_prefix[0] = 0.0 where N - 1 >= 0",
        "y_prefix[j+1] = sqrt(y_prefix[j] * y_prefix[j] + x[j] * x[j]) where j in 0:N-1",
        "dy_prefix[j] = dy_prefix[j+1] * y_prefix[j] / y_prefix[j+1] where j in 0:N-1",
    ]
