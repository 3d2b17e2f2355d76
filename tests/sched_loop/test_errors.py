"""What refusals are, and what is refused where isl gives up; `docs/errors.md` has all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from diptych.algo.errors import Error, ScheduleError
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule


def schedule(text: str) -> Schedule:
    return Schedule(parse(text, loc=Loc("mm.py", 9)))


MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"


def test_errors_are_what_the_builtin_says_too() -> None:
    made = schedule(MATMUL)
    assert not hasattr(made, "warp")
    with pytest.raises(ValueError):
        made.split("i", 0)
    with pytest.raises(Error):
        made.split("i", 0)


def test_a_schedule_is_immutable() -> None:
    made = schedule(MATMUL)
    with pytest.raises(AttributeError, match="immutable"):
        made.primitives = ()
    other = made.split("i", 8)
    assert made.text == "" and other.text == '.split("i", 8)'


UNPROVED: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "order": (
        lambda s: s.reorder("k", "j"),
        "reorder(k, j): could not prove that C.update and C.init keep their order (mm.py:9); a "
        "simpler order of primitives, or sizes that are given, may help",
    ),
    "concurrency": (
        lambda s: s.parallel("i"),
        "parallel(i): could not prove that C.init keep their order (mm.py:9); a simpler order of "
        "primitives, or sizes that are given, may help",
    ),
    "region": (
        lambda s: s.stage("B", at="j"),
        "stage(B, at=j): could not compute which elements of B are needed; a loop further in or "
        "out may help",
    ),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_what_isl_cannot_prove_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question ends as "could not prove"."""
    from diptych.algo import isl
    from diptych.sched.loop import regions

    attempt, want = UNPROVED[name]
    made = schedule(MATMUL)
    made.nest()
    exhausted = isl.Exhausted("isl could not answer within 1 operations")

    def give_up(*_: object, **__: object) -> None:
        raise exhausted

    monkeypatch.setattr(isl, "first_point", give_up)
    monkeypatch.setattr(regions, "points", give_up)
    with pytest.raises(ScheduleError) as caught:
        attempt(made)
    assert str(caught.value) == want
