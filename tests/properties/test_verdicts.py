"""What legality says of random primitives is what running every instance of the nest says.

`brute/` holds the second opinion: operators at small sizes, primitives drawn without regard to
what may be legal, and each nest that one gives run instance by instance on symbolic values. What
is accepted must be right. What is refused must be wrong, but where the message says "could not
prove" and where it is one of the refusals that `brute/refusals.py` lists with their reasons.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from properties.brute.trial import run
from properties.tally import chunks, together

MODE = os.environ.get("DIPTYCH_TEST", "sample")
TRIALS = {"sample": 400, "full": 6000, "fuzz": 10**6}[MODE]
CHUNK = 50
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))


@pytest.mark.parametrize("chunk", chunks(TRIALS, CHUNK))
def test_verdicts_agree(chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    counts: Counter[str] = Counter()
    for n in range(CHUNK):
        run(SEED * 10_000_019 + chunk * CHUNK + n, counts)
    total = together(tmp_path_factory, "verdicts", chunk, counts, TRIALS // CHUNK)
    if total is not None:
        assert_both_reached(total)


def assert_both_reached(counts: Counter[str]) -> None:
    """Enough was wrong, by enough primitives, and little could not be proved."""
    assert counts["accepted, right"] >= 3 * TRIALS
    assert counts["refused, wrong"] >= 0.2 * TRIALS
    wrong = {"parallel", "vectorize", "shift", "reverse", "compute_with", "compute_at"}
    wrong |= set() if MODE == "sample" else {"reorder", "store_at", "stage"}
    assert {name for name in wrong if not counts[f"wrong {name}"]} == set()
    assert counts["could not prove"] <= 0.02 * counts["accepted, right"]
    assert counts["refused for all sizes"] <= 0.02 * counts["accepted, right"]
