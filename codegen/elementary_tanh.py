"""tanh: a series near 0 and 1 - 2 / (e**2|x| + 1) beyond, or polynomials of intervals.

Where a register is a table f32 has a polynomial of degree 6 for each of 16 intervals: two to every
power of two, known by the exponent and the first bit of the significand, and one below 1/16.
"""

from __future__ import annotations

from . import elementary_avx512 as avx512
from .elementary_exp import EXP_DOUBLE, EXP_SINGLE
from .elementary_format import clamped, power_of_two, reduced
from .lanes import Lanes

_SINGLE = (  # (tanh(x) - x) / x**3 in x**2, 2**-29.8
    -0.33333317577225047, 0.1333258656317089, -0.053852338936637725, 0.02107174949304309,
    -0.006274286920255152,
)  # fmt: skip
_DOUBLE = (  # 2**-55.5
    -0.33333333333332316, 0.13333333333168707, -0.053968253876078516, 0.021869485974787287,
    -0.00886319450388374, 0.003591719695687498, -0.001453216746939153, 0.0005791369843672925,
    -0.00021030234494041113, 5.1021438749743674e-05,
)  # fmt: skip
_LOWEST, _LIMIT = 0.046875, 9.02
"""A number of the first interval, and the last one that matters: from there on results are 1."""
_TABLE = (
    (
        2.49971724, 3.50058651, 4.99977016, 6.99856949, 9.0, 0.0, 0.0781135038, 0.109366901,
        0.156211436, 0.218745515, 0.312523425, 0.437508523, 0.625106633, 0.875141978, 1.24971187,
        1.74976504,
    ),
    (
        0.986606777, 0.998180032, 0.999909163, 0.999998331, 1.0, 0.0, 0.077955015, 0.108932927,
        0.154953092, 0.215322062, 0.302731007, 0.411577135, 0.554673553, 0.703977227, 0.848202825,
        0.941348791,
    ),
    (
        0.0266071614, 0.00363669218, 0.000181920521, 3.3367628e-06, 5.9085707e-08, 1.0,
        0.993923008, 0.988133609, 0.975989521, 0.953636408, 0.908353925, 0.830604255, 0.692337275,
        0.504416049, 0.280551851, 0.113862403,
    ),
    (
        -0.0262505077, -0.00363005185, -0.000181841693, -3.3319393e-06, -2.67913629e-06,
        -1.22532229e-09, -0.0774813592, -0.107640333, -0.151232615, -0.20533897, -0.274986923,
        -0.341857731, -0.384021163, -0.355097413, -0.237965032, -0.107184224,
    ),
    (
        0.0170267466, 0.00240895804, 0.00011895338, 2.19643289e-06, -1.68135884e-05, -0.333333045,
        -0.325152189, -0.317520142, -0.301821202, -0.273658156, -0.219525427, -0.136160761,
        -0.0177822448, 0.0818441808, 0.108340442, 0.0629502609,
    ),
    (
        -0.00805585831, -0.00119591516, -5.95924939e-05, -1.10720885e-06, -3.92940492e-05,
        -2.14596839e-05, 0.0520224459, 0.0708824769, 0.0972870588, 0.12739943, 0.158147871,
        0.170001477, 0.137860835, 0.060751576, -0.012554639, -0.0235285573,
    ),
    (
        0.00288802641, 0.000489708269, 2.84402977e-05, 5.14556291e-07, -3.9009079e-05,
        0.134023532, -0.243714973, -0.312776089, 0.0473297015, 0.0795076042, 0.0430745706,
        -0.0073597189, -0.0541765615, -0.0587715432, -0.019714551, 0.00348026003,
    ),
    (
        -0.000696217758, -0.00015763905, -9.37907316e-06, -1.66484654e-07, -1.40056818e-05,
        -0.0100174304, -2.66281939, -0.93782562, -0.1614106, -0.0815471932, -0.0782395527,
        -0.0625403598, -0.0236389991, 0.0130484756, 0.0150701264, 0.00209711003,
    ),
)  # fmt: skip
"""Of each interval a point near its middle whose tanh is nearly an f32, that, and a fit about it.

They stand where the low four bits of exponent and first bit of the significand say. The fits
(Lawson's) leave less than three quarters of a unit.
"""


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent."""
    if x.unit.target.avx512 and not x.double:
        return _by_intervals(x)
    size = x.abs()
    z = size * size
    near = (size * z).fma(z.polynomial(_DOUBLE if x.double else _SINGLE), size)
    limit = 20.0 if x.double else 10.0  # above it is 1
    n, r = reduced(clamped(size, None, limit) * 2.0)
    p = r.polynomial((1.0, 1.0, *(EXP_DOUBLE if x.double else EXP_SINGLE)))
    far = 1.0 - 2.0 / (p * power_of_two(n) + 1.0)
    return size.lt(0.55).choose(near, far).with_sign_of(x)


def _by_intervals(x: Lanes) -> Lanes:
    size = clamped(x.abs(), None, _LIMIT)
    interval = clamped(size, _LOWEST, None).bits() >> 22
    middle, there, *fit = (avx512.table(interval, numbers) for numbers in _TABLE)
    r = size - middle
    square = r * r
    curve = square.fma(fit[5], r.fma(fit[4], fit[3])).fma(square, r.fma(fit[2], fit[1]))
    return r.fma(fit[0], curve.fma(square, there)).with_sign_of(x)
