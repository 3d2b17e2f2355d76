"""Recurrences of which every so many steps are kept, the steps between computed again."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.errors import GradientError
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from exact import run

RNN = """rnn(x: [T, D], U: [D, D], h0: [D]) -> y:
 h[0,d] = h0[d]
 h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T
 y[d] = sum(h[t,d]**2)"""
FIBONACCI = """f(x: [T], a: [], b: []) -> y:
 h[0] = a[]
 h[1] = b[]
 h[t] = sin(h[t-1] * x[t]) + h[t-2]**2 where t in 2:T
 y[t] = h[t] * x[t]"""
CUMULATED = """f(x: [N, T]) -> y:
 h[i,0] = x[i,0]
 h[i,t] = exp(-h[i,t-1]) * x[i,t] where t in 1:T
 y[i,t] = h[i,t]**2"""
NEXT = """f(x: [T], a: []) -> y:
 h[0] = a[]
 h[t+1] = sin(h[t]) * x[t]
 y[] = sum(h[t]**2)"""
FILTER = """f(x: [T], a: [3], p: [3]) -> y:
 y[t] = p[t]
 y[t] = x[t-3] + sum(a[s] * sin(y[t-1-s]), over=(s in 0:3,)) where t in 3:T+3"""
TABLE = """f(x: [N, M]) -> y:
 u[0,j] = x[0,j]
 u[i,0] = x[i,0] where i in 1:N
 u[i,j] = 0.5 * u[i-1,j] * u[i,j-1] - u[i-1,j-1] + x[i,j] where i in 1:N, j in 1:M
 y[] = sum(u[i,j])"""
STENCIL = """f(x: [N], b: [N]) -> u:
 u: [11, N]
 u[0,i] = x[i]
 u[t,i] = u[t-1,i] + 0.3 * (u.zero[t-1,i-1] - u.zero[t-1,i+1] * b[i]) where t in 1:11"""
BACKWARDS = """f(x: [T, D], U: [D, D], h0: [D]) -> y:
 h[T-1,d] = h0[d]
 h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t+1,e])) where t in 0:T-1
 y[d] = sum(h[t,d]**2)"""
FROM_THE_END = """f(x: [T], a: []) -> y:
 h[T-1] = a[]
 h[T-1-t] = sin(h[T-t]) * x[t] where t in 1:T
 y[t] = h[t]**2"""
GRU = """gru(x: [T, D], U: [3, D, D], h0: [D]) -> y:
 h[0,d] = h0[d]
 z[t,d] = sigmoid(x[t,d] + sum(U[0,d,e] * h[t,e]))
 r[t,d] = sigmoid(x[t,d] + sum(U[1,d,e] * h[t,e]))
 n[t,d] = tanh(x[t,d] + r[t,d] * sum(U[2,d,e] * h[t,e]))
 h[t+1,d] = (1 - z[t,d]) * n[t,d] + z[t,d] * h[t,d]
 y[d] = sum(h[t,d]**2)"""
LSTM = """lstm(x: [T, D], W: [4, H, D], U: [4, H, H], h0: [H], c0: [H]) -> y:
 h[0,j] = h0[j]
 c[0,j] = c0[j]
 g[t,n,j] = sum(W[n,j,d] * x[t,d]) + sum(U[n,j,e] * h[t,e])
 c[t+1,j] = sigmoid(g[t,0,j]) * c[t,j] + sigmoid(g[t,1,j]) * tanh(g[t,2,j])
 h[t+1,j] = sigmoid(g[t,3,j]) * tanh(c[t+1,j])
 y[j] = sum(h[t,j]**2)"""
STEPWISE = """lstm(x: [T, D], W: [4, H, D], U: [4, H, H]) -> y:
 i[t,j] = sigmoid(sum(W[0,j,d] * x[t,d]) + sum(U[0,j,e] * h.zero[t-1,e]))
 f[t,j] = sigmoid(sum(W[1,j,d] * x[t,d]) + sum(U[1,j,e] * h.zero[t-1,e]))
 g[t,j] = tanh(sum(W[2,j,d] * x[t,d]) + sum(U[2,j,e] * h.zero[t-1,e]))
 o[t,j] = sigmoid(sum(W[3,j,d] * x[t,d]) + sum(U[3,j,e] * h.zero[t-1,e]))
 c[t,j] = f[t,j] * c.zero[t-1,j] + i[t,j] * g[t,j]
 h[t,j] = o[t,j] * tanh(c[t,j])
 y[j] = sum(h[t,j]**2)"""
LSTM_BACKWARDS = """lstm(x: [T, D], W: [4, H, D], U: [4, H, H], h0: [H], c0: [H]) -> h:
 h[t,j] = h0[j] where t in T:T+1
 c[t,j] = c0[j] where t in T:T+1
 g[t,n,j] = sum(W[n,j,d] * x[t,d]) + sum(U[n,j,e] * h[t+1,e])
 c[t,j] = sigmoid(g[t,0,j]) * c[t+1,j] + sigmoid(g[t,1,j]) * tanh(g[t,2,j])
 h[t,j] = sigmoid(g[t,3,j]) * tanh(c[t,j])"""
LAYERS = """layers(x: [T, D], U: [D, D], V: [D, D]) -> y:
 h[t,d] = tanh(x[t,d] + sum(U[d,e] * h.zero[t-1,e]))
 k[t,d] = tanh(h[t,d] + sum(V[d,e] * k.zero[t+1,e]))
 y[d] = sum(k[t,d]**2)"""
EACH_OTHER = """f(x: [N]) -> y:
 a[0] = x[0]
 b[0] = 1.0
 a[i] = b[i-1] * x[i] where i in 1:N
 b[i] = sin(a[i-1]) + x[i] where i in 1:N
 y[] = sum(a[i] * b[i])"""
JOINT = """f(x: [S], w: [T, S, S]) -> v:
 reducer soft(m, s; n, t) = max(m, n), s*exp(m-max(m,n)) + t*exp(n-max(m,n)) from -1e30, 0.0
 m[0,s] = x[s]
 z[0,s] = 1.0
 m[t,s], z[t,s] = soft(m[t-1,r] + log(z[t-1,r]) + w[t,r,s], 1.0) where t in 1:T
 v[s] = m[T-1,s] + log(z[T-1,s])"""
BATCHED = """rnn(x: [B, T, D], U: [D, D]) -> h:
 g[b,t,j] = x[b,t,j] + sum(U[j,k] * h.zero[b,t-1,k])
 h[b,t,j] = tanh(g[b,t,j])"""
Shapes = Callable[[int], tuple[tuple[int, ...], ...]]


def rnn(T: int) -> tuple[tuple[int, ...], ...]:
    return (T, 3), (3, 3), (3,)


def lstm(T: int) -> tuple[tuple[int, ...], ...]:
    return (T, 3), (4, 2, 3), (4, 2, 2), (2,), (2,)


STEPS: dict[str, tuple[str, Shapes, dict[str, int]]] = {
    "rnn": (RNN, rnn, {"h": 4}),
    "two steps back": (FIBONACCI, lambda T: ((T + 1,), (), ()), {"h": 4}),
    "along rows": (CUMULATED, lambda T: ((2, T),), {"h": 4}),
    "the next of each": (NEXT, lambda T: ((T,), ()), {"h": 4}),
    "a sum of earlier ones": (FILTER, lambda T: ((T,), (3,), (3,)), {"y": 5}),
    "a table": (TABLE, lambda T: ((T, 4),), {"u": 4}),
    "a stencil in time": (STENCIL, lambda T: ((T,), (T,)), {"u": 4}),
    "backwards": (BACKWARDS, rnn, {"h": 4}),
    "from the end": (FROM_THE_END, lambda T: ((T,), ()), {"h": 3}),
    "gru": (GRU, lambda T: ((T, 3), (3, 3, 3), (3,)), {"h": 4}),
    "lstm": (LSTM, lstm, {"h": 4, "c": 4}),
    "lstm, a cell whole": (LSTM, lstm, {"h": 4, "c": 1}),
    "lstm, gates too": (LSTM, lstm, {"h": 3, "c": 3, "g": 3}),
    "lstm, step by step": (STEPWISE, lambda T: lstm(T)[:3], {"h": 4, "c": 4}),
    "lstm, backwards": (LSTM_BACKWARDS, lstm, {"h": 4, "c": 4}),
    "lstm, a result whole": (LSTM_BACKWARDS, lstm, {"c": 4}),
    "both ways": (LAYERS, lambda T: ((T, 3), (3, 3), (3, 3)), {"h": 4, "k": 2}),
    "each other": (EACH_OTHER, lambda T: ((T,),), {"a": 4, "b": 4}),
    "each other, one of two": (EACH_OTHER, lambda T: ((T,),), {"a": 4}),
    "a joint reduction": (JOINT, lambda T: ((3,), (T, 3, 3)), {"m": 3, "z": 3}),
}


def given(op: Op, shapes: Shapes, length: int) -> list[Any]:
    rng = np.random.default_rng(length)
    return [0.5 * rng.standard_normal(s) for s in shapes(length)]


@pytest.mark.parametrize("length", [1, 4, 9])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_some_steps_of_a_recurrence_are_kept(name: str, length: int) -> None:
    text, shapes, keep = STEPS[name]
    op = parse(text)
    arrays = given(op, shapes, length)
    y, pull = dt.vjp(op, *arrays, keep=keep)
    _, plain = dt.vjp(op, *arrays, keep=())
    for one, two in zip(pull(np.cos(y)), plain(np.cos(y)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("text", [STEPWISE, STEPWISE.replace("t-1", "t+1")], ids=["up", "down"])
def test_nothing_is_computed_again_where_there_is_no_step(text: str) -> None:
    op = parse(text)
    _, pull = dt.vjp(op, *(np.ones(s) for s in lstm(0)[:3]), keep={"h": 4, "c": 4})
    for found, shape in zip(pull(np.ones(2)), lstm(0)[:3], strict=True):
        np.testing.assert_array_equal(found, np.zeros(shape))


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_gradient_takes_the_steps_that_its_operator_returns(name: str) -> None:
    text, shapes, keep = STEPS[name]
    op = parse(text)
    names = tuple(p.name for p in op.params)
    values = dict(zip(names, given(op, shapes, 6), strict=True))
    plain, back = op.gradient(names), op.gradient(names, keep=keep)
    values |= run(op.keeping(keep), values)
    seed = plain.params[-1].name
    values[seed] = np.cos(values[op.returns[0]])
    one, two = run(plain, values), run(back, values)
    for a, b in zip(one.values(), two.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    whole = {name for name, every in keep.items() if every > 1}
    assert not whole & {p.name for p in back.params}


@pytest.mark.parametrize("name", ["along rows", "backwards", "lstm", "a joint reduction"])
def test_a_gradient_with_steps_is_differentiated_like_any_other(name: str) -> None:
    text, shapes, keep = STEPS[name]
    op = parse(text)
    names = tuple(p.name for p in op.params)
    values = dict(zip(names, given(op, shapes, 5), strict=True))
    results = run(op.keeping(keep), values)
    back = op.gradient(names[0], keep=keep)
    values |= results
    values[back.params[-1].name] = np.cos(results[op.returns[0]])
    dt.check_grads(back, [values[p.name] for p in back.params], interpreted=True, elements=9)


@pytest.mark.parametrize(("length", "every"), [(3, 3), (5, 3), (4, 3)])
def test_a_sum_over_all_steps_stands_in_the_cycle_of_a_tangent(length: int, every: int) -> None:
    """Where the last segment is not of one step, what it starts from has no dimensions there."""
    text = """f(x: [T], u: []) -> y:
 c[t] = tanh(x[t] + u[] * h.zero[t-1]) * c.fill(0.9)[t-1]
 h[t] = sin(c[t]) * x[t]
 y[] = sum(h[t]**2)"""
    op, rng = parse(text), np.random.default_rng(3)
    values = {"x": rng.standard_normal(length), "u": rng.standard_normal(())}
    keep = {"h": every, "c": every}
    back = op.gradient(("x", "u"), keep=keep)
    values |= run(op.keeping(keep), values) | {"dy": np.float64(0.7)}
    dt.check_grads(back, [values[p.name] for p in back.params], interpreted=True)


def lines(op: Op) -> list[str]:
    return [line.strip() for line in op.text.splitlines()]


def test_steps_between_are_computed_again_from_those_kept() -> None:
    op = parse(RNN)
    assert lines(op.keeping(h=4))[-1] == ("h_kept[t,d] = h[4*t,d] where t in 0:(T+3)//4, d in 0:D")
    assert lines(op.gradient("x", keep={"h": 4}))[1:5] == [
        "h: [T, D]",
        "h_kept: [(T+3)//4, D]",
        "h[4*t,d] = h_kept[t,d]",
        "h[4*to+ti,d] = tanh(x[4*to+ti,d] + sum(U[d,e] * h[4*to+ti-1,e])) "
        "where to in 0:(T+2)//4, ti in 1:4, 4 * to + ti < T",
    ]


def test_an_lstm_goes_on_from_what_is_kept_of_both_its_states() -> None:
    """Its gates are computed in all steps, those of a kept one in the segment before it."""
    op = parse(LSTM)
    assert lines(op.keeping(h=4, c=4))[-2:] == [
        "h_kept[t,j] = h[4*t,j] where t in 0:T//4+1, j in 0:H",
        "c_kept[t,j] = c[4*t,j] where t in 0:T//4+1, j in 0:H",
    ]
    back = op.gradient("x", keep={"h": 4, "c": 4})
    assert lines(back)[:11] == [
        "lstm_dx(x: [T, D], W: [4, H, D], U: [4, H, H], h_kept, c_kept, dy: [H]) -> dx:",
        "c: [T+1, H]",
        "c_kept: [T//4+1, H]",
        "g: [T, 4, H]",
        "h: [T+1, H]",
        "h_kept: [T//4+1, H]",
        "h[4*t,j] = h_kept[t,j] where t in 0:T//4+1, j in 0:H",
        "c[4*t,j] = c_kept[t,j] where t in 0:T//4+1, j in 0:H",
        "g[4*to+ti-1,n,j] = sum(W[n,j,d] * x[4*to+ti-1,d]) + sum(U[n,j,e] * h[4*to+ti-1,e]) "
        "where to in 0:(T+3)//4, ti in 1:5, n in 0:4, j in 0:H, d in 0:D, e in 0:H, "
        "4 * to + ti < T + 1",
        "c[4*to+ti,j] = sigmoid(g[4*to+ti-1,0,j]) * c[4*to+ti-1,j] + sigmoid(g[4*to+ti-1,1,j]) * "
        "tanh(g[4*to+ti-1,2,j]) "
        "where to in 0:(T+3)//4, ti in 1:4, j in 0:H, 4 * to + ti < T + 1",
        "h[4*to+ti,j] = sigmoid(g[4*to+ti-1,3,j]) * tanh(c[4*to+ti,j]) "
        "where to in 0:(T+3)//4, ti in 1:4, j in 0:H, 4 * to + ti < T + 1",
    ]


def test_steps_backwards_are_counted_from_the_end() -> None:
    op = parse(BACKWARDS)
    assert lines(op.gradient("x", keep={"h": 4}))[3:5] == [
        "h[T-4*t-1,d] = h_kept[t,d]",
        "h[T-4*to-ti-1,d] = tanh(x[T-4*to-ti-1,d] + sum(U[d,e] * h[T-4*to-ti,e])) "
        "where to in 0:(T+2)//4, ti in 1:4, 4 * to + ti < T",
    ]


def test_what_a_step_computes_for_itself_is_computed_before_the_first_too() -> None:
    op = parse(STEPWISE)
    gates = [line for line in lines(op.gradient("x", keep={"h": 4, "c": 4})) if line[0] == "g"][1:3]
    assert gates == [
        "g[t,j] = tanh(sum(W[2,j,d] * x[t,d]) + sum(U[2,j,e] * "
        "where(t - 1 >= 0, h[t-1,e], 0))) where t in 0:1, t < T",
        "g[4*to+ti,j] = tanh(sum(W[2,j,d] * x[4*to+ti,d]) + sum(U[2,j,e] * h[4*to+ti-1,e])) "
        "where to in 0:(T+2)//4, ti in 1:5, 4 * to + ti < T",
    ]


@pytest.mark.parametrize(("keep", "states"), [(("h", "c"), 2 * 513), ({"h": 32, "c": 32}, 2 * 17)])
def test_a_call_holds_the_kept_steps_alone(keep: Any, states: int) -> None:
    op = parse(LSTM.replace("[4, H, D]", "[4, H, H]").replace("[T, D]", "[T, H]"))
    T, H = 512, 32
    arrays = given(op, lambda T: ((T, H), (4, H, H), (4, H, H), (H,), (H,)), T)
    dt.vjp(op, *arrays, keep=keep)
    gc.collect()
    tracemalloc.start()
    y, pull = dt.vjp(op, *arrays, keep=keep)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 <= held - 8 * H * states < 20_000
    assert pull(y)[0].shape == (T, H)


def refusal(text: str, keep: Any) -> str:
    op = parse(text)
    with pytest.raises(GradientError) as error:
        op.gradient(op.params[0].name, keep=keep)
    return str(error.value)


def test_what_else_a_step_needs_is_named() -> None:
    assert refusal(LSTM, {"h": 8}) == (
        'keep every 8 steps of h: each step needs c of those before it, so keep={"h": 8, "c": 8}'
    )
    assert refusal(LSTM, {"g": 8}) == (
        'keep every 8 steps of g: each step needs c of those before it, so keep={"g": 8, "c": 8}'
    )
    assert refusal(LSTM, {"h": 8, "c": 4}) == (
        "keep every 8 steps of h: it needs c, of which every 4 are kept; keep as many of both"
    )
    assert refusal(EACH_OTHER, {"a": 2}) == (
        "keep every 2 steps of a: each step needs the 2 before it; keep every 3 or more, or keep "
        "it whole"
    )
    assert refusal(EACH_OTHER, {"a": 2, "b": 1}) == (
        "keep every 2 steps of a: it is no recurrence where b is known; keep it whole"
    )


def _uniform(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [rng.uniform(-1, 1, shape) for shape in shapes]


@pytest.mark.parametrize("length", [1, 5])
def test_a_gradient_with_steps_that_reads_an_input_in_a_sum_has_both_modes(length: int) -> None:
    op = dt.op("""f(x: [T], W: [I], u: []) -> h:
 g[t] = sum(W[i]*x[t]) + u[]*h.zero[t-1]
 h[t] = tanh(g[t])""")
    gradient = op.gradient("u", keep={"h": 2})
    args = _uniform((length,), (2,), (), ((length + 1) // 2,), (length,))
    dt.check_grads(gradient, args)


def test_a_step_that_two_gradients_read_alike_is_defined_for_both() -> None:
    op = dt.op("""f(x: [T], u: []) -> y:
 c[t] = tanh(x[t] + u[]*h.zero[t-1]) * c.fill(0.9)[t-1]
 h[t] = sin(c[t]) * x[t]
 y[] = sum(h[t]**2)""")
    first = op.gradient("x", keep={"h": 4, "c": 4}).gradient(("x", "h_kept", "c_kept"))
    dt.check_grads(first, _uniform((8,), (), (2,), (2,), (), (8,)), "x", modes="reverse")


@pytest.mark.parametrize("length", [0, 1, 4])
def test_gradients_with_steps_of_a_batch_are_differentiated(length: int) -> None:
    op = parse(BATCHED)
    x, U, dh = _uniform((2, length, 2), (2, 2), (2, length, 2))
    kept = op.keeping({"h": 2})(x, U)[1]
    back = op.gradient(("x", "U"), keep={"h": 2})
    dt.check_grads(back, [x, U, kept, dh], interpreted=True, elements=4)
