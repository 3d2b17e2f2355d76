"""Each primitive, before and after, as the printed nest."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.tensor_expr.parse import parse
from diptych.sched.loop.extent import extent
from diptych.sched.loop.nest import loops
from diptych.sched.loop.schedule import Schedule


def schedule(text: str) -> Schedule:
    return Schedule(parse(text))


MATMUL = "C[i,j] = sum(A[i,k] * B[k,j])"
CHAIN = "t[i,j] = x[i,j] + 1\ny[i,j] = t[i,j] * 2"
STENCIL = "t[i] = x[i] * 2\ny[i] = t[i] + t[i+1]"


def check(made: Schedule, want: str) -> None:
    """The nest prints as wanted, validates, and replays from its text."""
    assert str(made) == want.strip("\n")
    made.validate()
    again = Schedule.parse(made.op, made.text)
    assert again == made and str(again) == str(made)


def test_initial_reduction() -> None:
    check(
        schedule(MATMUL),
        """
for C.i:
  for C.j:
    C[i,j] = f32(0.0)
    for C.k:
      C[i,j] += A[i,k] * B[k,j]
""",
    )


def test_initial_accumulator_is_one_element() -> None:
    check(
        schedule("y[i] = max(sum(A[i,k] * b[k]), 0)"),
        """
for y.i:
  y.acc: f32 heap buffer
  y.acc[i] = f32(0.0)
  for y.k:
    y.acc[i] += A[i,k] * b[k]
  y[i] = max(y.acc[i], f32(0.0))
""",
    )


def test_initial_temporaries_of_several_nests_live_outside() -> None:
    check(
        schedule(CHAIN),
        """
t: f32 heap buffer
for t.i:
  for t.j:
    t[i,j] = x[i,j] + f32(1.0)
for y.i:
  for y.j:
    y[i,j] = t[i,j] * f32(2.0)
""",
    )


def test_initial_scatter() -> None:
    check(
        schedule("hist(at: i32[N], x: f32[N]) -> h:\n    h: [7]\n    h[at[n]] += x[n]"),
        """
for h.init.d0:
  h[d0] = f32(0.0)
for h.n:
  h[i64(at[n])] += x[n]
""",
    )


def test_initial_recurrence() -> None:
    check(
        schedule("c[0] = x[0]\nc[i] = c[i-1] + x[i] where i in 1:I"),
        """
c[0] = x[0]
for c.1.i:
  c[i] = c[i-1] + x[i]
""",
    )


def test_split() -> None:
    check(
        schedule("y[i] = x[i] * 2").split("i", 8),
        """
for y.io = i // 8:
  for y.ii in 0:8 = i % 8:
    y[i] = x[i] * f32(2.0)
""",
    )


def test_split_names_and_tail() -> None:
    check(
        schedule("y[i] = x[i] * 2").split("i", 8, into=("block", "lane"), tail="separate"),
        """
for y.block = i // 8:
  for y.lane in 0:8 = i % 8, tail separate:
    y[i] = x[i] * f32(2.0)
""",
    )


def test_split_twice() -> None:
    check(
        schedule("y[i] = x[i] * 2").split("i", 8).split("ii", 2),
        """
for y.io = i // 8:
  for y.iio = i % 8 // 2:
    for y.iii in 0:2 = i % 8 % 2:
      y[i] = x[i] * f32(2.0)
""",
    )


def test_tile() -> None:
    check(
        schedule("y[i,j] = x[j,i]").tile(i=8, j=48),
        """
for y.io = i // 8:
  for y.jo = j // 48:
    for y.ii in 0:8 = i % 8:
      for y.ji in 0:48 = j % 48:
        y[i,j] = x[j,i]
""",
    )


def test_tile_of_named_nests() -> None:
    made = schedule(CHAIN).tile({"y.i": 4, "y.j": 4})
    assert made.text == '.tile({"y.i": 4, "y.j": 4})'
    check(
        made,
        """
t: f32 heap buffer
for t.i:
  for t.j:
    t[i,j] = x[i,j] + f32(1.0)
for y.io = i // 4:
  for y.jo = j // 4:
    for y.ii in 0:4 = i % 4:
      for y.ji in 0:4 = j % 4:
        y[i,j] = t[i,j] * f32(2.0)
""",
    )


def test_fuse() -> None:
    made = Schedule(parse("f(x: f32[6, 4]) -> y:\n    y[i,j] = x[i,j]")).fuse("i", "j")
    check(
        made,
        """
for y.i_j = 4 * i + j:
  y[i,j] = x[i,j]
""",
    )


def test_fuse_of_unknown_extents_is_joined_when_sizes_are() -> None:
    made = schedule("y[i,j] = x[i,j]").tile(i=8, j=8).fuse("io", "jo", into="tile")
    assert str(made).splitlines()[0] == "for y.tile = fused:"
    nest = made.nest(sizes={"I": 20, "J": 30})
    from diptych.sched.loop.show import show

    assert show(nest).splitlines()[0] == "for y.tile = i // 8 * 4 + j // 8:"


def test_reorder() -> None:
    check(
        schedule("y[i,j] = x[j,i]").reorder("j", "i"),
        """
for y.j:
  for y.i:
    y[i,j] = x[j,i]
""",
    )


def test_reorder_leaves_other_loops_in_place() -> None:
    check(
        schedule("y[i,j,k] = x[i,j,k]").reorder("k", "i"),
        """
for y.k:
  for y.j:
    for y.i:
      y[i,j,k] = x[i,j,k]
""",
    )


def test_a_loop_that_is_copied_has_a_name_of_its_own() -> None:
    op = dt.op("f(x: [N,M]) -> y:\n t[i,j] = x[i,j] * 2\n y[i,j] = t[i,j] + t.edge[i,j+1]")
    made = op.schedule().compute_at("t", "y.i").reorder("y.j", "y.i")
    assert [loop.name for loop in loops(made.nest().tree)] == ["t.i_", "t.i", "t.j", "y.j", "y.i"]
    x = np.arange(35.0).reshape(5, 7)
    np.testing.assert_array_equal(made(x), op(x))


def test_reorder_distributes_init_and_final() -> None:
    check(
        schedule("y[i,j] = max(sum(A[i,k] * B[k,j]), 0)").tile(i=2, j=4).reorder("k", "ii", "ji"),
        """
for y.io = i // 2:
  for y.jo = j // 4:
    y.acc: f32 heap buffer
    for y.init.ii in 0:2 = i % 2:
      for y.init.ji in 0:4 = j % 4:
        y.acc[i,j] = f32(0.0)
    for y.k:
      for y.ii in 0:2 = i % 2:
        for y.ji in 0:4 = j % 4:
          y.acc[i,j] += A[i,k] * B[k,j]
    for y.final.ii in 0:2 = i % 2:
      for y.final.ji in 0:4 = j % 4:
        y[i,j] = max(y.acc[i,j], f32(0.0))
""",
    )


def test_marks_mean_all_copies_of_a_loop() -> None:
    check(
        schedule(MATMUL)
        .tile(i=2, j=4)
        .reorder("k", "ii", "ji")
        .unroll("ii")
        .vectorize("ji")
        .parallel("io"),
        """
parallel for C.io = i // 2:
  for C.jo = j // 4:
    unroll for C.init.ii in 0:2 = i % 2:
      vector for C.init.ji in 0:4 = j % 4:
        C[i,j] = f32(0.0)
    for C.k:
      unroll for C.ii in 0:2 = i % 2:
        vector for C.ji in 0:4 = j % 4:
          C[i,j] += A[i,k] * B[k,j]
""",
    )


def test_an_exact_name_means_one_copy() -> None:
    made = schedule(MATMUL).reorder("k", "j").unroll("C.init.j")
    kinds = {loop.name: loop.kind for loop in loops(made.nest().tree)}
    assert kinds == {"C.i": "serial", "C.init.j": "unroll", "C.k": "serial", "C.j": "serial"}


def test_vectorize_splits() -> None:
    check(
        schedule("y[i,j] = x[i,j]").vectorize("j", 16),
        """
for y.i:
  for y.jo = j // 16:
    vector for y.ji in 0:16 = j % 16:
      y[i,j] = x[i,j]
""",
    )


def test_vectorize_takes_a_loop_of_that_extent_as_it_is() -> None:
    made = schedule("y[i,j] = x[i,j]").split("j", 16).vectorize("ji", 16)
    assert [loop.name for loop in loops(made.nest().tree)] == ["y.i", "y.jo", "y.ji"]


def test_vectorize_a_reduction() -> None:
    made = schedule("s[i] = sum(x[i,k])").vectorize("k", 8)
    assert str(made).splitlines()[3] == "    vector for s.ki in 0:8 = k % 8:"


def test_bind() -> None:
    check(
        schedule("y[i] = x[i]").split("i", 64).bind("io", "block.x").bind("ii", "thread.x"),
        """
block.x for y.io = i // 64:
  thread.x for y.ii in 0:64 = i % 64:
    y[i] = x[i]
""",
    )


def test_stage_an_input() -> None:
    check(
        schedule(MATMUL).split("k", 16).reorder("ko", "i", "j", "ki").stage("B", at="ko"),
        """
for C.init.i:
  for C.init.j:
    C[i,j] = f32(0.0)
for C.ko = k // 16:
  B.stack: f32 stack buffer of B
  for B.pack.k:
    for B.pack.j:
      B.stack[k,j] = B[k,j]
  for C.i:
    for C.j:
      for C.ki in 0:16 = k % 16:
        C[i,j] += A[i,k] * B.stack[k,j]
""",
    )


def test_stage_accumulator_without_blocks_of_k_is_copied_out_only() -> None:
    check(
        schedule(MATMUL).reorder("i", "k", "j").stage("C", at="i", scope="register"),
        """
for C.i:
  C.register: f32 register buffer of C
  for C.init.j:
    C.register[i,j] = f32(0.0)
  for C.k:
    for C.j:
      C.register[i,j] += A[i,k] * B[k,j]
  for C.store.j:
    C[i,j] = C.register[i,j]
""",
    )


def test_stage_packed_matmul() -> None:
    made = (
        schedule(MATMUL)
        .split("k", 256)
        .tile(i=8, j=32)
        .reorder("ko", "jo", "io", "ki", "ii", "ji")
        .stage("B", at="jo", layout=("j//32", "k", "j%32"))
        .stage("C", at="io", scope="register")
        .unroll("ii")
        .vectorize("ji")
        .vectorize("B.pack.ji")
        .parallel("io")
    )
    check(
        made,
        """
for C.init.jo = j // 32:
  parallel for C.init.io = i // 8:
    unroll for C.init.ii in 0:8 = i % 8:
      vector for C.init.ji in 0:32 = j % 32:
        C[i,j] = f32(0.0)
for C.ko = k // 256:
  for C.jo = j // 32:
    B.stack: f32 stack buffer of B laid out [d1 // 32, d0, d1 % 32]
    for B.pack.jo = j // 32:
      for B.pack.k:
        vector for B.pack.ji = j % 32:
          B.stack[k,j] = B[k,j]
    parallel for C.io = i // 8:
      C.register: f32 register buffer of C
      unroll for C.load.ii in 0:8 = i % 8:
        vector for C.load.ji in 0:32 = j % 32:
          C.register[i,j] = C[i,j]
      for C.ki in 0:256 = k % 256:
        unroll for C.ii in 0:8 = i % 8:
          vector for C.ji in 0:32 = j % 32:
            C.register[i,j] += A[i,k] * B.stack[k,j]
      unroll for C.store.ii in 0:8 = i % 8:
        vector for C.store.ji in 0:32 = j % 32:
          C[i,j] = C.register[i,j]
""",
    )


def test_stage_an_accumulator_of_its_own_type_changes_its_scope() -> None:
    made = schedule("mm(A: f16[M, K], B: f16[K, N]) -> C:\n    C[i,j] = sum(A[i,k] * B[k,j])")
    made = made.tile(i=2, j=4).reorder("k", "ii", "ji").stage("C", at="jo", scope="register")
    buffer = made.nest().buffers["C.acc"]
    assert (buffer.scope, buffer.at, buffer.dtype.name) == ("register", "C.jo", "f32")
    assert "C.store" not in str(made)


def test_compute_at() -> None:
    check(
        schedule(STENCIL).split("y.i", 8).compute_at("t", "io"),
        """
for y.io = i // 8:
  t: f32 heap buffer
  for t.i:
    t[i] = x[i] * f32(2.0)
  for y.ii in 0:8 = i % 8:
    y[i] = t[i] + t[i+1]
""",
    )


def test_compute_at_repeats_by_a_dim_for_each_loop_around() -> None:
    made = schedule(STENCIL).split("y.i", 8).compute_at("t", "io")
    stmt = made.nest(sizes={"I": 100}).stmts["t"]
    assert stmt.dims == ("io", "i")
    from diptych.algo.tensor_expr.printer import print_expr

    assert [print_expr(c) for c in stmt.domain[2:]] == [
        "io >= 0", "i >= 8 * io", "8 * io + 8 >= i", "i <= 99",
    ]  # fmt: skip


def test_compute_at_in_turn() -> None:
    text = "m[i] = max(x[i,j])\ne[i,j] = x[i,j] - m[i]\ny[i,j] = e[i,j] * sum(e[i,l])"
    made = schedule(text)
    for stage in ("y_sum", "e", "m"):
        made = made.compute_at(stage, "y.i")
    check(
        made.parallel("y.i"),
        """
parallel for y.i:
  m: f32 heap buffer
  e: f32 heap buffer
  y_sum: f32 heap buffer
  for m.i:
    m[i] = f32(-inf)
    for m.j:
      m[i] max= x[i,j]
  for e.i:
    for e.j:
      e[i,j] = x[i,j] - m[i]
  for y_sum.i:
    y_sum[i] = f32(0.0)
    for y_sum.l:
      y_sum[i] += e[i,l]
  for y.j:
    y[i,j] = e[i,j] * y_sum[i]
""",
    )


def test_compute_at_further_in_leaves_the_loops_around() -> None:
    made = schedule("m[i] = max(x[i,j])\ny[i,j] = (x[i,j] - m[i]) * sum(x[i,l] - m[i])")
    made = made.compute_at("y_sum", "y.i").split("y.j", 4, tail="separate")
    check(
        made.compute_at("y_sum", "y.jo").compute_at("m", "y.i"),
        """
for y.i:
  m: f32 heap buffer
  for m.i:
    m[i] = f32(-inf)
    for m.j:
      m[i] max= x[i,j]
  for y.jo = j // 4:
    y_sum: f32 heap buffer
    for y_sum.i:
      y_sum[i] = f32(0.0)
      for y_sum.l:
        y_sum[i] += x[i,l] - m[i]
    for y.ji in 0:4 = j % 4, tail separate:
      y[i,j] = (x[i,j] - m[i]) * y_sum[i]
""",
    )


def test_compute_at_takes_a_stage_out_of_joined_loops() -> None:
    text = "t[i] = x[i] * 2\nu[i] = x[i] + 1\ny[i] = t[i] + t[i+1] + u[i]"
    check(
        schedule(text).compute_with("t", "u", "i").compute_at("t", "y.i"),
        """
u: f32 heap buffer
for u.i:
  u[i] = x[i] + f32(1.0)
for y.i:
  t: f32 heap buffer
  for t.i:
    t[i] = x[i] * f32(2.0)
  y[i] = t[i] + t[i+1] + u[i]
""",
    )


def test_compute_with() -> None:
    check(
        schedule(CHAIN).compute_with("t", "y", "i"),
        """
for y.i:
  t: f32 heap buffer
  for t.j:
    t[i,j] = x[i,j] + f32(1.0)
  for y.j:
    y[i,j] = t[i,j] * f32(2.0)
""",
    )


def test_compute_with_makes_a_temporary_one_element() -> None:
    made = schedule(CHAIN).compute_with("t", "y", "j")
    assert made.nest().buffers["t"].at == "y.j"


def test_compute_with_passes_what_stands_between_before_it() -> None:
    made = schedule("y[i] = x[i] + 1\nu[i] = x[i] * 2\nz[i] = y[i] - x[i]")
    check(
        made.compute_with("y", "z", "i"),
        """
for z.i:
  y: f32 heap buffer
  y[i] = x[i] + f32(1.0)
  z[i] = y[i] - x[i]
for u.i:
  u[i] = x[i] * f32(2.0)
""",
    )


def test_compute_with_comes_after_what_it_needs() -> None:
    made = schedule("y[i] = x[i] + 1\nu[i] = x[i] * 2\nz[i] = y[i] - u[i+1]")
    check(
        made.compute_with("y", "z", "i"),
        """
u: f32 heap buffer
for u.i:
  u[i] = x[i] * f32(2.0)
for z.i:
  y: f32 heap buffer
  y[i] = x[i] + f32(1.0)
  z[i] = y[i] - u[i+1]
""",
    )


@pytest.mark.parametrize("sizes", [{"I": 3, "J": 5, "K": 7}, {"I": 1, "J": 1, "K": 1}])
def test_a_schedule_fits_all_sizes(sizes: dict[str, int]) -> None:
    made = schedule(MATMUL).tile(i=8, j=48).reorder("io", "jo", "k", "ii", "ji").vectorize("ji")
    assert made.nest(sizes=sizes).kernel.sizes == sizes


def test_unrolled_is_what_a_loop_has_in_one_iteration_of_those_around() -> None:
    """Rows of a window in a block of eight, wherever the block starts."""
    op = dt.op("h[y,x] = g[y,x] * 2\nb[y,x] = h[y,x] + h[y+2,x]", returns="b")
    made = op.schedule().split("b.y", 8).compute_at("h", "b.yo").unroll("h.y")
    found = made.nest({"g": dt.f32}, {"Y": 5002, "X": 7})
    kinds = {loop.name: loop.kind for loop in loops(found.tree)}
    assert kinds["h.y"] == "unroll"
    g = np.random.default_rng(0).standard_normal((45, 7)).astype(np.float32)
    np.testing.assert_array_equal(made(g), dt.interpret(op, g))


@pytest.mark.parametrize("sizes", [{"I": 3, "J": 5, "K": 0}, {"I": 0, "J": 2, "K": 9}])
def test_loops_that_never_run_unroll(sizes: dict[str, int]) -> None:
    made = schedule(MATMUL).split("k", 4).unroll("ko").unroll("i")
    nest = made.nest(sizes=sizes)
    ends = {loop.name: extent(nest, loop) for loop in loops(nest.tree)}
    assert ends["C.ko"] == (0 if 0 in (sizes["K"], sizes["I"]) else 3)
    assert ends["C.i"] == sizes["I"]
