"""Random programs under random graph schedules give exactly the unscheduled integers.

Values are wrapping i64, so every legal reordering of a sum is exact. Schedules draw from all
primitives with real ids; refused primitives are skipped, and the share of accepted ones asserted.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import i64
from diptych.algo.errors import GraphError
from diptych.algo.graph import build
from diptych.algo.graph.elementwise import elementwise
from diptych.algo.graph.graph import ArrayType, Graph, Input, Value
from diptych.algo.graph.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen.executor import Executor
from diptych.lower.plan_parse import parse_plan
from diptych.lower.program import plan
from diptych.sched.graph.schedule import GraphSchedule

UNARY = [
    parse("twice(x) -> y:\n  y[i,j] = x[i,j] * 2 + 1"),
    parse("clip(x) -> y:\n  y[i,j] = max(x[i,j], -3)"),
    parse("turn(x) -> y:\n  y[j,i] = x[i,j]"),
    parse("rows(x: [N, M]) -> y:\n  s[i] = sum(x[i,j])\n  y[i,j] = x[i,j] - s[i]"),
    parse("share(x: [N, M]) -> y:\n  s[j] = sum(x[i,j])\n  y[i,j] = x[i,j] * N - s[j]"),
    parse("flip(x: [N, M]) -> y:\n  y[i,j] = x[N-1-i,j] where i in 0:N"),
    parse("scan(x: [N, M]) -> y:\n  y[i,0] = x[i,0]\n  y[i,j] = y[i,j-1] + x[i,j] where j in 1:M"),
    parse("both(x) -> y, z:\n  y[i,j] = x[i,j] + 1\n  z[j] = sum(y[i,j])"),
]
BINARY = [
    parse("mm(a: [N, K], b: [K, M]) -> c:\n  c[i,j] = sum(a[i,k] * b[k,j])"),
    parse("mt(a: [N, K], b: [M, K]) -> c:\n  c[i,j] = sum(a[i,k] * b[j,k])"),
    parse("gram(a: [K, N], b: [K, M]) -> c:\n  c[i,j] = sum(a[k,i] * b[k,j])"),
]
TOTAL = parse("total(x) -> s:\n  s[] = sum(x[i,j])")
BIAS = parse("bias(x: [N, M], b: [M]) -> y:\n  y[i,j] = x[i,j] + b[j]")
SIDE = 4  # every matrix is square, so that every operator fits and every axis splits


def program(rng: random.Random) -> Graph:
    square = ArrayType((SIDE, SIDE), i64)
    inputs = [Input(name, square) for name in "xyz"]
    with build.recording("random", inputs) as record:
        matrices: list[Value] = list(inputs)
        vectors: list[Value] = []
        for step in range(rng.randint(3, 9)):
            if step == 5:
                break
            kind = rng.random()
            if kind < 0.35:
                found = build.call(rng.choice(UNARY), rng.choice(matrices))
            elif kind < 0.65:
                found = build.call(rng.choice(BINARY), rng.choice(matrices), rng.choice(matrices))
            elif kind < 0.75 and vectors:
                found = build.call(BIAS, rng.choice(matrices), rng.choice(vectors))
            else:
                operation = rng.choice(["add", "sub", "mul"])
                found = elementwise(operation, rng.choice(matrices), rng.choice(matrices))
            results = found if isinstance(found, tuple) else (found,)
            matrices += [v for v in results if v.ndim == 2]
            vectors += [v for v in results if v.ndim == 1]
        with build.region("backward"):  # something for recompute to serve
            late = elementwise("mul", rng.choice(matrices), rng.choice(matrices))
            late = elementwise("add", late, rng.choice(matrices))
        total = build.call(TOTAL, late)
        outputs = [total, late, rng.choice(matrices), *vectors[-1:]]
    return build.graph_of("random", inputs, outputs, record)


def schedule(rng: random.Random, graph: Graph, counts: dict[str, list[int]]) -> GraphSchedule:
    made = GraphSchedule(graph)
    names = list(graph.ids.values())
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["fuse", "fuse", "place", "parallel_do", "recompute", "recompute", "off"])
        try:
            match kind:
                case "fuse":
                    at = rng.randrange(len(names))
                    new = made.fuse(*names[at : at + rng.randint(1, 3)])
                case "off":
                    new = made.fuse()
                case "place":
                    new = made.place(rng.choice(names), rng.choice(["cpu:1", "cpu:2", "cpu"]))
                case "parallel_do":
                    axes = {n: rng.randint(0, 1) for n in rng.sample("xyz", rng.randint(1, 3))}
                    new = made.parallel_do(devices=rng.choice([2, 4]), **axes)
                case _:
                    new = made.recompute(rng.choice(names))
        except GraphError:
            counts.setdefault(kind, [0, 0])[1] += 1
            continue
        counts.setdefault(kind, [0, 0])[0] += 1
        made = new
    return made


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_under_random_schedules(seed: int, interpreted: Any) -> None:
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    counts: dict[str, list[int]] = {}
    collectives = 0
    for _ in range(25):
        graph = program(rng)
        made = schedule(rng, graph, counts)
        arrays = [numbers.integers(-9, 9, (SIDE, SIDE)) for _ in graph.inputs]
        execution = plan(graph, GraphSchedule.parse(graph, made.text))
        assert parse_plan(execution.text).text == execution.text
        collectives += sum(type(step).__name__.startswith("All") for step in execution.steps)
        found = Executor(execution, interpreted)(*arrays)
        for got, want in zip(found, interpret(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{graph.name}\n{made}\n{execution}")
    accepted = sum(yes for yes, _ in counts.values())
    refused = sum(no for _, no in counts.values())
    assert accepted > 0.5 * (accepted + refused), counts
    assert all(counts[kind][0] for kind in ("fuse", "place", "parallel_do", "recompute")), counts
    assert collectives
