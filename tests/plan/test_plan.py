"""Plans: their text, the places of values, copies, collectives, recomputation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from diptych.algo.errors import FileFormatError
from diptych.algo.graph import build
from diptych.algo.graph.graph import Graph
from diptych.algo.graph.interpret import interpret
from diptych.algo.graph.trace import trace
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.executor import Executor
from diptych.lower.plan import AllReduce, Copy, Launch, Plan, Step
from diptych.lower.plan_parse import parse_plan
from diptych.lower.program import plan
from diptych.sched.graph.schedule import GraphSchedule

DENSE = parse("dense(x: f32[N, K], w: f32[K, M]) -> y:\n  y[n,m] = sum(x[n,k] * w[k,m])")
RELU = parse("relu(x) -> y:\n  y[i,j] = max(x[i,j], 0)")
TOTAL = parse("total(x: f32[N, M]) -> s:\n  s[] = sum(x[n,m]) / N")


def net(x: Any, w: Any) -> Any:
    h = build.call(RELU, build.call(DENSE, x, w))
    return h, build.call(TOTAL, build.call(DENSE, h, w))


def small() -> Graph:
    return trace(net, (np.zeros((4, 3), np.float32), np.zeros((3, 3), np.float32)))


def test_text_of_a_plan() -> None:
    assert str(plan(small())) == (
        "plan net\n"
        "block 0: where\n"
        "  devices cpu\n"
        "  arena cpu: 64 bytes\n"
        "block 1: what\n"
        "  input x: f32[4,3]\n"
        "  input w: f32[3,3]\n"
        "  launch relu[0]: f32[4,3] = dense[0]+relu[0](x, w)\n"
        "  launch dense[1]@0: f32[4,3] = dense[1](relu[0], w)\n"
        "  launch total[0]: f32[] = total[0](dense[1]@0)\n"
        "  output result.0: f32[4,3] = relu[0]\n"
        "  output result.1: f32[] = total[0]"
    )


def test_text_of_a_plan_for_replicas() -> None:
    schedule = GraphSchedule(small()).parallel_do(x=0, devices=2)
    assert str(plan(small(), schedule)) == (
        "plan net\n"
        "block 0: where\n"
        "  devices cpu:0, cpu:1\n"
        "  parallel_do(x=0, devices=2): every replica runs block 1 on its part\n"
        "  communicator all = {0, 1}\n"
        "  arena cpu: 128 bytes a replica\n"
        "block 1: what\n"
        "  input x: f32[2,3], axis 0 of f32[4,3] split\n"
        "  input w: f32[3,3]\n"
        "  launch relu[0]: f32[2,3] = dense[0]+relu[0](x, w)\n"
        "  launch dense[1]@64: f32[2,3] = dense[1](relu[0], w)\n"
        "  launch total[0]@0: f32[] = total[0](dense[1]@64)\n"
        "  all_reduce sum over all (1 elements): total[0]@0\n"
        "  output result.0: f32[4,3] = relu[0], parts along axis 0\n"
        "  output result.1: f32[] = total[0]@0"
    )


def test_text_of_copies_and_gathers() -> None:
    copies = str(plan(small(), GraphSchedule(small()).place("total", "cpu:1")))
    assert "  devices cpu, cpu:1\n" in copies
    assert "  copy dense[1]@cpu:1@0 = dense[1]@0 to cpu:1\n" in copies
    assert "total[0](dense[1]@cpu:1@0) on cpu:1\n" in copies
    gathers = str(plan(small(), GraphSchedule(small()).parallel_do(w=1, devices=3)))
    assert "  all_gather w.all@" in gathers
    assert "  slice w.all.part0@" in gathers
    assert "along axis 1 over all" in gathers


def reads_and_writes(made: Plan, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    match step:
        case Launch():
            return step.args, step.results
        case AllReduce():
            return step.values, step.values
        case _:
            return (step.source,), (step.target,)


def test_values_that_are_alive_do_not_overlap(graphs: dict[str, Graph]) -> None:
    """An independent check of the arena: when a step reads a value, nothing has written over it."""
    for graph in graphs.values():
        split = {"x": 0, "y": 0}
        for schedule in (
            GraphSchedule(graph).fuse(),
            GraphSchedule(graph),
            GraphSchedule(graph).parallel_do(devices=2, **split),
            GraphSchedule(graph).fuse().place("cross_entropy", "cpu:1"),
        ):
            made = plan(graph, schedule)
            owner: dict[tuple[str, int], str] = {}  # which value each arena byte holds
            for step in made.steps:
                reads, writes = reads_and_writes(made, step)
                for name in reads:
                    for at in cells(made, name):
                        if at in owner:
                            assert owner[at] == name or not really_read(made, step, name)
                for name in writes:
                    owner.update(dict.fromkeys(cells(made, name), name))
            for output in made.outputs:
                assert all(owner[at] == output.slot for at in cells(made, output.slot))


def cells(made: Plan, name: str) -> list[tuple[str, int]]:
    slot = made.slots[name]
    if slot.home != "arena":
        return []
    size = math.prod(slot.type.shape) * slot.type.dtype.itemsize
    return [(slot.device, byte) for byte in range(slot.offset, slot.offset + size)]


def really_read(made: Plan, step: Step, name: str) -> bool:
    if not isinstance(step, Launch):
        return True
    op = made.kernels[step.kernel].op
    return any(
        f"{param.name}[" in op.text.split(":\n", 1)[-1]
        for param, arg in zip(op.params, step.args, strict=True)
        if arg == name
    )


def test_recompute_needs_less_memory() -> None:
    def deep(x: Any, w: Any) -> Any:
        from diptych.autodiff.graph import gradients

        h = x
        for _ in range(4):
            h = build.call(RELU, build.call(DENSE, h, w))
        return gradients(build.call(TOTAL, h), [w])[0]

    graph = trace(deep, (np.zeros((64, 32), np.float32), np.zeros((32, 32), np.float32)))
    keep = GraphSchedule(graph).fuse()
    again = keep
    for layer in range(3):
        again = again.recompute(f"relu[{layer}]")
    kept, repeated = plan(graph, keep), plan(graph, again)
    assert repeated.peak < kept.peak
    assert sum(isinstance(s, Launch) and s.again for s in repeated.steps) == 3
    assert "  recompute relu[0]'@" in str(repeated)


def test_sums_lie_side_by_side_and_are_reduced_in_place(graphs: dict[str, Graph]) -> None:
    graph = graphs["mlp"]
    made = plan(graph, GraphSchedule(graph).parallel_do(x=0, y=0, devices=2))
    (reduce,) = [step for step in made.steps if isinstance(step, AllReduce)]
    assert len(reduce.values) == 7  # three weights, three biases, the loss
    assert not any(isinstance(step, Copy) for step in made.steps)
    spans = sorted(cells(made, v)[0][1] for v in reduce.values)
    assert spans[0] == reduce.offset
    assert "all_reduce sum over all" in made._repr_html_()


def plans(graph: Graph) -> dict[str, Plan]:
    plain = GraphSchedule(graph)
    first = next(iter(graph.ids.values()))
    return {
        "default": plan(graph),
        "placed": plan(graph, plain.fuse().place(first, "cpu:1").kernel(first, "")),
        "replicas": plan(graph, plain.parallel_do(x=0, y=0, devices=2).recompute(first)),
        "gathered": plan(graph, plain.parallel_do(x=1, devices=2).fuse()),
    }


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_the_text_parses_back(
    name: str, graphs: dict[str, Graph], inputs: dict[str, Any], interpreted: Any
) -> None:
    for label, made in plans(graphs[name]).items():
        back = parse_plan(made.text)
        assert back.text == made.text, label
        assert replace(back, structure=made.structure) == made
        if label in ("placed", "gathered"):
            found = Executor(back, interpreted)(*inputs[name])
            for got, want in zip(found, interpret(graphs[name], inputs[name]), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_what_is_no_plan_is_refused() -> None:
    good = plan(small()).text
    for old, new, message in (
        ("launch relu", "start relu", "line 8 is not of a plan's text: start relu[0]: f32[4,3] = "
         "dense[0]+relu[0](x, w)"),
        ("block 0: where", "block 7", "line 2 is not of a plan's text: block 7"),
        ("total[0](dense[1]@0)", "total[0](dense[9]@0)", None),
    ):  # fmt: skip
        with pytest.raises(FileFormatError) as error:
            parse_plan(good.replace(old, new))
        assert message is None or str(error.value) == message
