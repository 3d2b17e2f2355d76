"""The search: evolution over points of a space, guided by a ranker learned while tuning.

The default is measured first and the search never returns anything slower. Each round samples
many points, drops illegal ones and repeats, lets a boosted-tree ranker (once there is enough to
learn from) choose which to measure, and reports every improvement at once, so that an interrupt
loses nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..algo import debug
from .measure import Measurer
from .progress import Progress
from .ranker import Ranker
from .records import Record, Records

Point = dict[str, Any]


class Space(Protocol):
    """Where a search moves. Points are small dictionaries of choices."""

    def default(self) -> Point:
        """The point to start from; its text is the default schedule."""

    def seeds(self) -> list[Point]:
        """Points to measure before any search, the most promising first."""

    def sample(self, rng: random.Random) -> Point:
        """A random point."""

    def mutate(self, point: Point, rng: random.Random) -> Point:
        """A neighbour of a point."""

    def text(self, point: Point) -> str | None:
        """The candidate as schedule text, None where it is not legal."""

    def features(self, point: Point) -> list[float]:
        """Numbers for the ranker, always equally many."""


@dataclass
class Found:
    """A search's result: the best candidate and its figures, in seconds."""

    text: str
    seconds: float
    default_seconds: float
    trials: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass
class Search:
    """One tuning run. `improved` is called with every new best, the default first."""

    space: Space
    measurer: Measurer
    seconds: float
    seed: int = 0
    trials: int | None = None
    records: Records = field(default_factory=lambda: Records(None))
    key: str = ""
    improved: Callable[[Found], None] = lambda found: None

    def run(self, progress: Progress) -> Found:
        """Searches until the time or the number of trials is used up."""
        rng, start = random.Random(self.seed), time.monotonic()
        first = self.space.default()
        text = self.space.text(first)
        assert text is not None, "the default schedule is legal"
        outcome = self.measurer.measure(text)
        if outcome.seconds is None:
            raise RuntimeError(f"the default schedule failed: {outcome.reason}")
        found = Found(text, outcome.seconds, outcome.seconds, 1)
        # A candidate may compile for a while, but not eat the time of ten others.
        limit = max(3.0, 30 * outcome.seconds)
        measured: list[tuple[float, Point]] = [(outcome.seconds, first)]
        ranker, seen = Ranker(), {text}
        ranker.add(self.space.features(first), outcome.seconds)
        self.improved(found)
        for record in self.records:
            if record.key == self.key and record.seconds is None:
                seen.add(record.candidate)
        known = [
            record
            for record in self.records
            if record.key == self.key and record.seconds is not None
        ]
        queue: list[tuple[Point | None, str]] = [
            (None, r.candidate) for r in sorted(known, key=lambda r: r.seconds or 0.0)[:3]
        ]
        seeds = self.space.seeds()
        while time.monotonic() - start < self.seconds and (
            self.trials is None or found.trials < self.trials
        ):
            if not queue and seeds:
                seed = seeds.pop(0)
                written = self.space.text(seed)
                queue = [] if written is None or written in seen else [(seed, written)]
                continue
            if not queue:
                queue = self._propose(rng, measured, seen, ranker, start + self.seconds)
                if not queue:
                    break
            point, text = queue.pop(0)
            seen.add(text)
            left = self.seconds - (time.monotonic() - start)
            outcome = self.measurer.measure(text, found.seconds, max(1.0, min(left, limit)))
            found.trials += 1
            self.records.append(Record(self.key, text, outcome.seconds, outcome.reason))
            if outcome.seconds is None:
                found.failures.append(f"{outcome.reason}  [{text}]")
                debug.say(1, f"dropped: {outcome.reason}  [{text}]")
            else:
                if point is not None:
                    measured.append((outcome.seconds, point))
                    ranker.add(self.space.features(point), outcome.seconds)
                if outcome.seconds < found.seconds:
                    found.text, found.seconds = text, outcome.seconds
                    self.improved(found)
            progress.update(found.trials, len(found.failures), found.seconds, found.default_seconds)
        return self._confirm(found, first)

    def _propose(
        self,
        rng: random.Random,
        measured: Sequence[tuple[float, Point]],
        seen: set[str],
        ranker: Ranker,
        deadline: float,
    ) -> list[tuple[Point | None, str]]:
        """The next few candidates: legal, new, and the most promising of many."""
        elite = [point for _, point in sorted(measured, key=lambda m: m[0])[:6]]
        pool: list[Point] = []
        for _ in range(64):
            fresh = not elite or rng.random() < 0.25
            pool.append(
                self.space.sample(rng) if fresh else self.space.mutate(rng.choice(elite), rng)
            )
        if ranker.ready:
            scores = ranker.predict([self.space.features(point) for point in pool])
            pool = [
                point for _, point in sorted(zip(scores, pool, strict=True), key=lambda p: p[0])
            ]
        chosen: list[tuple[Point | None, str]] = []
        for point in pool:
            if time.monotonic() > deadline:
                break
            text = self.space.text(point)
            if text is None or text in seen or any(text == other for _, other in chosen):
                continue
            chosen.append((point, text))
            if len(chosen) == 4:
                break
        return chosen

    def _confirm(self, found: Found, first: Point) -> Found:
        """Measures best and default again: noise must not sell a slower schedule."""
        default = self.space.text(first)
        if default is None or found.text == default:
            return found
        again = [
            (self.measurer.measure(found.text).seconds, self.measurer.measure(default).seconds)
            for _ in range(2)
        ]
        best = min((b for b, _ in again if b is not None), default=None)
        base = min((d for _, d in again if d is not None), default=None)
        if best is None or (base is not None and base < best):
            found.text, found.seconds = default, base or found.default_seconds
            found.default_seconds = found.seconds
            self.improved(found)
        elif base is not None:
            found.seconds, found.default_seconds = best, base
            self.improved(found)
        return found
