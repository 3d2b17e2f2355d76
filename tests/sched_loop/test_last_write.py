"""The plain argument about last writes against isl's value flow, which needs no argument."""

from __future__ import annotations

from contextlib import suppress

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop import flow
from diptych.sched.loop.last_write import Question, by_flow, is_plain
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.text import calls as read

BLUR = (
    "blur(x: [H, W]) -> y:\n  t[i,j] = x[i,j] + x[i,j+1]\n  y[i,j] = t[i,j] + t[i+1,j] + t[i+2,j]"
)
MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"
SOFTMAX = (
    "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ns[i] = sum(e[i,j])\ny[i,j] = e[i,j] / s[i]"
)
CUMSUM = "c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:N\ny[i] = c[i] * 2"
GATHER = "t[v,d] = W[v,d] * 2\ny[b,d] = t[idx[b],d]"

SCHEDULES = {
    "an accumulator in blocks": (
        MATMUL,
        """.split("k", 4).reorder("ko", "i", "j", "ki").stage("C", at="i").stage("B", at="ko")""",
    ),
    "a tile in a register": (
        MATMUL,
        """.tile(i=4, j=8).stage("C", at="jo", scope="register").reorder("io", "jo", "k", "ii")""",
    ),
    "overlapped tiles": (BLUR, """.tile({"y.i": 4, "y.j": 8}).compute_at("t", "y.jo")"""),
    "a copy of what is computed again": (
        BLUR,
        """.tile({"y.i": 4, "y.j": 8}).compute_at("t", "y.jo").stage("t", at="y.ii")""",
    ),
    "rows of a softmax": (
        SOFTMAX,
        """.compute_at("s", "y.i").compute_at("e", "y.i").compute_at("m", "y.i")""",
    ),
    "a recurrence in a buffer, refused": (CUMSUM, """.split("c.1.i", 4).stage("c", at="c.1.io")"""),
    "a gathered copy": (GATHER, """.stage("t", at="y.b")"""),
}


def questions(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """What is asked while a schedule is made, up to the first primitive that is refused."""
    text, calls = SCHEDULES[name]
    asked: list[Question] = []
    real = flow.stale

    def recorded(ask: Question) -> object:
        asked.append(ask)
        return real(ask)

    monkeypatch.setattr(flow, "stale", recorded)
    made = Schedule(parse(text))
    with suppress(ScheduleError):
        for called, args, keywords in read(calls):
            made = made.call(called, *args, **keywords)
    assert asked
    return asked


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_plain_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in questions(name, monkeypatch):
        assert by_flow(ask) is None or not is_plain(ask)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if "refused" not in name])
def test_most_questions_are_plain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [is_plain(ask) for ask in questions(name, monkeypatch)]
    assert plain.count(True) > plain.count(False)


def test_a_refusal_is_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions("a recurrence in a buffer, refused", monkeypatch)
    assert not all(map(is_plain, asked))
