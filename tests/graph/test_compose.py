"""Composed operators: names, sizes, and that they mean what their parts mean."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.compose import Part, compose
from diptych.algo.tensor_expr.expr import Size
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse

matmul = parse("matmul(A: f32[M, K], B: f32[K, N]) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])")
relu = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")
mean = parse("mean(x: f32[M, K]) -> y:\n  y[i] = sum(x[i,k]) / K")
conv = parse("conv(x: f32[W], w: f32[S]) -> y:\n  y[v] = sum(x[v+s] * w[s])")
add = parse("add(a: f32[N], b: f32[N]) -> y:\n  y[i] = a[i] + b[i]")
take = parse("take(x: f32[N], p: i64[M]) -> y:\n  y[m] = x[p[m]]")


def test_text_of_a_composed_operator() -> None:
    made = compose([Part(matmul, ("a", "b"), ("c",)), Part(relu, ("c",), ("d",))], ["d"])
    assert made.args == ("a", "b")
    assert made.op.text == (
        "matmul_relu(A: f32[M, K], B: f32[K, N]) -> y:\n"
        "    C[i,j] = sum(A[i,k] * B[k,j])\n"
        "    y[i,j] = max(C[i,j], 0)"
    )


def test_a_size_as_a_number_becomes_the_producers() -> None:
    made = compose([Part(matmul, ("a", "b"), ("c",)), Part(mean, ("c",), ("m",))], ["m"])
    assert made.op.text.endswith("y[i] = sum(C[i,k]) / N")


def test_extents_that_are_formulas_meet_outside_arrays() -> None:
    made = compose([Part(conv, ("x", "w"), ("c",)), Part(add, ("c", "skip"), ("z",))], ["z"])
    assert made.op.text == (
        "conv_add(x: f32[W], w: f32[S], b: f32) -> y_2:\n"
        "    b: [W-S+1]\n"
        "    y[v] = sum(x[v+s] * w[s])\n"
        "    y_2[i] = y[i] + b[i]"
    )
    assert str(check(made.op).shapes["b"]) == str(check(made.op).shapes["y_2"])


def test_unrelated_sizes_of_one_name_stay_apart() -> None:
    parts = [Part(add, ("a", "b"), ("s",)), Part(add, ("c", "d"), ("t",))]
    made = compose(parts, ["s", "t"])
    assert made.op.text == (
        "add_add(a: f32[N], b: f32[N], a_2: f32[N_2], b_2: f32[N_2]) -> y, y_2:\n"
        "    y[i] = a[i] + b[i]\n"
        "    y_2[i] = a_2[i] + b_2[i]"
    )


def test_one_array_read_twice_is_one_parameter() -> None:
    parts = [Part(add, ("a", "a"), ("s",)), Part(add, ("s", "a"), ("t",))]
    made = compose(parts, ["t"])
    assert made.args == ("a",)
    assert made.op.text == (
        "add_add(a: f32[N]) -> y_2:\n    y[i] = a[i] + a[i]\n    y_2[i] = y[i] + a[i]"
    )


def test_indices_that_collide_with_tensors_are_renamed() -> None:
    first = parse("first(x: f32[N]) -> i:\n  i[n] = x[n] * 2")
    made = compose([Part(first, ("x",), ("s",)), Part(add, ("s", "x"), ("t",))], ["t"])
    assert made.op.text == (
        "first_add(x: f32[N]) -> y:\n    i[n] = x[n] * 2\n    y[i_2] = i[i_2] + x[i_2]"
    )


def test_fixed_sizes_win() -> None:
    four = parse("four(x: f32[4]) -> y:\n  y[i] = x[i] + 1")
    made = compose([Part(add, ("a", "b"), ("s",)), Part(four, ("s",), ("t",))], ["t"])
    assert made.op.text.startswith("add_four(a: f32[4], b: f32[4]) -> y_2:")


def test_long_names_are_cut() -> None:
    parts = [Part(add, (f"v{n}", "b"), (f"v{n + 1}",)) for n in range(6)]
    assert compose(parts, ["v6"]).op.name == "add_add_add_and_3_more"


CHAINS: dict[str, tuple[list[Part], list[str], dict[str, tuple[int, ...]]]] = {
    "matmul relu mean": (
        [
            Part(matmul, ("a", "b"), ("c",)),
            Part(relu, ("c",), ("d",)),
            Part(mean, ("d",), ("m",)),
        ],
        ["m", "c"],
        {"a": (3, 4), "b": (4, 5)},
    ),
    "conv conv add": (
        [
            Part(conv, ("x", "w"), ("c",)),
            Part(conv, ("c", "u"), ("d",)),
            Part(add, ("d", "skip"), ("z",)),
        ],
        ["z"],
        {"x": (9,), "w": (3,), "u": (2,), "skip": (6,)},
    ),
    "diamond": (
        [
            Part(add, ("a", "b"), ("s",)),
            Part(add, ("s", "a"), ("t",)),
            Part(add, ("s", "t"), ("u",)),
        ],
        ["u", "s"],
        {"a": (5,), "b": (5,)},
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_composition_means_what_its_parts_mean(name: str) -> None:
    parts, returns, shapes = CHAINS[name]
    rng = np.random.default_rng(3)
    values = {k: rng.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}
    made = compose(parts, returns)
    assert parse(made.op.text) == made.op
    got = interpret(made.op, *(values[arg] for arg in made.args))
    for part in parts:
        found = interpret(part.op, *(values[arg] for arg in part.args))
        found = found if isinstance(found, tuple) else (found,)
        values.update(zip(part.results, found, strict=True))
    outs = got if isinstance(got, tuple) else (got,)
    for value, out in zip(returns, outs, strict=True):
        np.testing.assert_allclose(out, values[value], rtol=1e-6)


def test_a_composition_composes_again() -> None:
    once = compose([Part(conv, ("x", "w"), ("c",)), Part(add, ("c", "skip"), ("z",))], ["z"])
    twice = compose(
        [Part(once.op, ("x", "w", "skip"), ("z",)), Part(add, ("z", "skip"), ("q",))], ["q"]
    )
    assert isinstance(twice.op, Op)
    assert check(twice.op).shapes["x"] == (Size("W"),)
    assert twice.args == ("x", "w", "skip")


def test_formulas_of_inputs_meet_sizes_of_other_readers() -> None:
    grad = parse(
        "grad(x: f32[W], w: f32[3], g: f32) -> d:\n  g: [W-2]\n  d[s] = sum(x[v+s] * g[v])"
    )
    half = parse("half(g: f32[N]) -> m:\n  m[] = sum(g[i]) / N")
    for parts in (
        [Part(grad, ("x", "w", "g"), ("d",)), Part(half, ("g",), ("m",))],
        [Part(half, ("g",), ("m",)), Part(grad, ("x", "w", "g"), ("d",))],
        [Part(conv, ("x", "w"), ("g",)), Part(grad, ("x", "w", "g"), ("d",))],
    ):
        made = compose(parts, [part.results[0] for part in parts])
        assert parse(made.op.text) == made.op
    x, w = np.arange(6, dtype=np.float32), np.ones(3, np.float32)
    found = interpret(made.op, x, w)
    np.testing.assert_array_equal(found[0], [3, 6, 9, 12])


def test_data_dependent_access_goes_through() -> None:
    made = compose([Part(add, ("a", "b"), ("s",)), Part(take, ("s", "p"), ("t",))], ["t"])
    a, b, p = np.arange(4, dtype=np.float32), np.ones(4, np.float32), np.array([3, 3, 0])
    np.testing.assert_array_equal(interpret(made.op, a, b, p), [4, 4, 1])
