"""The executor alone: kernels are run by the interpreter."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import f32
from diptych.algo.errors import DTypeError, ShapeError
from diptych.algo.graph import build
from diptych.algo.graph.graph import ArrayType, Graph, Input
from diptych.algo.graph.interpret import interpret
from diptych.algo.graph.trace import trace
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.executor import Executor
from diptych.lower.plan import AllGather, Slice
from diptych.lower.program import plan
from diptych.sched.graph.schedule import GraphSchedule

SPLIT = {"x": 0, "y": 0}


def schedules(graph: Graph) -> dict[str, GraphSchedule]:
    plain = GraphSchedule(graph)
    chain = [graph.ids[n] for n in graph.nodes if n not in graph.notes["regions"]][:3]
    return {
        "default": plain,
        "unfused": plain.fuse(),
        "fused": plain.fuse(*chain),
        "placed": plain.fuse().place(chain[1], "cpu:1").place(chain[2], "cpu:0"),
        "recomputed": plain.fuse().recompute(chain[0]).recompute(chain[1]),
        "two replicas": plain.parallel_do(devices=2, **SPLIT),
        "four replicas": plain.parallel_do(devices=4, **SPLIT).recompute(chain[1]),
    }


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_every_schedule_gives_the_unscheduled_result(
    name: str, graphs: dict[str, Graph], inputs: dict[str, list[Any]], interpreted: Any
) -> None:
    graph, arrays = graphs[name], inputs[name]
    wanted = interpret(graph, arrays)
    for label, schedule in schedules(graph).items():
        run = Executor(plan(graph, schedule), interpreted)
        for _ in range(2):
            found = run(*arrays)
            for got, want in zip(found, wanted, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6, err_msg=label)


def test_replicas_agree_to_the_bit_in_every_run(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]], interpreted: Any
) -> None:
    graph, arrays = graphs["mlp"], inputs["mlp"]
    run = Executor(plan(graph, GraphSchedule(graph).parallel_do(devices=4, **SPLIT)), interpreted)
    first = run(*arrays)
    for _ in range(5):
        for a, b in zip(first, run(*arrays), strict=True):
            np.testing.assert_array_equal(a, b)


TRANSPOSE = parse("transpose(x: f32[N, M]) -> y:\n  y[m,n] = x[n,m]")
SOFTMAX = parse("softmax(x: f32[N, M]) -> y:\n  y[n,j] = exp(x[n,j]) / sum(exp(x[n,l]))")
BIAS = parse("bias(x: f32[N, M], b: f32[M]) -> y:\n  y[n,m] = x[n,m] + b[m]")


def columns(x: Any, b: Any) -> Any:
    """Split along axis 1: parts that are not contiguous, a slice, a gather, a transposed result."""
    h = build.call(BIAS, x, b)
    return build.call(TRANSPOSE, h), build.call(SOFTMAX, h), h, x, np.float32(3)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_other_axes_than_the_first(replicas: int, interpreted: Any) -> None:
    rng = np.random.default_rng(2)
    x, b = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    graph = trace(columns, (x, b))
    made = plan(graph, GraphSchedule(graph).parallel_do(x=1, devices=replicas))
    kinds = {type(step) for step in made.steps}
    assert ({Slice, AllGather} <= kinds) == (replicas > 1)
    run = Executor(made, interpreted)
    found = run(x, b)
    for got, want in zip(found, interpret(graph, [x, b]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert not np.shares_memory(found[3], x)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_empty_batch(replicas: int, interpreted: Any) -> None:
    x, b = np.zeros((0, 6), np.float32), np.ones(6, np.float32)
    graph = trace(columns, (x, b))
    made = plan(graph, GraphSchedule(graph).parallel_do(x=0, devices=replicas))
    for got, want in zip(Executor(made, interpreted)(x, b), interpret(graph, [x, b]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_arguments_of_any_layout(interpreted: Any) -> None:
    x = np.arange(48, dtype=np.float32).reshape(8, 6)[::2, ::-1]
    b = np.arange(12, dtype=np.float32)[::2]
    graph = trace(columns, (x, b))
    run = Executor(plan(graph), interpreted)
    for got, want in zip(run(x, b), interpret(graph, [x, b]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_outputs_are_new_arrays_and_inputs_are_let_go(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]], interpreted: Any
) -> None:
    run = Executor(plan(graphs["mlp"]), interpreted)
    first, second = run(*inputs["mlp"]), run(*inputs["mlp"])
    assert not any(np.shares_memory(a, b) for a in first for b in second)
    import weakref

    class Held(np.ndarray):  # type: ignore[type-arg]
        pass

    held = inputs["mlp"][-2].astype(np.int64).view(Held)
    seen = weakref.ref(held)
    run(*inputs["mlp"][:-2], held, inputs["mlp"][-1])
    del held
    gc.collect()
    assert seen() is None


def test_what_fails_in_a_replica_reaches_the_caller_and_nothing_hangs(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]], interpreted: Any
) -> None:
    graph = graphs["mlp"]
    broken = threading.Event()
    broken.set()

    def compile(op: Any, types: Any, schedule: Any) -> Any:
        kernel = interpreted(op, types, schedule)

        def run(arrays: Any, outs: Any) -> None:
            name = threading.current_thread().name
            if broken.is_set() and "replica" in name and "loss" in op.returns:
                raise ZeroDivisionError(f"in {op.name}")
            kernel(arrays, outs)

        return run

    run = Executor(plan(graph, GraphSchedule(graph).parallel_do(devices=3, **SPLIT)), compile)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match=r"in .*cross_entropy"):
            run(*inputs["mlp"])
    broken.clear()  # and it works again afterwards
    wanted = interpret(graph, inputs["mlp"])
    for got, want in zip(run(*inputs["mlp"]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_calls_from_several_threads_take_turns(
    graphs: dict[str, Graph], inputs: dict[str, list[Any]], interpreted: Any
) -> None:
    graph = graphs["mlp"]
    run = Executor(plan(graph), interpreted)
    rest = inputs["mlp"][:-1]
    rates = [np.float32(rate) for rate in (0.1, 0.2, 0.3, 0.4)]
    found: dict[float, Any] = {}
    threads = [
        threading.Thread(target=lambda r=rate: found.update({float(r): run(*rest, r)}))
        for rate in rates
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for rate in rates:
        for got, want in zip(found[float(rate)], interpret(graph, [*rest, rate]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_wrong_arguments(interpreted: Any) -> None:
    double = build.graph_of(
        "double", [Input("x", ArrayType((2,), f32))], [Input("x", ArrayType((2,), f32)) * 2]
    )
    run = Executor(plan(double), interpreted)
    with pytest.raises(ShapeError) as shape:
        run(np.zeros(3, np.float32))
    assert str(shape.value) == "double: x is f32[3]; this plan is for f32[2]"
    with pytest.raises(DTypeError) as dtype:
        run(np.zeros(2, np.float64))
    assert str(dtype.value) == "double: x is f64[2]; this plan is for f32[2]"
    with pytest.raises(ShapeError) as count:
        run()
    assert str(count.value) == "double takes 1 array (x), 0 given"
