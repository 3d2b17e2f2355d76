"""Gradients in programs take what the forward pass computed, where that is worth it."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np

NORM = dt.op("""norm(x: f64[N, D], g: f64[D]) -> y:
    m[i] = sum(x[i,d]) / D
    v[i] = sum((x[i,d] - m[i])**2) / D
    y[i,d] = (x[i,d] - m[i]) / sqrt(v[i] + 0.001) * g[d]""")
TOTAL = dt.op("l = sum(y[i,d]**3)", name="total")
X, G = np.random.default_rng(0).random((5, 7)), np.random.default_rng(1).random(7)


def step() -> dt.Program:
    @dt.program
    def step(x: Any, g: Any) -> Any:
        loss = TOTAL(NORM(x, g))
        return loss, dt.grad(loss, [x, g])

    return step


def launches(what: Any) -> dict[str, tuple[str, ...]]:
    """What the kernels return, by the first node in each."""
    kernels = what.plan(X, G).kernels
    return {k.id.split("+")[0]: k.op.returns for k in kernels.values()}


def agrees(what: Any) -> None:
    loss, (by_x, by_g) = what(X, G)
    wanted, (x, g) = step().interpret(X, G)
    for have, want in ((loss, wanted), (by_x, x), (by_g, g)):
        np.testing.assert_allclose(have, want, rtol=1e-9)


def test_gradients_take_what_reductions_gave() -> None:
    assert {"m", "v"} <= {*launches(step())["norm[0]"]}
    back = step().plan(X, G).kernels["norm_dx_dg[0]"].op
    assert [p.name for p in back.params] == ["x", "g", "y", "m", "v", "dy"]
    assert {eq.tensor for eq in back.equations}.isdisjoint({"m", "v"})
    agrees(step())


def test_the_graph_knows_nothing_of_it() -> None:
    program = step()
    program(X, G)
    (graph,) = program.traced
    assert [node.op.returns for node in graph.nodes if node.op.name == "norm"] == [("y",)]


def test_what_has_a_loop_schedule_runs_as_it_is() -> None:
    schedule = step().schedule().fuse("norm[0]").kernel("norm[0]", '.parallel("y.i")')
    assert launches(schedule)["norm[0]"] == ("y",)
    agrees(schedule)
    program = step()
    program(X, G)
    plain = program.schedule().kernel("norm_dx_dg[0]")
    assert "v" not in [p.name for p in plain.op.params]
    agrees(program.schedule().kernel("norm_dx_dg[0]", lambda s: s))
    with dt.schedules(NORM.schedule().parallel("y.i")):
        assert launches(step())["norm[0]"] == ("y",)
        agrees(step())


def test_it_may_be_computed_again() -> None:
    schedule = step().schedule().recompute("norm[0]")
    assert {"m", "v"} <= {*launches(schedule)["norm[0]'"]}
    agrees(schedule)


def test_replicas_share_it_too() -> None:
    agrees(step().schedule().parallel_do(x=0, devices=1))


def test_several_gradients_of_one_application() -> None:
    @dt.program
    def both(x: Any, g: Any) -> Any:
        y = NORM(x, g)
        return dt.grad(TOTAL(y), x), dt.grad(TOTAL(y), g)

    kernels = both.plan(X, G).kernels.values()
    assert sum(k.op.name.startswith("norm") and "m" in k.op.returns for k in kernels) == 1
    for have, want in zip(both(X, G), both.interpret(X, G), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-9)
