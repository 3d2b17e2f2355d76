"""The error function, as 1 - e**(-x q(x)) with q(x) = -log(erfc x) / x, which is smooth.

q is a minimax fit (Remez) made at 40 digits with the weight that its error has in the result:
the relative errors left are 2**-28 in f32 and 2**-57 in f64. Its constant term is in two parts.
Where a register is a table, f32 has a polynomial of degree 5 for each of 16 intervals instead.
"""

from __future__ import annotations

from . import elementary_avx512 as avx512
from .elementary_exp import less_one
from .elementary_format import clamped, format_of, power_of_two, reduced
from .lanes import Lanes

_SINGLE = (
    1.128379225730896, -5.412261727e-08, 0.6366193821687275, 0.10277782846011607,
    -0.01915305649404488,
    -0.00016040793103924488, 0.001667036320011874, -0.000632839472793359,
    0.00011764122924906047, -9.256161283184115e-06,
)  # fmt: skip
_DOUBLE = (
    1.1283791670955126, 1.533545961316588e-17, 0.6366197723675836, 0.1027726033017888,
    -0.019128447005071065,
    -0.0002091946948370706, 0.0016962063857297923, -0.0005901255529429467,
    2.587860486873209e-05, 6.449185835656465e-05, -2.9724039628693128e-05,
    3.407253460177791e-06, 2.8351568572546516e-06, -1.7415653557967228e-06,
    3.363799239619806e-07, 1.3717165380704742e-07, -1.4175621488445727e-07,
    6.573098498093454e-08, -2.096178886777349e-08, 4.997471678147518e-09,
    -9.081744493029287e-10, 1.2483344683880264e-10, -1.2610143001178045e-11,
    8.844907562120769e-13, -3.850207670568387e-14, 7.833481069136756e-16,
)  # fmt: skip
_WIDTH = 67 / 256  # of an interval; the last one ends above 4, where every result is 1
_TABLE = (
    (
        0.0, 0.261753827, 0.52326709, 0.785164535, 1.04665411, 1.30866909, 1.57063651, 1.83199358,
        2.09367537, 2.35498118, 2.61675, 2.87829041, 3.14049053, 3.40299153, 3.66334724,
        3.92649627,
    ),
    (
        0.0, 0.288748503, 0.540706933, 0.733169138, 0.8611781, 0.935792685, 0.973663628,
        0.990425527, 0.996932626, 0.999132931, 0.999784946, 0.999953091, 0.999991059, 0.99999851,
        0.999999762, 1.0,
    ),
    (
        1.12837923, 1.05365729, 0.858107388, 0.609143674, 0.377304554, 0.203552246, 0.095740214,
        0.0393437408, 0.0140843019, 0.00440438697, 0.00119860354, 0.000284785929, 5.87690265e-05,
        1.05481431e-05, 1.67561416e-06, 3.00000011e-07,
    ),
    (
        -6.05830974e-06, -0.27579388, -0.449013174, -0.478275359, -0.394908428, -0.266385287,
        -0.150375187, -0.0720781982, -0.0294877924, -0.0103718583, -0.00313615683,
        -0.000819551526, -0.000184508172, -3.587842e-05, 1.98477619e-06, 0.0,
    ),
    (
        -0.375952333, -0.303110689, -0.12943314, 0.0473003462, 0.149783403, 0.164554045,
        0.125543028, 0.0749176741, 0.0364647284, 0.0148162926, 0.00507187285, 0.00147785677,
        0.000366747699, 7.78805043e-05, 1.37517109e-05, 0.0,
    ),
    (
        -0.00176781183, 0.130629495, 0.182367593, 0.140335232, 0.0534611978, -0.0183536131,
        -0.0480676666, -0.0444620326, -0.0283745416, -0.0140625713, -0.0056450502, -0.00188078533,
        -0.000524687639, -0.000123686899, -0.000498254958, 0.0,
    ),
    (
        0.118285246, 0.0778115764, 0.002132111, -0.0579047613, -0.0668380931, -0.0394767784,
        -0.00742751872, 0.0100205922, 0.0127234962, 0.00872434303, 0.00434653414, 0.00170394673,
        0.000544295064, 0.000144317426, 0.000112581132, 0.0,
    ),
)  # fmt: skip
"""Of each interval a point near its middle whose erf is nearly an f32, that, and a fit about it.

The fits (Lawson's) leave less than half a unit. Near 0 the first coefficient is 2/sqrt(pi).
"""


def erf(x: Lanes) -> Lanes:
    """The error function."""
    if x.unit.target.avx512 and not x.double:
        return _by_intervals(x)
    size = clamped(x.abs(), None, 5.95 if x.double else 4.0)  # above it is 1
    head, *rest = _DOUBLE if x.double else _SINGLE
    t = size.product_and(head, size * size.polynomial(rest))
    n, r = reduced(-t)
    scale = power_of_two(n)
    return (-scale).fma(less_one(r), 1.0 - scale).with_sign_of(x)


def _by_intervals(x: Lanes) -> Lanes:
    size = clamped(x.abs(), None, 15.4375 * _WIDTH)
    interval = size.fma(1 / _WIDTH, format_of(x).shift).bits()
    middle, there, *fit = (avx512.table(interval, numbers) for numbers in _TABLE)
    r = size - middle
    square = r * r
    curve = r.fma(fit[4], fit[3]).fma(square, r.fma(fit[2], fit[1]))
    return r.fma(fit[0], curve.fma(square, there)).with_sign_of(x)
