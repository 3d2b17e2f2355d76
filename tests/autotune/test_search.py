"""The search by itself, on a clock, a space and a measurer that do what a test says."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from diptych.autotune import search
from diptych.autotune.messages import Outcome
from diptych.autotune.progress import Progress
from diptych.autotune.search import Search


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Numbers:
    """Points are numbers; the text of each takes `cost` seconds to find."""

    def __init__(self, clock: Clock, cost: float) -> None:
        self.clock, self.cost = clock, cost

    def default(self) -> dict[str, Any]:
        return {"n": 0}

    def seeds(self) -> list[dict[str, Any]]:
        return []

    def sample(self, rng: random.Random) -> dict[str, Any]:
        return {"n": rng.randrange(1, 1000)}

    def mutate(self, point: dict[str, Any], rng: random.Random) -> dict[str, Any]:
        return self.sample(rng)

    def text(self, point: dict[str, Any]) -> str:
        self.clock.now += self.cost if point["n"] else 0.0
        return str(point["n"])

    def features(self, point: dict[str, Any]) -> list[float]:
        return [float(point["n"])]


class Measures:
    """Each trial takes `cost` seconds, or as long as it may; the default takes a second a run."""

    def __init__(self, clock: Clock, cost: float) -> None:
        self.clock, self.cost = clock, cost
        self.asked: list[str] = []

    def measure(
        self, candidate: str, best: float | None = None, timeout: float | None = None
    ) -> Outcome:
        self.asked.append(candidate)
        if timeout is not None and timeout < self.cost:
            self.clock.now += timeout
            return Outcome(None, f"took longer than {timeout:.1f} s")
        self.clock.now += self.cost
        return Outcome(0.1 if int(candidate) % 2 else 0.2)


@pytest.mark.parametrize("found", [0.1, 0.9, 3.0])
@pytest.mark.parametrize("measured", [0.2, 1.5, 2.9])
def test_a_search_ends_with_its_time(
    found: float, measured: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(search, "time", clock)
    start = clock.now
    clock.now += 4.0  # loading the program, starting the server
    measures = Measures(clock, measured)
    run = Search(Numbers(clock, found), measures, 20.0, start=start)  # type: ignore[arg-type]
    best = run.run(Progress(20.0, io.StringIO()))
    assert 18.0 - found - measured <= clock.now - start <= 20.0 + measured + 2
    assert int(best.text) % 2 == 1 and (best.seconds, best.default_seconds) == (0.1, 0.2)
    assert measures.asked[-2:] == [best.text, "0"]  # both again, in the end


def test_the_default_is_measured_when_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(search, "time", clock)
    measures = Measures(clock, 2.0)
    run = Search(Numbers(clock, 0.1), measures, 1.0, start=0.0)  # type: ignore[arg-type]
    assert run.run(Progress(1.0, io.StringIO())).text == "0"
    assert measures.asked == ["0"]
