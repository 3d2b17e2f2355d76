"""Derivatives of random operators over every construct: by numbers, both modes, second order.

Operators come from `random_operators.py`, at points where they are smooth. Each is computed by the
interpreter, one in eight by compiled code too; in `make test` second order, whose construction
takes most of the time, is left to one in five. A failure shows the seed of its operator, how to run
it again, and the operator with as little in it as still fails.
"""

from __future__ import annotations

import os
from collections import Counter

import diptych as dt
import pytest
from autodiff.random_operators import EVERY, Case, Source, shrunk
from properties.tally import chunks, together

MODE = os.environ.get("DIPTYCH_TEST", "sample")
OPERATORS = {"sample": 200, "full": 3_000, "fuzz": 10**6}[MODE]
CHUNK = 20
COMPILED = 8
SECOND = 5 if MODE == "sample" else 1
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))
ONE = os.environ.get("DIPTYCH_OPERATOR")


def check(case: Case, order: int, compiled: bool) -> None:
    op = dt.op(case.text)
    dt.check_grads(op, case.arrays, order=order, interpreted=True, elements=9)
    if compiled:
        dt.check_grads(op, case.arrays, order=order, elements=0)


def failure(case: Case, order: int, compiled: bool) -> Exception | None:
    try:
        check(case, order, compiled)
    except Exception as error:
        return error
    return None


def check_seed(seed: int, counts: Counter[str], second: int = SECOND) -> None:
    case, compiled = Source(seed).draw(), seed % COMPILED == 0
    order = 2 if seed % second == 0 else 1
    wrong = failure(case, order, compiled)
    if wrong is not None:
        kind = type(wrong)
        least = shrunk(case, lambda c: type(failure(c, order, compiled)) is kind)
        raise AssertionError(
            f"operator {seed}: DIPTYCH_OPERATOR={seed} .venv/bin/pytest {__file__} -k one_operator"
            f"\n{least.text}\n{kind.__name__}: {failure(least, order, compiled)}"
        ) from wrong
    counts.update({"operators": 1, **dict.fromkeys(case.uses, 1)})


@pytest.mark.parametrize("chunk", chunks(OPERATORS, CHUNK))
def test_random_operators(chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    counts: Counter[str] = Counter()
    for n in range(CHUNK):
        check_seed(SEED * 10_000_019 + chunk * CHUNK + n, counts)
    total = together(tmp_path_factory, "gradients", chunk, counts, OPERATORS // CHUNK)
    if total is not None:
        assert_varied(total)


@pytest.mark.skipif(ONE is None, reason="checks the operator of DIPTYCH_OPERATOR alone")
def test_one_operator() -> None:
    check_seed(int(ONE or 0), Counter(), second=1)


def assert_varied(counts: Counter[str]) -> None:
    """Every construct was in one operator of a hundred at least."""
    assert counts["operators"] == OPERATORS
    rare = {name: counts[name] for name in EVERY if counts[name] < 0.01 * OPERATORS}
    assert not rare, (rare, counts)
