"""The whole text of every refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from diptych.algo.errors import Error, ScheduleError
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.schedule import PRIMITIVES, Schedule


def schedule(text: str) -> Schedule:
    return Schedule(parse(text, loc=Loc("mm.py", 9)))


KNOWN = ", ".join(sorted(PRIMITIVES))
MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"
CHAIN = "t[i,j] = x[i,j] + 1\ny[i,j] = t[i,j] * 2"
SHIFTED = "t[i] = x[i] * 2\ny[i] = t[i] + t[i+1]"
SCAN = "c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:I"
HIST = "hist(at: i32[N], x: f32[N]) -> h:\n    h: [7]\n    h[at[n]] += x[n]"
HEAT = (
    "u[t,x] = where((t > 0) & (x > 0) & (x < X - 1), u[t-1,x-1] + u[t-1,x+1], f[x]) "
    "where t in 0:9, x in 0:X"
)
TILED = "C[i,j] = max(sum(A[i,k] * B[k,j]), 0)"
NORM = "m[i] = max(x[i,j])\ny[i,j] = x[i,j] - m[i]"
TRIO = "t[i] = x[i] * 2\nu[i] = t[i] + 1\ny[i] = t[i] + u[i]"

CASES: dict[str, tuple[str, Callable[[Schedule], object], str]] = {
    "unknown loop": (
        MATMUL, lambda s: s.split("q", 3),
        "split(q, 3): there is no loop q (loops: C.i, C.j, C.k)",
    ),
    "near miss": (
        MATMUL, lambda s: s.split("i", 8).split("i", 2),
        "split(i, 2): there is no loop i; did you mean io? (loops: C.io, C.ii, C.j, C.k)",
    ),
    "ambiguous": (
        CHAIN, lambda s: s.split("i", 8),
        "split(i, 8): i may mean t.i, y.i; write the full name of one",
    ),
    "factor": (
        MATMUL, lambda s: s.split("i", 0),
        "split(i, 0): expected a factor of at least 1, got 0",
    ),
    "a float for an integer": (
        MATMUL, lambda s: s.split("i", 2.0),
        "split: argument factor: expected integer, got 2.0",
    ),
    "truth for an integer": (
        MATMUL, lambda s: s.split("i", True),
        "split: argument factor: expected integer, got True",
    ),
    "text for an integer": (
        MATMUL, lambda s: s.vectorize("j", "8"),
        "vectorize: argument n: expected integer or None, got '8'",
    ),
    "an array for a name": (
        MATMUL, lambda s: s.unroll(np.zeros((40, 40))),
        "unroll: argument loop: expected name, got array([[0., 0., 0., ..., 0., 0., 0.], "
        "[0., 0., 0., ..., 0...",
    ),
    "nothing for a name": (
        MATMUL, lambda s: s.stage("A", at=None),
        "stage: argument at: expected name, got None",
    ),
    "one name of two": (
        MATMUL, lambda s: s.split("i", 8, into=("a",)),
        "split: argument into: expected (identifier, identifier) or None, got ('a',)",
    ),
    "names that are none": (
        MATMUL, lambda s: s.split("i", 8, into=("a b", "x\ny")),
        "split: argument into: expected (identifier, identifier) or None, got ('a b', 'x\\ny')",
    ),
    "a dotted name": (
        MATMUL, lambda s: s.fuse("i", "j", into="C.ij"),
        "fuse: argument into: expected identifier or None, got 'C.ij'",
    ),
    "a number to tile": (
        MATMUL, lambda s: s.tile(8),
        "tile: argument factors: expected {name: integer, ...}, got 8",
    ),
    "a float to tile by": (
        MATMUL, lambda s: s.tile(i=8, j=2.5),
        "tile: argument factors: expected {name: integer, ...}, got (('i', 8), ('j', 2.5))",
    ),
    "a layout that is one text": (
        MATMUL, lambda s: s.stage("B", at="i", layout="k,j"),
        "stage: argument layout: expected (expression, ...) or None, got 'k,j'",
    ),
    "tail": (
        MATMUL, lambda s: s.split("i", 8, tail="peel"),
        "split(i, 8, tail=peel): tail is guard or separate, not 'peel'",
    ),
    "into": (
        MATMUL, lambda s: s.split("i", 8, into=("a", "a")),
        "split(i, 8, into=(a, a)): into names two different loops, not a, a",
    ),
    "clash": (
        MATMUL, lambda s: s.split("i", 8).split("j", 8, into=("io", "q")),
        "split(j, 8, into=(io, q)): there is already a loop C.io; choose other names with "
        "into=(outer, inner)",
    ),
    "split of a marked loop": (
        MATMUL, lambda s: s.parallel("i").split("i", 8),
        "split(i, 8): loop C.i (mm.py:9) is parallel; split it before it is marked",
    ),
    "empty tile": (
        MATMUL, lambda s: s.tile(),
        "tile(): expected loops and factors, as in tile(i=8, j=48)",
    ),
    "tile": (
        MATMUL, lambda s: s.tile(i=8, q=4),
        "tile(i=8, q=4): split(q, 4): there is no loop q (loops: C.io, C.ii, C.j, C.k)",
    ),
    "fuse": (
        MATMUL, lambda s: s.fuse("j", "k"),
        "fuse(j, k): loop C.k is not all that loop C.j contains; reorder so that one directly "
        "follows the other",
    ),
    "fuse of a marked loop": (
        MATMUL, lambda s: s.parallel("i").fuse("i", "j"),
        "fuse(i, j): loop C.i is parallel; fuse before marking loops",
    ),
    "reorder one": (
        MATMUL, lambda s: s.reorder("i"),
        "reorder(i): expected at least two loops, outermost first",
    ),
    "reorder twice": (
        MATMUL, lambda s: s.reorder("i", "j", "i"),
        "reorder(i, j, i): loop C.i is named twice",
    ),
    "reorder apart": (
        CHAIN, lambda s: s.reorder("t.j", "y.i"),
        "reorder(t.j, y.i): loops y.i and t.j are not nested in each other; t.j lies under t.i",
    ),
    "reorder of a marked loop": (
        MATMUL, lambda s: s.parallel("i").reorder("j", "i"),
        "reorder(j, i): loop C.i is parallel; reorder before marking loops",
    ),
    "reorder against a recurrence": (
        "c[i,j] = x[i,j] + where((i > 0) & (j < J - 1), c[i-1,j+1], 0) where i in 0:I, j in 0:J",
        lambda s: s.reorder("j", "i"),
        "reorder(j, i): c[1,0] reads c[0,1] before it is written (mm.py:9)",
    ),
    "vectorize too wide": (
        MATMUL, lambda s: s.split("j", 8).vectorize("ji", 48),
        "vectorize(ji, 48): loop C.ji has extent 8 (mm.py:9); use at most 8 lanes, or split j by "
        "48 first",
    ),
    "vectorize by nothing": (
        MATMUL, lambda s: s.vectorize("j", 0),
        "vectorize(j, 0): expected at least 1 lane, got 0",
    ),
    "vectorize twice": (
        MATMUL, lambda s: s.vectorize("j").vectorize("j"),
        "vectorize(j): loop C.j (mm.py:9) is vector already",
    ),
    "vector in vector": (
        MATMUL, lambda s: s.vectorize("j").vectorize("i"),
        "vectorize(i): loop C.j of the same nest is a vector loop already",
    ),
    "vectorize a recurrence": (
        SCAN, lambda s: s.vectorize("i"),
        "vectorize(i): c[1] is written by i=1 and read by i=2 (mm.py:10); run the loop in order",
    ),
    "vectorize a scatter": (
        HIST, lambda s: s.vectorize("h.n"),
        "vectorize(h.n): an element of h, chosen by data, is updated by n=0 and by n=1 (mm.py:11); "
        "use atomic(n)",
    ),
    "parallel reduction": (
        MATMUL, lambda s: s.parallel("k"),
        "parallel(k): C[0,0] is updated by k=0 and by k=1 (mm.py:9); use rfactor(k), or parallel "
        "on i or j",
    ),
    "parallel blocks of a reduction": (
        MATMUL, lambda s: s.split("k", 4).parallel("ko"),
        "parallel(ko): C[0,0] is updated by ko=0 and by ko=1 (mm.py:9); use rfactor(ko), or "
        "parallel on i or j",
    ),
    "parallel in parallel": (
        MATMUL, lambda s: s.parallel("i").parallel("j"),
        "parallel(j): loop C.i of the same nest is parallel already; fuse the two, or keep one",
    ),
    "parallel over a shared tile": (
        SHIFTED, lambda s: s.split("y.i", 4).compute_with("t", "y", "i"),
        "compute_with(t, y, i): loop t.i and loop y.io do not match; loops of one name are "
        "joined, from the outside down to i",
    ),
    "unroll without extent": (
        "f(x: f32[N]) -> y:\n    y[i] = x[i]", lambda s: s.unroll("i").nest(sizes={"N": 5000}),
        "unroll(i): the unrolled body of loop y.i (mm.py:10) would have 5000 statements, limit "
        "1536, an inner loop counting for 8; split it and unroll the inner loop",
    ),
    "unroll twice the budget": (
        MATMUL, lambda s: s.tile(i=128, j=64).unroll("ji").unroll("ii"),
        "unroll(ii): the unrolled body of loop C.ii (mm.py:9) would have 81920 statements, limit "
        "1536, an inner loop counting for 8; split it and unroll the inner loop",
    ),
    "unrolled copies of loops": (
        MATMUL, lambda s: s.unroll("i").unroll("j").nest(sizes={"I": 16, "J": 16, "K": 16}),
        "unroll(j): the unrolled body of loop C.i (mm.py:9) would have 2560 statements, limit "
        "1536, an inner loop counting for 8; split it and unroll the inner loop",
    ),
    "bind axis": (
        MATMUL, lambda s: s.bind("i", "warp.x"),
        "bind(i, warp.x): 'warp.x' is no GPU axis; choose one of block.x, block.y, block.z, "
        "thread.x, thread.y, thread.z",
    ),
    "bind twice": (
        MATMUL, lambda s: s.bind("i", "block.x").bind("i", "block.y"),
        "bind(i, block.y): loop C.i (mm.py:9) is block.x already",
    ),
    "bind one axis twice": (
        MATMUL, lambda s: s.bind("i", "block.x").bind("j", "block.x"),
        "bind(j, block.x): loop C.i of the same nest is bound to block.x already",
    ),
    "bind a reduction": (
        MATMUL, lambda s: s.bind("k", "thread.x"),
        "bind(k, thread.x): C[0,0] is updated by k=0 and by k=1 (mm.py:9); use rfactor(k), or "
        "bind on i or j",
    ),
    "stage scope": (
        MATMUL, lambda s: s.stage("B", at="k", scope="cache"),
        "stage(B, at=k): 'cache' is no scope; choose one of stack, register, heap, shared, local",
    ),
    "stage what is not there": (
        CHAIN, lambda s: s.stage("x", at="y.i"),
        "stage(x, at=y.i): x is not touched under loop y.i; touched are t, y",
    ),
    "stage a scatter": (
        HIST, lambda s: s.stage("h", at="n"),
        "stage(h, at=n): elements of h are chosen by data when it is written (mm.py:11); a tile of "
        "it is not known",
    ),
    "stage twice outside": (
        MATMUL, lambda s: s.stage("B", at="k").stage("B", at="j"),
        "stage(B, at=j): under loop C.j it is held by B, B.stack; stage it further in",
    ),
    "stage a block of no shape": (
        "c[0,j] = x[0,j]\nc[i,j] = c[i-1,j] + x[i,j] where i in 1:I",
        lambda s: (
            s.split("c.1.j", 3).fuse("c.1.i", "c.1.jo").stage("c", at="ji").nest(
                sizes={"I": 4, "J": 3}
            )
        ),
        "stage(c, at=ji): the elements of c written under loop c.1.ji are no convex block, so "
        "they cannot be copied out as one",
    ),
    "reorder around copies": (
        "c[i,j] = x[i,j] + where((i > 0) & (j < J - 1), c[i-1,j+1], 0) where i in 0:I, j in 0:J",
        lambda s: s.stage("c", at="j").reorder("j", "i"),
        "reorder(j, i): c[1,0] reads c[0,1] before it is written (mm.py:9)",
    ),
    "reorder of a repeated reduction": (
        "s[i] = sum(x[i,k])\ny[i] = sum(s[i] * b[j])",
        lambda s: s.compute_at("s", "y.j").reorder("s.k", "y.j"),
        "reorder(s.k, y.j): s.update[0,0] updates s[0] before its own repetition starts, or after "
        "another one has started (mm.py:9); keep the loops of s inside those that repeat it",
    ),
    "layout axis": (
        MATMUL, lambda s: s.stage("B", at="j", layout=("q", "k")),
        "stage(B, at=j): layout axis 'q' is not made of k, j, d0, d1, integers and + - * // %",
    ),
    "layout text": (
        MATMUL, lambda s: s.stage("B", at="j", layout=("j//", "k")),
        "stage(B, at=j): layout axis 'j//' is not an expression",
    ),
    "layout that shares places": (
        MATMUL, lambda s: s.stage("B", at="j", layout=("k", "j%8")),
        "stage(B, at=j): in layout (k, j%8) the elements [0,0] and [0,8] of a block share one "
        "place",
    ),
    "compute_at of an output": (
        NORM.replace("y[i,j] =", "y[i] = sum(") + ")", lambda s: s.compute_at("y", "m.i"),
        "compute_at(y, m.i): nothing under loop m.i reads y; nothing else reads it",
    ),
    "compute_at of an input": (
        CHAIN, lambda s: s.compute_at("x", "t.i"),
        "compute_at(x, t.i): x is an input; stage a copy of it instead",
    ),
    "compute_at of nothing": (
        CHAIN, lambda s: s.compute_at("tt", "y.i"),
        "compute_at(tt, y.i): there is no stage tt between inputs and results; did you mean t? "
        "(there is t)",
    ),
    "compute_at where there is no stage": (
        MATMUL, lambda s: s.compute_at("w", "C.i"),
        "compute_at(w, C.i): there is no stage w between inputs and results; there is none",
    ),
    "compute_at itself": (
        CHAIN, lambda s: s.compute_at("t", "t.i"),
        "compute_at(t, t.i): t is computed under loop t.i already",
    ),
    "compute_at where nobody reads": (
        TRIO, lambda s: s.compute_at("u", "t.i"),
        "compute_at(u, t.i): nothing under loop t.i reads u; it is read by y",
    ),
    "compute_at with a reader outside": (
        TRIO, lambda s: s.compute_at("t", "y.i"),
        "compute_at(t, y.i): u (mm.py:10) also reads t, outside loop y.i; compute it there first, "
        "or choose a loop around both",
    ),
    "compute_at of a recurrence": (
        SCAN + "\ny[i] = c[I-1-i] * 2",
        lambda s: s.compute_at("c", "y.i"),
        "compute_at(c, y.i): c.1[2] reads c[1] before c.1[1] writes it (mm.py:10)",
    ),
    "compute_at of a scatter": (
        HIST.replace("-> h:", "-> y:") + "\n    y[b] = h[b] * 2",
        lambda s: s.compute_at("h", "y.b"),
        "compute_at(h, y.b): elements of h are chosen by data when it is written (mm.py:11); which "
        "of them are needed is not known",
    ),
    "compute_at of a stage beside nothing": (
        MATMUL + "\nD[i] = x[i]", lambda s: s.compute_at("C.init", "D.i"),
        "compute_at(C.init, D.i): nothing under loop D.i gives what C.init reads, or reads what "
        "it gives",
    ),
    "compute_at of what is staged": (
        NORM, lambda s: s.rfactor("m.j").stage("m.rf", at="m.j").compute_at("m", "y.i"),
        "compute_at(m, y.i): m.rf.init (mm.py:9) writes to m.rf.stack, where m.rf is staged; "
        "compute_at before stage",
    ),
    "a window run in lanes": (
        "t[i,j] = x[i,j] * 2\ny[i,j] = t[i,j] + t[i+1,j]",
        lambda s: s.compute_at("t", "y.j").store_at("t", "y.i", fold={"j": 1}).vectorize("y.j"),
        "vectorize(y.j): the place of t[0,0] and t[0,1] is written by j=0 and by j=1 (mm.py:9); "
        "use vectorize on i",
    ),
    "double buffer of an accumulator": (
        MATMUL,
        lambda s: s.split("k", 8).reorder("ko", "i", "j", "ki").stage("C", "ko", double=True),
        "stage(C, at=ko): C is written under loop C.ko; only tiles that are read can be copied an "
        "iteration ahead",
    ),
    "double buffer in registers": (
        MATMUL, lambda s: s.stage("B", at="j", scope="register", double=True),
        "stage(B, at=j): double buffers are for scope stack or heap, not register",
    ),
    "double buffer in a parallel loop": (
        MATMUL, lambda s: s.parallel("i").stage("A", at="i", double=True),
        "stage(A, at=i): loop C.i (mm.py:9) is parallel, so no iteration is the next one; stage "
        "before marking loops",
    ),
    "double buffer of the same tile": (
        MATMUL, lambda s: s.stage("B", at="i", double=True),
        "stage(B, at=i): the tiles of two iterations of loop C.i are no constant distance apart in "
        "any dimension of B, so they cannot alternate",
    ),
    "double that is no truth": (
        MATMUL, lambda s: s.stage("B", at="i", double=2),
        "stage: argument double: expected True or False, got 2",
    ),
    "double buffer in a loop made parallel": (
        SHIFTED, lambda s: s.split("y.i", 8).stage("t", at="y.io", double=True).parallel("y.io"),
        "parallel(y.io): t[8] is written by io=-1 and by io=0 (mm.py:10); use parallel on i",
    ),
    "compute_at of an early final": (
        TILED, lambda s: s.compute_at("C.final", "C.init.jo"),
        "compute_at(C.final, C.init.jo): C.final[0,0] reads C.acc[0,0] before C.update[0,0,0] "
        "updates it (mm.py:9)",
    ),
    "compute_at of a late init": (
        TILED, lambda s: s.compute_at("C.init", "C.final.jo"),
        "compute_at(C.init, C.final.jo): C.update[0,0,0] updates C.acc[0,0] before C.init[0,0] "
        "writes it (mm.py:9)",
    ),
    "compute_at of an output read both ways": (
        "f(x) -> t, y:\n  t[i] = x[i] where i in 0:I\n  y[i] = t[i] + t[I-1-i] where i in 0:I",
        lambda s: s.compute_at("t", "y.i"),
        "compute_at(t, y.i): which iteration of loop i needs an element of t first is no one "
        "expression of its indices (mm.py:10)",
    ),
    "store_at of what is read both ways": (
        "t[i] = x[i] where i in 0:I\ny[i] = t[i] + t[I-1-i] where i in 0:I",
        lambda s: s.compute_at("t", "y.i").store_at("t"),
        "store_at(t): which iteration of loop i needs an element of t first is no one expression "
        "of its indices (mm.py:9)",
    ),
    "store_at of nothing": (
        SHIFTED, lambda s: s.store_at("y"),
        "store_at(y): there is no stage y between inputs and results (there is t)",
    ),
    "store_at without a common loop": (
        SHIFTED, lambda s: s.store_at("t", "y.i"),
        "store_at(t, y.i): t is not computed and read under loop y.i; its nest shares no loop with "
        "that of its readers; use compute_at first",
    ),
    "store_at further in": (
        SHIFTED,
        lambda s: s.split("y.i", 8).compute_at("t", "y.io").store_at("t", "y.ii"),
        "store_at(t, y.ii): t is not computed and read under loop y.ii; it is computed and read "
        "under y.io",
    ),
    "store_at over a parallel loop": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").parallel("y.i").store_at("t"),
        "store_at(t): loop y.i (mm.py:9) is parallel, and values are kept over its iterations; use "
        "store_at before marking loops",
    ),
    "parallel over a window": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").store_at("t").parallel("y.i"),
        "parallel(y.i): t[0] is written by i=-1 and read by i=0 (mm.py:10); run the loop in order",
    ),
    "fold too short": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").store_at("t", fold={"i": 1}),
        "store_at(t, fold={i: 1}): y[0] reads t[0] after t[1] is written in its place (mm.py:10); "
        "fold d0 by 2 at least",
    ),
    "fold of what is kept whole": (
        "t[i,j] = x[i,j] * 2\ny[i,j] = t[i,j] + t[i+1,j]",
        lambda s: s.compute_at("t", "y.i").store_at("t", fold={"j": 2}),
        "store_at(t, fold={j: 2}): y[0,0] reads t[0,0] after t[0,2] is written in its place "
        "(mm.py:10); d1 cannot be folded at all sizes",
    ),
    "fold of no dimension": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").store_at("t", fold={"k": 2}),
        "store_at(t, fold={k: 2}): t has no dimension k (there are d0, i)",
    ),
    "fold by nothing": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").store_at("t", fold={"i": 0}),
        "store_at(t, fold={i: 0}): expected folds of at least 1, got i: 0",
    ),
    "fold that is no mapping": (
        SHIFTED, lambda s: s.compute_at("t", "y.i").store_at("t", fold=2),
        "store_at: argument fold: expected {dimension: integer, ...} or None, got 2",
    ),
    "compute_with of what is needed later": (
        SHIFTED, lambda s: s.compute_with("t", "y", "i"),
        "compute_with(t, y, i): y[0] reads t[1] before it is written (mm.py:10)",
    ),
    "compute_with of parallel loops": (
        "S[i] = a[i] * 2\nR[i] = S[i] - where(i > 0, S[i-1], 0)",
        lambda s: s.parallel("S.i").parallel("R.i").compute_with("S", "R", "i"),
        "compute_with(S, R, i): S[0] is written by i=0 and read by i=1 (mm.py:10); loop R.i is "
        "parallel: its iterations run at once",
    ),
    "stage an accumulator of lanes": (
        MATMUL, lambda s: s.vectorize("k").stage("C", at="k"),
        "stage(C, at=k): C[0,0] is read by k=0 and written by k=1 (mm.py:9); loop C.k is vector: "
        "its iterations run at once",
    ),
    "compute_with of no neighbours": (
        TRIO, lambda s: s.compute_with("t", "y", "i"),
        "compute_with(t, y, i): the nests of t and y do not follow each other directly, in this "
        "order",
    ),
    "compute_with of nothing": (
        TRIO, lambda s: s.compute_with("t", "z", "i"),
        "compute_with(t, z, i): there is no stage z (there are t, u, y)",
    ),
    "compute_with of different kinds": (
        CHAIN, lambda s: s.parallel("t.i").compute_with("t", "y", "i"),
        "compute_with(t, y, i): loop t.i is parallel and loop y.i is serial",
    ),
    "rfactor of a marked loop": (
        MATMUL, lambda s: s.vectorize("k").rfactor("k"),
        "rfactor(k): loop C.k (mm.py:9) is vector; rfactor before marking loops",
    ),
    "rfactor of no reduction": (
        MATMUL, lambda s: s.rfactor("i"),
        "rfactor(i): loop C.i (mm.py:9) is no loop of a reduction: what each of its iterations "
        "computes is not accumulated with that of others",
    ),
    "rfactor of a staged accumulator": (
        MATMUL, lambda s: s.stage("C", at="j").rfactor("k"),
        "rfactor(k): C is held by C.stack (mm.py:9); rfactor before staging it",
    ),
    "rfactor of what is computed again": (
        NORM, lambda s: s.compute_at("m", "y.j").rfactor("m.j"),
        "rfactor(m.j): m.update (mm.py:9) is computed again in every iteration of y.i; rfactor "
        "before compute_at",
    ),
    "rfactor of an unknown extent": (
        "y[] = sum(x[2*k] * z[3*k])", lambda s: s.rfactor("k"),
        "rfactor(k): how many iterations loop y.k (mm.py:9) has is not one formula over the "
        "sizes; split it by a factor and rfactor loop ki",
    ),
    "rfactor into a loop that is there": (
        MATMUL, lambda s: s.rfactor("k", into="j"),
        "rfactor(k, into=j): there is already a loop C.j; choose another name with into=",
    ),
    "rfactor into no name": (
        MATMUL, lambda s: s.rfactor("k", into="j k"),
        "rfactor: argument into: expected identifier or None, got 'j k'",
    ),
    "reverse of a recurrence": (
        SCAN, lambda s: s.reverse("c.1.i"),
        "reverse(c.1.i): c.1[2] reads c[1] before c.1[1] writes it (mm.py:10)",
    ),
    "reverse of a marked loop": (
        MATMUL, lambda s: s.vectorize("j").reverse("j"),
        "reverse(j): loop C.j (mm.py:9) is vector; reverse before marking loops",
    ),
    "shift back": (
        SHIFTED,
        lambda s: s.shift("y", "y.i", 1).compute_with("t", "y", "i").shift("y", "y.i", -1),
        "shift(y, y.i, -1): y[0] reads t[1] before it is written (mm.py:10)",
    ),
    "shift of nothing": (
        SHIFTED, lambda s: s.shift("z", "y.i", 1),
        "shift(z, y.i, 1): there is no stage z under loop y.i (there is y)",
    ),
    "shift of a marked loop": (
        SHIFTED, lambda s: s.parallel("y.i").shift("y", "y.i", 1),
        "shift(y, y.i, 1): loop y.i (mm.py:10) is parallel; shift before marking loops",
    ),
    "shift by no number": (
        SHIFTED, lambda s: s.shift("y", "y.i", "one"),
        "shift: argument n: expected integer, got 'one'",
    ),
    "skew by a loop inside": (
        MATMUL, lambda s: s.skew("i", "j"),
        "skew(i, j, 1): loop C.j is not around loop C.i; name the inner loop first",
    ),
    "skew of a marked loop": (
        MATMUL, lambda s: s.vectorize("k").skew("k", "j", 2),
        "skew(k, j, 2): loop C.k (mm.py:9) is vector; skew before marking loops",
    ),
    "reorder after a skew the wrong way": (
        HEAT, lambda s: s.skew("x", "t", -1).reorder("x", "t"),
        "reorder(x, t): u[1,1] reads u[0,2] before it is written (mm.py:9)",
    ),
    "inline of nothing": (
        CHAIN, lambda s: s.inline("z"),
        "inline(z): there is no stage z between inputs and results (there is t)",
    ),
    "inline of a result": (
        CHAIN, lambda s: s.inline("y"),
        "inline(y): y is returned, so it is stored",
    ),
    "inline of a reduction": (
        NORM, lambda s: s.inline("m"),
        "inline(m): m is a reduction (mm.py:9), which has no one expression; use compute_at "
        "instead",
    ),
    "inline of parts": (
        "t[0] = x[0]\nt[i] = x[i] where i in 1:I\ny[i] = t[i]", lambda s: s.inline("t"),
        "inline(t): t is computed in parts (mm.py:9); which of them an element belongs to would "
        "have to be asked at every read",
    ),
    "inline of a recurrence": (
        "t[i] = x[i] + where(i > 0, t[i-1], 0) where i in 0:I\ny[i] = t[i]",
        lambda s: s.inline("t"),
        "inline(t): t is a recurrence (mm.py:9), whose elements need each other",
    ),
    "inline of what is written in another order": (
        "q(x: f32[4]) -> y:\n    t[3-i] = x[i] where i in 0:4\n    y[i] = t[i] where i in 0:4",
        lambda s: s.inline("t"),
        "inline(t): t is written at places that are not bare indices (mm.py:10); which instance "
        "gives an element is not one formula",
    ),
    "inline of an index": (
        "q(at: i32[I], x: f32[J]) -> y:\n    t[i] = at[i] * 2\n    y[i] = x[t[i]]",
        lambda s: s.inline("t"),
        "inline(t): y (mm.py:11) uses t as an index, which is checked where it is read from "
        "memory; leave it there",
    ),
    "inline of what is compared": (
        "t[i,k] = x[i,k] * w[k] + 1.0\ny[i] = argmax(t[i,k])", lambda s: s.inline("t"),
        "inline(t): y.update (mm.py:10) asks whether t equals a value, so all who read it must "
        "see the same bits; it stays stored",
    ),
    "inline after a copy": (
        CHAIN, lambda s: s.stage("x", at="t.i").inline("t"),
        "inline(t): x.stack holds a copy of x (mm.py:9); inline before staging",
    ),
    "inline of what others are computed for": (
        "t[i] = x[i] * 2\nu[i] = t[i] + 1\ny[i] = u[i]",
        lambda s: s.compute_at("t", "u.i").inline("u"),
        "inline(u): t (mm.py:10) is computed at loop u.i, for u; inline before compute_at",
    ),
    "inline of a long chain": (  # R18
        "\n".join(f"F{n + 1}[i] = F{n}[i] + F{n}[i+1]" for n in range(20)),
        lambda s: reduce(Schedule.inline, (f"F{n}" for n in range(1, 20)), s),
        "inline(F11): F12 (mm.py:20) would take 8191 reads and operations an element, over the "
        "budget of 4096; keep F11, or use compute_at",
    ),
    "no such primitive": (
        MATMUL, lambda s: s.tensorize("k"),
        f"there is no primitive tensorize; this version has {KNOWN}",
    ),
    "text of no such primitive": (
        MATMUL, lambda s: Schedule.parse(s.op, '.warp("k")'),
        f"there is no primitive warp; this version has {KNOWN}",
    ),
    "text of a method that is no primitive": (
        MATMUL, lambda s: Schedule.parse(s.op, '.save("/tmp/x")'),
        f"there is no primitive save; this version has {KNOWN}",
    ),
    "text that computes": (
        MATMUL, lambda s: Schedule.parse(s.op, '.split("i", 2 * size)'),
        "split: arguments in the text of a schedule are names in quotes, integers and tuples of "
        "them, not 2 * size",
    ),
    "text that is cut off": (
        MATMUL, lambda s: Schedule.parse(s.op, '.split("i", 8'),
        "not the text of a schedule ('(' was never closed): .split(\"i\", 8",
    ),
    "text that is something else": (
        MATMUL, lambda s: Schedule.parse(s.op, "split"),
        'not the text of a schedule: split; expected calls as in .split("i", 8)',
    ),
    "text without an argument": (
        MATMUL, lambda s: Schedule.parse(s.op, '.split("i")'),
        "split: missing 1 required positional argument: 'factor'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refusal(name: str) -> None:
    text, attempt, want = CASES[name]
    made = schedule(text)
    if text is TILED:  # blocks of k outermost, so that init and final are nests of their own
        made = made.tile(i=8, j=16).split("k", 32).reorder("ko", "io", "jo", "ki", "ii", "ji")
    with pytest.raises(ScheduleError) as caught:
        attempt(made)
    assert str(caught.value) == want


def test_errors_are_what_the_builtin_says_too() -> None:
    made = schedule(MATMUL)
    assert not hasattr(made, "tensorize")
    with pytest.raises(ValueError):
        made.split("i", 0)
    with pytest.raises(Error):
        made.split("i", 0)


def test_a_schedule_is_immutable() -> None:
    made = schedule(MATMUL)
    with pytest.raises(AttributeError, match="immutable"):
        made.primitives = ()
    other = made.split("i", 8)
    assert made.text == "" and other.text == '.split("i", 8)'


UNPROVED: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "order": (
        lambda s: s.reorder("k", "j"),
        "reorder(k, j): could not prove that C.update and C.init keep their order (mm.py:9); a "
        "simpler order of primitives, or sizes that are given, may help",
    ),
    "concurrency": (
        lambda s: s.parallel("i"),
        "parallel(i): could not prove that C.init keep their order (mm.py:9); a simpler order of "
        "primitives, or sizes that are given, may help",
    ),
    "region": (
        lambda s: s.stage("B", at="j"),
        "stage(B, at=j): could not compute which elements of B are needed; a loop further in or "
        "out may help",
    ),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_what_isl_cannot_prove_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question ends as "could not prove"."""
    from diptych.algo import isl
    from diptych.sched.loop import regions

    attempt, want = UNPROVED[name]
    made = schedule(MATMUL)
    made.nest()
    exhausted = isl.Exhausted("isl could not answer within 1 operations")

    def give_up(*_: object, **__: object) -> None:
        raise exhausted

    monkeypatch.setattr(isl, "first_point", give_up)
    monkeypatch.setattr(regions, "points", give_up)
    with pytest.raises(ScheduleError) as caught:
        attempt(made)
    assert str(caught.value) == want
