"""Calls that were seen before: compiled code finds their kernel, and Python where it cannot."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.codegen import dispatch, fastcall
from diptych.codegen.dispatch import PLACES
from diptych.codegen.dispatch_words import API
from diptych.codegen.layout import layout
from diptych.runner import Runner

Array = np.ndarray[Any, Any]
ADD = "Y[i] = A[i] + B[i]"


@pytest.fixture(params=["compiled", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the layout of arrays known, and without."""
    if request.param == "python":
        for module in dispatch, fastcall:
            monkeypatch.setattr(module, "layout", lambda: None)
    return str(request.param)


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of operators whose calls were not seen before."""
    found: list[str] = []
    before = Runner._admit

    def counted(self: Any, *rest: Any) -> Any:
        found.append(self.op.name)
        return before(self, *rest)

    monkeypatch.setattr(Runner, "_admit", counted)
    return found


def arrays(n: int = 16) -> tuple[Array, Array]:
    return np.arange(n, dtype=np.float32), np.full(n, 3, np.float32)


def test_this_interpreter_lets_compiled_code_read_arrays() -> None:
    if sys.implementation.name == "cpython":
        assert layout() is not None


def test_a_call_like_an_earlier_one_is_admitted_at_once(way: str, admitted: list[str]) -> None:
    op = dt.op(ADD, name="add")
    for n in range(5):
        a, b = arrays()
        out = np.zeros(16, np.float32)
        np.testing.assert_array_equal(op(a + n, b), a + n + 3)
        assert op(a, b, out=out) is out
        np.testing.assert_array_equal(out, a + 3)
        np.testing.assert_array_equal(op(a, B=b), a + 3)
    assert admitted == ["add", "add"]
    assert op.source("ir") == dt.op(ADD, name="add").source("ir", I=16)


class Sub(np.ndarray):  # type: ignore[type-arg]
    """A class of its own."""


OTHERS: dict[str, Callable[[Array], Any]] = {
    "length": lambda a: a[:15].copy(),
    "type": lambda a: a.astype(np.float64),
    "stride": lambda a: np.repeat(a, 2)[::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "one element again and again": lambda a: np.broadcast_to(a[:1], (16,)),
    "class": lambda a: a.view(Sub),
    "list": lambda a: a.tolist(),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(np.float32),
    "read-only": lambda a: np.frombuffer(a.tobytes(), np.float32),
}


@pytest.mark.parametrize("name", OTHERS)
def test_arrays_that_differ_are_told_apart(name: str, way: str) -> None:
    op = dt.op(ADD)
    a, b = arrays()
    for _ in range(3):
        np.testing.assert_array_equal(op(a, b), a + b)
        x = OTHERS[name](a)
        want = np.asarray(x) + b[: len(x)]
        np.testing.assert_array_equal(op(x, b[: len(x)]), want)
        np.testing.assert_array_equal(op(b[: len(x)], x), want)


def test_what_out_must_not_be_is_refused_again_and_again(way: str) -> None:
    op = dt.op("Y[i] = A[i] + A[n-1-i] where i in 0:n")
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    want = a + a[::-1]
    whole = np.zeros(31, np.float32)
    locked = out.copy()
    locked.flags.writeable = False
    for _ in range(3):
        op(a, out=out)
        np.testing.assert_array_equal(out, want)
        whole[:16] = a
        for bad in (locked, out[:15], out.astype(np.float64), a, whole[15:]):
            with pytest.raises(dt.Error):
                op(whole[:16] if bad.base is whole else a, out=bad)
        with pytest.raises(dt.ShapeError):
            op(a, a, out=out)
        with pytest.raises(dt.ShapeError):
            op(a, out=(out, out))
        with pytest.raises(dt.ShapeError):
            op(a, out=())
        np.testing.assert_array_equal(a, np.arange(16))


def test_an_output_may_be_an_input_where_that_is_harmless(way: str, admitted: list[str]) -> None:
    op = dt.op(ADD, name="add")
    a, b = arrays()
    for n in range(4):
        assert op(a, b, out=a) is a
        np.testing.assert_array_equal(a, np.arange(16) + 3 * (n + 1))
        c = np.zeros(16, np.float32)
        op(a, b, out=c)
        np.testing.assert_array_equal(c, a + b)
    assert admitted == ["add", "add"]
    whole = np.zeros(20, np.float32)
    with pytest.raises(dt.ShapeError):
        op(whole[:16], b, out=whole[4:])


def test_outputs_that_overlap_are_refused_after_others_were_taken(way: str) -> None:
    op = dt.op("Y[i] = A[i] + 1\nZ[i] = A[i] * 2", returns=("Y", "Z"))
    a, whole = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    for _ in range(3):
        y, z = op(a, out=(whole[:8], whole[8:]))
        np.testing.assert_array_equal(whole, [*(a + 1), *(a * 2)])
        assert (y.base, z.base) == (whole, whole) or (y.base is whole and z.base is whole)
        with pytest.raises(dt.ShapeError, match="overlap"):
            op(a, out=(whole[:8], whole[4:12]))
        found = op(a)
        assert type(found) is tuple and len(found) == 2


def test_complaints_come_every_time_and_spoil_nothing(way: str) -> None:
    op = dt.op("y[i] = w[at[i]]")
    w, good, bad = np.arange(5), np.array([4, 0, 1]), np.array([4, 5, 1])
    for _ in range(3):
        np.testing.assert_array_equal(op(w, good), [4, 0, 1])
        for out in (None, np.zeros(3, int)):
            with pytest.raises(dt.Error, match=r"at\[i\] is 5 at i=1"):
                op(w, bad, out=out)


def test_a_complaint_about_an_input_that_is_the_output_is_about_what_was_given(way: str) -> None:
    op = dt.op("y[i] = w[at[i]]")
    w = np.array([7, 7, 7])
    for _ in range(3):
        at = np.array([0, 1, 9])
        with pytest.raises(dt.Error, match=r"at\[i\] is 9 at i=2"):
            op(w, at, out=at)
        at = np.array([0, 1, 2])
        np.testing.assert_array_equal(op(w, at, out=at), w)


def test_more_signatures_than_places(way: str) -> None:
    op = dt.op(ADD).dynamic(I=3 * PLACES)
    for n in [*range(1, 3 * PLACES), 5, 3 * PLACES - 1, 7]:
        a, b = arrays(n)
        np.testing.assert_array_equal(op(a, b), a + b)
        assert op._memo["runner"][1].last.signature.types[0] == (dt.f32, (n,))


def test_nothing_is_kept_of_calls(way: str) -> None:
    op, (a, b), out = dt.op(ADD), arrays(), np.zeros(16, np.float32)
    gather, at = dt.op("y[i] = w[at[i]]"), np.array([99])
    several = dt.op("Y[i] = A[i] + 1\nZ[i] = A[i] * 2", returns=("Y", "Z"))

    def everything() -> None:
        op(a, b)
        op(a, b, out=out)
        several(a)
        with pytest.raises(dt.Error):
            gather(a, at)

    for _ in range(3):
        everything()
    things = (a, b, out, at, np.float32, a.dtype, None, True)
    gc.collect()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(200):
        everything()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in things]
    assert all(abs(m - n) < 100 for m, n in zip(before, after, strict=True)), (before, after)


@pytest.mark.skipif(layout() is None, reason="no compiled code enters here")
def test_what_numpy_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    several = dt.op("Y[i] = A[i] + 1\nZ[i] = A[i] * 2", returns=("Y", "Z"))
    a, _ = arrays()
    several(a)
    made: list[Array] = []

    def scarce(shape: Any, dtype: Any) -> Array:
        if made:
            raise MemoryError("no more")
        made.append(np.empty(shape, dtype))
        return made[0]

    lay = layout()
    assert lay is not None
    api = fastcall.code(lay).api
    place, old = API.index("empty"), int(api[API.index("empty")])
    try:
        api[place] = id(scarce)
        with pytest.raises(MemoryError, match="no more"):
            several(a)
    finally:
        api[place] = old
    held = sys.getrefcount(made[0])
    assert held == 2  # by the list, and as the argument
    np.testing.assert_array_equal(several(a)[0], a + 1)


def test_threads_call_while_entries_come_and_go(way: str) -> None:
    """What was evicted lives as long as a call of it, and no call runs what is another's."""
    op = dt.op(ADD).dynamic(I=4 * PLACES)
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in rng.integers(1, 4 * PLACES, 150).tolist():
            a, b = arrays(n)
            if not (np.array_equal(op(a, b), a + b) and np.array_equal(op(a, b, out=a), a)):
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("y[i] = sum(sin(x[i] + x[j]))", 12000),
        ("y[i] = sum(sin(x[i] * k)) where k in 0:90000000", 1),  # small arrays, much to do
    ],
)
def test_a_long_kernel_leaves_the_interpreter_to_others(text: str, size: int) -> None:
    op = dt.op(text)
    x = np.zeros(size)
    op(x)
    turns, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns[0] += 1

    other = threading.Thread(target=count)
    other.start()
    try:
        before = turns[0]
        op(x)
        assert turns[0] > before
    finally:
        stop.set()
        other.join()


def microseconds(call: Callable[[], Any], times: int = 5000) -> float:
    """The processor's time for a call, the best of some rounds."""
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        for _ in range(times):
            call()
        best = min(best, time.process_time() - start)
    return best / times * 1e6


@pytest.mark.skipif(layout() is None, reason="no compiled code enters here")
def test_r22_a_small_call_costs_little() -> None:
    (a, b), out = arrays(), np.zeros(16, np.float32)
    op = dt.op(ADD)
    names = [f"A{n}" for n in range(12)]
    many, inputs = dt.op("Y[i] = " + " + ".join(f"{n}[i]" for n in names)), [a] * 12
    two, into, twelve = (
        microseconds(lambda: op(a, b)),
        microseconds(lambda: op(a, b, out=out)),
        microseconds(lambda: many(*inputs)),
    )
    assert max(two, into) < 8  # 0.6 and 0.8 on a quiet machine
    assert twelve <= 3 * two
