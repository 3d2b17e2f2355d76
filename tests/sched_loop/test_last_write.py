"""The plain argument about last writes against isl's value flow, which needs no argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from diptych.algo.tensor_expr.build import add, const
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
    "a window that slides": (BLUR, """.compute_at("t", "y.i").store_at("t")"""),
    "windows that slide in tiles": (
        BLUR,
        """.tile({"y.i": 4, "y.j": 8}).compute_at("t", "y.ii").store_at("t", "y.jo")""",
    ),
    "rows of a softmax": (
        SOFTMAX,
        """.compute_at("s", "y.i").compute_at("e", "y.i").compute_at("m", "y.i")""",
    ),
    "a recurrence in a buffer": (CUMSUM, """.split("c.1.i", 4).stage("c", at="c.1.io")"""),
    "a gathered copy": (GATHER, """.stage("t", at="y.b")"""),
}


def questions(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """What is asked while a schedule is made."""
    text, calls = SCHEDULES[name]
    asked: list[Question] = []
    real = flow.stale

    def recorded(ask: Question) -> object:
        asked.append(ask)
        return real(ask)

    monkeypatch.setattr(flow, "stale", recorded)
    made = Schedule(parse(text))
    for called, args, keywords in read(calls):
        made = made.call(called, *args, **keywords)
    assert asked
    return asked


def shifted(ask: Question) -> Iterator[Question]:
    """The same question of the elements beside those that are read."""
    for n, part in enumerate(ask.reader.cell):
        for by in (-1, 1):
            cell = (*ask.reader.cell[:n], add(part, const(by)), *ask.reader.cell[n + 1 :])
            yield replace(ask, reader=replace(ask.reader, cell=cell))


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_plain_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = 0
    for real in questions(name, monkeypatch):
        for ask in (real, *shifted(real)):
            refused = by_flow(ask) is not None
            assert not (refused and is_plain(ask))
            wrong += refused
    assert wrong


@pytest.mark.parametrize("name", SCHEDULES)
def test_most_questions_are_plain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [is_plain(ask) for ask in questions(name, monkeypatch)]
    assert plain.count(True) > plain.count(False)
