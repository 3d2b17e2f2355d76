"""Trials are disposable: one that crashes, hangs, lies or eats memory costs only itself (R45)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import in_float64
from diptych.autotune.measure import Measurer
from diptych.autotune.messages import Outcome
from diptych.autotune.records import Record, Records
from diptych.autotune.server import forked
from diptych.autotune.tasks import OpTask


@dataclass
class Hostile:
    """A task whose candidates misbehave in the way that their text names."""

    def build(self, candidate: str) -> Any:
        if candidate == "refused":
            raise dt.ScheduleError("no such loop")

        def run() -> float:
            match candidate:
                case "crash":
                    os.abort()
                case "segfault":
                    import ctypes

                    ctypes.string_at(1)
                case "hang":
                    time.sleep(60)
                case "memory":
                    np.ones(1 << 34)
                case "exit":
                    os._exit(7)
                case "slow":
                    time.sleep(0.3)
            return 1.0 if candidate == "liar" else 0.0

        return run

    def wrong(self, result: float) -> str | None:
        return "it lies" if result else None


def outcome(candidate: str, best: float | None = None, timeout: float = 2.0) -> Outcome:
    return forked(Hostile(), candidate, best, timeout)


def test_a_good_candidate_is_timed() -> None:
    found = outcome("good")
    assert found.seconds is not None and 0 < found.seconds < 0.1


def test_failures_say_what_happened() -> None:
    assert outcome("crash") == Outcome(None, "the trial was ended by SIGABRT")
    assert outcome("segfault") == Outcome(None, "the trial was ended by SIGSEGV")
    assert outcome("hang", timeout=0.5) == Outcome(None, "took longer than 0.5 s")
    assert outcome("exit") == Outcome(None, "the trial exited with 7 and no result")
    assert outcome("liar") == Outcome(None, "wrong result: it lies")
    assert outcome("refused") == Outcome(None, "ScheduleError: no such loop")
    assert "Unable to allocate" in outcome("memory").reason


def test_a_slow_candidate_is_cut() -> None:
    found = outcome("slow", best=1e-3)
    assert found.reason == "cut short: far slower than the best"


def test_a_real_operator_is_measured_and_verified() -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    types = {"A": (dt.f32, (33, 17)), "B": (dt.f32, (17, 29))}
    with Measurer(OpTask(op, types, 1)) as measurer:
        plain = measurer.measure("")
        assert plain.seconds is not None, plain.reason
        refused = measurer.measure('.parallel("k")')
        assert refused.seconds is None
        assert refused.reason.startswith("ScheduleError: parallel(k): C[0,0] is updated by")
        again = measurer.measure('.split("i", 4).vectorize("j")')
        assert again.seconds is not None, again.reason


@pytest.mark.parametrize(("dtype", "ulps"), [(dt.bf16, 8), (dt.f16, 8), (dt.i32, 0)])
def test_results_of_narrow_types_may_differ_by_what_rounding_gives(
    dtype: dt.DType, ulps: int
) -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    task = OpTask(op, {"A": (dtype, (5, 7)), "B": (dtype, (7, 3))}, 1)
    task.prepare()
    (want,) = task.reference
    largest = np.argmax(np.abs(in_float64(want, dtype)))
    bits = want.view(np.uint16 if dtype.bits == 16 else np.uint32)
    assert task.wrong([want]) is None
    for off, accepted in ((ulps // 2, True), (4 * ulps + 1, False)):
        other = bits.copy()
        other.flat[largest] += off
        assert (task.wrong([other.view(want.dtype)]) is None) is accepted


def test_a_task_that_cannot_be_prepared_raises_here() -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    types = {"A": (dt.f32, (3, 4)), "B": (dt.f32, (5, 2))}
    try:
        Measurer(OpTask(op, types, 1)).__enter__()
    except dt.ShapeError as error:
        assert "index k: 4 from A dim 1, 5 from B dim 0" in str(error)
    else:
        raise AssertionError("expected a ShapeError")


def test_records_survive_damage(tmp_path: Any) -> None:
    records = Records(tmp_path / "r")
    records.append(Record("key", '.split("i", 4)', 0.5))
    records.append(Record("key", ".bad()", None, "crash"))
    text = (tmp_path / "r").read_text()
    (tmp_path / "r").write_text(text[:10] + "X" + text[11:] + "half a li")
    again = Records(tmp_path / "r")
    assert list(again) == [Record("key", ".bad()", None, "crash")]
    assert again.damaged == 2
