"""Printing: what it looks like, and that it parses back to the same operator."""

from __future__ import annotations

import math

import pytest
from diptych.algo.dtypes import BY_NAME, TensorType, bool_, f32, f64, i8, i64
from diptych.algo.tensor_expr.expr import (
    Access,
    Boundary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Range,
    Reduce,
    Size,
    indices_of,
)
from diptych.algo.tensor_expr.op import Equation, Op, Param
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.printer import print_equation, print_expr, print_op
from diptych.algo.tensor_expr.surface import (
    compare,
    default_params,
    default_returns,
    not_a_condition,
)
from hypothesis import given, settings
from hypothesis import strategies as st

RANKS = {"A": 2, "B": 2, "x": 1, "lr": 0, "idx": 1}
LEFT = ("i", "j")


def weak_constants() -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.integers(-5, 5),
        st.integers(-(10**30), 10**30),
        st.floats(),
        st.booleans(),
        st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-7, -2.5e300]),
    ).map(Const)


def typed_constants() -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(lambda v: Const(v, f32), st.floats()),
        st.builds(lambda v: Const(v, f64), st.integers(-9, 9)),
        st.builds(lambda v: Const(v, i8), st.integers(-128, 127)),
        st.builds(lambda v: Const(v, i64), st.integers(-(2**63), 2**63 - 1)),
        st.builds(lambda v: Const(v, bool_), st.booleans()),
    )


@st.composite
def positions(draw: st.DrawFn, scope: tuple[str, ...]) -> Expr:
    """An index expression over the indices in scope."""
    base: Expr = Index(draw(st.sampled_from(scope)))
    match draw(st.integers(0, 5)):
        case 0:
            return Call("add", (Call("mul", (Const(2), base)), Const(draw(st.integers(-3, 3)))))
        case 1:
            return Call("sub", (Call("sub", (Size("N"), Const(1))), base))
        case 2:
            return Access("idx", (base,))
        case 3:
            return Call("mod", (base, Size("M")))
    return base


@st.composite
def expressions(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> Expr:
    """An expression whose free indices are among `scope`, with its reductions closed."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaves = [weak_constants(), typed_constants(), st.sampled_from([Size("N"), Size("M")])]
        leaves.append(st.just(Access("lr", ())))
        if scope:
            name = st.sampled_from(["A", "B", "x"])
            leaves.append(st.sampled_from(scope).map(Index))
            leaves += [
                name.flatmap(
                    lambda t: st.builds(
                        Access,
                        st.just(t),
                        st.tuples(*[positions(scope)] * RANKS[t]),
                        boundaries(),
                    )
                )
            ] * 3
        return draw(st.one_of(leaves))
    if draw(st.integers(0, 3)) == 0:
        return draw(reductions(scope, depth - 1))
    if draw(st.integers(0, 7)) == 0:
        arg = draw(expressions(scope, depth - 1))
        weak = isinstance(arg, Const) and arg.dtype is None
        return (
            Call("abs", (arg,)) if weak else Cast(draw(st.sampled_from([*BY_NAME.values()])), arg)
        )
    op = OPERATIONS[draw(st.sampled_from(sorted(OPERATIONS)))]
    args = tuple(draw(expressions(scope, depth - 1)) for _ in range(op.arity))
    if op.name in ("lt", "le", "gt", "ge", "eq", "ne"):
        return compare(op.name, *args)
    if op.arity == 2 and not_a_condition(op.name, *args):  # text refuses `1 & x`
        return Call("add", args)
    return Call(op.name, args)


def boundaries() -> st.SearchStrategy[Boundary | None]:
    numbers = st.one_of(weak_constants(), typed_constants())
    filled = numbers.map(lambda number: Boundary("fill", number))
    plain = st.sampled_from(["edge", "zero", "reflect", "wrap"]).map(Boundary)
    return st.one_of(st.none(), st.none(), plain, filled)


@st.composite
def reductions(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> Expr:
    fresh = [name for name in ("k", "l", "m", "n") if name not in scope]
    own = tuple(draw(st.lists(st.sampled_from(fresh), max_size=2, unique=True))) if fresh else ()
    inside = (*scope, *own)
    body = draw(expressions(inside, depth))
    ranges = tuple(
        Range(name, Const(0), draw(st.sampled_from([Size("N"), Const(3), *map(Index, scope[:1])])))
        for name in own
        if draw(st.booleans())
    )
    where = draw(st.one_of(st.none(), expressions(inside, min(depth, 1))))
    reducer = draw(st.sampled_from(["sum", "prod", "max", "min", "any", "all"]))
    dtype = draw(st.sampled_from([None, None, f64]))
    if len(own) == 1 and draw(st.booleans()):
        reducer, dtype = draw(st.sampled_from(["argmax", "argmin"])), None
    return Reduce(reducer, own, body, ranges, where, dtype)


@st.composite
def operators(draw: st.DrawFn) -> Op:
    reducer = draw(st.sampled_from([None, None, "sum", "prod", "max", "any"]))
    lhs: tuple[Expr, ...] = (Index("i"), Index("j"))
    free: tuple[str, ...] = LEFT
    if reducer is not None:
        free = (*LEFT, "p")
        if draw(st.booleans()):
            lhs = (Access("idx", (Index("i"),)), Index("j"))
    rhs = draw(expressions(free, draw(st.integers(1, 4))))
    if "p" in indices_of(rhs) and "p" not in _direct(rhs):
        rhs = Call("add", (rhs, Index("p")))
    used = [name for name in free if name in LEFT or name in indices_of(rhs)]
    ranges = tuple(
        Range(name, Const(1), Size("N")) for name in used if draw(st.integers(0, 2)) == 0
    )
    where = draw(st.one_of(st.none(), expressions(tuple(used), 2)))
    first = Equation("T", lhs, rhs, ranges, where, reducer)
    second = Equation(
        "U", (Index("i"),), Reduce("max", ("j",), Access("T", (Index("i"), Index("j"))))
    )
    equations = (first, second) if draw(st.booleans()) else (first,)
    draft = Op("f", (), equations, ("T",), {})
    params, returns = default_params(draft), default_returns(draft)
    if draw(st.booleans()):
        params = tuple(
            Param(p.name, TensorType(f32, ("P", "Q", 3)[: RANKS[p.name]])) for p in params[::-1]
        )
    if draw(st.booleans()):
        returns = tuple(eq.tensor for eq in equations)
    shapes = {"T": (Size("V"), Const(4))} if draw(st.booleans()) else {}
    return Op("f", params, equations, returns, shapes)


def _direct(expr: Expr) -> set[str]:
    from diptych.algo.tensor_expr.binding import _survey

    return set(_survey((expr,))[0])


@settings(max_examples=400, derandomize=True, deadline=None)
@given(operators())
def test_print_parse_gives_the_same_operator(op: Op) -> None:
    back = parse(op.text)
    assert back.equations == op.equations, op.text
    assert (back.params, back.returns) == (op.params, op.returns)
    assert dict(back.shapes) == dict(op.shapes)
    assert back == op


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("C[ i ,j]=sum( A[i,k]*B[k,j] )", "C[i,j] = sum(A[i,k] * B[k,j])"),
        ("y[i] = sum(x[2*i + 3*k] * w[k])", "y[i] = sum(x[2*i+3*k] * w[k])"),
        ("y[i] = (x[i] + 1) * (2 - (3 - x[i]))", "y[i] = (x[i] + 1) * (2 - (3 - x[i]))"),
        ("y[i] = ((x[i]) + (1)) + 2", "y[i] = x[i] + 1 + 2"),
        ("y[i] = -(x[i]**2) + (-x[i])**2", "y[i] = -x[i]**2 + (-x[i])**2"),
        ("y[i] = 2**3**x[i] + (2**3)**x[i]", "y[i] = 2**3**x[i] + (2**3)**x[i]"),
        ("y[i] = -(1) - -1", "y[i] = -(1) - -1"),
        ("y[i] = (-1)**x[i] + x[i]**-1", "y[i] = (-1)**x[i] + x[i]**-1"),
        ("y[i] = (x[i] < 1) & ~(x[i] == 3) | b[i]", "y[i] = (x[i] < 1) & ~(x[i] == 3) | b[i]"),
        ("y[i] = x[i] where (0 <= i) & (i < N)", "y[i] = x[i] where 0 <= i < N"),
        ("y[i] = x[i] where i > 1, i > 1", "y[i] = x[i] where i > 1, i > 1"),
        ("y[i] = 0 < x[i] <= 1", "y[i] = 0 < x[i] <= 1"),
        ("y[i] = 0 < x[i]", "y[i] = x[i] > 0"),
        ("y[i] = minimum(x[i], maximum(1, 2))", "y[i] = min(x[i], max(1, 2))"),
        ("y[i] = max(x[i], 1, z[i])", "y[i] = max(max(x[i], 1), z[i])"),
        ("y[i] = f32(0.5) * i8(3) + f64(x[i]) + i8(0.5)", None),
        ("y[i] = inf - -inf + nan * 1e-30", None),
        ("m[i] max= x[i,j]", "m[i] max= x[i,j]"),
        ("loss = sum(x[i])", "loss[] = sum(x[i])"),
        ("y[i] = sum(A[i,k], over=k)", "y[i] = sum(A[i,k])"),
        ("y[i] = sum(A[i,k] * max(A[k,l], over=(l,)))", "y[i] = sum(A[i,k] * max(A[k,l]))"),
        ("y[i] = sum(max(A[k,l], over=k))", None),
        ("y[i] = sum(A[i,k]) / sum(A[i,k])", "y[i] = sum(A[i,k]) / sum(A[i,k])"),
        ("y[i] = sum(A[k,l], over=(l, k))", "y[i] = sum(A[k,l], over=(l, k))"),
        ("y[i] = sum(A[i,k], where=k<=i) where k in 0:4", None),
        ("y[i] = sum(A[i,k]) where k in 0:4, k <= i", None),
        ("y[i] = sum(A[i,k], over=(k in 0:i+1,))", "y[i] = sum(A[i,k]) where k in 0:i+1"),
        ("y[i] = sum(A[i,k], dtype=f64)", "y[i] = sum(A[i,k], dtype=f64)"),
        ("size N; y[i] = x[N]", "size N\ny[i] = x[N]"),
        ("f(x: f32[N]) -> y: y[i] = x[N-1-i]", "f(x: f32[N]) -> y:\n    y[i] = x[N-1-i]"),
    ],
)
def test_what_printing_looks_like(written: str, printed: str | None) -> None:
    op = parse(written)
    if printed is not None:
        assert op.text == printed
    assert parse(op.text).equations == op.equations


def test_over_is_printed_only_where_the_rule_would_bind_something_else() -> None:
    inner = Reduce("max", ("k",), Access("A", (Index("k"), Index("l"))))
    outer = Reduce("sum", ("l",), inner)
    eq = Equation("y", (Index("i"),), outer)
    assert print_equation(eq) == "y[i] = sum(max(A[k,l], over=k))"


def test_an_accumulating_equation_runs_over_what_over_leaves_out() -> None:
    text = (
        "f(x: [K, L], A: [N, M]) -> T:\n"
        "    T[i] += x[i,k] * prod(A[n,m], over=(n,), where=k <= i) where m in 0:3, m != k\n"
    )
    op = parse(text)
    assert parse(op.text) == op
    assert [r.index for r in op.equations[0].ranges] == ["m"]


def test_two_ranges_of_one_name_stay_in_their_reductions() -> None:
    parts = tuple(
        Reduce("sum", ("k",), Access("x", (Index("k"),)), (Range("k", Const(0), Const(n)),))
        for n in (3, 4)
    )
    eq = Equation("y", (), Call("add", parts))
    assert print_equation(eq) == ("y[] = sum(x[k], over=(k in 0:3)) + sum(x[k], over=(k in 0:4))")


def test_a_range_stands_at_the_end_while_one_behind_it_stays() -> None:
    parts = [f"sum(x[j,k], over=(j, k in 2:{n}), where=3 * j + k == t)" for n in (3, 4)]
    parts.append("sum(u[l] * x[t,j], over=(j, l), where=t < 0)")
    text = f"y[t] = {' + '.join(parts)} where j in 0:N//3"
    assert parse(text).text == text


def test_literals_move_to_the_right_of_comparisons() -> None:
    assert print_expr(Call("lt", (Const(0), Index("i")))) == "i > 0"


def test_the_header_is_printed_where_it_says_something() -> None:
    plain = parse("y[i] = a[i] - b[i]")
    assert plain.text == "y[i] = a[i] - b[i]"
    turned = Op("f", plain.params[::-1], plain.equations, plain.returns)
    assert print_op(turned) == "f(b, a) -> y:\n    y[i] = a[i] - b[i]"
    typed = parse("f(a: f32[N], b: [3], c: i8) -> y: y[i] = a[i] - b[i]")
    assert typed.text == "f(a: f32[N], b: [3], c: i8) -> y:\n    y[i] = a[i] - b[i]"


def test_any_name_prints_and_parses() -> None:
    plain = parse("y[i] = a[i] - b[i]")
    for name in ("where", "dense[0]+relu[0]", "3d", ""):
        op = Op(name, plain.params[::-1], plain.equations, plain.returns)
        assert parse(op.text) == op


def test_shapes_print_in_one_order() -> None:
    text = "size V\nB: [V]\nA: [V]\nA[b[i]] += 1\nB[b[i]] += 2"
    op = parse(text)
    assert op.text == "A: [V]\nB: [V]\nA[b[i]] += 1\nB[b[i]] += 2"
    assert op == parse(op.text)


def test_deep_expressions_print() -> None:
    text = "y[i] = " + " + ".join(["x[i]"] * 5000)
    assert parse(text).text == text
