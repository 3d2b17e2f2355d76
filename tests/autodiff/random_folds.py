"""Users' reducers for random operators: smooth ones, and ones that choose."""

from __future__ import annotations

SOFTMAX = (
    "reducer fold(m, s; x, w) = max(m, x), s * exp(m - max(m, x)) + w * exp(x - max(m, x)) "
    "from -inf, 0.0"
)
FOLDS: dict[str, tuple[list[str], list[str], int]] = {
    "softmax fold": ([SOFTMAX], ["distinct", "any"], 0),
    "lifted fold": (
        [
            SOFTMAX,
            "lift fold: block(x, w) -> m, s:",
            "lift fold:     m[] = max(x[k])",
            "lift fold:     s[] = sum(exp(x[k] - m[]) * w[k])",
        ],
        ["distinct", "any"],
        0,
    ),
    "matrix fold": (
        [
            "reducer fold(a, b, c, d; p, q, r, s) = a * p + b * r, a * q + b * s, c * p + d * r, "
            "c * q + d * s from 1.0, 0.0, 0.0, 1.0 ordered"
        ],
        ["any", "0.5", "any", "any"],
        0,
    ),
    "best fold": (
        [
            "reducer fold(a, x; b, y) = where(b > a, b, a), where(b > a, y, x) "
            "from -inf, 0.0 ordered"
        ],
        ["distinct", "any"],
        0,
    ),
    "welford fold": (
        [
            "reducer fold(n, m, v; c, x, u) = n + c, "
            "m + (x - m) * where(n + c > 0, c / where(n + c > 0, n + c, 1), 0.0), "
            "v + u + (x - m) * (x - m) * n * "
            "where(n + c > 0, c / where(n + c > 0, n + c, 1), 0.0) from 0.0, 0.0, 0.0"
        ],
        ["1.0", "any", "0.0"],
        1,
    ),
    "product fold": (["reducer fold(a; b) = a * b from 1.0"], ["any"], 0),
}
"""Of a kind of reducer: its definition; what is given to each component, "any" expression, one that
is "distinct" from instance to instance, or this; and how many components are no results."""
