"""What users of other systems met (numbers are those of the project's list of reports)."""

from __future__ import annotations

from typing import Any

import pytest
from diptych.algo.errors import ScheduleError
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.validate import validate


def refusal(call: Any) -> str:
    with pytest.raises(ScheduleError) as caught:
        call()
    return str(caught.value)


def cells(rows: int, columns: int, start: int) -> dict[tuple[int, int], int]:
    every = [(i, j) for i in range(rows) for j in range(columns)]
    return {cell: start + n * n % 17 for n, cell in enumerate(every)}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_r38_a_parallel_reduction_loop_loses_updates(dtype: str, run: Any) -> None:
    op = parse(
        f"mm(A: {dtype}[2, 4096], B: {dtype}[4096, 2]) -> C:\n    C[i,j] = sum(A[i,k] * B[k,j])"
    )
    schedule = Schedule(op)
    assert refusal(lambda: schedule.parallel("k")) == (
        "parallel(k): C[0,0] is updated by k=0 and by k=1 (<text>:2); use rfactor(k), or parallel "
        "on i or j"
    )
    # Lanes are combined in the end, so the same loop may be a vector; its blocks not threads.
    wide = schedule.vectorize("k", 8)
    assert "updated by ko=0 and by ko=1" in refusal(lambda: wide.parallel("ko"))
    wide.validate()


def test_r39_joined_nests_with_a_reversed_read() -> None:
    op = parse(
        "f() -> G:\n    F[y,x] = x + y where y in 0:48, x in 0:48\n"
        "    G[y,x] = F[y,47-x] where y in 0:48, x in 0:48"
    )
    schedule = Schedule(op)
    assert refusal(lambda: schedule.compute_with("F", "G", "x")) == (
        "compute_with(F, G, x): G[0,0] reads F[0,47] before it is written (<text>:3)"
    )
    schedule.compute_with("F", "G", "y").validate()
    # Computing what each iteration needs recomputes instead, and is right at both loops.
    schedule.compute_at("F", "G.x").validate()


def test_r39_joined_neighbours_are_in_order_but_not_parallel() -> None:
    op = parse("S[i] = a[i] * 2\nR[i] = S[i] - where(i > 0, S[i-1], 0)")
    joined = Schedule(op).compute_with("S", "R", "i")
    assert refusal(lambda: joined.parallel("i")) == (
        "parallel(i): S[0] is written by i=0 and read by i=1 (<text>:2); run the loop in order"
    )


def test_r40_swapping_loops_of_a_triangle(run: Any) -> None:
    op = parse(
        "lower(A: f32[10, 3]) -> C:\n"
        "    C[i,j] = sum(A[i,k] * A[j,k]) where i in 0:10, j in 0:10, j <= i\n"
        "    C[i,j] = 0 where i in 0:10, j in 0:10, j > i"
    )
    schedule = Schedule(op).split("C.0.i", 4).split("C.0.j", 4).reorder("C.0.jo", "C.0.ii")
    schedule.validate()
    a = cells(10, 3, 1)
    done = run(schedule.nest(sizes={}), {"A": a}, 11)
    want = {
        (i, j): sum(a[i, k] * a[j, k] for k in range(3)) if j <= i else 0
        for i in range(10)
        for j in range(10)
    }
    assert done.cells["C"] == want


def test_r43_tiles_of_all_operands_at_sizes_that_do_not_divide(run: Any) -> None:
    op = parse("C[i,j] = sum(A[i,k] * B[k,j])")
    schedule = (
        Schedule(op)
        .tile(i=4, j=4)
        .split("k", 4)
        .reorder("io", "jo", "ko", "ii", "ji", "ki")
        .stage("A", at="ko")
        .stage("B", at="ko")
    )
    for n in (1, 3, 4, 5, 9):
        a, b = cells(n, n, 1), cells(n, n, 5)
        nest = schedule.nest(sizes=dict.fromkeys(schedule.nest().kernel.checked.sizes, n))
        done = run(nest, {"A": a, "B": b}, n + 1)
        assert done.cells["C"] == {
            (i, j): sum(a[i, k] * b[k, j] for k in range(n)) for i in range(n) for j in range(n)
        }


def test_a_copy_of_nothing(run: Any) -> None:
    """At one row the second equation has no instance, and the copy of its input no element."""
    op = parse(
        "scan(x: f32[N,M]) -> c:\n  c[0,j] = x[0,j]\n  c[i,j] = c[i-1,j] + x[i,j] where i in 1:N"
    )
    made = Schedule(op).stage("x", at="c.1.i", scope="register")
    nest = made.nest(sizes={"N": 1, "M": 2})
    validate(nest)
    done = run(nest, {"x": {(0, 0): 3, (0, 1): 4}}, 4)
    assert done.cells["c"] == {(0, 0): 3, (0, 1): 4}
    assert {name for name, _ in done.order} == {"c.0"}
