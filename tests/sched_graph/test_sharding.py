"""What replicas hold of an operator's results follows from its index expressions."""

from __future__ import annotations

import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.graph.sharding import SAME, Local, Partial, Split, State, localise

SUM = Partial("sum")


def local(text: str, *args: tuple[State, tuple[int, ...]]) -> Local:
    return localise(parse(text), [state for state, _ in args], [shape for _, shape in args])


MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"


@pytest.mark.parametrize(
    ("a", "b", "args", "result"),
    [
        (Split(0), SAME, (Split(0), SAME), Split(0)),
        (SAME, Split(1), (SAME, Split(1)), Split(1)),
        (Split(1), SAME, (Split(1), Split(0)), SUM),
        (Split(1), Split(0), (Split(1), Split(0)), SUM),
        (Split(0), Split(1), (Split(0), SAME), Split(0)),  # A is larger, so B is gathered
        (SUM, SAME, (SUM, SAME), SUM),
        (SUM, SUM, (SAME, SAME), SAME),
        (SAME, SAME, (SAME, SAME), SAME),
    ],
)
def test_matmul(a: State, b: State, args: tuple[State, ...], result: State) -> None:
    found = local(MATMUL, (a, (8, 6)), (b, (6, 4)))
    assert (found.args, found.results) == (args, (result,))


def test_bias_is_whole_where_its_index_is_not_split() -> None:
    text = "y[n,f] = max(x[n,f] + b[f], 0)"
    found = local(text, (Split(0), (8, 4)), (SAME, (4,)))
    assert (found.args, found.results) == ((Split(0), SAME), (Split(0),))
    found = local(text, (Split(1), (8, 4)), (SAME, (4,)))
    assert (found.args, found.results) == ((Split(1), Split(0)), (Split(1),))


def test_mean_keeps_its_global_divisor() -> None:
    found = local("mean(x: f32[N]) -> m:\n  m[] = sum(x[n]) / N", (Split(0), (12,)))
    assert found.results == (SUM,)
    assert found.op.text == "mean(x: f32[N]) -> m:\n    m[] = sum(x[n]) / 12"


def test_a_size_in_a_condition_is_global_too() -> None:
    text = "count(x: f32[N, K]) -> m:\n  m[k] = sum(1, over=(n,), where=x[n,k] < N)"
    found = local(text, (Split(0), (12, 3)))
    assert found.results == (SUM,)
    assert "x[n,k] < 12" in found.op.text


def test_a_divisor_that_is_not_split_stays_a_symbol() -> None:
    found = local("mean(x: f32[N, K]) -> m:\n  m[n] = sum(x[n,k]) / K", (Split(0), (12, 3)))
    assert found.results == (Split(0),)
    assert "/ K" in found.op.text


def test_cross_entropy() -> None:
    text = """
    cross_entropy(z: f32[B, O], label: i64[B]) -> loss:
        m[n]   = max(z[n,o])
        l[n]   = log(sum(exp(z[n,o] - m[n]))) + m[n]
        loss[] = sum(l[n] - z[n,label[n]]) / B
    """
    found = local(text, (Split(0), (8, 10)), (SAME, (8,)))
    assert (found.args, found.results) == ((Split(0), Split(0)), (SUM,))
    assert "/ 8" in found.op.text


def test_convolution_over_the_batch_only() -> None:
    text = "y[n,f,h] = sum(x[n,h+r] * w[f,r])"
    assert local(text, (Split(0), (4, 9)), (SAME, (5, 3))).results == (Split(0),)
    found = local(text, (Split(1), (4, 9)), (SAME, (5, 3)))  # a halo would be needed
    assert (found.args, found.results) == ((SAME, SAME), (SAME,))
    assert found.reason


def test_embedding_and_its_gradient() -> None:
    found = local("y[t,d] = W[p[t],d]", (SAME, (100, 8)), (Split(0), (6,)))
    assert (found.args, found.results) == ((SAME, Split(0)), (Split(0),))
    text = (
        "grad(p: i64[T], g: f32[T, D], W: f32[V, D]) -> dW:\n  dW[p[t],d] += g[t,d]\n  dW: [V, D]"
    )
    found = local(text, (Split(0), (6,)), (Split(0), (6, 8)), (SAME, (100, 8)))
    assert (found.args, found.results) == ((Split(0), Split(0), SAME), (SUM,))


def test_max_of_a_split_index_is_a_partial_max() -> None:
    assert local("m[j] = max(x[i,j])", (Split(0), (8, 4))).results == (Partial("max"),)
    assert local("m[j] = max(x[i,j])", (Split(1), (8, 4))).results == (Split(0),)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("y[i] = a[i] + b[i]", False),
        ("y[i] = a[i] * 2 - a[i]", True),
        ("y[i] = -a[i] / 3", True),
        ("y[i] = a[i] + 1", False),
        ("y[i] = a[i] * a[i]", False),
        ("y[i] = exp(a[i])", False),
        ("y[i] = 1 / a[i]", False),
        ("y[i] = where(b[i] > 0, a[i], 2 * a[i])", True),
        ("y[i] = where(b[i] > 0, a[i], 1)", False),
        ("y[] = sum(a[i] * b[i])", True),
        ("y[] = max(a[i])", False),
    ],
)
def test_sums_stay_partial_under_what_is_linear(text: str, kept: bool) -> None:
    states = [(SUM, (6,)), (SAME, (6,))][: 1 + ("b[" in text)]
    header = "op(a: f32[N], b: f32[N]) -> y:\n  " if "b[" in text else ""
    found = local(header + text, *states)
    assert found.args[0] == (SUM if kept else SAME)
    assert found.results == ((SUM if kept else SAME),)


def test_two_partial_sums_add_up() -> None:
    found = local("y[i] = a[i] + b[i]", (SUM, (6,)), (SUM, (6,)))
    assert (found.args, found.results) == ((SUM, SUM), (SUM,))


@pytest.mark.parametrize(
    ("text", "states", "reason"),
    [
        (
            "y[i] = x[i] / sum(x[k])",
            [(Split(0), (8,))],
            "div of a partial sum over I",
        ),
        (
            "op(x: f32[N]) -> y:\n  y[i] = x[N-1-i] where i in 0:N",
            [(Split(0), (8,))],
            "x[N-1-i] reads the parts of other replicas",
        ),
        (
            "op(x: f32[N], z: f32[N]) -> y:\n  y[i,j] = x[i] * z[j]",
            [(Split(0), (8,)), (SAME, (8,))],
            "two dimensions of y have the size N",
        ),
        ("y[i] = x[i] * i", [(Split(0), (8,))], "index i is used as a number"),
        ("D[i] = X[i,i]", [(Split(0), (8, 8))], "two dimensions of X have the size I"),
        (
            "c(x: f32[N]) -> h:\n  h[0] = x[0]\n  h[i] = h[i-1] + x[i] where i in 1:N",
            [(Split(0), (8,))],
            "x[0] reads the parts of other replicas",
        ),
    ],
)
def test_what_needs_other_parts_is_gathered_with_the_reason(
    text: str, states: list[tuple[State, tuple[int, ...]]], reason: str
) -> None:
    found = local(text, *states)
    assert all(state == SAME for state in (*found.args, *found.results))
    assert reason in found.reason


def test_a_cumulative_sum_splits_over_its_other_index() -> None:
    text = "c(x: f32[N,T]) -> h:\n  h[n,0] = x[n,0]\n  h[n,t] = h[n,t-1] + x[n,t] where t in 1:T"
    assert local(text, (Split(0), (4, 8))).results == (Split(0),)
