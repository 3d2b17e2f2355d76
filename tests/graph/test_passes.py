"""Folding of constants and removal of dead code."""

from __future__ import annotations

from typing import Any

import numpy as np
from diptych.algo.dtypes import f32
from diptych.algo.graph import build
from diptych.algo.graph.elementwise import elementwise
from diptych.algo.graph.graph import ArrayType, Input, Literal
from diptych.algo.graph.passes import LARGEST, simplify
from diptych.algo.graph.trace import trace

X = ArrayType((2, 3), f32)


def test_scalars_fold_through_exact_operations() -> None:
    def f(x: Any) -> Any:
        two = build.literal(np.float32(2))
        return x * (two * 3 - 1)

    graph = trace(f, (X,))
    assert list(graph.ids.values()) == ["mul[0]"]
    (value,) = [v for v in graph.nodes[0].args if isinstance(v, Literal)]
    assert build.literal_array(value) == np.float32(5)
    assert value.dtype is f32


def test_inexact_operations_and_large_literals_stay() -> None:
    def f(x: Any) -> Any:
        large = build.literal(np.ones(LARGEST + 1, np.float32))
        return x * elementwise("exp", build.literal(np.float32(1))), large + large

    graph = trace(f, (X,))
    assert sorted(graph.ids.values()) == ["add[0]", "exp[0]", "mul[0]"]


def test_the_same_graph_comes_back_if_nothing_changes() -> None:
    graph = trace(lambda x: x * 2 + x, (X,))
    assert simplify(graph) is graph


def test_a_result_that_folds_is_a_literal() -> None:
    graph = trace(lambda x: (x, build.literal(np.float32(2)) + 1), (X,))
    assert graph.nodes == ()
    assert isinstance(graph.outputs[1], Literal)
    assert graph.outputs[0] is Input("x", X)


def test_notes_follow_their_nodes() -> None:
    def f(x: Any) -> Any:
        two = build.literal(np.float32(2))
        with build.region("backward"):
            return x * (two + 1)

    graph = trace(f, (X,))
    assert graph.notes["regions"] == {graph.nodes[0]: "backward"}
    assert set(graph.notes["locations"]) == set(graph.nodes)
