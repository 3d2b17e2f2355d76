"""How the rows of the user reports are run: every way, on poisoned outputs beside no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import diptych as dt
import numpy as np
import pytest
from guard import Array, Fenced

POISON = 0xAB


def agree(
    op: dt.Op,
    arrays: Sequence[Any],
    want: Any,
    schedules: Sequence[str] = (),
    *,
    gpu: Sequence[str] = (),
    rtol: float = 0.0,
    same: Callable[[Array, Array], None] | None = None,
) -> None:
    """`op` gives `want` by its default schedule, as it is written, and under `schedules`.

    Outputs are filled with poison first. Every array ends at a page without access, then starts
    behind one. `gpu` are schedules that run in emulation; the interpreter must agree too. Equal
    means within `rtol`, or what `same` asserts.
    """
    inputs = [np.asarray(a) for a in arrays]
    wanted = [np.asarray(w) for w in (want if isinstance(want, tuple) else (want,))]
    runs = [op.with_schedule(dt.Schedule.parse(op, text), strict=True) for text in schedules]

    def check(found: Any) -> None:
        every = found if isinstance(found, tuple) else (found,)
        for got, right in zip(every, wanted, strict=True):
            assert (got.shape, got.dtype) == (right.shape, right.dtype)
            if same is not None:
                same(got, right)
            else:
                np.testing.assert_allclose(got, right, rtol, rtol)

    check(dt.interpret(op, *inputs))
    for run in (op, op.schedule(), *runs):
        for at_end in (True, False):
            fenced = [Fenced(a, at_end=at_end) for a in inputs]
            poison = [np.full(w.nbytes, POISON, np.uint8).view(w.dtype) for w in wanted]
            outs = [
                Fenced(p.reshape(w.shape), at_end=at_end)
                for p, w in zip(poison, wanted, strict=True)
            ]
            out = tuple(o.array for o in outs)
            run(*(a.array for a in fenced), out=out if len(out) > 1 else out[0])
            check(out)
            for given, a in zip(inputs, fenced, strict=True):
                assert given.tobytes() == a.array.tobytes()
    for text in gpu:
        check(dt.Schedule.parse(op, text).on("simt")(*inputs))


def refusal(call: Callable[[], Any], kind: type[Exception] = dt.ScheduleError) -> str:
    """The text of the error."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)
