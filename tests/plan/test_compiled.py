"""Programs in machine code: training steps under every graph schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from diptych.algo.graph.graph import Graph
from diptych.algo.graph.interpret import interpret
from diptych.codegen.executor import Executor
from diptych.lower.program import plan
from diptych.sched.graph.schedule import GraphSchedule

SPLIT = {"x": 0, "y": 0}


def made(graph: Graph, label: str) -> GraphSchedule:
    plain = GraphSchedule(graph)
    chain = [graph.ids[n] for n in graph.nodes if n not in graph.notes["regions"]][:2]
    return {
        "default": lambda: plain,
        "unfused": plain.fuse,
        "placed": lambda: plain.fuse().place(chain[1], "cpu:1"),
        "recomputed": lambda: plain.fuse().recompute(chain[0]).recompute(chain[1]),
        "replicas": lambda: plain.parallel_do(devices=2, **SPLIT),
    }[label]()


@pytest.mark.parametrize("label", ["default", "unfused", "placed", "recomputed", "replicas"])
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_a_training_step(
    name: str, label: str, graphs: dict[str, Graph], inputs: dict[str, list[Any]]
) -> None:
    graph, arrays = graphs[name], inputs[name]
    run = Executor(plan(graph, made(graph, label)))
    wanted = interpret(graph, arrays)
    for _ in range(2):
        for got, want in zip(run(*arrays), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("label", ["default", "replicas"])
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_losses_fall(
    name: str, label: str, graphs: dict[str, Graph], inputs: dict[str, list[Any]]
) -> None:
    graph = graphs[name]
    run = Executor(plan(graph, made(graph, label)))
    count = len(graph.inputs) - 3
    params, rest = inputs[name][:count], inputs[name][count:]
    losses = []
    for _ in range(30):
        loss, *params = run(*params, *rest)
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_steady_state_allocates_nothing_but_outputs(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]]
) -> None:
    import tracemalloc

    run = Executor(plan(graphs["mlp"]))
    outputs = run(*inputs["mlp"])
    expected = sum(out.nbytes for out in outputs)
    for _ in range(3):
        run(*inputs["mlp"])
    tracemalloc.start()
    for _ in range(20):
        outputs = run(*inputs["mlp"])
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 3 * expected + 20_000
    assert peak < 4 * expected + 30_000
