"""What schedules cost: work is done once, and grows with the operator as it should."""

from __future__ import annotations

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop import storage
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.primitive import Primitive
from diptych.sched.loop.schedule import Schedule


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


def test_a_refusal_does_not_look_for_the_first_witness_for_minutes() -> None:
    op = parse(
        "tri(a: [N, M]) -> c:\n  c[i,j] = sum(a[k,j], where=k <= i) where i in 0:N",
        loc=Loc("mm.py", 9),
    )
    made = Schedule(op).split("c.i", 8).vectorize("c.k").fuse("c.ii", "c.j").split("c.io", 2)
    with pytest.raises(ScheduleError) as caught:
        made.parallel("c.ioo").stage("c", at="c.ioo")
    assert str(caught.value) == (
        "stage(c, at=c.ioo): c[1,0] is updated by k=0 and by k=1 (mm.py:10); loop c.k is vector: "
        "its iterations run at once"
    )


def test_what_strided_equalities_determine_goes_innermost() -> None:
    """Otherwise every unrolled copy has conditions of its own, hundreds for a convolution."""
    text = (
        "back(x: [N, Y, Z], dy: [N, H, W], k: [R, S]) -> dx:\n"
        "  dx[n,y,z] = sum(dy[n,h,w] * k[r,s], over=(h,w,r,s), where=(2*h+r == y) & (3*w+s == z))"
        " where n in 0:N, y in 0:Y, z in 0:Z"
    )
    sizes = {"N": 4, "Y": 33, "Z": 50, "H": 16, "W": 16, "R": 3, "S": 5}
    made = default(parse(text), {}, sizes, Machine(threads=2))
    assert made.text == '.reorder("n", "h", "w", "r", "s", "y", "z").parallel("n")'
    one = text.replace("2*h", "h").replace("3*w", "w")
    assert "register" in default(parse(one), {}, sizes, Machine(threads=2)).text
