"""The laws of users' reducers, tried on numbers: identity, associativity, commutativity.

A law that holds for some dozens of random tuples is believed; one that does not is shown with the
tuples. Values are positive, for many tuples that are partial results have a count among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..dtypes import DType, bool_, f64, i64
from ..errors import DTypeError
from .evaluate import Array, Box, Evaluator, Typed
from .expr import Access
from .fold_types import identity, typed_combine
from .folds import Fold, Part

TRIED = 48
Values = Sequence[Array]


@lru_cache(maxsize=256)
def broken_law(fold: Fold) -> str | None:
    """The first law that does not hold, with what it does not hold for."""
    boolean = [isinstance(const.value, bool) for const in fold.identity]
    problem = ""
    for number in (f64, i64):
        accs = tuple(bool_ if b else number for b in boolean)
        try:
            typed_combine(fold, accs)
            return _tried(fold, accs)
        except DTypeError as err:
            problem = problem or str(err)
    return f"combine has no type: {problem}"


def _tried(fold: Fold, accs: tuple[DType, ...]) -> str | None:
    rng = np.random.default_rng(7)
    a, b, c = ([_samples(rng, acc) for acc in accs] for _ in range(3))
    start = [
        np.full(TRIED, identity(Part(fold, n), acc).value, acc.numpy) for n, acc in enumerate(accs)
    ]
    laws: list[tuple[str, Values, Values, tuple[Values, ...]]] = [
        ("identity", _combined(fold, accs, start, a), a, (start, a)),
        ("identity", _combined(fold, accs, a, start), a, (a, start)),
    ]
    ab, bc = _combined(fold, accs, a, b), _combined(fold, accs, b, c)
    sides = _combined(fold, accs, ab, c), _combined(fold, accs, a, bc)
    laws.append(("associative", *sides, (a, b, c)))
    if fold.commutative:
        laws.append(("commutative", ab, _combined(fold, accs, b, a), (a, b)))
    for law, got, want, given in laws:
        bad = ~np.all([_near(x, y) for x, y in zip(got, want, strict=True)], axis=0)
        if bad.any():
            n = int(np.argmax(bad))
            return _sentence(law, fold, _at(got, n), _at(want, n), [_at(v, n) for v in given])
    return None


def _sentence(law: str, fold: Fold, got: str, want: str, given: list[str]) -> str:
    if law == "identity":
        return (
            f"combine({given[0]}, {given[1]}) is {got}; with the identity "
            f"{_plain([c.value for c in fold.identity])} it should be {want}"
        )
    if law == "associative":
        a, b, c = given
        return (
            f"combine is not associative: combine(combine({a}, {b}), {c}) is {got}, "
            f"combine({a}, combine({b}, {c})) is {want}; what depends on all before it in order "
            f"is a recurrence"
        )
    a, b = given
    return (
        f"combine is not commutative: combine({a}, {b}) is {got}, combine({b}, {a}) is {want}; "
        f"say commutative=False (in text: ordered, at the end of its line)"
    )


def _samples(rng: np.random.Generator, acc: DType) -> Array:
    if acc is bool_:
        return rng.integers(0, 2, TRIED).astype(bool)
    whole = rng.integers(1, 4, TRIED)
    if acc is i64:
        return whole
    return np.where(np.arange(TRIED) % 2 == 0, whole, np.round(rng.uniform(0.25, 4, TRIED), 3))


def _combined(fold: Fold, accs: tuple[DType, ...], a: Values, b: Values) -> list[Array]:
    run = Evaluator({}, exact=False)
    box = Box({}, (TRIED,))
    for names, values in ((fold.left, a), (fold.right, b)):
        for name, value, acc in zip(names, values, accs, strict=True):
            box.memo[Access(name, ())] = Typed(value, acc)
    return [
        np.broadcast_to(run.evaluate(expr, box).array, (TRIED,))
        for expr in typed_combine(fold, accs)
    ]


def _near(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.equal(x, y)
    with np.errstate(all="ignore"):
        return np.isclose(x, y, rtol=1e-8, atol=1e-8, equal_nan=True)


def _at(values: Values, n: int) -> str:
    return _plain([v[n].item() for v in values])


def _plain(values: Sequence[bool | int | float]) -> str:
    shown = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
    return shown if len(values) == 1 else f"({shown})"
