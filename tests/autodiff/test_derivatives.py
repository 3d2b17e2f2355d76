"""The table of derivatives: complete, and right against central differences and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from diptych.algo.dtypes import f32, i32
from diptych.algo.tensor_expr.expr import Access, Call, Cast, Const, Expr, Index, walk
from diptych.algo.tensor_expr.operations import ERASED, OPERATIONS
from diptych.algo.tensor_expr.printer import print_expr
from diptych.autodiff.derivatives import DERIVATIVES, Guarded, pullback

A, B, P, C = (Access(name, ()) for name in "abpc")
SEED = (Guarded((), C),)


def evaluate(expr: Expr, env: dict[str, float]) -> float:
    if isinstance(expr, Access):
        return env[expr.tensor]
    if isinstance(expr, Const):
        return expr.value
    assert isinstance(expr, Call)
    with np.errstate(all="ignore"):
        return OPERATIONS[expr.op].numpy(*(evaluate(arg, env) for arg in expr.args))


def test_every_operation_has_a_derivative() -> None:
    assert set(DERIVATIVES) == set(OPERATIONS)


POINTS = [(0.7, 1.3), (1.9, 0.4), (2.5, 2.1)]


@pytest.mark.parametrize("op", sorted(OPERATIONS.keys() - ERASED.keys()))
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_against_central_differences(op: str, point: tuple[float, float]) -> None:
    operation = OPERATIONS[op]
    args = {1: (A,), 2: (A, B), 3: (P, A, B)}[operation.arity]
    body = Call(op, args)
    env = {"a": np.float64(point[0]), "b": np.float64(point[1]), "c": 1.5, "p": np.bool_(True)}
    found = pullback(body, SEED)
    step = 1e-6
    for arg in (A, B)[: min(2, operation.arity)]:
        up = evaluate(body, env | {arg.tensor: env[arg.tensor] + step})
        down = evaluate(body, env | {arg.tensor: env[arg.tensor] - step})
        wanted = 1.5 * (float(up) - float(down)) / (2 * step)
        got = evaluate(found[arg], env) if arg in found else 0.0
        assert got == pytest.approx(wanted, rel=1e-6, abs=1e-9), (op, arg)


@pytest.mark.parametrize("point", [(1.0, 0.1), (-1.0, 0.1), (0.3, -0.1)], ids=str)
def test_a_remainder_falls_by_the_quotient_that_it_leaves(point: tuple[float, float]) -> None:
    """1.0 / 0.1 is 10, but 1.0 // 0.1 is 9, and the rest of 1.0 nearly 0.1."""
    env = {"a": np.float64(point[0]), "b": np.float64(point[1]), "c": 1.0}
    by_divisor = pullback(Call("mod", (A, B)), SEED)[B]
    assert evaluate(by_divisor, env) == -(env["a"] // env["b"])


def shown(body: Expr) -> dict[str, str]:
    return {a.tensor: print_expr(e) for a, e in pullback(body, SEED).items()}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (Call("mul", (A, B)), {"a": "c[] * b[]", "b": "a[] * c[]"}),
        (Call("mul", (A, A)), {"a": "2 * (c[] * a[])"}),
        (Call("div", (A, B)), {"a": "c[] / b[]", "b": "-(c[] * (a[] / b[]) / b[])"}),
        (Call("sub", (A, B)), {"a": "c[]", "b": "-c[]"}),
        (Call("pow", (A, Const(1))), {"a": "c[]"}),
        (Call("pow", (A, Const(2))), {"a": "c[] * (2 * a[])"}),
        (Call("pow", (A, Const(3))), {"a": "c[] * (3 * a[]**2)"}),
        (Call("pow", (A, Const(0))), {}),
        (Call("pow", (A, Index("k"))), {"a": "where(k != 0, c[] * (k * a[]**(k - 1)), 0)"}),
        (Call("pow", (A, B)),
         {"a": "where((b[] != 0) | (abs(a[]**(b[] - 1)) != inf), c[] * (b[] * a[]**(b[] - 1)), 0)",
          "b": "where((a[] == 0) & (b[] > 0), 0, c[] * (a[]**b[] * log(a[])))"}),
        (Call("max", (A, Const(0))),
         {"a": "where(a[] > 0, c[], where(a[] == 0, c[] / 2, 0))"}),
        (Call("max", (A, B)),
         {"a": "where(a[] > b[], c[], where(a[] == b[], c[] / 2, 0))",
          "b": "where(a[] > b[], 0, where(a[] == b[], c[] / 2, c[]))"}),
        (Call("where", (P, A, B)), {"a": "where(p[], c[], 0)", "b": "where(p[], 0, c[])"}),
        (Call("where", (P, A, A)), {"a": "c[]"}),
        (Call("where", (Const(False), A, B)), {"b": "c[]"}),
        (Call("floor", (A,)), {}),
        (Call("lt", (A, B)), {}),
        (Cast(f32, A), {"a": "c[]"}),
        (Cast(i32, A), {}),
    ],
    ids=lambda p: "" if isinstance(p, dict) else print_expr(p),
)  # fmt: skip
def test_symbolic(body: Expr, wanted: dict[str, str]) -> None:
    assert shown(body) == wanted


def test_a_guard_stays_outside_the_division() -> None:
    body = Call("where", (Call("gt", (A, Const(0))), Call("sqrt", (A,)), Const(0)))
    assert shown(body) == {"a": "where(a[] > 0, c[] / (2 * sqrt(a[])), 0)"}


def test_stored_value_replaces_the_root() -> None:
    stored = Access("y", ())
    found = pullback(Call("exp", (A,)), SEED, stored)
    assert {a.tensor: print_expr(e) for a, e in found.items()} == {"a": "c[] * y[]"}


def chain(kind: str, n: int) -> Expr:
    """A value that n choices in a row make of A, each of which the next one reads as it says."""
    value: Expr = A
    for k in range(n):
        over = Call("gt", (value, Const(0.1 * k)))
        scaled = Call("mul", (value, Const(0.5)))
        choices = {
            "both branches": Call("where", (over, scaled, Call("add", (value, B)))),
            "outside too": Call("add", (B, Call("where", (over, scaled, value)))),
            "sometimes outside": Call("add", (value, Call("where", (over, scaled, B)))),
            "nested": Call("where", (Call("gt", (A, Const(k / n - 1))), Call("sin", (value,)), B)),
            "ties": Call("max", (scaled, Call("sub", (value, B)))),
        }
        value = choices[kind]
    return value


def shared(expr: Expr, env: dict[str, float]) -> float:
    """As `evaluate`, each of the parts once."""
    found: dict[Expr, float] = {}
    for item in walk(expr):
        if isinstance(item, Call):
            found[item] = OPERATIONS[item.op].numpy(*(found[arg] for arg in item.args))
        else:
            found[item] = evaluate(item, env)
    return found[expr]


KINDS = ("both branches", "outside too", "sometimes outside", "nested", "ties")


@pytest.mark.parametrize("kind", KINDS)
def test_choices_in_a_row(kind: str) -> None:
    body = chain(kind, 8)
    env = {"a": 0.83, "b": 0.21, "c": 1.5}
    for name, access in (("a", A), ("b", B)):
        near = [shared(body, {**env, name: env[name] + h}) for h in (1e-6, -1e-6)]
        want = env["c"] * (near[0] - near[1]) / 2e-6
        assert shared(pullback(body, SEED)[access], env) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_in_a_row_have_derivatives_of_their_length(kind: str) -> None:
    """Each is a constant number of operations more, and depth is no matter."""
    few, more = (len(list(walk(pullback(chain(kind, n), SEED)[A]))) for n in (50, 100))
    assert more < 2.2 * few
    assert pullback(chain(kind, 500), SEED)
