"""One random pair: an operator, the primitives that it accepts, a run against the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import diptych as dt
import numpy as np
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.text import calls as calls_of
from properties.memory import arranged, poisoned
from properties.operators import Case, Grammar
from properties.proposals import View, propose

LENGTHS = (3, 4, 5, 6, 7, 8, 10)


@dataclass
class Pair:
    """What a seed draws. `uneven`: a factor divides none of the operator's sizes."""

    seed: int
    case: Case
    steps: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    proposed: int = 0
    uneven: bool = False

    def __str__(self) -> str:
        return f"{self.case.text}\n{''.join(f'.{step}' for step in self.steps)}"


def added(schedule: Schedule, step: str) -> Schedule:
    """One more primitive, written as in a schedule file."""
    ((name, args, keywords),) = calls_of(step)
    return schedule.call(name, *args, **keywords)


def draw(seed: int) -> Pair:
    """The pair of a seed; only `ScheduleError` may refuse a primitive."""
    rng = random.Random(seed)
    pair = Pair(seed, _dynamic(Grammar(rng).draw(), random.Random(f"{seed} dynamic")))
    schedule = dt.op(pair.case.text).schedule()
    sizes = {extent for a in pair.case.inputs.values() for extent in a.shape}
    for _ in range(rng.choice(LENGTHS)):
        name, step = propose(View(rng, schedule.nest()))
        pair.proposed += 1
        try:
            schedule = added(schedule, step)
        except dt.ScheduleError:
            continue
        except Exception as error:
            pair.steps.append(step)
            raise AssertionError(f"{pair}\n{type(error).__name__}: {error}") from error
        pair.steps.append(step)
        pair.names.append(name)
        factors = [n for call in calls_of(step) for n in _factors(call)]
        pair.uneven |= any(size % n for n in factors for size in sizes)
    assert Schedule.parse(schedule.op, schedule.text) == schedule, f"{pair}\nreplays otherwise"
    return pair


def _dynamic(case: Case, rng: random.Random) -> Case:
    """The case, in one of three with some of its sizes dynamic."""
    op = dt.op(case.text)
    sizes = bind_sizes(check(op), {name: a.shape for name, a in case.inputs.items()})
    maxima = {
        name: value + rng.choice((0, 1, 13))
        for name, value in sizes.items()
        if value and rng.random() < 0.7
    }
    if not maxima or rng.random() < 0.6:
        return case
    return Case(op.dynamic(**maxima).text, case.inputs, case.kinds | {"dynamic"})


def _factors(call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Iterator[int]:
    name, args, _ = call
    if name in ("split", "vectorize"):
        yield from (n for n in args if isinstance(n, int))
    elif name == "tile":
        yield from args[0].values()


def run(pair: Pair) -> set[str] | None:
    """How its arrays lay; None where the schedule is refused at these sizes. Raises if wrong."""
    rng = random.Random(pair.seed)
    op = dt.op(pair.case.text)
    schedule = Schedule.parse(op, "".join(f".{step}" for step in pair.steps))
    arrays, places = arranged([pair.case.inputs[p.name] for p in op.params], rng)
    want = dt.interpret(op, *arrays)
    several = isinstance(want, tuple)
    outs = tuple(poisoned(np.asarray(w), rng) for w in (want if several else (want,)))
    before = [a.copy() for a in arrays]
    try:
        got = op.with_schedule(schedule, strict=True)(*arrays, out=outs if several else outs[0])
    except dt.ScheduleError:
        return None
    for one, other in zip(got if several else (got,), want if several else (want,), strict=True):
        np.testing.assert_array_equal(one, other)
    for a, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, old, err_msg="an input was written")
    return places


def fails(pair: Pair, check: Callable[[Pair], Any]) -> Exception | None:
    """What goes wrong with a pair; None for a schedule that is refused."""
    try:
        check(pair)
    except dt.ScheduleError:
        return None
    except Exception as error:
        return error
    except AssertionError as error:
        return RuntimeError(str(error))
    return None


def shrunk(pair: Pair, check: Callable[[Pair], Any]) -> Pair:
    """The pair without every primitive that is not needed to make it fail."""
    n = 0
    while n < len(pair.steps):
        rest = pair.steps[:n] + pair.steps[n + 1 :]
        fewer = Pair(pair.seed, pair.case, rest)
        if fails(fewer, check) is None:
            n += 1
        else:
            pair = fewer
    return pair
