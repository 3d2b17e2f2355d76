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

MODE = os.environ.get("DIPTYCH_TEST", "sample")
TRIALS = {"sample": 400, "full": 6000, "fuzz": 10**6}[MODE]
CHUNK = 50
SEED = int(os.environ.get("DIPTYCH_SEED", "0"))

counts: Counter[str] = Counter()


@pytest.mark.parametrize("chunk", range(TRIALS // CHUNK))
def test_verdicts_agree(chunk: int) -> None:
    for n in range(CHUNK):
        run(SEED * 10_000_019 + chunk * CHUNK + n, counts)


def test_both_verdicts_were_reached() -> None:
    """Runs last: enough was wrong, by enough primitives, and little could not be proved."""
    if sum(n for name, n in counts.items() if name.startswith("tried ")) < 4 * TRIALS:
        pytest.skip("needs the trials of this file in the same run")
    assert counts["accepted, right"] >= 3 * TRIALS
    assert counts["refused, wrong"] >= 0.2 * TRIALS
    wrong = {"parallel", "vectorize", "shift", "reverse", "compute_with", "compute_at"}
    wrong |= set() if MODE == "sample" else {"reorder", "store_at", "stage"}
    assert {name for name in wrong if not counts[f"wrong {name}"]} == set()
    assert counts["could not prove"] <= 0.02 * counts["accepted, right"]
    assert counts["refused for all sizes"] <= 0.02 * counts["accepted, right"]
