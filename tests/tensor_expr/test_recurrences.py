"""Orders of recurrences: which loops equations share, and what has none."""

from __future__ import annotations

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import f32, f64, i32, i64
from diptych.algo.errors import OpError
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.printer import print_equation, print_expr
from diptych.algo.tensor_expr.skew import completed, loop_names
from diptych.algo.tensor_expr.stages import kernel
from diptych.algo.tensor_expr.types import infer

SPECIES = """f(a: [N]) -> x, y:
    x[0,i] = a[i]
    y[0,i] = 2 * a[i]
    x[t,i] = y[t-1,i] - x[t-1,i] where t in 1:5
    y[t,i] = x[t,i] + y[t-1,i] where t in 1:5
"""
LSTM = """lstm(x: [T, D], U: [4, D, D], h0: [D], c0: [D]) -> h:
    h[0,d] = h0[d]
    c[0,d] = c0[d]
    g[t,q,d] = x[t,d] + sum(U[q,d,e] * h[t,e])
    c[t,d] = sigmoid(g[t-1,0,d]) * c[t-1,d] + sigmoid(g[t-1,1,d]) * g[t-1,2,d] where t in 1:T+1
    h[t,d] = sigmoid(g[t-1,3,d]) * tanh(c[t,d]) where t in 1:T+1
"""
SKEWED = """f(x: [N, M]) -> w:
    w[i,j] = where((i > 0) & (j + 2 < M) & (j > 0) & (i + 1 < N), w[i-1,j+2] + w[i+1,j-1], x[i,j])\
 where i in 0:N, j in 0:M
"""


def steps(text: str) -> list[tuple[str, int, tuple[bool, ...], list[str]]]:
    checked = check(parse(text))
    return [
        (
            checked.equations[s.equation].tensor, s.joined, s.carries,
            [print_expr(value) for value in s.loops],
        )
        for s in checked.steps
    ]  # fmt: skip


def test_tensors_that_need_each_other_share_a_loop():
    assert steps(SPECIES) == [
        ("x", 0, (), []),
        ("y", 0, (), []),
        ("x", 0, (True,), []),
        ("y", 1, (True,), []),
    ]


def test_an_order_of_equations_other_than_the_written_one():
    text = "f(a: [N]) -> x:\n y[i] = 2 * x[i]\n x[0] = a[0]\n x[i] = y[i-1] + a[i] where i in 1:N"
    assert [(name, joined) for name, joined, _, _ in steps(text)] == [
        ("x", 0),
        ("x", 0),
        ("y", 1),
    ]
    np.testing.assert_array_equal(interpret(parse(text), np.arange(1, 5)), [1, 4, 11, 26])


def test_an_equation_of_one_tensor_that_comes_too_early():
    text = "f(x: [N]) -> c:\n c[2*i] = c[2*i+1] + x[i]\n c[2*i+1] = x[i]"
    assert [step.equation for step in check(parse(text)).steps] == [1, 0]
    np.testing.assert_array_equal(interpret(parse(text), np.array([1, 2])), [2, 1, 4, 2])


def test_a_loop_that_carries_nothing_stays_outermost():
    text = "f(x: [B, N]) -> c:\n c[b,0] = x[b,0]\n c[b,i] = c[b,i-1] + x[b,i] where i in 1:N"
    assert steps(text)[1] == ("c", 0, (False, True), [])


def test_loops_inside_of_common_ones():
    text = (
        "f(a: [T, N]) -> s:\n"
        " s[t,0] = a[t,0]\n"
        " p[t,i] = s[t,i] / 2\n"
        " s[t,i] = s[t,i-1] + a[t,i] + p.zero[t-1,i] where i in 1:N"
    )
    assert [(name, joined, carries) for name, joined, carries, _ in steps(text)] == [
        ("s", 0, ()),
        ("s", 0, (True, True)),
        ("p", 1, (True,)),
    ]


def test_indices_of_members_may_have_other_names():
    text = "f(a: [N]) -> x:\n x[0] = a[0]\n x[i] = y[i-1] + a[i] where i in 1:N\n y[k] = 3 * x[k]"
    assert [(name, joined) for name, joined, _, _ in steps(text)][1:] == [("x", 0), ("y", 1)]


def test_both_directions_of_one_index():
    text = (
        "f(a: [N]) -> b:\n f[0] = a[0]\n f[i] = f[i-1] + a[i] where i in 1:N\n"
        " b[N-1] = f[N-1]\n b[i] = b[i+1] + f[i] where i in 0:N-1"
    )
    assert [s[2:] for s in steps(text)] == [((), []), ((True,), []), ((), []), ((True,), ["-i"])]


def test_a_cycle_that_runs_downwards():
    text = (
        "f(a: [N]) -> x:\n x[N-1] = a[N-1]\n x[i] = y[i+1] + a[i] where i in 0:N-1\n"
        " y[i] = 2 * x[i]"
    )
    assert [s[1:] for s in steps(text)][1:] == [(0, (True,), ["-i"]), (1, (True,), ["-i"])]
    np.testing.assert_array_equal(interpret(parse(text), np.array([1, 2, 3])), [17, 8, 3])


def plain(x):
    n, m = x.shape

    def at(i, j):
        inner = i > 0 and j + 2 < m and j > 0 and i + 1 < n
        return at(i - 1, j + 2) + at(i + 1, j - 1) if inner else x[i, j]

    return np.array([[at(i, j) for j in range(m)] for i in range(n)])


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (8, 4), (3, 11)])
def test_a_skewed_order(shape):
    ((_, _, carries, loops),) = steps(SKEWED)
    assert carries == (True, True) and len(loops) == 2 and loops[1] in ("i", "-i", "j", "-j")
    x = np.random.default_rng(0).integers(-4, 5, shape)
    np.testing.assert_array_equal(interpret(parse(SKEWED), x), plain(x))


def test_one_skewed_loop_may_carry_everything():
    text = (
        "f(x: [N, M]) -> w:\n w[i,j] = where((i + 1 < N) & (j > 2) & (i > 0) & (j + 1 < M),"
        " w[i+1,j-3] - w[i-1,j+1], x[i,j]) where i in 0:N, j in 0:M"
    )
    ((_, _, carries, loops),) = steps(text)
    assert carries == (True,) * len(carries) and len(loops) == 2
    x = np.arange(48.0).reshape(6, 8)
    got = interpret(parse(text), x)
    for i in range(6):
        for j in range(8):
            inner = i + 1 < 6 and j > 2 and i > 0 and j + 1 < 8
            assert got[i, j] == (got[i + 1, j - 3] - got[i - 1, j + 1] if inner else x[i, j])


def test_a_shift_of_one_equation_against_another():
    """f needs g two steps ahead of what g needs of f: isl's scheduler shifts one of them."""
    text = (
        "f(a: [N]) -> f:\n"
        " f[i] = where(i + 2 < N, g[i+2], 0) + a[i] where i in 0:N\n"
        " g[i] = where(i > 2, f[i-3], 0) + 1 where i in 0:N"
    )
    assert {joined for _, joined, _, _ in steps(text)[1:]} == {1}
    a = np.arange(9)
    got = interpret(parse(text), a)
    for i in range(9):
        g = 0 if i + 2 >= 9 else 1 + (got[i - 1] if i + 2 > 2 else 0)
        assert got[i] == g + a[i]


def test_more_indices_than_are_tried_in_every_way():
    names = "abcdefg"
    lhs = ",".join(names)
    read = ",".join(f"{n}+1" if n in "cf" else n for n in names)
    ranges = ", ".join(f"{n} in 0:{2 if n in 'cf' else 1}" for n in names)
    inner = "(c < 1) & (f < 1)"
    text = f"f(s: []) -> w:\n w[{lhs}] = where({inner}, w[{read}] + 1, s) where {ranges}"
    ((_, _, carries, _),) = steps(text)
    assert carries.count(True) == 1
    assert interpret(parse(text), np.float32(2)).ravel().tolist() == [3, 2, 2, 2]


def test_ranges_of_tensors_that_are_defined_later():
    checked = check(parse(LSTM))
    shapes = {t: ", ".join(map(print_expr, s)) for t, s in checked.shapes.items()}
    assert shapes["h"] == shapes["c"] == "T + 1, D" and shapes["g"] == "T, 4, D"
    assert shapes["U"] == "4, D, D" and checked.sizes == ("T", "D")


def test_types_of_tensors_that_need_each_other():
    op = parse("f(a: [N], s: [N]) -> x:\n x[0] = a[0]\n x[i] = y[i-1] + 1 where i in 1:N\n"
               " y[i] = x[i] * s[i]")  # fmt: skip
    assert infer(check(op), {"a": i32, "s": f64})["x"] is f64
    assert infer(check(op), {"a": i32, "s": i64})["x"] is i64
    assert infer(check(op), {"a": f32, "s": f32})["y"] is f32


def test_the_text_of_a_cycle_parses_back():
    op = parse(LSTM)
    assert parse(op.text) == op
    assert [print_equation(eq) for eq in parse(op.text).equations] == [
        print_equation(eq) for eq in op.equations
    ]


def test_temporaries_inside_and_outside_of_the_loops():
    text = (
        "rnn(x: [T, F], W: [D, F], U: [D, D], h0: [D]) -> h:\n h[0,d] = h0[d]\n"
        " h[t,d] = tanh(sum(W[d,f] * x[t-1,f]) + sum(U[d,e] * h[t-1,e])) where t in 1:T+1"
    )
    assert [(s.name, s.joined) for s in kernel(check(parse(text)), {}).stages] == [
        ("h.0", 0),
        ("h_sum.init", 0),
        ("h_sum.update", 2),
        ("h_sum_2.init", 0),
        ("h_sum_2.update", 2),
        ("h.1", 1),
    ]


def test_a_temporary_stays_outside_of_loops_that_it_does_not_need():
    text = (
        "f(a: [T, N]) -> y:\n y[t,0] = a[t,0]\n y[0,i] = a[0,i] where i in 1:N\n"
        " y[t,i] = y[t,i-1] + sum(y[t-1,j]) where t in 1:T, i in 1:N, j in 0:N"
    )
    stages = [(s.name, len(s.ranges), s.joined) for s in kernel(check(parse(text)), {}).stages]
    assert stages[2:] == [("y_sum.init", 1, 0), ("y_sum.update", 2, 1), ("y.2", 2, 1)]


def test_loops_are_completed_and_named():
    op = check(parse(SKEWED))
    ranges = op.equations[0].ranges
    i, j = parse("f(x: [N, M]) -> y:\n y[i,j] = x[i,j]").equations[0].lhs
    both = parse("f(x: [Q]) -> y:\n y[i,j] = x[i+j] where i in 0:2, j in 0:3").equations[0]
    skewed = both.rhs.indices[0]
    assert completed([skewed], ranges) == (skewed, i)
    assert loop_names(ranges, (skewed, i)) == ["j", "i"]
    assert completed([j], ranges) == (j, i) and loop_names(ranges, (j, i)) == ["j", "i"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "f(x: [N]) -> y:\n y[i] = where(i > 3, y[N-1-i], x[i]) where i in 0:N",
            "y[4] needs itself at N=9, so nothing can compute it\n"
            "    in y[i] = where(i > 3, y[N-1-i], x[i]) where i in 0:N (<text>:2)",
        ),
        (
            "f(x: [N]) -> y, z:\n y[i] = z[i] + x[i]\n z[i] = 2 * y[i]",
            "y[0] needs z[0], which needs y[0] at N=1, so no order computes them\n"
            "    in y[i] = z[i] + x[i] (<text>:2)",
        ),
        (
            "f(x: [N]) -> y:\n y[i] = where(i % 3 == 0, y.zero[i+1], where(i % 3 == 1,"
            " y.zero[i+1], where(i > 2, y[i-2], x[i]))) where i in 0:N",
            "y reads its own elements and no affine order of i was found that computes each "
            "before it is read; several equations, one a region, may have one\n"
            "    in y[i] = where(i % 3 == 0, y.zero[i+1], where(i % 3 == 1, y.zero[i+1], "
            "where(i > 2, y[i-2], x[i]))) where i in 0:N (<text>:2)",
        ),
        (
            "f(x: [N]) -> a, b, c:\n a[i] = b[i] + x[i]\n b[i] = c[i] + 1\n c[i] = a[i] + 1",
            "a, b and c read each other's elements and no affine order of i was found that "
            "computes each before it is read; several equations, one a region, may have one\n"
            "    in a[i] = b[i] + x[i] (<text>:2)",
        ),
        (
            "f(x: [N]) -> h, c:\n h: [N]\n c[i] = h.zero[i-1] + x[i]\n h[i] += c[i]",
            "h is accumulated, so its equation may not read c, computed from it; write it as a "
            "sum(...)\n    in h[i] += c[i] (<text>:4)",
        ),
        (
            "f(x: [N], at: i32[N]) -> y, z:\n y[i] = z[at[i]] + x[i]\n z[i] = y[i] where i in 0:N",
            "z[at[i]] reads what needs it at a place that depends on data, so no order of "
            "computation is known\n    in y[i] = z[at[i]] + x[i] (<text>:2)",
        ),
        (
            "f(s: []) -> y, z:\n y[i] = z[i] + s\n z[i] = y.zero[i-1]",
            "nothing says how far index i goes; give it a range, as in `where i in 0:8`, or in 0:I "
            "where a header says that I is a size, as in `f(x: [I])`\n"
            "    in z[i] = y.zero[i-1] (<text>:3)",
        ),
    ],
)  # fmt: skip
def test_recurrences_refused(text, message):
    with pytest.raises(OpError) as caught:
        check(parse(text))
    assert str(caught.value) == message


def test_a_read_of_a_later_tensor_is_no_cycle():
    with pytest.raises(OpError) as caught:
        parse("f(x: [N]) -> y:\n y[i] = z[i]\n z[i] = x[i]")
    assert str(caught.value).startswith(
        "<text>:2: z is read here but defined by no equation above and is no input"
    )


CLOSED = """f(x: [N]) -> a, b:
    a[0] = x[0]
    a[i] = a[i-1] + b[i-1] where i in 1:N
    {}
    s[] = a[N-1]
"""
CLOSINGS = [
    "b[y] = x[y] * a[y] + where(y == N - 1, s[] * x[y], 0) where y in 0:N",
    "b[y] = x[y] * a[y] + sum(where((k == y) & (k == N - 1), s[] * x[k], 0)) where k in 0:N",
    "b[y] = x[y] * a[y] + sum(s[] * x[k], where=(k == y) & (k == N - 1)) where k in 0:N",
    "b[y] = x[y] * a[y] where y in 0:N-1\n    b[N-1] = x[N-1] * a[N-1] + s[] * x[N-1]",
]


@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_tensor_without_dimensions_in_a_cycle(closing):
    op = parse(CLOSED.format(closing))
    order = [op.equations[step.equation] for step in check(op).steps]
    at = [n for n, eq in enumerate(order) if eq.tensor == "s"]
    assert at[0] < max(n for n, eq in enumerate(order) if eq.tensor == "b")
    a, b = interpret(op, np.arange(1.0, 5))
    np.testing.assert_array_equal(a, [1, 2, 6, 24])
    np.testing.assert_array_equal(b, [1, 4, 18, 192])


def test_a_tensor_without_dimensions_that_needs_itself():
    text = "f(x: [N]) -> s:\n s[] = a[N-1]\n a[0] = x[0]\n a[i] = a[i-1] + s[] where i in 1:N"
    with pytest.raises(OpError) as info:
        check(parse(text))
    assert str(info.value) == (
        "s[] needs a[1], which needs s[] at N=2, so no order computes them\n"
        "    in s[] = a[N-1] (<text>:2)"
    )


def test_loops_that_run_over_one_index_twice():
    """A skewed loop over an index, and inside it one for its equation and those without indices."""
    i, j = parse("f(x: [N, M]) -> y:\n y[i,j] = x[i,j]").equations[0].lhs
    ranges = check(parse(SKEWED)).equations[0].ranges
    back = parse("f(x: [N]) -> y:\n y[i] = x[N-i]").equations[0].rhs.indices[0]
    assert completed([back, i], ranges) == (back, i, j)
    assert completed([back, i], ranges[:1]) == (back, i)


TWICE = """f(x: [N]) -> m:
    s[] = c[0] + c[N-1]
    m[j,t] = x[j] where j in 0:N-1, t in 0:N
    m[N-1,t] = x[t] + m.zero[t+1,N-1] + sum(s[] * x[k], where=k < t) where t in 0:N, k in 0:N
    c[0] = m[0,0] + sum(m[0,k], where=k > 0)
    c[i] = x[i] + c[0] where i in 1:N
"""


def test_what_an_equation_sums_is_computed_inside_both_loops_of_one_index():
    assert steps(TWICE)[1:3] == [
        ("m", 0, (True, True), ["N - t", "t"]),
        ("c", 2, (True, True), ["1", "0"]),
    ]
    stages = [(s.name, s.joined) for s in kernel(check(parse(TWICE)), {}).stages]
    assert stages[1:4] == [("m.1.init", 0), ("m.1.update", 2), ("m.1.final", 2)]
    last = [5, 49, 303, 194]
    np.testing.assert_array_equal(interpret(parse(TWICE), np.arange(2, 6))[3], last)
    np.testing.assert_array_equal(dt.op(TWICE)(np.arange(2.0, 6))[3], last)
