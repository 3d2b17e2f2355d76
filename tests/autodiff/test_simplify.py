"""Simplification rules are exact: every bit, every type, on the values that break folklore."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from diptych.algo.errors import InternalError
from diptych.algo.tensor_expr.expr import Access, Call, Const, Expr, Index
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.algo.tensor_expr.printer import print_expr
from diptych.algo.tensor_expr.simplify import RULES, Rule, Wild, fill, simplify

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.5, INF, -INF, NAN, 1e-45, 6e-8, 65504.0, 3e38, 1 / 3]
WILDS = "abcdmnx"
FLOAT_TYPES = (np.float16, np.float32, np.float64)


def leaf(name: str) -> Access:
    return Access(name, ())


def value(expr: Expr, env: dict[str, object]) -> object:
    if isinstance(expr, Access):
        return env[expr.tensor]
    if isinstance(expr, Const):
        return expr.value
    assert isinstance(expr, Call)
    args = [value(arg, env) for arg in expr.args]
    with np.errstate(all="ignore"):
        return OPERATIONS[expr.op].numpy(*args)


def same(one: object, two: object) -> bool:
    one, two = np.asarray(one), np.asarray(two)
    if one.dtype != two.dtype:
        return False
    return one.tobytes() == two.tobytes() or (np.isnan(one).all() and np.isnan(two).all())


def instances(rule: Rule):
    """The rule's two sides over leaves, for all choices of literals that it asks for."""
    names = [w for w in WILDS if w in print_wilds(rule.pattern)]
    literals = [2, 3, 4, 5] if "m" in names else [0]
    for p, q in itertools.product(literals, literals if "n" in names else [0]):
        found: dict[str, Expr] = {name: leaf(name) for name in names}
        if "m" in names:
            found |= {"m": Const(p), "n": Const(q)}
        if rule.name.endswith("twice"):
            found["b"] = Const(0)
        before = fill(rule.pattern, found)
        after = rule.apply(before, set(WILDS))
        if after is not None:
            yield before, after, [n for n, e in found.items() if isinstance(e, Access)]


def print_wilds(pattern: Expr) -> set[str]:
    if isinstance(pattern, Wild):
        return {pattern.name}
    return {n for arg in getattr(pattern, "args", ()) for n in print_wilds(arg)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=lambda t: t.__name__)
def test_rule_is_exact(rule: Rule, dtype: type) -> None:
    with np.errstate(all="ignore"):
        specials = [dtype(v) for v in FLOATS]
    count = 0
    for before, after, names in instances(rule):
        choices = [[np.True_, np.False_] if n == "c" else specials for n in names]
        for values in itertools.product(*choices):
            env = dict(zip(names, values, strict=True))
            assert same(value(before, env), value(after, env)), (env, before, after)
            count += 1
    assert count >= len(FLOATS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_needs_a_float_or_holds_for_integers_too(rule: Rule) -> None:
    """Without known floats a rule must not fire, or be right for wrapping integers."""
    integers = [np.int8(v) for v in (-128, -1, 0, 1, 3, 127)] + [np.uint8(200)]
    names = [w for w in WILDS if w in print_wilds(rule.pattern)]
    found: dict[str, Expr] = {n: Const(2) if n in "mn" else leaf(n) for n in names}
    before = fill(rule.pattern, found)
    after = rule.apply(before)
    if after is None:
        return
    leaves = [n for n in names if n not in "mn"]
    choices = [[np.True_, np.False_] if n == "c" else integers for n in leaves]
    for values in itertools.product(*choices):
        env = dict(zip(leaves, values, strict=True))
        assert same(value(before, env), value(after, env)), env


def test_what_must_stay() -> None:
    x, zero = leaf("x"), Const(0)
    for expr in (
        Call("mul", (x, zero)),
        Call("mul", (zero, x)),
        Call("sub", (x, x)),
        Call("add", (x, zero)),
        Call("add", (zero, x)),
        Call("sub", (x, zero)),
        Call("sub", (zero, x)),
        Call("div", (x, x)),
        Call("pow", (x, zero)),
        Call("mul", (Const(3), Call("mul", (Const(5), x)))),
        Call("neg", (Call("sub", (x, leaf("y"))),)),
    ):
        assert simplify(expr, {"x", "y"}) is expr


def test_reads_as_a_person_writes() -> None:
    i = Index("i")
    c, x = Access("c", (i,)), Access("x", (i,))
    neg = lambda e: Call("neg", (e,))  # noqa: E731
    product = Call("mul", (neg(c), neg(x)))
    assert print_expr(simplify(product, {"c", "x"})) == "c[i] * x[i]"
    total = Call("add", (Call("mul", (c, x)), Call("mul", (x, c))))
    assert print_expr(simplify(total, {"c"})) == "2 * (c[i] * x[i])"
    difference = Call("add", (neg(Call("div", (c, x))), c))
    assert print_expr(simplify(difference, {"c"})) == "c[i] - c[i] / x[i]"
    assert simplify(product) is product  # u8 and i8 wrap


def test_a_rule_with_an_unbound_wild_is_refused() -> None:
    with pytest.raises(InternalError) as caught:
        Rule("bad", Call("neg", (Wild("a"),)), Wild("b"))
    assert str(caught.value) == "rule bad: ['b'] not in its pattern"
