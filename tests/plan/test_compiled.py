"""Programs in machine code: training steps under every graph schedule."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import diptych
import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.errors import ShapeError
from diptych.algo.graph.graph import Graph
from diptych.algo.graph.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.executor import Executor, compile_kernel
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


@pytest.mark.parametrize("label", ["default", "replicas"])
def test_a_label_out_of_range_is_an_error(
    label: str, graphs: dict[str, Graph], inputs: dict[str, list[Any]]
) -> None:
    run = Executor(plan(graphs["mlp"], made(graphs["mlp"], label)))
    labels = inputs["mlp"][-2].copy()
    labels[-1] = 5  # in the last replica's part
    outside = r"z\[n,label\[n\]\] is outside z: .* label\[n\] is 5 at n="
    with pytest.raises(ShapeError, match=outside):
        run(*inputs["mlp"][:-2], labels, inputs["mlp"][-1])
    run(*inputs["mlp"])


def test_a_kernel_under_a_loop_schedule(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]]
) -> None:
    graph, arrays = graphs["mlp"], inputs["mlp"]
    schedule = GraphSchedule(graph).fuse("dense[0]", "relu[0]")
    schedule = schedule.kernel("dense[0]+relu[0]", lambda kernel: kernel.split("y_2.j", 4))
    execution = plan(graph, schedule)
    assert "= dense[0]+relu[0] (scheduled)(" in str(execution)
    for got, want in zip(Executor(execution)(*arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6)


def test_a_schedule_that_does_not_fit_gives_way_with_a_warning() -> None:
    op = parse("double(x: f32[N]) -> y:\n  y[i] = x[i] * 2")
    with pytest.warns(RuntimeWarning) as warned:
        run = compile_kernel(op, [(f32, (4,))], '.split("k", 2)')
    assert str(warned[0].message) == (
        "double: its schedule does not fit these sizes, so the default runs: split(k, 2): there is "
        "no loop k (loops: y.i)"
    )
    out = np.zeros(4, np.float32)
    run([np.arange(4, dtype=np.float32)], [out])
    np.testing.assert_array_equal(out, [0, 2, 4, 6])


def test_the_executor_needs_no_planner() -> None:
    """What it imports, all the way down, holds no graph schedule and no planning."""
    root = Path(diptych.__file__).parent
    seen: set[Path] = set()
    waiting = [root / "codegen" / "executor.py"]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.exists():
            continue
        seen.add(file)
        for item in ast.parse(file.read_text()).body:  # not what a function imports when called
            if isinstance(item, ast.ImportFrom) and item.level:
                base = file.parents[item.level - 1].joinpath(*(item.module or "").split("."))
                waiting += [base.with_suffix(".py"), base / "__init__.py"]
                waiting += [base / f"{alias.name}.py" for alias in item.names]
    names = {str(file.relative_to(root)) for file in seen}
    assert "lower/plan.py" in names
    assert not {n for n in names if n.startswith(("sched/graph/s", "sched/graph/p"))}
    assert not {"lower/program.py", "lower/arena.py", "algo/graph/trace.py"} & names


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
