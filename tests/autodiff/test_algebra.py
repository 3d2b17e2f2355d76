"""Simpler forms of derivatives: only where types and ranges stay what they are."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.expr import Const, Range, Size
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff import polynomial as ring
from diptych.autodiff.algebra import Algebra
from diptych.autodiff.nests import is_zero
from diptych.autodiff.polynomial import Polynomial
from diptych.autodiff.reverse import adjoint


@pytest.mark.parametrize(
    "text",
    [
        # The mean does not matter to the variance, nor the shift to the normalised exponentials.
        "f(x: [I, J]) -> v:\n m[i] = sum(x[i,j]) / J\n v[i] = sum((x[i,j] - m[i])**2) / J",
        "f(x: [I, J]) -> y:\n m[i] = min(x[i,j])\n s[i] = sum(exp(x[i,j] - m[i]))\n"
        " y[i,j] = exp(x[i,j] - m[i]) / s[i]",
    ],
)
def test_what_vanishes_is_left_out(text: str) -> None:
    back = adjoint(parse(text), "x")
    assert "dm[" not in back.text and "ties" not in back.text
    dt.check_grads(parse(text), (np.random.default_rng(0).standard_normal((3, 4)),), order=2)


ATTENTION = """
f(Q: [B, M, D], K: [B, N, D], V: [B, N, E]) -> O:
    s[b,i,j] = sum(Q[b,i,d] * K[b,j,d]) * rsqrt(D)
    m[b,i] = max({}) where i in 0:M, j in 0:N
    p[b,i,j] = exp({} - m[b,i]) where i in 0:M, j in 0:N
    O[b,i,e] = sum(p[b,i,j] * V[b,j,e]) / sum(p[b,i,j])
"""


@pytest.mark.parametrize("value", ["s[b,i,j]", "where(j <= i, s[b,i,j], -inf)"])
def test_the_maximum_of_an_attention_is_left_out(value: str) -> None:
    """There sums over keys and over what is read of them stand in each other."""
    op = parse(ATTENTION.format(value, value))
    draw = np.random.default_rng(0).standard_normal
    arrays = draw((2, 3, 4)), draw((2, 5, 4)), draw((2, 5, 3))
    for name in ("Q", "K"):
        back = adjoint(op, name)
        assert "dm[" not in back.text and "ties" not in back.text, back.text
    dt.check_grads(op, arrays, interpreted=True)


def test_the_maximum_of_an_attention_that_is_divided_by_less_stays() -> None:
    whole = ATTENTION.format("s[b,i,j]", "s[b,i,j]")
    op = parse(whole.replace("/ sum(p[b,i,j])", "/ (1 + sum(p[b,i,j]))"))
    assert "m_ties" in adjoint(op, "Q").text
    draw = np.random.default_rng(0).standard_normal
    dt.check_grads(op, (draw((2, 3, 4)), draw((2, 5, 4)), draw((2, 5, 3))), interpreted=True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("p[j] * v[j,e] * d[e]", "p[j] * v[j,e] * d[e]", True),
        ("p[j] * v[j,e] * d[e]", "p[j] * v[j,e] * c[e]", False),
        ("p[j] * v[j,e] * d[e]", "p[j] * v[j,e] * d[e]**2", False),
        ("v[j,e] * w[e,k] * q[k] * p[j]", "v[j,e] * w[e,k] * q[k] * p[j]", True),
        ("v[j,e] * w[j,k] * q[k] * p[e]", "v[e,j] * w[e,k] * q[k] * p[j]", True),
        ("v[j,e] * w[j,k] * q[k] * p[e]", "v[j,e] * w[k,j] * q[k] * p[e]", False),
    ],
)
def test_sums_in_sums_are_the_same_in_any_order(one: str, other: str, same: bool) -> None:
    """Two sums over the same indices, in opposite orders: their difference is 0 as it should be."""

    def total(text: str, order: str) -> Polynomial:
        ranges = tuple(Range(i, Const(0), Size("N")) for i in order)
        return Algebra(lambda tensor: None).total(
            [(ranges, parse(f"y[] += {text}").equations[0].rhs)]
        )

    left, right = total(one, "jek"), total(other, "kej")
    assert left != right  # it takes more than the polynomials to see it
    assert is_zero(ring.plus(left, ring.minus(right))) == same
    assert not is_zero(ring.plus(left, right))


@pytest.mark.parametrize(
    ("new", "at_kk"),
    [("x[i,j] * x[j,i]", "x[k,k]**2"), ("x[i,j] - x[j,i]", "0"), ("x[i,j] / x[j,i]", "1")],
)
def test_what_becomes_the_same_is_one(new: str, at_kk: str) -> None:
    def polynomial(text: str) -> Polynomial:
        return Algebra(lambda tensor: None).total(
            [((), parse(f"y[i,j,k] = {text}").equations[0].rhs)]
        )

    t = parse("y[i,j] = t[i,j]").equations[0].rhs
    assert ring.replaced(polynomial("t[k,k]"), t, polynomial(new)) == polynomial(at_kk)


def test_what_does_not_vanish_stays() -> None:
    text = "f(x: [I, J]) -> v:\n m[i] = max(x[i,j])\n v[i] = sum((x[i,j] - m[i])**2) / J"
    back = adjoint(parse(text), "x")
    assert "m_ties" in back.text
    dt.check_grads(parse(text), (np.random.default_rng(0).standard_normal((3, 4)),), order=2)


def test_an_earlier_tensor_is_read_only_where_it_is() -> None:
    """y is e/s, but has fewer elements than e."""
    text = """
f(x: [N], s: []) -> y, z:
    e[i] = exp(x[i])
    y[i] = e[i] / s[] where i in 0:N-1
    z[i] = sin(e[i]) * e[i]
"""
    x = np.random.default_rng(0).standard_normal(4)
    dt.check_grads(parse(text), (x, np.array(1.7)), order=2)


def test_no_form_divides_by_what_may_be_0() -> None:
    """z is x*g, and the derivative by g is not that of z by anything over g."""
    text = "f(x: [N, D], g: [D]) -> y:\n z[n,d] = x[n,d] * g[d]\n y[] = sum(sin(z[n,d]) * z[n,d])"
    op = parse(text)
    x, g = np.random.default_rng(0).standard_normal((3, 4)), np.array([0.0, 1.0, -2.0, 0.0])
    assert np.isfinite(dt.grad(dt.op(text), 1)(x, g)).all()
    dt.check_grads(op, (x, g), order=2, interpreted=True)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint16])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_integers_are_not_multiplied_by_themselves(
    kind: type[np.integer], dtype: type[np.floating]
) -> None:
    """n * n wraps in a narrow type; beside a float it does not, and no form computes it so."""
    text = "f(x: [I, J], n: [I, J]) -> y:\n y[i] = sum(x[i,j] * n[i,j] * n[i,j]) * sum(x[i,l])"
    op = dt.op(text)
    x, n = np.ones((2, 3), dtype), np.full((2, 3), 100, kind)
    (dx, _), wanted = dt.vjp(op, x, n)[1](np.ones(2, dtype)), 2 * 3 * 10_000.0
    assert dx.dtype == dtype
    if dtype is np.float32:
        np.testing.assert_allclose(dx, np.full((2, 3), wanted), rtol=1e-6)


def test_types_stay() -> None:
    """A fraction of sizes is no f64 beside an f32."""
    op = dt.op("f(x: [I, J]) -> y:\n m[i] = sum(x[i,j]) / J\n y[i,j] = x[i,j] * x[i,j] - m[i] / 3")
    x = np.ones((2, 3), np.float32)
    back = op.gradient("x")
    given = {"x": x, "dy": x}
    assert back(*(given[p.name] for p in back.params)).dtype == np.float32


@pytest.mark.parametrize("depth", [60, 1500])
def test_powers_of_products_in_a_row(depth: int) -> None:
    """What would be x to the power 2**depth stays a row of products."""
    i = dt.indices("i")

    @dt.op
    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        e = x[i]
        for _ in range(depth):
            e = e * e
        y[i] = e
        return y

    assert len(f.gradient("x").text) < 100 * depth
