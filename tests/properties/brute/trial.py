"""One trial: an operator at small sizes, random primitives, and two verdicts on each.

A primitive is applied whether it is legal or not; what it gives is judged by running it. The
legal ones stay, and the next primitive comes on top.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import diptych as dt
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.algo.tensor_expr.stages import kernel
from diptych.sched.loop.initial import initial
from diptych.sched.loop.nest import Nest
from diptych.sched.loop.primitive import Primitive
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.storage import place
from diptych.sched.loop.text import calls
from properties.brute.judge import Truth, fault, meaning_of
from properties.brute.refusals import is_structural
from properties.operators import Grammar
from properties.proposals import View, propose

SMALL = (1, 2, 3, 4, 5)
ORDERED = {"temporary", "recurrence", "scatter", "index of extreme"}
"""Kinds of access whose instances depend on each other, which most trials have."""
LIFT = "lift "
"""In the text of a reducer that makes the results of a block by other equations: that these give
the same is the user's word, and no matter of order."""
ORDERING = (
    "reorder", "reverse", "shift", "skew", "compute_with", "parallel", "vectorize", "stage",
    "compute_at", "store_at",
)  # fmt: skip
"""Primitives that may be refused for the order of instances, which are drawn more often."""
HINTS = ("prefetch", "stream", "align")
"""Primitives that change no order and no value, which are not drawn."""


class Recorder(Schedule):
    """A schedule whose methods give the primitive alone: `made` is where it goes."""

    __slots__ = ("made",)
    made: list[Primitive]

    def then(self, primitive: Primitive) -> Schedule:
        self.made.append(primitive)
        return self


def primitive(op: dt.Op, step: str) -> Primitive:
    """The primitive that a call makes, neither checked nor applied."""
    recorder = Recorder(op)
    object.__setattr__(recorder, "made", [])
    ((name, args, keywords),) = calls(step)
    recorder.call(name, *args, **keywords)
    (made,) = recorder.made
    return made


@dataclass
class Trial:
    """What a seed draws, for all steps in turn."""

    seed: int
    text: str
    op: dt.Op
    nest: Nest
    truth: Truth
    sizes: Mapping[str, int]
    schedule: Schedule | None
    steps: list[str] = field(default_factory=list)


def start(seed: int, symbolic: bool) -> Trial:
    rng = random.Random(seed)
    case = Grammar(rng, SMALL).draw()
    while (not case.kinds & ORDERED and rng.random() < 0.8) or LIFT in case.text:
        case = Grammar(rng, SMALL).draw()
    op = dt.op(case.text)
    checked = check(op)
    sizes = bind_sizes(checked, {name: a.shape for name, a in case.inputs.items()})
    dtypes = {name: from_numpy(a.dtype) for name, a in case.inputs.items()}
    stages = kernel(checked, dtypes, sizes)
    nest, truth = initial(stages), meaning_of(stages)
    assert fault(nest, truth) is None, case.text
    schedule = op.schedule() if symbolic else None
    return Trial(seed, case.text, op, nest, truth, sizes, schedule)


def step(trial: Trial, call: str, counts: Counter[str]) -> str | None:
    """Tries one more primitive; gives what is wrong with the verdict on it, if anything is."""
    one = primitive(trial.op, call)
    refused: str | None = None
    try:
        one.legal(trial.nest)
    except dt.ScheduleError as error:
        refused = str(error)
    except Exception as error:
        return f"{call} raises {type(error).__name__}: {error}"
    try:
        after = place(one.apply(trial.nest))
        wrong = fault(after, trial.truth)
    except Exception as error:
        # What is refused need not even mean anything.
        counts["meaningless"] += 1
        return None if refused else f"{call} is accepted, and {type(error).__name__}: {error}"
    counts[f"{'refused' if refused else 'accepted'}, {'wrong' if wrong else 'right'}"] += 1
    if refused and not wrong:
        if "could not prove" in refused:
            counts["could not prove"] += 1
        elif not is_structural(refused):
            return f"{call} is right, but refused: {refused}"
    if wrong and not refused:
        return f"{call} is accepted, but wrong: {wrong}"
    if not refused and trial.schedule is not None:
        return _for_all_sizes(trial, one, call, after, counts)
    if not refused:
        trial.nest = after
        trial.steps.append(call)
    return None


def _for_all_sizes(
    trial: Trial, one: Primitive, call: str, after: Nest, counts: Counter[str]
) -> str | None:
    """What is right at these sizes may be refused for all; then it is left out."""
    assert trial.schedule is not None
    try:
        trial.schedule = trial.schedule.then(one)
    except dt.ScheduleError:
        counts["refused for all sizes"] += 1
        return None
    trial.nest = after
    trial.steps.append(call)
    return None


def run(seed: int, counts: Counter[str]) -> None:
    """All steps of a seed; raises `AssertionError` with everything that is needed to see why."""
    rng = random.Random(~seed)
    trial = start(seed, symbolic=seed % 4 == 0)
    for _ in range(rng.randint(3, 9)):
        name, call = propose(View(rng, trial.nest, wild=rng.random() < 0.8), ORDERING, HINTS)
        counts[f"tried {name}"] += 1
        before = counts["refused, wrong"]
        wrong = step(trial, call, counts)
        counts[f"wrong {name}"] += counts["refused, wrong"] - before
        assert wrong is None, (
            f"seed {seed}, sizes {dict(trial.sizes)}\n{trial.text}\n"
            f"{''.join(f'.{item}' for item in trial.steps)}\n{wrong}"
        )
