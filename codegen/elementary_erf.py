"""The error function, as 1 - e**(-x q(x)) with q(x) = -log(erfc x) / x, which is smooth.

q is a minimax fit (Remez) made at 40 digits with the weight that its error has in the result:
the relative errors left are 2**-28 in f32 and 2**-57 in f64. Its constant term is in two parts.
"""

from __future__ import annotations

from .elementary_exp import less_one
from .elementary_format import clamped, power_of_two, reduced
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


def erf(x: Lanes) -> Lanes:
    """The error function."""
    size = clamped(x.abs(), None, 5.95 if x.double else 4.0)  # above it is 1
    head, *rest = _DOUBLE if x.double else _SINGLE
    t = size.product_and(head, size * size.polynomial(rest))
    n, r = reduced(-t)
    scale = power_of_two(n)
    return (-scale).fma(less_one(r), 1.0 - scale).with_sign_of(x)
