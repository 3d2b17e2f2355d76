"""Programs of bf16: what flows between operators is bf16, whatever NumPy calls its bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import bf16, bf16_form
from diptych.algo.graph.build import apply, literal, literal_array
from diptych.algo.graph.graph import Graph
from diptych.algo.graph.interpret import interpret
from diptych.algo.graph.passes import simplify

ml_dtypes = pytest.importorskip("ml_dtypes")
BFLOAT16 = ml_dtypes.bfloat16

DOUBLE = dt.op("y[i] = x[i] * 2")
TIMES = dt.op("y[i] = x[i] * w[i]")
SQUARES = dt.op("s = sum(y[i] * y[i])")
DECLARED = dt.op("f(x: bf16[N]) -> y:\n  y[i] = x[i] + 1")
CAST = dt.op("f(n: i64[N]) -> y:\n  y[i] = bf16(n[i])")
RUNS: dict[str, Callable[..., Any]] = {
    "compiled": lambda program, *arrays: program(*arrays),
    "interpreted": dt.interpret,
}


def numbers(seed: int, n: int = 7) -> Any:
    """Whole numbers so small that everything below is exact."""
    return np.random.default_rng(seed).integers(-4, 5, n).astype(np.float32).astype(BFLOAT16)


def same(found: Any, want: Any) -> None:
    """bfloat16, with these values."""
    assert found.dtype == BFLOAT16
    np.testing.assert_array_equal(found.astype(np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize("run", RUNS)
def test_values_between_operators(run: str) -> None:
    """Operators that declare no types see bf16, from inputs, other operators and constants."""
    constant = numbers(9)

    def function(x: Any, w: Any, n: Any) -> Any:
        made = CAST(n)
        return DOUBLE(DOUBLE(x)), TIMES(DECLARED(x), w), DOUBLE(made), TIMES(x, constant)

    x, w, n = numbers(1), numbers(2), np.arange(7)
    wide, other = x.astype(np.float32), w.astype(np.float32)
    wants = [4 * wide, (wide + 1) * other, 2 * n, wide * constant.astype(np.float32)]
    for found, want in zip(RUNS[run](dt.program(function), x, w, n), wants, strict=True):
        same(found, want)


@pytest.mark.parametrize("run", RUNS)
def test_inputs_among_the_outputs(run: str) -> None:
    x, w = numbers(1), numbers(2)
    found = RUNS[run](dt.program(lambda x, w: (w, TIMES(x, w), x)), x, w)
    for one, want in zip(found, (w, x * w, x), strict=True):
        same(one, want)


@pytest.mark.parametrize("run", RUNS)
def test_outputs_are_inputs_of_the_next_call(run: str) -> None:
    """As those of a training step are."""
    step = dt.program(lambda x, w: TIMES(DOUBLE(x), w))
    x, w = numbers(1), np.sign(numbers(2))
    found = x
    for _ in range(3):
        found = RUNS[run](step, found, w)
    same(found, 8 * x.astype(np.float32) * w.astype(np.float32) ** 3)


@pytest.mark.parametrize("run", RUNS)
def test_gradients(run: str) -> None:
    loss = dt.program(lambda x, w: SQUARES(TIMES(x, w)))
    gradient = dt.program(dt.grad(loss, argnums=(0, 1)))
    x, w = numbers(1), numbers(2)
    wide, other = x.astype(np.float32), w.astype(np.float32)
    assert float(RUNS[run](loss, x, w)) == ((wide * other) ** 2).sum()
    dx, dw = RUNS[run](gradient, x, w)
    same(dx, 2 * wide * other**2)
    same(dw, 2 * other * wide**2)


def test_bits_stay_bits_where_no_input_is_bfloat16() -> None:
    """As of single operators: results take the form of the inputs."""
    program, n = dt.program(lambda n: DOUBLE(CAST(n))), np.arange(5)
    bits = (2 * n).astype(np.float32).astype(BFLOAT16).view(np.uint16)
    for found in (program(n), dt.interpret(program, n)):
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, bits)
    assert bf16_form([n, bits]) == np.uint16


def test_folding_of_constants() -> None:
    """Of a constant's bits, which are no integers, though the operator declares no type."""
    x = numbers(3)
    constant = literal(x)
    assert constant.type.dtype is bf16
    (result,) = apply(DOUBLE, [constant])
    graph = Graph("g", (), (result.apply,), (result,), {result.apply: "n0"}, None, {})
    folded = simplify(graph)
    assert not folded.nodes
    want = (2 * x.astype(np.float32)).astype(BFLOAT16).view(np.uint16)
    np.testing.assert_array_equal(literal_array(folded.outputs[0]), want)
    np.testing.assert_array_equal(interpret(graph, [])[0], want)
