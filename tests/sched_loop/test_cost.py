"""What schedules cost: work is done once, and grows with the operator as it should."""

from __future__ import annotations

import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop import storage
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.primitive import Primitive


def test_a_default_schedule_keeps_the_nest_it_was_checked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"M": 64, "N": 96, "K": 32}
    made = default(parse("C[m,n] = sum(A[m,k] * B[k,n])"), {}, sizes, Machine())
    assert made.primitives
    monkeypatch.setattr(Primitive, "step", None)
    assert made.nest({}, sizes).kernel.sizes == sizes


def test_a_long_chain_is_walked_once_a_primitive(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = storage.accesses
    monkeypatch.setattr(storage, "accesses", lambda e: seen.append("walk") or real(e))
    count = 40
    text = "\n".join(f"u{n + 1}[i] = u{n}[i] * 3" for n in range(count))
    default(parse(text), {}, {"I": 8}, Machine())
    assert len(seen) <= 2 * 2 * count
