"""What users hold in their hands: it prints shortly, has documentation, and can be pickled."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.autotune.records import Record
from diptych.codegen.kernels import compile_op

MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
SCHEDULE = MATMUL.schedule().split("i", 8)
A = np.arange(64, dtype=np.float32).reshape(8, 8)


@dt.program
def step(x: Any, w: Any) -> Any:
    """One product."""
    return MATMUL(x, w)


def plain(x: Any) -> Any:
    return MATMUL(x, x)


def compiled() -> Any:
    return compile_op(MATMUL, [(dt.f32, (8, 8)), (dt.f32, (8, 8))], SCHEDULE)


OBJECTS: dict[str, tuple[Callable[[], Any], str]] = {
    "operator": (lambda: MATMUL, "C[i,j] = sum(A[i,k] * B[k,j])"),
    "schedule": (lambda: SCHEDULE, '<schedule of matmul: .split("i", 8)>'),
    "runner": (
        lambda: MATMUL.with_schedule(SCHEDULE, strict=True),
        '<matmul under <schedule of matmul: .split("i", 8)>, strictly>',
    ),
    "compiled": (compiled, "<matmul compiled for A f32[8,8], B f32[8,8]>"),
    "program": (lambda: step, "<program step(x: 'Any', w: 'Any') -> 'Any'>"),
    "graph schedule": (
        lambda: step.schedule().kernel("matmul", SCHEDULE),
        '<schedule of step: .kernel("matmul", ".split(\\"i\\", 8)")>',
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_representations(name: str) -> None:
    make, expected = OBJECTS[name]
    assert repr(make()) == expected


def test_representations_that_cannot_be_called() -> None:
    assert repr(step.plan(A, A)) == "<plan of step: 1 steps, 0 bytes between them>"
    assert repr(dt.f32["M", 3]) == "f32['M', 3]"
    assert repr(compiled().last) == "<native kernel matmul>"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", OBJECTS)
def test_r82_pickled_objects_compute_the_same(name: str, protocol: int) -> None:
    made = OBJECTS[name][0]()
    before = made(A, A)
    for again in (pickle.loads(pickle.dumps(made, protocol)), copy.deepcopy(made)):
        assert repr(again) == repr(made)
        np.testing.assert_array_equal(again(A, A), before)
    if isinstance(made, dt.Op):
        assert pickle.loads(pickle.dumps(made, protocol)).fingerprint == made.fingerprint
    if isinstance(made, dt.Schedule):
        pickle.loads(pickle.dumps(made, protocol)).validate()


def test_r82_a_program_of_a_plain_function() -> None:
    again = pickle.loads(pickle.dumps(dt.program(plain)))
    np.testing.assert_array_equal(again(A), A @ A)


def test_r82_in_a_process_that_is_spawned() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(SCHEDULE, (A, A))
    np.testing.assert_array_equal(found, SCHEDULE(A, A))


def fails() -> list[Callable[[], Any]]:
    gather = dt.op("y[i] = w[at[i]]")
    return [
        lambda: MATMUL(A, A[:3]),
        lambda: MATMUL(A.astype(complex), A),
        lambda: SCHEDULE.split("q", 3),
        lambda: SCHEDULE.bind("i", "thread.x").on("simt:0")(A),
        lambda: dt.op("C[i] = ("),
        lambda: gather(A[0], np.array([99])),
        lambda: dt.grad(MATMUL)(A, A),
    ]


@pytest.mark.parametrize("number", range(len(fails())))
def test_r82_errors_are_the_same_after_pickling(number: int) -> None:
    with pytest.raises(dt.Error) as caught:
        fails()[number]()
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_r82_a_tuned_record_keeps_all_it_says(protocol: int) -> None:
    for record in (Record("k", '.split("i", 8)', 0.25), Record("k", "", None, "it hung")):
        for again in (pickle.loads(pickle.dumps(record, protocol)), copy.deepcopy(record)):
            assert again == record and (again.seconds, again.reason) == (
                record.seconds,
                record.reason,
            )


def test_everything_public_is_documented() -> None:
    missing = []
    for name in dt.__all__:
        item = getattr(dt, name)
        if not (inspect.isclass(item) or inspect.isfunction(item)):
            continue
        if not inspect.getdoc(item):
            missing.append(name)
        for member, value in vars(item).items() if inspect.isclass(item) else ():
            if member[0] != "_" or member == "__call__":
                shown = value.fget if isinstance(value, property) else value
                if inspect.isfunction(shown) and not inspect.getdoc(shown):
                    missing.append(f"{name}.{member}")
    assert missing == []
