"""The search: evolution over points of a space, guided by a ranker learned while tuning.

The default is measured first and the search never returns anything slower. Each round samples
many points, drops illegal ones and repeats, lets a boosted-tree ranker (once there is enough to
learn from) choose which to measure, and reports every improvement at once, so that an interrupt
loses nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
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
    """One tuning run of `seconds` from `start`, a time of the monotonic clock.

    `improved` is called with every new best, the default first.
    """

    space: Space
    measurer: Measurer
    seconds: float
    seed: int = 0
    trials: int | None = None
    records: Records = field(default_factory=lambda: Records(None))
    key: str = ""
    improved: Callable[[Found], None] = lambda found: None
    start: float = field(default_factory=time.monotonic)

    def run(self, progress: Progress) -> Found:
        """Searches until the time or the number of trials is used up.

        The default is measured in any case; what is found better is measured again within the time.
        """
        rng, deadline = random.Random(self.seed), self.start + self.seconds
        first = self.space.default()
        text = self.space.text(first)
        assert text is not None, "the default schedule is legal"
        began = time.monotonic()
        outcome = self.measurer.measure(text)
        base = time.monotonic() - began
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
        kept = [r.candidate for r in sorted(known, key=lambda r: r.seconds or 0.0)[:3]]
        candidates = self._candidates(rng, kept, measured, seen, ranker, deadline)
        reserve = 0.0  # for measuring the best and the default again
        while time.monotonic() + reserve < deadline and (
            self.trials is None or found.trials < self.trials
        ):
            candidate = next(candidates, None)
            if candidate is None:
                break
            point, text = candidate
            seen.add(text)
            began = time.monotonic()
            left = deadline - reserve - began
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
                    reserve = base + time.monotonic() - began
                    self.improved(found)
            progress.update(found.trials, len(found.failures), found.seconds, found.default_seconds)
        return self._confirm(found, first, deadline - reserve)

    def _candidates(
        self,
        rng: random.Random,
        kept: Sequence[str],
        measured: Sequence[tuple[float, Point]],
        seen: set[str],
        ranker: Ranker,
        deadline: float,
    ) -> Iterator[tuple[Point | None, str]]:
        """What to measure next, each found only when it is asked for: the best of old records, the
        space's seeds, then proposals in the light of what is measured."""

        def new(points: Iterable[Point]) -> Iterator[tuple[Point, str]]:
            for point in points:
                text = self.space.text(point) if time.monotonic() < deadline else None
                if text is not None and text not in seen:
                    yield point, text

        yield from ((None, text) for text in kept)
        yield from new(self.space.seeds())
        found = True
        while found:
            found = False
            # After a few measurements the rest of a pool is no longer the best guess.
            for candidate in islice(new(self._propose(rng, measured, ranker, deadline)), 4):
                found = True
                yield candidate

    def _propose(
        self,
        rng: random.Random,
        measured: Sequence[tuple[float, Point]],
        ranker: Ranker,
        deadline: float,
    ) -> list[Point]:
        """Points near the best measured ones and elsewhere, the most promising first."""
        elite = [point for _, point in sorted(measured, key=lambda m: m[0])[:6]]
        pool: list[Point] = []
        for _ in range(64):
            if time.monotonic() > deadline:
                break
            fresh = not elite or rng.random() < 0.25
            pool.append(
                self.space.sample(rng) if fresh else self.space.mutate(rng.choice(elite), rng)
            )
        if ranker.ready:
            scores = ranker.predict([self.space.features(point) for point in pool])
            pool = [
                point for _, point in sorted(zip(scores, pool, strict=True), key=lambda p: p[0])
            ]
        return pool

    def _confirm(self, found: Found, first: Point, last_start: float) -> Found:
        """Measures best and default again, twice if there is time: noise must not sell a slower
        schedule."""
        default = self.space.text(first)
        if default is None or found.text == default:
            return found
        again: list[tuple[float | None, float | None]] = []
        while not again or (len(again) < 2 and time.monotonic() <= last_start):
            best_again = self.measurer.measure(found.text).seconds
            again.append((best_again, self.measurer.measure(default).seconds))
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
