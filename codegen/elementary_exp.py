"""exp, exp2, expm1 and sigmoid: e**r - 1 of the reduced r, and powers of two.

The coefficients are minimax fits (Remez) made at 40 digits; beside each is the relative error
of e**r - 1 or 2**r - 1 that they leave.
"""

from __future__ import annotations

from .elementary_format import clamped, format_of, nearest, power_of_two, reduced, scaled
from .lanes import Lanes

EXP_SINGLE = (  # (e**r - 1 - r) / r**2, 2**-26
    0.4999999811546842, 0.1666654273046233, 0.0416672080311547, 0.008366644945944392,
    0.0013882286278106514,
)  # fmt: skip
EXP_DOUBLE = (  # 2**-55.6
    0.5000000000000006, 0.16666666666666588, 0.04166666666657539, 0.00833333333339043,
    0.0013888888932051527, 0.00019841269717565032, 2.4801504650581362e-05,
    2.7557408254382454e-06, 2.762629872650359e-07, 2.5053768925375765e-08,
)  # fmt: skip
EXP2_SINGLE = (  # (2**r - 1) / r, 2**-29
    0.6931472063967585, 0.24022651357701302, 0.0555032744481955, 0.009618002671490591,
    0.0013400410458637296, 0.00015476606578079526,
)  # fmt: skip
EXP2_DOUBLE = (  # 2**-58
    0.6931471805599453, 0.24022650695910133, 0.05550410866482174, 0.00961812910759305,
    0.001333355814637869, 0.00015403530458467545, 1.52527338678685e-05, 1.32154346091977e-06,
    1.0178046327347098e-07, 7.073898037816376e-09, 4.4574071203364707e-10,
)  # fmt: skip


def _coefficients(x: Lanes) -> tuple[float, ...]:
    return EXP_DOUBLE if x.double else EXP_SINGLE


def less_one(r: Lanes) -> Lanes:
    """e**r - 1 for the reduced r."""
    return (r * r).fma(r.polynomial(_coefficients(r)), r)


def exp(x: Lanes) -> Lanes:
    """e**x"""
    c = format_of(x)
    n, r = reduced(clamped(x, c.exp_low, c.exp_high))
    return scaled(r.polynomial((1.0, 1.0, *_coefficients(x))), n)


def exp2(x: Lanes) -> Lanes:
    """2**x"""
    c = format_of(x)
    x = clamped(x, -float(c.bias + c.mantissa + 1), float(c.bias + 1))
    n = nearest(x)
    return scaled((x - n).polynomial((1.0, *(EXP2_DOUBLE if x.double else EXP2_SINGLE))), n)


def expm1(x: Lanes) -> Lanes:
    """e**x - 1, exact where e**x is near 1: 2**n (p + (1 - 2**-n))."""
    c = format_of(x)
    n, r = reduced(clamped(x, -c.one_alone, c.exp_high))
    rest = 1.0 - power_of_two(-clamped(n, None, c.one_alone))
    return x.eq(0.0).choose(x, scaled(less_one(r) + rest, n))


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e**-x): of e = e**-|x|, which never overflows, 1 or e over 1 + e."""
    n, r = reduced(clamped(-x.abs(), format_of(x).exp_low, None))
    p = less_one(r)
    s = p + 1.0
    e = scaled(s, n)
    b = e + 1.0
    right = x.ge(0.0)
    q = right.choose(1.0, e) / b
    lost = right.choose(0.0, p - (s - 1.0)) - (e - (b - 1.0))  # in s and in b, nearly as fractions
    return q.fma(lost, q)
