"""Loop IR of operators with dynamic sizes."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.lower.ir_parse import parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.kernel import lower, translate
from diptych.lower.passes import PASSES
from diptych.lower.passes import run as run_passes
from diptych.lower.run import run
from diptych.lower.verify import verify
from diptych.sched.loop.machine import Machine

COLUMNS = dt.op("f(x: f32[K, B]) -> y:\n    dynamic B <= 256\n    y[b] = sum(x[k,b])")


def test_a_size_is_a_parameter_with_known_bounds() -> None:
    function = translate(COLUMNS.schedule().nest({}, {"K": 8}), "f")
    assert print_function(function) == (
        "function f(x: param f32[8, 256] strides [B, 1] extents [8, B] align 4, "
        "y: param f32[256] extents [B] align 4, B.size: param i64[] align 8):\n"
        "    let B = min(max(B.size[], 1), 256):\n"
        "        for y.b in 0 .. B:\n"
        "            y[y.b] = 0.0:f32\n"
        "            for y.k in 0 .. 8:\n"
        "                y[y.b] sum= x[y.k, y.b]\n"
    )
    assert parse_function(print_function(function)) is function


def test_lengths_that_are_formulas_get_names() -> None:
    op = dt.op("f(x: f32[A, B, C]) -> y:\n dynamic B <= 6, C <= 5\n y[a,c,b] = x[a,b,c] + x[a,b,c]")
    text = print_function(lower(op.schedule().nest({}, {"A": 3}), "f"))
    assert "x: param f32[3, 6, 5] strides [length.2, C, 1] extents [3, B, C]" in text
    assert "y: param f32[3, 5, 6] strides [length.3, B, 1] extents [3, C, B]" in text
    assert "let length.2 = C * B:" in text


def test_temporaries_lie_where_the_largest_would() -> None:
    op = dt.op("f(x: f32[N]) -> y:\n dynamic N <= 90\n t[i] = x[i] * 2\n y[i] = t[i] + sum(t[j])")
    text = print_function(translate(op.schedule().nest({}, {}), "f"))
    assert "alloc t: heap f32[90] align 64" in text


def test_every_pass_keeps_the_meaning() -> None:
    schedule = COLUMNS.schedule().split("b", 8).reorder("bo", "k", "bi").vectorize("bi")
    first = translate(schedule.nest({}, {"K": 8}), "f")
    verify(first)
    checked: list[str] = []

    def observe(name: str, function) -> None:
        verify(function, final=name == "registers")
        for n in (1, 8, 21):
            x, y = np.random.default_rng(n).standard_normal((8, n)), np.zeros(n, np.float32)
            run(function, x.astype(np.float32), y, np.array(n))
            np.testing.assert_allclose(y, x.sum(0), rtol=1e-4, atol=1e-5)
        checked.append(name)

    run_passes(first, Machine(), check=True, observe=observe)
    assert len(checked) == len(PASSES)


def test_only_parameters_vary() -> None:
    with pytest.raises(dt.InternalError, match="t is no parameter and has extents that vary"):
        verify(parse_function(
            "function f(n: param i64[]):\n    let N = n[]:\n"
            "        alloc t: heap f32[9, 9] strides [N, 1]:\n            t[0, 0] = 0.0:f32\n"
        ))  # fmt: skip
    with pytest.raises(dt.InternalError, match="buffer t has 1 extents"):
        verify(parse_function("function f(t: param f32[9, 9] extents [9]):\n    pass\n"))


def test_lengths_stay_where_a_version_for_full_tiles_has_them_as_numbers() -> None:
    """Pair 780 of the random trials: `J - 2 >= 18` makes the row length of y 18, by its name."""
    op = dt.op("dynamic J <= 20\n t[i,j] = x[i,j] + x[i,j+2]\n y[i,j] = t[i,j] - t[i+1,j]")
    schedule = op.schedule().vectorize("y.j")
    function = lower(schedule.nest({"x": dt.i32}, {"I": 8}), "f")
    verify(function, final=True)
    for columns in (20, 13, 3):
        x = np.arange(8 * columns, dtype=np.int32).reshape(8, columns) ** 2
        np.testing.assert_array_equal(schedule(x), dt.interpret(op, x))


def test_a_largest_size_of_1_is_known() -> None:
    op = dt.op("dynamic J <= 1\n y[i,j] = x[i,j] * 2")
    x = np.arange(4, dtype=np.int32).reshape(4, 1)
    np.testing.assert_array_equal(op(x), 2 * x)


def test_lengths_of_parameters_are_bound() -> None:
    with pytest.raises(dt.InternalError, match="buffer t needs N, which is not bound"):
        verify(parse_function(
            "function f(n: param i64[], t: param f32[9] extents [N]):\n    t[0] = 0.0:f32\n"
        ))  # fmt: skip
