"""What schedules cost: work is done once, and grows with the operator as it should."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import pytest
from caches import forget
from diptych.algo.errors import ScheduleError
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.stages import kernel
from diptych.sched.loop import storage
from diptych.sched.loop.default import default
from diptych.sched.loop.initial import initial
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.primitive import Primitive
from diptych.sched.loop.schedule import Schedule
from diptych.sched.loop.validate import validate
from sched_loop.speed import seconds, slowness, work


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


def test_a_chain_is_scheduled_in_proportion_to_its_length() -> None:
    """A primitive costs what it changes, whatever else there is."""
    spent: dict[int, list[float]] = {100: [], 400: []}
    for again in range(3):
        for count, times in spent.items():
            op = parse("\n".join(f"u{n + 1}[i] = u{n}[i] * {n + again}" for n in range(count)))
            check(op)
            times.append(seconds(lambda: default(op, {}, {"I": 8 + again}, Machine())))  # noqa: B023
    assert min(spent[400]) < 6 * min(spent[100])


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
    one = default(
        parse(text.replace("2*h", "h").replace("3*w", "w")), {}, sizes, Machine(threads=2)
    )
    assert one.text.endswith('.vectorize("z").parallel("n")') and "register" not in one.text


PRIMITIVE, SCHEDULE = 0.030, 1.0
"""Seconds that the check of one primitive, and a whole schedule of ten equations, may take on the
machine of `speed.py`; on a slower one as much more as fixed work takes there."""

SLACK = 2
"""For machines on which other work shares caches: processor time is not quite one's own."""

NESTS: dict[str, tuple[str, str, Mapping[str, int]]] = {
    "a tiled matmul": (
        "C[i,j] = sum(A[i,k] * B[k,j])",
        """.tile(i=8, j=48).split("k", 64).reorder("io", "jo", "ko", "ki", "ii", "ji")
        .stage("B", at="jo", layout=("j//16", "k", "j%16")).stage("C", at="jo", scope="register")
        .unroll("ii").vectorize("ji", 16).parallel("io")""",
        {"I": 512, "J": 480, "K": 256},
    ),
    "a BLIS matmul": (
        "C[i,j] = sum(A[i,k] * B[k,j])",
        """.split("j", 480, into=("jc", "j1")).split("k", 256, into=("pc", "p1"))
        .split("i", 96, into=("ic", "i1")).split("j1", 48, into=("jr", "jj"))
        .split("i1", 8, into=("ir", "ii")).reorder("jc", "pc", "ic", "jr", "ir", "p1", "ii", "jj")
        .stage("B", at="pc", scope="heap", layout=("j//48", "k", "j%48"))
        .stage("A", at="ic", layout=("i//8", "k", "i%8")).stage("C", at="ir", scope="register")
        .vectorize("jj", 16).parallel("ic")""",
        {"I": 512, "J": 960, "K": 512},
    ),
    "a reduction split in two": (
        "C[i,j] = sum(A[i,k] * B[k,j])",
        """.split("i", 8).split("j", 8).split("k", 8).reorder("io", "jo", "ko", "ii", "ji", "ki")
        .rfactor("ko").parallel("ko")""",
        {"I": 64, "J": 64, "K": 64},
    ),
    "a convolution": (
        "conv(I: [N, C, H, X], K: [F, C, R, S]) -> O:\n"
        "  O[n,f,y,x] = sum(I[n,c,y+r,x+s] * K[f,c,r,s])",
        """.split("x", 14).split("f", 16).split("c", 8)
        .reorder("n", "fo", "y", "xo", "co", "ci", "r", "s", "xi", "fi")
        .stage("K", at="fo", layout=("c", "r", "s", "f")).stage("I", at="xo")
        .stage("O", at="xo", scope="register").vectorize("fi").unroll("xi").parallel("fo")""",
        {"N": 2, "C": 32, "H": 30, "X": 30, "F": 64, "R": 3, "S": 3},
    ),
    "a blur": (
        "blur(x: [H, W]) -> y:\n  t[i,j] = x[i,j] + x[i,j+1] + x[i,j+2]\n"
        "  y[i,j] = t[i,j] + t[i+1,j] + t[i+2,j]",
        """.tile({"y.i": 32, "y.j": 64}).compute_at("t", "y.jo").stage("x", at="y.jo")
        .vectorize("y.ji", 8).vectorize("t.j", 8).parallel("y.io")""",
        {"H": 258, "W": 258},
    ),
    "a sliding window": (
        "blur(x: [H, W]) -> y:\n  t[i,j] = x[i,j] + x[i,j+1] + x[i,j+2]\n"
        "  y[i,j] = t[i,j] + t[i+1,j] + t[i+2,j]",
        """.tile({"y.i": 32, "y.j": 64}).split("y.ji", 8, into=("jj", "jv"))
        .compute_at("t", "y.ii").store_at("t", "y.jo")
        .vectorize("y.jv").vectorize("t.j", 8).parallel("y.io")""",
        {"H": 258, "W": 258},
    ),
    "a BLIS matmul with an epilogue": (
        "C[i,j] = max(sum(A[i,k] * B[k,j]) + d[j], 0)",
        """.split("k", 256, into=("pc", "p1")).split("i", 8).split("j", 48)
        .reorder("pc", "jo", "io", "p1", "ii", "ji").compute_at("C.final", "io")
        .compute_at("C.init", "io").stage("C", at="io", scope="register")
        .stage("B", at="jo", layout=("k", "j")).unroll("ii").vectorize("ji")""",
        {"I": 512, "J": 960, "K": 512},
    ),
    "a chain of stencils": (
        "chain(x: [H]) -> y:\n  a[i] = x[i] + x[i+1] + x[i+2]\n"
        "  b[i] = a[i] + a[i+1] + a[i+2]\n  c[i] = b[i] + b[i+1] + b[i+2]\n"
        "  y[i] = c[i] + c[i+1] + c[i+2]",
        """.split("y.i", 64).compute_at("c", "y.io").compute_at("b", "y.io")
        .compute_at("a", "y.io").vectorize("y.ii", 8).vectorize("c.i", 8).parallel("y.io")""",
        {"H": 1000},
    ),
    "a stencil in time": (
        "heat(u0: [X], n: [T]) -> u:\n  u: [T, X]\n  u[0,x] = u0[x] where x in 0:X\n"
        "  u[t,x] = where((x > 0) & (x < X-1), u[t-1,x-1] + u[t-1,x+1], u[t-1,x]) "
        "where t in 1:T, x in 0:X",
        """.skew("u.1.x", "u.1.t", 1).split("u.1.t", 8).split("u.1.x", 16)
        .reorder("u.1.to", "u.1.xo", "u.1.ti", "u.1.xi")""",
        {"X": 64, "T": 32},
    ),
    "a softmax": (
        "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ns[i] = sum(e[i,j])\n"
        "y[i,j] = e[i,j] / s[i]",
        """.split("y.i", 4).compute_at("s", "y.ii").compute_at("e", "y.ii")
        .compute_at("m", "y.ii").vectorize("y.j", 8).vectorize("m.j", 8).vectorize("e.j", 8)
        .parallel("y.io")""",
        {"I": 64, "J": 512},
    ),
    "a layer norm": (
        "norm(x: [B, D], g: [D], b: [D]) -> y:\n  m[i] = sum(x[i,j]) / D\n"
        "  v[i] = sum((x[i,j] - m[i])*(x[i,j] - m[i])) / D\n  r[i] = 1 / sqrt(v[i] + 0.00001)\n"
        "  y[i,j] = (x[i,j] - m[i]) * r[i] * g[j] + b[j]",
        """.split("y.i", 4).inline("r").compute_at("v", "y.ii").compute_at("m", "y.ii")
        .stage("x", at="y.ii").vectorize("y.j", 8).parallel("y.io")""",
        {"B": 64, "D": 512},
    ),
    "an attention": (
        "att(Q: [H, T, D], K: [H, S, D], V: [H, S, E]) -> O:\n"
        "  p[h,t,s] = sum(Q[h,t,d] * K[h,s,d])\n  m[h,t] = max(p[h,t,s])\n"
        "  e[h,t,s] = exp(p[h,t,s] - m[h,t])\n  l[h,t] = sum(e[h,t,s])\n"
        "  o[h,t,c] = sum(e[h,t,s] * V[h,s,c])\n  O[h,t,c] = o[h,t,c] / l[h,t]",
        """.split("O.t", 16).compute_at("o", "O.to").compute_at("l", "O.to")
        .compute_at("e", "O.to").compute_at("m", "O.to").compute_at("p", "O.to")
        .split("o.s", 32).reorder("o.so", "o.t", "o.si", "o.c").stage("Q", at="O.to")
        .stage("V", at="O.to").vectorize("o.c", 8).vectorize("e.s", 8).vectorize("O.c", 8)
        .parallel("O.h")""",
        {"H": 4, "T": 128, "S": 128, "D": 64, "E": 64},
    ),
    "a transformer block of eleven equations": (
        "block(x: [T, D], Wq: [D, D], Wk: [D, D], Wv: [D, D], W1: [D, F], W2: [F, D]) -> y:\n"
        "  q[t,d] = sum(x[t,k] * Wq[k,d])\n  n[t,d] = sum(x[t,k] * Wk[k,d])\n"
        "  v[t,d] = sum(x[t,k] * Wv[k,d])\n  p[t,s] = sum(q[t,d] * n[s,d])\n"
        "  m[t] = max(p[t,s])\n  e[t,s] = exp(p[t,s] - m[t])\n  l[t] = sum(e[t,s])\n"
        "  o[t,d] = x[t,d] + sum(e[t,s] * v[s,d]) / l[t]\n  g[t,f] = sum(o[t,d] * W1[d,f])\n"
        "  h[t,f] = where(g[t,f] > 0, g[t,f], 0)\n  y[t,d] = o[t,d] + sum(h[t,f] * W2[f,d])",
        """.tile({"n.t": 8, "n.d": 16}).reorder("n.to", "n.do", "n.k", "n.ti", "n.di")
        .stage("n", at="n.do", scope="register").vectorize("n.di").unroll("n.ti").parallel("n.to")
        .split("v.k", 32).rfactor("v.ko").vectorize("v.d", 16).parallel("v.t").split("y.t", 16)
        .inline("h").compute_at("g", "y.to").compute_at("o", "y.to").compute_at("l", "y.to")
        .compute_at("e", "y.to").compute_at("m", "y.to").compute_at("p", "y.to")
        .compute_at("q", "y.to").split("y.f", 64).reorder("y.fo", "y.ti", "y.d", "y.fi")
        .stage("W2", at="y.fo", layout=("f", "d")).vectorize("g.f", 16).vectorize("q.d", 16)
        .vectorize("e.s", 16).vectorize("o.d", 16).vectorize("l.s", 8).vectorize("m.s", 8)
        .parallel("y.to")""",
        {"T": 64, "D": 64, "F": 256},
    ),
}


def forget_questions() -> None:
    """Makes the next schedule as costly as the first."""
    forget("sched", "algo.isl", "algo.tensor_expr")


@pytest.mark.parametrize("sized", [False, True], ids=["symbols", "sizes"])
@pytest.mark.parametrize("name", NESTS)
def test_every_check_takes_milliseconds(name: str, sized: bool) -> None:
    text, calls, sizes = NESTS[name]
    op = parse(text)
    primitives = Schedule.parse(op, calls).primitives
    runs: list[list[float]] = []
    fixed: list[float] = []
    for _ in range(3):
        fixed.append(seconds(work))
        forget_questions()
        nest = initial(kernel(check(op), {}, sizes if sized else None))
        spent: list[float] = []
        for primitive in primitives:
            before = nest

            def step() -> None:
                nonlocal nest
                nest = primitive.step(before)  # noqa: B023

            spent.append(seconds(step))
        made = nest
        spent.append(seconds(lambda: validate(made)))  # noqa: B023
        runs.append(spent)
    cost = [statistics.median(times) for times in zip(*runs, strict=True)]
    *checks, whole = cost
    slack = SLACK * slowness(fixed)
    slow = {p.text: t for p, t in zip(primitives, checks, strict=True) if t > slack * PRIMITIVE}
    assert not slow
    assert sum(checks) + whole < slack * SCHEDULE


def test_a_whole_schedule_is_read_and_bound_within_a_second() -> None:
    """Reading the text checks all primitives for all sizes, binding sizes checks them again."""
    text, calls, sizes = NESTS["a transformer block of eleven equations"]
    op = parse(text)
    check(op)
    spent, fixed = [], []
    for _ in range(3):
        fixed.append(seconds(work))
        forget_questions()
        spent.append(seconds(lambda: Schedule.parse(op, calls).nest({}, sizes)))
    assert statistics.median(spent) < SLACK * slowness(fixed) * SCHEDULE
