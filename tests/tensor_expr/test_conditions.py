"""`&` between numbers is almost always a forgotten pair of parentheses."""

from __future__ import annotations

import diptych as dt
import pytest


def test_text_points_at_it() -> None:
    with pytest.raises(dt.ParseError) as wrong:
        dt.op("y[i] = where(x[i] >= 1 & x[i] < 2, x[i], 0)")
    assert str(wrong.value).splitlines()[0].split(": ", 1)[1] == (
        "& joins conditions, and 1 is a number; & binds tighter than comparisons, so write "
        "(a < b) & (c < d)"
    )


def test_traced_code_says_so() -> None:
    i = dt.indices("i")

    def f(x):  # type: ignore[no-untyped-def]
        y = dt.tensor("y")
        y[i] = dt.where(x[i] >= (i | x[i]), x[i], 0)
        return y

    with pytest.raises(dt.OpError, match=r"\| joins conditions, and i is a number"):
        dt.op(f)


def test_a_range_names_the_size_it_ends_at() -> None:
    op = dt.op("c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:N")
    assert dt.op(op.text) == op
