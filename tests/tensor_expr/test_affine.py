"""The canonical form of index arithmetic, checked by values, and the way to isl and back."""

from __future__ import annotations

import itertools

import pytest
from diptych.algo import isl
from diptych.algo.errors import OpError
from diptych.algo.tensor_expr import affine
from diptych.algo.tensor_expr.build import add, both, compare, const, floordiv, mod, mul, sub
from diptych.algo.tensor_expr.expr import Access, Call, Const, Expr, Index, Size
from hypothesis import given, settings
from hypothesis import strategies as st

i, j, x, y = (Index(n) for n in "ijxy")
N, W = Size("N"), Size("W")
c = const


def value(expr: Expr, env: dict[str, int]) -> int:
    """The meaning, in Python integers."""
    match expr:
        case Const(v, _):
            return v
        case Index(name) | Size(name):
            return env[name]
        case Call(op, args):
            a, *rest = (value(arg, env) for arg in args)
            b = rest[0] if rest else 0
            return {
                "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
                "neg": lambda: -a, "min": lambda: min(a, b), "max": lambda: max(a, b),
                "floordiv": lambda: a // b if b else 0, "mod": lambda: a % b if b else 0,
                "lt": lambda: a < b, "le": lambda: a <= b, "gt": lambda: a > b,
                "ge": lambda: a >= b, "eq": lambda: a == b, "ne": lambda: a != b,
                "and": lambda: a and b, "or": lambda: a or b, "not": lambda: not a,
            }[op]()  # fmt: skip
    raise AssertionError(expr)


def grow(inner):
    sums = st.tuples(st.sampled_from(["add", "sub", "min", "max"]), inner, inner)
    scaled = st.tuples(
        st.sampled_from(["mul", "floordiv", "mod"]), inner, st.integers(-17, 17).map(Const)
    )
    return (sums | scaled).map(lambda t: Call(t[0], t[1:]))


exprs = st.recursive(
    st.sampled_from([i, j, N]) | st.integers(-40, 40).map(Const), grow, max_leaves=10
)
points = [
    dict(zip("ijN", p, strict=True)) for p in itertools.product((-9, 0, 5), (-3, 2, 40), (1, 8))
]
inside = [
    dict(zip("ijN", p, strict=True)) for p in itertools.product(range(0, 8), (0, 3, 15), (4,))
]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(exprs)
def test_the_canonical_form_has_the_same_values(expr):
    normal = affine.normalize(expr)
    for env in points:
        assert value(normal, env) == value(expr, env)
    assert affine.normalize(normal) is normal


@settings(max_examples=300, derandomize=True, deadline=None)
@given(exprs)
def test_ranges_keep_the_values_inside_them(expr):
    ranges = {"i": (0, 7), "j": (0, 15)}
    normal = affine.normalize(expr, ranges)
    low, high = affine.bounds(expr, ranges)
    for env in inside:
        got = value(expr, env)
        assert value(normal, env) == got
        assert low is None or low <= got
        assert high is None or got <= high


@settings(max_examples=150, derandomize=True, deadline=None)
@given(exprs, exprs, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
def test_conditions_keep_their_values_inside_ranges(a, b, op):
    cond = affine.normalize(Call(op, (a, b)), {"i": (0, 7), "j": (0, 15)})
    for env in inside:
        assert value(cond, env) == value(Call(op, (a, b)), env)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(exprs)
def test_isl_reads_the_same_values(expr):
    text = affine.to_isl(expr)
    for env in points[::5]:
        fixed = [f"{n} = {v}" for n, v in env.items()]
        items = isl.make_set(["i", "j", "v"], [*fixed, f"v = {text}"], ["N"])
        assert isl.first_point(items)["v"] == value(expr, env)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (sub(add(mul(c(8), x), y), mul(c(8), x)), y),
        (floordiv(add(mul(c(8), x), c(3)), c(8)), x),
        (add(mul(c(8), floordiv(i, c(8))), mod(i, c(8))), i),
        (add(mod(i, c(8)), mul(floordiv(i, c(8)), c(8))), i),
        (mod(add(mul(c(16), x), mod(y, c(8))), c(8)), mod(y, c(8))),
        (floordiv(floordiv(x, c(4)), c(2)), floordiv(x, c(8))),
        (mod(floordiv(x, c(4)), c(2)), mod(floordiv(x, c(4)), c(2))),
        (add(j, i), add(i, j)),
        (sub(add(N, c(3)), add(i, c(3))), sub(N, i)),
        (sub(c(3), i), sub(c(3), i)),
        (floordiv(mul(c(4), x), c(8)), floordiv(x, c(2))),
        (floordiv(x, c(0)), c(0)),
        (mod(x, c(-3)), affine.normalize(mod(x, c(-3)))),
        (Call("min", (N, sub(N, c(1)))), sub(N, c(1))),
        (Call("max", (Call("max", (i, j)), add(j, c(1)))), Call("max", (i, add(j, c(1))))),
        (Access("A", (sub(add(i, c(1)), c(1)),)), Access("A", (i,))),
        (Access("W", (add(Access("idx", (add(i, c(0)),)), c(0)),)),
         Access("W", (Access("idx", (i,)),))),
    ],
)  # fmt: skip
def test_canonical_forms(expr, expected):
    assert affine.normalize(expr) is expected


def test_known_ranges_fold_what_splits_leave():
    ranges = {"x": (0, 12), "y": (0, 7), "j": (0, 1)}
    i_ = add(mul(c(16), x), add(mul(c(8), j), y))
    assert affine.normalize(floordiv(i_, c(16)), ranges) is x
    assert affine.normalize(mod(i_, c(8)), ranges) is y
    assert affine.normalize(mod(floordiv(i_, c(8)), c(2)), ranges) is j
    assert affine.normalize(mod(i_, c(16)), ranges) is add(mul(c(8), j), y)
    assert affine.normalize(compare("lt", i_, c(1000)), ranges).value is True
    assert affine.normalize(compare("ge", y, c(8)), ranges).value is False
    both_ = both(compare("lt", y, c(8)), compare("lt", x, N))
    assert affine.normalize(both_, ranges) is compare("lt", x, N)


def test_values_are_left_alone():
    a = Access("a", (i,))
    for expr in (
        Call("mul", (a, c(1))), Call("add", (a, c(0))), Call("mul", (a, c(0.0))),
        Call("sub", (a, a)), Call("add", (Call("add", (a, c(1))), c(1))),
    ):  # fmt: skip
        assert affine.normalize(expr) is expr


def test_linear():
    form = affine.linear(add(mul(c(2), i), sub(mod(j, c(8)), N)))
    assert dict(form.terms) == {i: 2, mod(j, c(8)): 1, N: -1}
    assert form.of(i) == 2 and form.of(j) == 0 and form.inside("j") and not form.inside("i")
    assert affine.linear(mul(i, j)) is None
    assert affine.linear(floordiv(i, W)) is None
    assert affine.linear(Access("idx", (i,))) is None
    assert affine.linear(mul(i, sub(add(W, c(2)), W))).of(i) == 2


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (add(mul(Size("r"), W), i), "r * W is not affine while its sizes are symbols"),
        (floordiv(i, W), "i // W is not affine while its sizes are symbols"),
        (mul(i, j), "i * j is not affine"),
        (add(Access("idx", (i,)), c(1)), "idx[i] depends on data, so it is not affine"),
    ],
)
def test_refusals(expr, message):
    with pytest.raises(OpError) as err:
        affine.to_isl(expr)
    assert str(err.value) == message


def test_isl_expressions_come_back():
    items = isl.parse_set("[N] -> { [i] : 0 <= i and 2i + 1 < N }")
    build = isl.raw.AstBuild.from_context(isl.parse_set("[N] -> { : N >= 1 }"))
    top = affine.from_isl(build.expr_from_pw_aff(items.dim_max(0)), Size)
    for n in range(2, 20):
        assert value(top, {"N": n}) == (n - 2) // 2
