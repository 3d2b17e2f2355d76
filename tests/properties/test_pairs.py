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
from properties.tally import chunks, together
from properties.terms import TERMS

MODE = os.environ.get("DIPTYCH_TEST", "sample")
PAIRS = {"sample": 600, "full": 10_000, "fuzz": 10**6}[MODE]
CHUNK = 25
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))
ONE = os.environ.get("DIPTYCH_PAIR")


def check(seed: int, counts: Counter[str]) -> None:
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
    count(pair, places, counts)


def count(pair: Pair, places: set[str] | None, counts: Counter[str]) -> None:
    counts["pairs"] += 1
    counts["proposed"] += pair.proposed
    counts["taken"] += len(pair.steps)
    if places is not None:
        counts["accepted"] += 1
        counts["length"] += len(pair.steps)
        counts["uneven"] += pair.uneven
        counts.update(f"with {name}" for name in {*pair.names, *pair.case.kinds, *places})


@pytest.mark.parametrize("chunk", chunks(PAIRS, CHUNK))
def test_pairs_agree(chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    counts: Counter[str] = Counter()
    for n in range(CHUNK):
        check(SEED * 10_000_019 + chunk * CHUNK + n, counts)
    total = together(tmp_path_factory, "pairs", chunk, counts, PAIRS // CHUNK)
    if total is not None:
        assert_varied(total)


@pytest.mark.skipif(ONE is None, reason="runs the pair of DIPTYCH_PAIR alone")
def test_one_pair() -> None:
    check(int(ONE or 0), Counter())


def assert_varied(counts: Counter[str]) -> None:
    """What was drawn by all chunks together covers the space of operators and schedules."""
    assert counts["pairs"] == PAIRS
    accepted = counts["accepted"]
    assert accepted >= 0.6 * counts["pairs"]
    assert counts["taken"] >= 0.6 * counts["proposed"]
    assert counts["length"] >= 4 * accepted
    assert counts["uneven"] >= 0.3 * accepted
    seen = {name.removeprefix("with "): n for name, n in counts.items() if name[:5] == "with "}
    assert {*PROPOSALS, *TERMS, *PLACES, "dynamic"} <= set(seen)
    rare = {name: n for name, n in seen.items() if n < 0.05 * accepted}
    assert not rare, (rare, counts)
