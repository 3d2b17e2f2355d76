"""Random operator x random legal schedule must agree with the interpreter, bit for bit.

Operators come from `operators.py`, primitives from `proposals.py`, arrays lie as `memory.py` says
and outputs are poisoned. A failure shows the seed of its pair, how to run it again, and the pair
with the fewest primitives that still fails. A worker that dies names the chunk that it ran: pairs
`25 * chunk` to `25 * chunk + 24`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from properties.memory import PLACES
from properties.pairs import Pair, draw, fails, run, shrunk
from properties.proposals import PROPOSALS
from properties.terms import TERMS

MODE = os.environ.get("DIPTYCH_TEST", "sample")
PAIRS = {"sample": 600, "full": 10_000, "fuzz": 10**6}[MODE]
CHUNK = 25
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))
ONE = os.environ.get("DIPTYCH_PAIR")

counts: Counter[str] = Counter()
seen: Counter[str] = Counter()


def check(seed: int) -> None:
    replay = f"pair {seed}: DIPTYCH_PAIR={seed} .venv/bin/pytest {__file__} -k one_pair"
    try:
        pair = draw(seed)
    except AssertionError as error:
        raise AssertionError(f"{replay}\n{error}") from error
    wrong, places = None, None
    try:
        places = run(pair)
    except Exception as error:
        wrong = error
    if wrong is not None:
        least = shrunk(pair, run)
        shown = fails(least, run) or wrong
        raise AssertionError(f"{replay}\n{least}\n{type(shown).__name__}: {shown}") from wrong
    tally(pair, places)


def tally(pair: Pair, places: set[str] | None) -> None:
    counts["pairs"] += 1
    counts["proposed"] += pair.proposed
    counts["taken"] += len(pair.steps)
    if places is not None:
        counts["accepted"] += 1
        counts["length"] += len(pair.steps)
        counts["uneven"] += pair.uneven
        seen.update(set(pair.names) | pair.case.kinds | places)


@pytest.mark.parametrize("chunk", range(PAIRS // CHUNK))
def test_pairs_agree(chunk: int) -> None:
    for n in range(CHUNK):
        check(SEED * 10_000_019 + chunk * CHUNK + n)


@pytest.mark.skipif(ONE is None, reason="runs the pair of DIPTYCH_PAIR alone")
def test_one_pair() -> None:
    check(int(ONE or 0))


def test_the_pairs_cover_the_space() -> None:
    """Runs last: what was drawn is varied enough to mean something."""
    if counts["pairs"] < PAIRS:
        pytest.skip("needs the pairs of this file in the same run")
    accepted = counts["accepted"]
    assert accepted >= 0.6 * counts["pairs"]
    assert counts["taken"] >= 0.6 * counts["proposed"]
    assert counts["length"] >= 4 * accepted
    assert counts["uneven"] >= 0.3 * accepted
    assert {*PROPOSALS, *TERMS, *PLACES, "dynamic"} <= set(seen)
    rare = {name: n for name, n in seen.items() if n < 0.05 * accepted}
    assert not rare, (rare, counts)
