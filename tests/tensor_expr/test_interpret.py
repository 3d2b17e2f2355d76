"""The interpreter against NumPy and against a scalar loop over every instance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import BY_NAME, i64
from diptych.algo.errors import DTypeError, OpError, ShapeError
from diptych.algo.tensor_expr import evaluate
from diptych.algo.tensor_expr.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
)
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.reducers import REDUCERS
from hypothesis import given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def run(text: str, *arrays: Any, **options: Any) -> Any:
    return interpret(parse(text), *arrays, **options)


def agrees(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Same type, shape and values."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# -- the operators of the whole project


def test_matmul() -> None:
    a, b = floats(13, 7), floats(7, 11)
    agrees(run("C[i,j] = sum(A[i,k] * B[k,j])", a, b), a @ b)
    agrees(run("C[i,j] += A[i,k] * B[k,j]", a, b), a @ b)
    agrees(run("C[i,j] = sum(A[i,k] * B[j,k])", a, b.T), a @ b)


def test_softmax_and_layernorm() -> None:
    x = floats(5, 9)
    e = np.exp(x - x.max(1, keepdims=True))
    text = "m[i] = max(x[i,j]); e[i,j] = exp(x[i,j] - m[i]); y[i,j] = e[i,j] / sum(e[i,l])"
    agrees(run(text, x), e / e.sum(1, keepdims=True))
    text = """
        m[i] = sum(x[i,j]) / J
        v[i] = sum((x[i,j] - m[i])**2) / J
        y[i,j] = (x[i,j] - m[i]) * rsqrt(v[i] + 1e-5)
    """
    c = x - x.mean(1, keepdims=True)
    agrees(run(text, x), c / np.sqrt((c * c).mean(1, keepdims=True) + np.float32(1e-5)), 1e-4)


def test_bias_and_relu() -> None:
    x, b = floats(4, 6), floats(6)
    agrees(run("y[i,j] = max(x[i,j] + b[j], 0)", x, b), np.maximum(x + b, 0))


def test_strided_convolution() -> None:
    x, w = floats(2, 3, 11, 9), floats(4, 3, 3, 2)
    expected = np.zeros((2, 4, 5, 4), np.float32)
    for n, o, p, q in np.ndindex(*expected.shape):
        window = x[n, :, 2 * p : 2 * p + 3, 2 * q : 2 * q + 2]
        expected[n, o, p, q] = (window * w[o]).sum()
    agrees(run("y[n,o,p,q] = sum(x[n,c,2*p+r,2*q+s] * w[o,c,r,s])", x, w), expected, 1e-4)


def test_max_pool() -> None:
    x = floats(3, 8, 6)
    found = run("y[c,p,q] = max(x[c,2*p+r,2*q+s]) where r in 0:2, s in 0:2", x)
    agrees(found, x.reshape(3, 4, 2, 3, 2).max((2, 4)))


def test_gather_and_scatter() -> None:
    w, at = floats(10, 3), RNG.integers(0, 10, (4, 5))
    agrees(run("y[b,t,d] = W[at[b,t],d]", w, at), w[at])
    values = floats(40)
    bins = RNG.integers(0, 6, 40).astype(np.int32)
    text = "f(bin, v, H0: [B]) -> H:\n H: [B]\n H[bin[n]] += v[n]"
    agrees(run(text, bins, values, floats(6)), np.bincount(bins, values, 6).astype(np.float32))


def test_a_scatter_whose_left_side_has_not_all_indices() -> None:
    text = "f(at: [N], s: [N, M]) -> y:\n  y: [N, M]\n  y[n,at[n]] += 2 * s[n,0] where m in 0:M"
    found = dt.interpret(
        dt.op(text), np.array([1, 0], np.int32), np.array([[1.0, 5, 6], [3, 0, 0]])
    )
    np.testing.assert_array_equal(found, [[0, 6, 0], [18, 0, 0]])


def test_reading_outside_by_data_is_an_error() -> None:
    w, at = floats(10, 3), np.array([[1, 12]])
    with pytest.raises(ShapeError) as caught:
        run("y[b,t,d] = W[at[b,t],d]", w, at)
    assert str(caught.value) == (
        "y: W[at[b,t],d] is outside W: dim 0 has extent 10, but at[b,t] is 12 at b=0, t=1\n"
        "    in y[b,t,d] = W[at[b,t],d] (<text>:1)"
    )
    with pytest.raises(ShapeError) as caught:
        run("f(b, v, h: [B]) -> H:\n H: [B]\n H[b[n]] += v[n]", np.array([-1]), w[0, :1], w[:4, 0])
    assert str(caught.value) == (
        "f: H[b[n]] is outside H: dim 0 has extent 4, but b[n] is -1 at n=0\n"
        "    in H[b[n]] += v[n] (<text>:3)"
    )


# -- recurrences


def test_cumulative_sum() -> None:
    x = floats(30, dtype=np.float64)
    text = "f(x: [N]) -> c: c[0] = x[0]; c[i] = c[i-1] + x[i] where i in 1:N"
    agrees(run(text, x), np.cumsum(x))


def test_a_recurrence_that_runs_downwards() -> None:
    x = floats(9, dtype=np.float64)
    text = "f(x: [N]) -> c: c[N-1] = x[N-1]; c[i] = c[i+1] + x[i] where i in 0:N-1"
    agrees(run(text, x), np.cumsum(x[::-1])[::-1])


def test_a_recurrence_in_two_dimensions() -> None:
    a, b = RNG.integers(0, 3, 8), RNG.integers(0, 3, 6)
    expected = np.zeros((9, 7), np.int64)
    for i, j in np.ndindex(8, 6):
        best = max(expected[i, j + 1], expected[i + 1, j])
        expected[i + 1, j + 1] = max(best, expected[i, j] + (a[i] == b[j]))
    text = """f(a: [M], b: [N]) -> L:
        L[i, 0] = 0 where i in 0:M+1
        L[0, j] = 0 where j in 1:N+1
        L[i, j] = max(L[i-1,j], L[i,j-1], L[i-1,j-1] + where(a[i-1] == b[j-1], 1, 0))
            where i in 1:M+1, j in 1:N+1
    """
    agrees(run(text, a, b), expected)


def test_a_recurrent_network() -> None:
    x, u, h0 = floats(6, 4), floats(4, 4), floats(4)
    h = [h0]
    for t in range(1, 6):
        h.append(np.tanh(x[t] + u @ h[-1]))
    text = """f(x: [T, D], U, h0) -> h:
        h[0,d] = h0[d]
        h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
    """
    agrees(run(text, x, u, h0), np.stack(h))


# -- types


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"])
def test_sums_accumulate_in_the_declared_types(name: str) -> None:
    dtype = BY_NAME[name].numpy
    high = 1 if name == "bool" else np.iinfo(dtype).max
    x = RNG.integers(0, int(high), (3, 400), dtype=np.uint64, endpoint=True).astype(dtype)
    acc = BY_NAME[name].accumulator.numpy
    agrees(run("s[i] = sum(x[i,k])", x), x.sum(1, dtype=acc))
    agrees(run("s[i] += x[i,k]", x), x.sum(1, dtype=acc))
    agrees(run("s[i] = max(x[i,k])", x), x.max(1))


def test_half_precision_accumulates_in_single() -> None:
    x = np.full((1, 4096), 1, np.float16)
    assert run("s[i] = sum(x[i,k])", x)[0] == np.float16(4096)
    x = np.ones((1, 70000), np.float16)
    assert run("s[i] = sum(x[i,k])", x)[0] == np.inf
    assert run("s[i] = sum(x[i,k] / 4)", x)[0] == np.float16(17500)


def bfloat(x: Any) -> Any:
    """The bits of the nearest bf16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def test_bf16_is_carried_as_its_bits_and_rounded_after_every_operation() -> None:
    a, b = floats(50), floats(50)
    wide = [(bfloat(v).astype(np.uint32) << 16).view(np.float32) for v in (a, b)]
    product = (bfloat(wide[0] * wide[1]).astype(np.uint32) << 16).view(np.float32)
    text = "f(a: bf16[N], b: bf16[N]) -> y: y[i] = a[i] * b[i] + a[i]"
    found = run(text, bfloat(a), bfloat(b))
    assert found.dtype == np.uint16
    assert np.array_equal(found, bfloat(product + wide[0]))
    nan = run(text, bfloat([np.nan]), bfloat([1.0]))
    assert (nan & 0x7FFF) > 0x7F80


def test_exact_computes_floats_in_float64() -> None:
    x = floats(2, 1000)
    found = run("s[i] = sum(x[i,k] * 3)", x, exact=True)
    agrees(found, (x.astype(np.float64) * 3).sum(1), 1e-14)
    n = RNG.integers(-100, 100, (2, 50)).astype(np.int8)
    agrees(run("s[i] = sum(x[i,k] * 3)", n, exact=True), run("s[i] = sum(x[i,k] * 3)", n))


def test_integer_semantics() -> None:
    a = np.array([7, -7, 7, -7, 5, -128], np.int8)
    b = np.array([2, 2, -2, -2, 0, -1], np.int8)
    agrees(run("q[i] = a[i] // b[i]", a, b), np.array([3, -4, -4, 3, 0, -128], np.int8))
    agrees(run("r[i] = a[i] % b[i]", a, b), np.array([1, 1, -1, -1, 0, 0], np.int8))
    agrees(run("y[i] = -a[i] + a[i] * a[i]", a), (-a + a * a))


def test_nan_wins_in_extrema_and_nothing_is_simplified_away() -> None:
    x = np.array([[1.0, np.nan, 3.0], [-0.0, 0.0, -np.inf]], np.float32)
    agrees(run("m[i] = max(x[i,k])", x), np.array([np.nan, 0], np.float32))
    agrees(run("m[i] min= x[i,k]", x), np.array([np.nan, -np.inf], np.float32))
    agrees(run("y[i,k] = max(x[i,k], 2)", x)[0], np.array([2, np.nan, 3], np.float32))
    agrees(run("y[i,k] = x[i,k] * 0", x)[1], np.array([0, 0, np.nan], np.float32))


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_has_its_numpy_meaning(name: str) -> None:
    operation = OPERATIONS[name]
    logic = name in ("and", "or", "not")
    args = [RNG.random(20).astype(np.float32) + 0.5 for _ in range(operation.arity)]
    if logic:
        args = [a > 1 for a in args]
    if name == "where":
        args[0] = args[0] > 1
    names = "abc"[: operation.arity]
    rhs = Call(name, tuple(Access(n, (Index("i"),)) for n in names))
    shell = parse(f"f({', '.join(names)}) -> y: y[i] = {'+'.join(f'{n}[i]' for n in names)}")
    (eq,) = shell.equations
    op = Op("f", shell.params, (type(eq)("y", eq.lhs, rhs),), ("y",))
    agrees(interpret(op, *args), operation.numpy(*args))


# -- masks and guards


def test_the_branch_not_taken_does_not_fault() -> None:
    x = floats(6)
    text = "f(x: [N]) -> y: y[i] = where(i >= 1, x[i-1], 0.0) where i in 0:N"
    agrees(run(text, x), np.concatenate([[np.float32(0)], x[:-1]]))
    text = "f(x: [N], p) -> y: y[i] = where(p[i] >= 0, x[p[i]], -1.0)"
    p = np.array([3, -1, 0, -5])
    agrees(run(text, floats(4) * 0 + x[:4], p), np.array([x[3], -1, x[0], -1], np.float32))


def test_triangles_and_conditions() -> None:
    x = floats(7, 7)
    low = np.tril(x)
    agrees(run("f(x: [N,N]) -> s: s[i] = sum(x[i,k], where=k <= i)", x), low.sum(1))
    agrees(run("f(x: [N,N]) -> s: s[i] = sum(x[i,k]) where k in 0:i+1", x), low.sum(1))
    agrees(run("f(x: [N,N]) -> s: s[i] += x[i,k] where k <= i", x), low.sum(1))
    agrees(run("f(x: [N,N]) -> s: s[i] = sum(x[i,k], where=x[i,k] > 0)", x), x.clip(0).sum(1))


def test_equations_on_disjoint_regions() -> None:
    x = floats(9)
    text = "f(x: [N]) -> y: y[2*i] = x[2*i] where i in 0:(N+1)//2; y[2*i+1] = 0.0 where i in 0:N//2"
    expected = x.copy()
    expected[1::2] = 0
    agrees(run(text, x), expected)


def test_empty_reductions_give_the_identity() -> None:
    x = np.zeros((3, 0), np.float32)
    agrees(run("s[i] = sum(x[i,k])", x), np.zeros(3, np.float32))
    agrees(run("s[i] = prod(x[i,k])", x), np.ones(3, np.float32))
    x, n = floats(3, 4), np.zeros(3, np.int64)
    found = run("s[i] = max(x[i,k], where=k < n[i])", x, n)
    agrees(found, np.full(3, -np.inf, np.float32))
    agrees(run("s[j] = x[0,j] + 0", floats(1, 0)), np.zeros(0, np.float32))


def test_where_nothing_runs_what_is_read_for_all_instances_may_be_absent() -> None:
    op = parse("f(x: f64[N], z: f64[M]) -> y:\n y[] = sum(x[i] * sin(z[0]))")
    assert interpret(op, np.zeros(0), np.zeros(0)) == op(np.zeros(0), np.zeros(0)) == 0
    op = parse("f(x: f64[N], w: f64[N,N]) -> y:\n y[] = sum(x[t] * w[t,1]) where t in 0:N-1")
    assert interpret(op, np.ones(1), np.ones((1, 1))) == op(np.ones(1), np.ones((1, 1))) == 0


@pytest.mark.parametrize(
    "text",
    [
        "y[] = where(N > 0, max(x[i]), -1)",
        "y[] = where(N == 0, -1, max(x[i]) - min(x[i]))",
        "y[] = where(~(N > 0), -1, x[argmax(x[i])])",
    ],
)
def test_an_extreme_of_nothing_in_a_branch_that_sizes_rule_out(text: str) -> None:
    op = dt.op(f"f(x: f64[N]) -> y:\n {text}")
    assert op(np.zeros(0)) == dt.interpret(op, np.zeros(0)) == -1
    assert op(np.ones(2)) == dt.interpret(op, np.ones(2)) >= 0
    dt.check_grads(op, (np.zeros(0),), order=2)
    with pytest.raises(ShapeError, match="index i runs over nothing"):
        dt.op("f(x: f64[N]) -> y:\n y[] = where(N > 0, max(x[i]), max(x[i]))")(np.zeros(0))


@pytest.mark.parametrize("kind", ["edge", "reflect", "wrap", "zero", "fill(1)"])
def test_where_nothing_runs_no_boundary_asks_for_an_element(kind: str) -> None:
    text = f"y[i] = x.{kind}[i-1] + x.{kind}[at[i]+1] where i in 0:N"
    op = parse(f"f(x: f64[N], at: i32[N]) -> y:\n {text}")
    for size in (0, 1, 3):
        x, at = np.arange(1.0, size + 1), np.arange(size, dtype=np.int32)
        np.testing.assert_array_equal(interpret(op, x, at), op(x, at))
        assert op(x, at).shape == (size,)


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("y[] = x.zero[0]", 0),
        ("y[] = x.fill(7)[N-1]", 7),
        ("h[t] = x[t] + h.zero[t-1]\n y[] = h.zero[N-1]", 0),
        ("y[] = sum(x.zero[0] * x[i]) + x.fill(2)[0]", 2),
    ],
)
def test_0_beyond_the_ends_is_given_where_there_is_nothing_between_them(
    text: str, empty: float
) -> None:
    op = parse(f"f(x: f64[N]) -> y:\n {text}")
    assert interpret(op, np.zeros(0)) == op(np.zeros(0)) == empty
    assert interpret(op, np.ones(1)) == op(np.ones(1)) == 1 + ("sum" in text)
    assert op.gradient("x")(np.zeros(0), np.ones(())).shape == (0,)


def test_a_body_without_the_reduced_index_counts() -> None:
    x = floats(3, 5)
    agrees(run("s[i] = sum(x[i,0] + 0 * x[0,k])", x), 5 * x[:, 0], 1e-4)
    text = "f(x: [N, K]) -> s: s[i] = sum(x[i,0], over=(k in 0:K,))"
    agrees(run(text, x), 5 * x[:, 0], 1e-4)
    agrees(run("f(x: [N, K]) -> s: s[i] += x[i,0] where k in 0:K", x), 5 * x[:, 0], 1e-4)


def test_large_boxes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = floats(17, 5, 9), floats(9, 4)
    texts = [
        ("y[i,j,k] = x[i,j,k] * 2", (x,)),
        ("y[i,l] = sum(x[i,j,k] * w[k,l])", (x, w)),
        ("y[l] = max(sum(x[i,j,k] * w[k,l]), over=i)", (x, w)),
        ("y[l] += x[i,j,k] * w[k,l]", (x, w)),
        ("y[i] min= x[i,j,k]", (x,)),
    ]
    whole = [run(text, *arrays, exact=True) for text, arrays in texts]
    monkeypatch.setattr(evaluate, "LIMIT", 64)
    for (text, arrays), expected in zip(texts, whole, strict=True):
        agrees(run(text, *arrays, exact=True), expected, 1e-12)


def test_deep_expressions() -> None:
    x = np.ones(3, np.int64)
    assert run("y[i] = " + " + ".join(["x[i]"] * 3000), x)[0] == 3000


# -- what it takes and gives


def test_several_results_and_scalars() -> None:
    x = floats(4)
    m, s = (
        run("m = max(x[i]); s = sum(x[i]) / m", x)[:2]
        if False
        else run("f(x) -> m, s: m = max(x[i]); s = sum(x[i]) / m", x)
    )
    agrees(m, x.max())
    agrees(s, x.sum() / x.max())
    agrees(run("f(x, lr) -> y: y[i] = x[i] * lr", x, np.float32(2)), x * 2)


def test_wrong_arguments() -> None:
    x = floats(4)
    with pytest.raises(ShapeError) as caught:
        run("f(x, z) -> y: y[i] = x[i] + z[i]", x)
    assert str(caught.value) == "f takes 2 arrays (x, z), 1 given"
    with pytest.raises(DTypeError) as caught:
        run("f(x: f64) -> y: y[i] = x[i] + 1", x)
    assert str(caught.value) == (
        "x is declared f64, but an array of f32 came; convert it, or declare x without a type"
    )


# -- random operators against a scalar loop


A, B, X = (3, 4), (4, 3), (3,)
EXTENTS = {"N": 3, "M": 4}
INTEGER = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "neg", "abs", "where")
FLOAT = ("add", "sub", "mul", "min", "max", "neg", "abs", "where", "sqrt", "floor")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


@st.composite
def conditions(draw: st.DrawFn, scope: dict[str, str]) -> Expr:
    names = sorted(scope)
    left = Index(draw(st.sampled_from(names)))
    right = draw(st.sampled_from([Const(1), *map(Index, names)]))
    return Call(draw(st.sampled_from(COMPARE)), (left, right))


@st.composite
def values(draw: st.DrawFn, scope: dict[str, str], depth: int, integer: bool) -> Expr:
    """A value over indices in `scope`, each with its size."""
    by_size = {s: [Index(n) for n in scope if scope[n] == s] for s in ("N", "M")}
    if depth == 0:
        rows, columns = (st.sampled_from(by_size[s]) if by_size[s] else None for s in ("N", "M"))
        leaves: list[st.SearchStrategy[Expr]] = [
            st.integers(-3, 3).map(lambda v: Const(v if integer else float(v)))
        ]
        if rows is not None:
            leaves.append(rows.map(lambda n: Access("x", (n,))))
        if rows is not None and columns is not None:
            leaves.append(st.builds(lambda n, m: Access("A", (n, m)), rows, columns))
            leaves.append(st.builds(lambda n, m: Access("B", (m, n)), rows, columns))
            leaves.append(st.builds(lambda n, m: Access("x", (Access("at", (m,)),)), rows, columns))
        if integer:
            leaves.append(st.sampled_from(sorted(scope)).map(Index))
        return draw(st.one_of(leaves))
    if draw(st.integers(0, 2)) == 0 and len(scope) < 5:
        own = draw(st.sampled_from("klm"))
        if own not in scope:
            size = draw(st.sampled_from(["N", "M"]))
            inside = {**scope, own: size}
            body = draw(values(inside, depth - 1, integer))
            where = draw(st.one_of(st.none(), conditions(inside)))
            limit = (Range(own, Const(0), Size(size)),)
            reducer = draw(st.sampled_from(["sum", "prod", "max", "min"]))
            return Reduce(reducer, (own,), body, limit, where)
    name = draw(st.sampled_from(INTEGER if integer else FLOAT))
    name_args = [draw(conditions(scope))] if name == "where" else []
    count = OPERATIONS[name].arity - len(name_args)
    args = [draw(values(scope, depth - 1, integer)) for _ in range(count)]
    return Call(name, (*name_args, *args))


def wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def scalar(expr: Expr, at: dict[str, int], arrays: dict[str, Any], integer: bool) -> Any:
    """The value at one instance, in Python numbers: int (wrapping) or float."""

    def go(e: Expr, at: dict[str, int] = at) -> Any:
        return scalar(e, at, arrays, integer)

    match expr:
        case Const(value, _):
            return value if integer else float(value)
        case Index(name):
            return at[name]
        case Access(tensor, indices):
            found = arrays[tensor][tuple(scalar(e, at, arrays, True) for e in indices)].item()
            return found
        case Reduce(name, (own,), body, (r,), where, _):
            assert isinstance(r.hi, Size)
            total: Any = REDUCERS[name].identity(i64 if integer else BY_NAME["f64"])
            for v in range(EXTENTS[r.hi.name]):
                inner = {**at, own: v}
                if where is None or scalar(where, inner, arrays, True):
                    total = combine(REDUCERS[name].combine, total, go(body, inner), integer)
            return total
        case Call("where", (c, a, b)):
            return go(a) if scalar(c, at, arrays, True) else go(b)
        case Call(op, args):
            return combine(op, *map(go, args), integer)
    raise AssertionError(expr)


def combine(op: str, a: Any, *rest: Any) -> Any:
    *more, integer = rest
    b = more[0] if more else None
    simple: dict[str, Callable[[], Any]] = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
        "floordiv": lambda: a // b if b else 0, "mod": lambda: a % b if b else 0,
        "neg": lambda: -a, "abs": lambda: abs(a),
        "sqrt": lambda: math.sqrt(a) if a >= 0 else math.nan,
        "floor": lambda: float(math.floor(a)) if math.isfinite(a) else a,
        "min": lambda: extreme(a, b, min), "max": lambda: extreme(a, b, max),
        "lt": lambda: a < b, "le": lambda: a <= b, "gt": lambda: a > b, "ge": lambda: a >= b,
        "eq": lambda: a == b, "ne": lambda: a != b,
    }  # fmt: skip
    found = simple[op]()
    return wrap(found) if integer and not isinstance(found, bool) else found


def extreme(a: Any, b: Any, pick: Any) -> Any:
    return math.nan if a != a or b != b else pick(a, b)


@pytest.mark.parametrize("integer", [True, False])
def test_random_operators_agree_with_a_scalar_loop(integer: bool) -> None:
    rng = np.random.default_rng(3)
    dtype = np.int64 if integer else np.float64
    arrays = {
        "A": rng.integers(-4, 5, A).astype(dtype),
        "B": rng.integers(-4, 5, B).astype(dtype),
        "x": rng.integers(-4, 5, X).astype(dtype),
        "at": rng.integers(0, 3, 4),
    }
    shell = parse("f(A: [N, M], B: [M, N], x: [N], at: [M]) -> y: y[i,j] = A[i,j] * 0")
    kinds = {"i": "N", "j": "M"}

    @settings(max_examples=150, derandomize=True, deadline=None)
    @given(values(kinds, 3, integer), st.one_of(st.none(), st.just("sum"), st.just("max")))
    def check(rhs: Expr, reducer: str | None) -> None:
        (eq,) = shell.equations
        limits = tuple(Range(n, Const(0), Size(s)) for n, s in kinds.items())
        lhs = eq.lhs if reducer is None else eq.lhs[:1]
        equation = type(eq)("y", lhs, rhs, limits, None, reducer)
        op = Op("f", shell.params, (equation,), ("y",))
        try:
            found = interpret(op, *arrays.values())
        except OpError as error:  # such as max(x[k], where=k < k)
            assert " has no value: there is nothing in its range" in str(error)
            return
        expected = np.zeros((3, 4), dtype)
        for i, j in itertools.product(range(3), range(4)):
            try:
                expected[i, j] = scalar(rhs, {"i": i, "j": j}, arrays, integer)
            except OverflowError:
                return
        if reducer == "sum":
            expected = expected.sum(1)
        elif reducer == "max":
            expected = expected.max(1)
        if integer:
            assert found.dtype == np.int64 and np.array_equal(found, expected), op.text
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=op.text)

    check()


def test_sums_of_products_contract_their_factors() -> None:
    a, b = floats(5, 3, 1), floats(5, 1, 4)
    found = evaluate.contract(a, b, (5, 3, 4), 1)
    assert found is not None and found.shape == (3, 4)
    np.testing.assert_allclose(found, (a * b).sum(0), rtol=1e-5)
    found = evaluate.contract(floats(1, 3), floats(3), (5, 3), 1)
    assert found is None  # every instance counts five times
    nothing = evaluate.contract(floats(5, 0), floats(5, 1), (5, 0), 1)
    assert nothing is not None and nothing.shape == (0,)


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("A[i,k] * B[k,j]", lambda a, b: a @ b),
        ("A[i,k] * A[i,k]", lambda a, b: np.broadcast_to((a * a).sum(1)[:, None], (4, 2))),
        ("A[i,k] * 2.0", lambda a, b: np.broadcast_to((a * 2).sum(1)[:, None], (4, 2))),
        ("A[i,k] * (A[i,k] * B[k,j])", lambda a, b: (a * a) @ b),
        ("A[i,0] * B[0,j]", lambda a, b: 6 * a[:, :1] * b[:1]),
    ],
)
def test_products_of_every_shape(product: str, expected: Callable[..., Any]) -> None:
    a, b = floats(4, 6), floats(6, 2)
    text = f"f(A: [I, K], B: [K, J]) -> y: y[i,j] = sum({product}, over=(k in 0:K,)) where j in 0:J"
    agrees(run(text, a, b), expected(a, b))


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_saturate_as_integers(name: str, kind: type) -> None:
    ends = np.iinfo(BY_NAME[name].numpy)
    with np.errstate(over="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, -1.5, 126.9, -(2.0**62)]).astype(kind)
    got = interpret(parse(f"y[i] = {name}(x[i])"), x)
    assert got.dtype == BY_NAME[name].numpy
    last = max(ends.min, min(ends.max, int(x[-1]))) if np.isfinite(x[-1]) else ends.min
    near = int(x[4])
    assert got.tolist() == [0, ends.max, ends.min, max(-1, ends.min), near, last]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_powers_are_those_of_c(kind: type, shape: tuple[int, ...]) -> None:
    root = parse(f"y[{'i' * len(shape)}] = x[{'i' * len(shape)}] ** 0.5")
    for x, expected in ((-np.inf, np.inf), (-0.0, 0.0), (4.0, 2.0), (-1.0, np.nan)):
        got = interpret(root, np.full(shape, x, kind))
        assert got.tobytes() == np.full(shape, expected, kind).tobytes() or np.isnan(expected)
        assert np.isnan(expected) == np.all(np.isnan(got))


def test_integers_to_a_negative_power_are_0() -> None:
    x = np.array([0, 1, -1, 2])
    assert interpret(parse("y[i] = x[i] ** n[i]"), x, np.full(4, -1)).tolist() == [0, 0, 0, 0]


def test_indices_beyond_i64_are_beyond_the_end() -> None:
    x, at = np.arange(5.0), np.array([3, 2**63, 2**64 - 1], np.uint64)
    edge, plain = dt.op("y[i] = x.edge[at[i]]"), dt.op("y[i] = x[at[i]]")
    for run in (edge, lambda *arrays: dt.interpret(edge, *arrays)):
        assert run(x, at).tolist() == [3, 4, 4]
    for run in (plain, lambda *arrays: dt.interpret(plain, *arrays)):
        with pytest.raises(dt.ShapeError) as wrong:
            run(x, at)
        assert str(wrong.value).splitlines()[0] == (
            "y: x[at[i]] is outside x: dim 0 has extent 5, but at[i] is 9223372036854775808 at i=1"
        )


def test_a_scatter_whose_place_depends_on_fewer_indices_than_its_value() -> None:
    text = "f(b: [N], v: [K]) -> H:\n H: [3]\n H[b[n]] += v[k]"
    got = run(text, np.array([2, 0, 2]), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(got, [3, 0, 6])


def test_conditions_on_data_are_asked_where_the_others_hold() -> None:
    text = "f(b: [N], v: [M]) -> s:\n s[] = sum(v[m], where=(b[m-2] >= 0) & (m >= 2) & (m < N + 2))"
    got = run(text, np.array([0, -1, 2]), np.arange(7.0))
    assert got == 6
    text = (
        "f(b: [N], v: [M]) -> H:\n H: [3]\n H[b[m-2]] += v[m] where b[m-2] >= 0, m >= 2, m < N + 2"
    )
    np.testing.assert_array_equal(run(text, np.array([0, -1, 2]), np.arange(7.0)), [2, 0, 4])
