"""Gradients in programs: against central differences, types, second order, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import f32, f64, i64
from diptych.algo.errors import GradientError, ShapeError
from diptych.algo.graph import build
from diptych.algo.graph.graph import ArrayType, Input, Value
from diptych.algo.graph.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.graph import gradients

CONV = parse(
    "conv(x: [B, H, W], w: [F, R, S], b: [F]) -> y:\n"
    "  y[n,f,h,v] = sum(x[n,h+r,v+s] * w[f,r,s]) + b[f]"
)
RELU = parse("relu(x: [B, F, H, W]) -> y:\n  y[n,f,h,v] = max(x[n,f,h,v], 0)")
POOL = parse(
    "pool(x: [B, F, H, W]) -> y:\n  y[n,f,h,v] = max(x[n,f,2*h+p,2*v+q]) where p in 0:2, q in 0:2"
)
DENSE = parse(
    "dense(x: [B, F, H, W], w: [F, H, W, O], b: [O]) -> y:\n"
    "  y[n,o] = sum(x[n,f,h,v] * w[f,h,v,o]) + b[o]"
)
ENTROPY = parse(
    "cross_entropy(z: [B, O], label: i64[B]) -> loss:\n"
    "  m[n]   = max(z[n,o])\n"
    "  l[n]   = log(sum(exp(z[n,o] - m[n]))) + m[n]\n"
    "  loss[] = sum(l[n] - z[n,label[n]]) / B"
)
SQUARE = parse("square(x) -> y:\n  y[i] = x[i] * x[i]")
TOTAL = parse("total(x) -> s:\n  s[] = sum(x[i])")
PAIR = parse("pair(x) -> a, b:\n  a[i] = sin(x[i])\n  b[i] = x[i] * x[i]")

Function = Callable[..., Value]


def network(x: Value, w1: Value, b1: Value, w2: Value, b2: Value, label: Value) -> Value:
    (h,) = build.apply(CONV, (x, w1, b1))
    (h,) = build.apply(RELU, (h,))
    (h,) = build.apply(POOL, (h,))
    (z,) = build.apply(DENSE, (h, w2, b2))
    return build.apply(ENTROPY, (z, label))[0]


def inputs_for(arrays: Sequence[np.ndarray[Any, Any]], dtype: Any = f64) -> list[Input]:
    return [
        Input(f"v{n}", ArrayType(a.shape, dtype if a.dtype.kind == "f" else i64))
        for n, a in enumerate(arrays)
    ]


def compare(function: Function, *arrays: np.ndarray[Any, Any], seed: int = 0) -> None:
    """The gradients of a scalar program by its float inputs, against central differences."""
    inputs = inputs_for(arrays)
    floats = [n for n, a in enumerate(arrays) if a.dtype.kind == "f"]
    value = function(*inputs)
    found = gradients(value, [inputs[n] for n in floats])
    results = interpret(build.graph_of("grad", inputs, found), arrays)
    forward = build.graph_of("value", inputs, [value])
    rng = np.random.default_rng(seed)
    for n, gradient in zip(floats, results, strict=True):
        assert gradient.shape == arrays[n].shape and gradient.dtype == arrays[n].dtype
        direction = rng.standard_normal(arrays[n].shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = list(arrays)
            moved[n] = arrays[n] + step * direction
            ends.append(float(interpret(forward, moved)[0]))
        wanted = (ends[0] - ends[1]) / 2e-6
        assert np.sum(gradient * direction) == pytest.approx(wanted, rel=1e-6, abs=1e-8)


def network_arrays() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = [(2, 6, 6), (3, 3, 3), (3,), (3, 2, 2, 4), (4,)]
    return [*(rng.standard_normal(s) for s in shapes), np.array([3, 1])]


def test_a_small_convolutional_network() -> None:
    compare(network, *network_arrays())


def test_a_value_used_twice_and_an_operator_with_two_results() -> None:
    def function(x: Value) -> Value:
        a, b = build.apply(PAIR, (x,))
        return build.apply(TOTAL, (a * b + b + x,))[0]

    compare(function, np.array([0.3, -1.0, 2.0]))


def test_one_of_two_results_is_enough() -> None:
    def function(x: Value) -> Value:
        _, b = build.apply(PAIR, (x,))
        return build.apply(TOTAL, (b,))[0]

    compare(function, np.array([0.3, -1.0, 2.0]))


def test_one_value_for_two_parameters() -> None:
    product = parse("product(a, b) -> y:\n  y[] = sum(a[i] * b[i])")
    compare(lambda x: build.apply(product, (x, x))[0], np.array([0.3, -1.0, 2.0]))


def test_second_order() -> None:
    def function(x: Value) -> Value:
        (s,) = build.apply(SQUARE, (x,))
        (y,) = build.apply(TOTAL, (s * s,))
        (g,) = gradients(y, [x])
        return build.apply(TOTAL, (g * x,))[0]

    compare(function, np.array([0.3, -1.0, 2.0]))


def test_no_path_gives_zeros_of_the_shape_and_type() -> None:
    x, z = inputs_for([np.ones(3), np.ones((2, 2))], f32)
    (y,) = build.apply(TOTAL, (x,))
    (found,) = gradients(y, [z])
    assert found.type == ArrayType((2, 2), f32)
    (result,) = interpret(build.graph_of("zeros", [x, z], [found]), [np.ones(3, np.float32),
                          np.ones((2, 2), np.float32)])  # fmt: skip
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.zeros((2, 2)))


def test_the_gradient_has_the_type_of_its_argument() -> None:
    mixed = parse("mixed(a, b) -> y:\n  y[] = sum(a[i] * b[i])")
    a, b = Input("a", ArrayType((3,), f32)), Input("b", ArrayType((3,), f64))
    found = gradients(build.apply(mixed, (a, b))[0], [a, b])
    assert [g.type.dtype for g in found] == [f32, f64]


def test_by_an_intermediate_value() -> None:
    (x,) = inputs_for([np.ones(3)])
    (s,) = build.apply(SQUARE, (x,))
    (y,) = build.apply(TOTAL, (s * s,))
    (found,) = gradients(y, [s])
    array = np.array([1.0, 2, 3])
    (result,) = interpret(build.graph_of("g", [x], [found]), [array])
    np.testing.assert_allclose(result, 2 * array**2)


def test_a_seed_scales_and_may_have_a_shape() -> None:
    (x,) = inputs_for([np.ones(3)])
    (s,) = build.apply(SQUARE, (x,))
    (found,) = gradients(s, [x], build.literal(np.array([1.0, 0, 2])))
    (result,) = interpret(build.graph_of("g", [x], [found]), [np.array([1.0, 2, 3])])
    np.testing.assert_allclose(result, [2, 0, 12])


def test_the_backward_pass_reads_what_the_forward_pass_computed() -> None:
    tanh = parse("squash(x) -> y:\n  y[i] = tanh(x[i])")
    (x,) = inputs_for([np.ones(3)])
    with build.recording("step", [x]) as record:
        (h,) = build.apply(tanh, (x,))
        (y,) = build.apply(TOTAL, (h,))
        (found,) = gradients(y, [x])
    graph = build.graph_of("step", [x], [y, found], record)
    assert list(graph.ids.values()) == ["squash[0]", "total[0]", "total_dx[0]", "squash_dx[0]"]
    assert graph.nodes[-1].args[0] is h  # tanh is not computed again
    assert [graph.notes["regions"].get(n) for n in graph.nodes] == [
        None, None, "backward", "backward",
    ]  # fmt: skip


def test_refusals() -> None:
    x, n = Input("x", ArrayType((3,), f32)), Input("n", ArrayType((3,), i64))
    (s,) = build.apply(SQUARE, (x,))
    (y,) = build.apply(TOTAL, (s,))
    (count,) = build.apply(TOTAL, (n,))
    for call, kind, message in [
        (lambda: gradients(s, [x]), GradientError,
         "gradient of a value of type f32[3]: expected a scalar; reduce it first, or give its "
         "cotangent as seed"),
        (lambda: gradients(count, [x]), GradientError,
         "gradient of a value of type i64[]: only floats have gradients"),
        (lambda: gradients(y, [n]), GradientError,
         "gradient by a value of type i64[3]: only floats have gradients; leave it out"),
        (lambda: gradients(s, [x], build.literal(np.ones(4, np.float32))), ShapeError,
         "the seed of a value of type f32[3] has type f32[4]"),
    ]:  # fmt: skip
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == message
