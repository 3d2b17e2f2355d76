"""Gradients of every kind of operator: by differences, by the adjoint identity, second order."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import BY_NAME
from diptych.algo.errors import GradientError, UnsupportedError
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.reverse import adjoint
from exact import cotangent_names, run


def test_both_modes_first_and_second_order(case: tuple[str, list[Any]]) -> None:
    text, arrays = case
    dt.check_grads(parse(text), arrays, order=2, interpreted=True)


def test_gradient_text_parses_back_to_the_same_operator(case: tuple[str, list[Any]]) -> None:
    text, arrays = case
    op = parse(text)
    names = tuple(
        p.name for p, a in zip(op.params, arrays, strict=True) if np.asarray(a).dtype.kind == "f"
    )
    back = adjoint(op, names)
    assert parse(back.text) == back
    assert check(parse(back.text)).equations == check(back).equations


def test_saved_results_are_read_instead_of_computed(case: tuple[str, list[Any]]) -> None:
    text, arrays = case
    op = parse(text)
    values = dict(zip((p.name for p in op.params), arrays, strict=True))
    names = tuple(n for n, a in values.items() if np.asarray(a).dtype.kind == "f")
    results = run(op, values)
    plain, saving = adjoint(op, names), adjoint(op, names, saved=op.returns)
    assert not {eq.tensor for eq in saving.equations} & set(op.returns)
    given = values | {s: np.cos(results[r]) for s, r in
                      zip(cotangent_names(op, plain), op.returns, strict=True)}  # fmt: skip
    for one, two in zip(run(plain, given).values(), run(saving, given | results).values(),
                        strict=True):  # fmt: skip
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_third_order() -> None:
    op = parse("y[i] = x[i]**3 * z[i] + exp(x[i] * z[i])")
    dt.check_grads(op, (np.array([0.3, -1.2]), np.array([0.7, 0.4])), order=3)


def test_empty_contraction() -> None:
    back = adjoint(parse("C[i,j] = sum(A[i,k] * B[k,j])"), ("A", "B"))
    given = {"A": np.zeros((4, 0)), "B": np.zeros((0, 4)), "dC": np.ones((4, 4))}
    found = run(back, given)
    assert found["dA"].shape == (4, 0) and found["dB"].shape == (0, 4)


def test_gradient_is_made_once() -> None:
    op = parse("C[i,j] = sum(A[i,k] * B[k,j])")
    assert adjoint(op, "A") is adjoint(op, ("A",))


def test_types_of_cotangents_follow_where_they_are_known() -> None:
    op = parse("f(x: f32[N], i: i64[M]) -> y:\n y[m] = x[i[m]]")
    assert adjoint(op, "x").text.splitlines()[0] == (
        "f_dx(x: f32[N], i: i64[M], dy: f32[M]) -> dx:"
    )


@pytest.mark.parametrize(
    ("text", "wrt", "message"),
    [
        ("y[i] = x[i]", "z", "gradient of y by z: it has no such parameter; expected one of x"),
        ("y[i] = x[i]", (), "gradient of y: name at least one of x"),
        ("y[i] = x[i]", ("x", "x"), "gradient of y: x, x names a parameter twice"),
        ("f(J: i32[N], X: f32[M]) -> y:\n y[i] = X[J[i]]", "J",
         "gradient of f by J: it has elements of type i32, and only floats have gradients; "
         "ask for the other parameters"),
        ("y[i] = any(x[i,j])", "x",
         "gradient of y by x: y is reduced by any, which has no derivative; "
         "write it with where, or differentiate sum, prod, max or min"),
    ],
    ids=["unknown", "none", "twice", "integer", "any"],
)  # fmt: skip
def test_refusals(text: str, wrt: Any, message: str) -> None:
    with pytest.raises(GradientError) as caught:
        adjoint(parse(text), wrt)
    assert str(caught.value) == message


def test_any_of_a_comparison_has_no_path_and_gives_zeros() -> None:
    back = adjoint(
        parse("f(x: [I, J], z: [I]) -> y:\n y[i] = where(any(x[i,j] > 0), z[i], 0)"), "x"
    )
    found = run(back, {"x": np.ones((2, 3)), "z": np.ones(2), "dy": np.ones(2)})
    np.testing.assert_array_equal(found["dx"], np.zeros((2, 3)))


def test_a_range_without_one_bound_over_sizes_is_refused() -> None:
    op = parse("f(x: [N], z: [M]) -> y:\n y[i] = sum(x[i], over=(k in 0:max(i, M),))")
    with pytest.raises(UnsupportedError) as caught:
        adjoint(op, "x")
    assert str(caught.value) == (
        "the gradient needs bounds for k in 0:max(i, M) over sizes alone, and they are no single "
        "formula; give k a range over sizes and the rest as a condition"
    )


@pytest.mark.parametrize(
    ("text", "gradient", "shapes"),
    [
        (
            "f(A: [M, N], B: [3, 2]) -> K:\n"
            "    K[i,j] = A[i//3,j//2] * B[i%3,j%2] where i in 0:3*M, j in 0:2*N\n",
            "dA[y,x] = sum(dK[3*y+i,2*x+j] * B[i,j]) where y in 0:M, x in 0:N",
            ((4, 3), (3, 2)),
        ),
        (
            "f(A: [M]) -> K:\n    K[i] = A[i//3] ** 2 where i in 0:3*M-1\n",
            "dA[y] = sum(where(3 * y + i < 3 * M - 1, 2 * A[y] * dK[3*y+i], 0))"
            " where y in 0:M, i in 0:3",
            ((4,),),
        ),
        (
            "f(A: [3, 4, J]) -> y:\n    y[i,j] = A[i//4%3,i%4,j] where i in 0:12, j in 0:J\n",
            "dA[y,x,j] = dy[4*y+x,j] where y in 0:3, x in 0:4",
            ((3, 4, 2),),
        ),
        (
            "f(A: [N], z: [M]) -> y:\n    y[i] = A[i//3+1] * z[i]\n",
            "dA[y] = sum(where(3 * y + i - 3 < min(M, 3 * N - 3), dy[3*y+i-3] * z[3*y+i-3], 0),"
            " where=y >= 1) where y in 0:N, i in 0:3",
            ((5,), (11,)),
        ),
    ],
)  # fmt: skip
def test_reads_by_quotients_and_rests_are_gathered(
    text: str, gradient: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    op = parse(text)
    assert adjoint(op, "A").text.splitlines()[-1].strip() == gradient
    rng = np.random.default_rng(0)
    dt.check_grads(op, [rng.standard_normal(shape) for shape in shapes])


POLYNOMIAL = "f(x: [N], c: [K]) -> y:\n    y[i] = sum(c[k] * x[i]**k)\n"
POWERS = "f(x: [N], p: {}[K]) -> y:\n    y[i,k] = x[i]**p[k]\n"


@pytest.mark.parametrize("exponents", ["index", "f32", "i32", "u8", "u32"])
def test_powers_of_zero_and_powers_by_zero(exponents: str) -> None:
    """By x, x**0 has the derivative 0 everywhere: 0 * x**-1 is not asked at 0, near 0, or, with
    unsigned exponents, where 0 - 1 is the greatest number."""
    x = np.array([0, 2, -1.5, 1e-42, 1e30], np.float32)
    if exponents == "index":
        op, second = parse(POLYNOMIAL), np.ones(3, np.float32)
    else:
        op, second = parse(POWERS.format(exponents)), np.arange(3).astype(BY_NAME[exponents].numpy)
    gradient = adjoint(op, "x")
    dy = np.ones(5 if exponents == "index" else (5, 3), np.float32)
    given = {"x": x, "c": second, "p": second, "dy": dy}
    args = [given[p.name] for p in gradient.params]
    for found in (dt.interpret(gradient, *args), gradient(*args)):
        np.testing.assert_allclose(found, 1 + 2 * x, rtol=1e-6)


@pytest.mark.parametrize("base", ["x[i]", "0.0"])
def test_powers_of_zero_by_the_exponent(base: str) -> None:
    """0 where the power is 0, infinite at and below the exponent 0; NaN stays."""
    op = parse(f"f(x: [N], p: [N]) -> y:\n    y[i] = {base}**p[i] + 0 * x[i]\n")
    x, p = np.array([0, 0, 0, -0.0, 0]), np.array([-1, 0, 2, 0.5, np.nan])
    gradient = adjoint(op, "p")
    args = [{"x": x, "p": p, "dy": np.full(5, 2.0)}[param.name] for param in gradient.params]
    for found in (dt.interpret(gradient, *args), gradient(*args)):
        np.testing.assert_array_equal(found, [-np.inf, -np.inf, 0, 0, np.nan])


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (POLYNOMIAL, ([0, 2, -1], [1, 2, -3, 0.5])),
        (POWERS.format("f64"), ([1, 2, 0.3], [0, 1, 2, 0.5])),  # d2y / dx dp is 1 / x at p = 0
        ("f(x: [N]) -> y:\n    y[i,k] = x[i]**(k-2) where k in 0:6\n", ([0.5, 2],)),
    ],
)
def test_powers_twice(text: str, args: tuple[list[float], ...]) -> None:
    dt.check_grads(parse(text), [np.array(a, np.float64) for a in args], order=2)


def test_exponents_that_are_not_0_are_not_asked() -> None:
    op = parse("f(x: [N]) -> y:\n    y[i,k] = x[i]**(k+1) where k in 0:4\n")
    assert adjoint(op, "x").text.splitlines()[-1].strip() == (
        "dx[i] = sum(dy[i,k] * ((k + 1) * x[i]**k))"
    )


FOUND = {
    "a product of what does not depend on its index": """
f(B: [9], at: [3]) -> T:
    T[i] = prod(1.2 + sin(B[at[i]]), over=(k in 0:3,)) where i in 0:3
""",
    "conditions on data beside those that say which instances there are": """
f(A: [9, 3], B: [9], at: [3], part: [9]) -> T:
    T[i] = A[at[i],i] / (2 + sum(where(part[i+l] >= 0, B[part[i+l]] * B[i+1], 0.3),
        over=(k in 0:3, l in 0:2), where=k < i) ** 2) where i in 0:3
""",
    "conditions on data at the start of a recurrence": """
f(A: [9, 9], C: [9, 9], T: [3], at: [9]) -> U:
    U[0,j] = A[j,0] where j in 0:2
    U[i,j] = tanh(where(T[i-1] < 0.2, C[i,j], where(all(C[i,k] > -9, over=(k in 0:3,)), T[j],
        A[at[8-i],2*i])) + U[i-1,j]) where i in 1:3, j in 0:2
""",
    "an index that both branches of a choice guard": """
f(B: [9], L: [9], R: [9], part: [9]) -> V:
    V[i] = (where(part[i] >= 0, B[part[i]] * B[i], 0.3) - B[i+1]) * max(L[i], R[i]) where i in 0:3
""",
    "a scattered part that is the whole": """
f(B: [9], C: [9, 9], bins: [3, 2]) -> T, U:
    T: [3]
    T[bins[i,j]] *= 1 + 0.3 * sin(C[(j+7)%9,(i+7)%9]) where i in 0:3, j in 0:2
    U[i] = B[i] where i in 0:2
    U[i] = U[i-1] - B[i] * U[i-2] + sqrt(2 + sin(T.fill(0.5)[1-0])) where i in 2:5
""",
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("interpreted", [False, True])
def test_found_by_random_operators(name: str, interpreted: bool) -> None:
    op = parse(FOUND[name])
    rng = np.random.default_rng(1)
    indices = {
        "at": np.array([1, 0, 2, 1, 1, 0, 2, 2, 1]),
        "part": np.array([0, -2, 1, 0, -1, 2, 1, 1, 0]),
        "bins": np.array([[0, 2], [1, 0], [2, 1]]),
    }
    arrays = []
    for p in op.params:
        dims = tuple(d for d in p.type.dims or () if isinstance(d, int))
        given = indices.get(p.name)
        arrays.append(rng.uniform(0.3, 1.3, dims) if given is None else given[: dims[0]])
    dt.check_grads(op, arrays, order=2, interpreted=interpreted)


def test_conditions_on_data_are_asked_of_instances_alone() -> None:
    """Where a gradient's own condition reads tensors, a substituted index bounds the sum."""
    op = dt.op(
        "f(B: [9], C: [9, 9], L: [9, 3], part: [9], bins: [3, 2]) -> T:\n"
        "    T: [3]\n"
        "    T[bins[i,j]] max= L[j+1,i] + 0.05 * tanh("
        "max(where(part[j] >= 0, B[part[j]], 0.3), L[i,j]) + C[i//2+1,(j+7)%9]) "
        "where i in 0:3, j in 0:2"
    )
    rng = np.random.default_rng(0)
    values = rng.standard_normal(9), rng.standard_normal((9, 9)), rng.standard_normal((9, 3))
    part = np.array([3, -1, 2, 0, 5, 8, 1, -2, 4])
    dt.check_grads(op, [*values, part, np.array([[0, 1], [2, 0], [2, 1]])], order=2)


def test_a_temporary_counted_from_0_has_the_range_of_its_instance() -> None:
    """The range of k says i, and i begins at 1."""
    op = dt.op(
        "f(x: [3], h0: []) -> h:\n"
        "    h[0] = h0[]\n"
        "    h[i] = sin(sum(x[k], over=(k in i:3,))) * h[i-1] where i in 1:3"
    )
    dt.check_grads(op, [np.array([0.3, 1.1, -0.7]), 0.9], order=2)
    dt.check_grads(op, [np.array([0.3, 1.1, -0.7]), 0.9], order=2, interpreted=True)


def test_floats_that_are_cast_are_indices() -> None:
    """Linear interpolation: the places are data, and move the weights alone."""
    op = dt.op("""
        f(X: [P], u: [N]) -> y:
            r[n] = u[n] - floor(u[n])
            y[n] = (1 - r[n]) * X[i32(floor(u[n]))] + r[n] * X.edge[i32(floor(u[n]))+1]
    """)
    X, u = np.arange(5.0) ** 2, np.array([0.25, 1.5, 3.9])
    for found in (op(X, u), dt.interpret(op, X, u)):
        np.testing.assert_allclose(found, np.interp(u, np.arange(5), X), rtol=1e-12)
    dt.check_grads(op, (X, u), order=2)
    with pytest.raises(dt.Error) as caught:
        op(X, u + 4)
    assert str(caught.value).startswith(
        "f: X[i32(floor(u[n]))] is outside X: dim 0 has extent 5, but i32(floor(u[n])) is 5 at n=1"
    )
    taken = dt.op("f(x: [N], u: i8[N]) -> y:\n y[n] = x[i8(u[n]*2)]")  # integers stay what they are
    assert taken(np.arange(3.0), np.array([0, 1, 0], np.int8)).tolist() == [0, 2, 0]


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_products_of_nothing_have_gradients(n: int, m: int) -> None:
    op = dt.op("f(x: f64[N], w: f64[M]) -> z:\n z[] = prod(x[i] * w[k])")
    z, pull = dt.vjp(op, np.ones(n), np.ones(m))
    assert z == 1
    for got, size in zip(pull(1.0), (n, m), strict=True):
        np.testing.assert_array_equal(got, np.zeros(size))


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("chosen", ["M > 0", "M - 1 > -1", "(i == 1) & (i > M)", "M - 1 == -1"])
def test_choices_by_sizes_are_made_of_sizes_of_0_too(chosen: str, n: int, m: int) -> None:
    op = parse(f"""f(x: [N], u: [], z: [M]) -> y:
 h[i] = where({chosen}, u[] * x.zero[i-1] + x[i]**2, 0) where i in 0:N
 y[i] = h[i] * where({chosen}, x.edge[i-2] + u[], 0) where i in 0:N""")
    x, z = np.arange(1.0, n + 1), np.ones(m)
    dt.check_grads(op, [x, 0.7, z], interpreted=True, order=2)


NONE = {
    "log": "sum(log(x[t,i]))",
    "quotient": "sum(1 / x[t,i])",
    "root": "sum(sqrt(x[t,i]**2))",
    "product": "prod(log(x[t,i]))",
    "greatest": "max(log(x[t,i]))",
    "square": "sum(log(x[t,i]))**2",
}


@pytest.mark.parametrize("value", NONE.values(), ids=NONE)
@pytest.mark.parametrize(
    "chosen",
    [
        "where(x[t,0] > 0, {}, 0)",
        "where(sum(x[t,i]**2) > 0, {}, 0)",
        "where(x[t,0] <= 0, 0, where(x[t,1] > 1, {}, 1))",
        "sum(where(x[s,0] > x[t,1], {}, 0), over=(s in 0:T))",
    ],
)
def test_reductions_in_a_branch_that_is_not_taken_are_not_differentiated(
    chosen: str, value: str
) -> None:
    """Their slope there is 0, though they have none: nothing is multiplied by a mask."""
    op = dt.op(f"f(x: [T, 2]) -> y:\n y[t] = {chosen.format(value)}")
    x = np.array([[1.5, 2.5], [0, 0.0], [3, 2.1]])
    if "x[s,0]" in chosen:
        x[1, 1] = 7  # no s has more
    (slope,) = dt.vjp(op, x)[1](np.ones(3))
    tangent = dt.jvp(op, (x,), (x,))[1]
    assert np.isfinite(slope).all() and np.isfinite(tangent).all()
    np.testing.assert_allclose(slope.ravel() @ x.ravel(), tangent.sum(), rtol=1e-12)
    dt.check_grads(op, (x[::2],), order=2)


@pytest.mark.parametrize(
    "value",
    [
        "where((k[t] >= 0) & (k[t] < T), sum(x[k[t],i])**2, 0)",
        "where((k[t] >= 0) & (k[t] < T), sum(u[i] * x[k[t],i]), 0)",
        "where((k[t] >= 0) & (k[t] < T), max(u[i] * x[k[t],i]), 0)",
        "where((k[t] >= 0) & (k[t] < T) & (u[1] > 0), prod(x[k[t],i]), u[0])",
        "sum(where((k[t] >= 0) & (k[t] < T) & (u[j] > 0), sum(x[k[t],i]**3), u[j]))",
        "where(T > 1, sum(x[1,i])**2, 1)",
        "where(T > 1, prod(x[1,i]), 1)",
        "where((t > 0) & (x[t,0] > 0), log(sum(exp(x[t-1,i]))), x[t,0])",
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_reductions_in_a_branch_read_nothing_where_it_is_not_taken(value: str, steps: int) -> None:
    text = f"f(x: [T, 2], k: i32[T], u: [2]) -> y:\n y[t] = {value} where t in 0:T"
    op = dt.op(text)
    x, k, u = np.array([[1, 2], [-1, 0.5], [1.3, 2.4]]), np.array([0, -1, 2]), np.array([1.5, -1])
    dt.check_grads(op, (x[:steps], k[:steps].astype(np.int32), u), order=2)


def test_a_branch_by_data_of_other_indices_asks_for_any_of_them() -> None:
    op = dt.op(
        "f(x: [T, D], m: bool[T, S], w: [S]) -> y:\n"
        " y[t,s] = where(m[t,s] & (w[s] > 0), sum(log(x[t,i])), 0)"
    )
    assert adjoint(op, "x").text.splitlines()[1:] == [
        "    y_any[t] = any(m[t,s] & (w[s] > 0))",
        "    dy_sum[t] = sum(where(m[t,s] & (w[s] > 0), dy[t,s], 0))",
        "    dx[t,i] = where(y_any[t], dy_sum[t] / x[t,i], 0)",
    ]
    m = np.array([[True, False], [False, True]])
    slope = dt.vjp(op, np.array([[1, 2], [0, 0.0]]), m, np.array([3, -1.0]))[1](np.ones((2, 2)))[0]
    np.testing.assert_array_equal(slope, [[1, 0.5], [0, 0]])


@pytest.mark.parametrize(
    "value",
    [
        "where((t == 0) | m[t], 0, x[t-1])",
        "where(~((t == 0) | m[t]), x[t-1], 0)",
        "where(~(m[t] | ~(t > 0)), x[t-1], 0)",
        "where((t == 0) | m[t], 0, where((t == T - 1) | m[t], 1, x[t+1] * x[t-1]))",
        "where(~(t == 0) & ~m[t], sum(x[t-1] * x[i])**2, 0)",
        "where((t == 0) | m[t], 1, sum(x[t-1] * x[i])**2)",
    ],
)
def test_each_part_of_a_condition_that_fails_guards(value: str) -> None:
    """Where neither of two conditions holds, the one that asks no data says where indices are."""
    op = dt.op(f"f(x: [T], m: bool[T]) -> y:\n y[t] = {value} where t in 0:T")
    for steps in (0, 1, 5):
        x, m = np.arange(1.0, steps + 1), np.arange(steps) % 3 == 2
        np.testing.assert_array_equal(op(x, m), dt.interpret(op, x, m))
        np.testing.assert_array_equal(op.schedule().vectorize("y.t", 8)(x, m), op(x, m))
        dt.check_grads(op, (x, m), order=2)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_no_first_element_is_read_before_a_sum_of_nothing(size: int) -> None:
    op = dt.op("f(x: [N]) -> y:\n y[] = where(N > 0, sum(x[0] * x[i])**2, 1)")
    x = np.linspace(0.5, 1, size)
    dt.check_grads(op, (x,), order=2)
    dt.check_grads(op.gradient("x"), (x, np.ones(())), order=2)


@pytest.mark.parametrize(
    "text",
    [
        "y[] = sum(where(n[t,s], x[k[t]], 0))",
        "y[t] = sum(where(n[t,s], x[argmax(x[i] * k[t])], 0), over=(s in 0:S))",
    ],
)
def test_scatters_say_ranges_of_what_stands_in_their_condition_alone(text: str) -> None:
    back = dt.op(f"f(x: [T], n: bool[T, S], k: i32[T]) -> y:\n {text}").gradient("x")
    assert "where s in 0:S, n[t,s]" in back.text
    assert dt.op(back.text) == back
