"""What each pass does, as text before and after."""

from textwrap import dedent, indent

import numpy as np
import pytest
from diptych.algo.errors import ScheduleError
from diptych.lower import passes
from diptych.lower.ir_parse import parse_function
from diptych.lower.ir_print import print_function
from diptych.lower.run import run
from diptych.lower.verify import verify
from diptych.sched.loop.machine import Machine

MACHINE = Machine(vector_bytes=16, registers=16)  # four lanes of f32


def function(body, params):
    return parse_function(f"function f({params}):\n{indent(dedent(body).strip(), '    ')}\n")


def check(
    name,
    before,
    after,
    params="x: param f32[100], y: param f32[100]",
    again=True,
    machine=MACHINE,
):
    step = next(step for step in passes.PASSES if step.name == name)
    got = step.apply(function(before, params), machine)
    verify(got)
    assert print_function(got) == print_function(function(after, params))
    if again:
        assert step.apply(got, machine) is got  # nothing is left to do


def test_simplify():
    check(
        "simplify",
        """
        for one in 3 .. 4:
            for io in 0 .. 13:
                for ii in 0 .. min(min(8, 100 - io * 8), 9):
                    if (io * 8 + ii) // 8 == io:
                        x[io * 8 + ii - one + 3] = where(ii < 8, y[(io * 8 + ii) % 8], y[200])
        for none in 5 .. 5:
            x[none] = 0.0:f32
        """,
        """
        for io in 0 .. 13:
            for ii in 0 .. min(100 - 8 * io, 8):
                x[8 * io + ii] = y[ii]
        """,
    )


def test_simplify_by_conditions_around():
    """A condition on one variable bounds it where it holds, and where it does not."""
    check(
        "simplify",
        """
        for i in 0 .. 64:
            if 16 * i + 15 >= 16:
                x[max(16 * i, 1)] = 1.0:f32
                if (i >= 1) & (i < 70):
                    x[i] = 2.0:f32
                if 3 - 2 * i > 0:
                    x[i] = 3.0:f32
            else:
                x[max(2 - i, i) + i] = 4.0:f32
            if (i < 10) & (i != 3):
                x[min(i, 9)] = 5.0:f32
            else:
                x[min(i, 9)] = 6.0:f32
        """,
        """
        for i in 0 .. 64:
            if 16 * i + 15 >= 16:
                x[16 * i] = 1.0:f32
                x[i] = 2.0:f32
                if 3 - 2 * i > 0:
                    x[1] = 3.0:f32
            else:
                x[2] = 4.0:f32
            if (i < 10) & (i != 3):
                x[i] = 5.0:f32
            else:
                x[min(i, 9)] = 6.0:f32
        """,
    )


def test_hoist():
    check(
        "hoist",
        """
        for i in 0 .. 9:
            for j in 0 .. 9:
                if i < 3:
                    x[j] = 0.0:f32
            for j in 0 .. 9:
                if j < 3:
                    x[j] = 0.0:f32
        """,
        """
        for i in 0 .. 9:
            if i < 3:
                for j in 0 .. 9:
                    x[j] = 0.0:f32
            for j in 0 .. 9:
                if j < 3:
                    x[j] = 0.0:f32
        """,
    )


def test_anchor():
    """Cells that are counted from what varies stay as they are."""
    check(
        "anchor",
        """
        alloc a: register f32[6]:
            for k in 0 .. 20:
                for i in max(k - 8, 0) .. 6 vector:
                    a[i] sum= x[k]
                for i in k .. k + 6 unroll:
                    a[i - k] sum= x[i]
        """,
        """
        alloc a: register f32[6]:
            for k in 0 .. 20:
                if max(k - 8, 0) <= 0:
                    for i in 0 .. 6 vector:
                        a[i] sum= x[k]
                else:
                    for i in 0 .. 6 vector:
                        if max(k - 8, 0) <= i:
                            a[i] sum= x[k]
                for i in k .. k + 6 unroll:
                    a[i - k] sum= x[i]
        """,
    )


def test_loops_are_anchored_at_the_first_cell_that_there_is():
    """By its loops `a + b - 2*y` is at least 0, though interval by interval it might be -4."""
    check(
        "anchor",
        """
        for y in 0 .. 3:
            alloc r: register f32[8]:
                for a in 0 .. 2:
                    for b in max(2 * y - a, 0) .. 3:
                        for i in a + b - 2 * y .. a + b - 2 * y + 2 vector:
                            r[i] sum= x[i]
        """,
        """
        for y in 0 .. 3:
            alloc r: register f32[8]:
                for a in 0 .. 2:
                    for b in max(2 * y - a, 0) .. 3:
                        if a + b - 2 * y <= 0:
                            for i in 0 .. a + b - 2 * y + 2 vector:
                                r[i] sum= x[i]
                        else:
                            for i in 0 .. a + b - 2 * y + 2 vector:
                                if a + b - 2 * y <= i:
                                    r[i] sum= x[i]
        """,
    )


def test_strip():
    check(
        "strip",
        """
        for i in 2 .. 99 vector:
            x[i] = y[i]
        for n in 0 .. 9:
            for i in n .. 2 * n vector:
                x[i] = y[i]
        """,
        """
        for i.strip in 0 .. 6:
            for i in 0 .. 16 vector:
                x[2 + i.strip * 16 + i] = y[2 + i.strip * 16 + i]
        for i in 0 .. 1 vector:
            x[98 + i] = y[98 + i]
        for n in 0 .. 9:
            for i in 0 .. n vector:
                x[n + i] = y[n + i]
        """,
    )


STREAMED = "x: param f32[9, 403], y: param f32[9, 403] stream, s: param f32[9]"


def test_strip_into_lines():
    check(
        "strip",
        """
        for i in 0 .. 9:
            for j in 2 .. 403 vector:
                y[i, j] = x[i, j]
        """,
        """
        for i in 0 .. 9:
            let j.head = (14 - 403 * i) % 16:
                prefetch y[i, 402]
                for j in 0 .. 16 vector:
                    if j >= 16 - j.head:
                        y[i, 2 + (j.head - 16 + j)] = x[i, 2 + (j.head - 16 + j)]
                for j.line in 0 .. (401 - j.head) // 16:
                    for j in 0 .. 16 vector:
                        y[i, 2 + (j.head + j.line * 16 + j)] = x[i, 2 + (j.head + j.line * 16 + j)]
                for j in 0 .. 16 vector:
                    if j < 401 - END:
                        y[i, 2 + (END + j)] = x[i, 2 + (END + j)]
        """.replace("END", "(j.head + (401 - j.head) // 16 * 16)"),
        params=STREAMED,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0 .. 9:\n    for j in 0 .. 403 vector:\n        x[i, j] = y[i, j]",
        "for i in 0 .. 9:\n    for j in 0 .. 200 vector:\n        y[i, j] = x[i, j]",
        "for j in 0 .. 384 vector:\n    y[0, j] = x[1, j]",
        "for i in 0 .. 9:\n    for j in 0 .. 403 vector:\n"
        "        y[i, j] = x[i, j]\n        s[i] sum= x[i, j]",
        "for j in 0 .. 403 vector:\n    for i in 0 .. 9 unroll:\n        y[i, j] = x[i, j]",
    ],
    ids=["nothing is streamed", "short", "lines begin the rows", "a sum over lanes", "rows within"],
)
def test_what_does_not_run_in_lines(body):
    step = next(step for step in passes.PASSES if step.name == "strip")
    assert "head" not in print_function(step.apply(function(body, STREAMED), MACHINE))


def test_rows_are_stored_plainly_where_other_memory_is_updated_beside():
    """Its lines would be crossed; sums over lanes cross none."""
    text = """
    for i in 0 .. 9:
        for j in 0 .. 403 vector:
            y[i, j] = 1.0:f32
            x[0, j] sum= 2.0:f32
    """
    step = next(step for step in passes.PASSES if step.name == "strip")
    got = step.apply(function(text, STREAMED), MACHINE)
    want = step.apply(function(text, STREAMED.replace(" stream", "")), MACHINE)
    assert got is want
    in_lines = step.apply(function(text, STREAMED.replace("403", "416")), MACHINE)
    assert " stream" in print_function(in_lines)


LINES = Machine(vector_bytes=64, registers=32)
ROWS = """
for i in 0 .. 4:
    for j in 0 .. 26:
        if 403 - 16 * j >= 16:
            for v in 0 .. 16 vector(16):
                y[2 * i, 16 * j + v] = x[2 * i, 16 * j + v]
                y[2 * i + 1, 16 * j + v] = x[2 * i, 16 * j + v + 1]
        else:
            for v in 0 .. 3 vector(4):
                y[2 * i, 16 * j + v] = 0.0:f32
"""


MASK = "                if v > 3:\n                    "


def test_behind():
    check(
        "behind",
        ROWS,
        """
        for i in 0 .. 4:
            let y.turn1 = 2 * ((6 - 403 * i) % 8) + 1:
                let y.turn0 = 2 * (-403 * i % 8):
                    alloc y.line: register f32[2, 32] align 64:
                        for v in 0 .. 16 vector(16):
                            y.line[0, v + 16] = x[2 * i, v]
                            y.line[1, v + 16] = x[2 * i, v + 1]
                        for @ in 0 .. 16 vector(16):
                            if @ >= 16 - y.turn0:
                                y[2 * i, @ + y.turn0 - 16] = y.line[0, @ + y.turn0]
                            if @ >= 16 - y.turn1:
                                y[2 * i + 1, @ + y.turn1 - 16] = y.line[1, @ + y.turn1]
                        for @ in 0 .. 16 vector(16):
                            y.line[0, @] = y.line[0, @ + 16]
                            y.line[1, @] = y.line[1, @ + 16]
                        for j in 1 .. 25:
                            for v in 0 .. 16 vector(16):
                                y.line[0, v + 16] = x[2 * i, 16 * j + v]
                                y.line[1, v + 16] = x[2 * i, 16 * j + v + 1]
                            for @ in 0 .. 16 vector(16):
                                y[2 * i, 16 * j + @ + y.turn0 - 16] = y.line[0, @ + y.turn0]
                                y[2 * i + 1, 16 * j + @ + y.turn1 - 16] = y.line[1, @ + y.turn1]
                            for @ in 0 .. 16 vector(16):
                                y.line[0, @] = y.line[0, @ + 16]
                                y.line[1, @] = y.line[1, @ + 16]
                        if 16 - y.turn0 >= 16:
                            for @ in 0 .. 16 vector(16):
                                y[2 * i, @ + 384] = y.line[0, @]
                        else:
                            for @ in 0 .. 16 vector(16):
                                if @ < 16 - y.turn0:
                                    y[2 * i, @ + y.turn0 + 384] = y.line[0, @ + y.turn0]
                        for @ in 0 .. 16 vector(16):
                            if @ < 16 - y.turn1:
                                y[2 * i + 1, @ + y.turn1 + 384] = y.line[1, @ + y.turn1]
            for v in 0 .. 3 vector(4):
                y[2 * i, v + 400] = 0.0:f32
        """.replace("@", "y.cell"),
        params=STREAMED,
        machine=LINES,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("if 403", "if (i < 3) & (403"),
        ("y[2 * i + 1, 16", "s[i] = 0.0:f32\n                y[2 * i + 1, 16"),
        ("(4):\n", "(16):\n                y[2 * i + 1, 16 * j + v] = x[i, v]\n"),
    ],
    ids=["one condition", "also on rows", "stores elsewhere", "what ends the rows"],
)
def test_what_is_stored_behind_is_the_same(old, new):
    text = ROWS.replace(old, new) if old else ROWS
    text = text.replace("(403 - 16 * j >= 16", "(403 - 16 * j >= 16)")
    before = function(text, STREAMED)
    step = next(step for step in passes.PASSES if step.name == "behind")
    after = step.apply(before, LINES)
    verify(after, final=True)
    assert "y.line" in print_function(after)
    x = np.random.default_rng(0).random((9, 403), np.float32)
    stored = []
    for each in (before, after):
        y, s = np.ones((9, 403), np.float32), np.ones(9, np.float32)
        run(each, x, y, s)
        stored.append((y, s))
    for got, want in zip(*stored, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "new", "width"),
    [
        (" stream", "", 64),
        ("403 - 16", "402 - 16", 32),
        ("0 .. 26", "0 .. 15", 64),
        ("403]", "416]", 64),
        ("f32", "i16", 64),
        ("y[2 * i + 1, 16", "y[2 * i, 16", 64),
        ("= x[2 * i, 16 * j + v]", "= y[0, 16 * j + v]", 64),
        ("403 - 16 * j >= 16", "16 * j - 16 >= 16", 64),
        ("y[2 * i + 1, 16 * j + v]", "y[2 * i + 1, 32 * j + v]", 64),
        ("                y[2 * i + 1", MASK + "y[2 * i + 1", 64),
    ],
    ids=[
        "nothing is streamed", "registers are no lines", "short", "lines begin the rows",
        "16 bits are not shuffled", "a row twice", "read in the loop",
        "the first ones are left out", "steps over a line", "a mask",
    ],
)  # fmt: skip
def test_what_is_not_stored_behind(old, new, width):
    step = next(step for step in passes.PASSES if step.name == "behind")
    machine = Machine(vector_bytes=width, registers=32)
    text, params = ROWS.replace(old, new), STREAMED.replace(old, new)
    got = print_function(step.apply(function(text, params), machine))
    assert (text, params) != (ROWS, STREAMED) and "line" not in got


def test_separate_decides_outside_the_reduction():
    check(
        "separate",
        """
        for io in 0 .. 13:
            alloc a: register f32[8]:
                for k in 0 .. 9:
                    for ii in 0 .. min(8, 100 - 8 * io) unroll:
                        a[ii] sum= x[8 * io + ii]
                for si in 0 .. min(8, 100 - 8 * io) unroll:
                    y[8 * io + si] = a[si]
        """,
        """
        for io in 0 .. 13:
            if 100 - 8 * io >= 8:
                alloc a: register f32[8]:
                    for k in 0 .. 9:
                        for ii in 0 .. 8 unroll:
                            a[ii] sum= x[8 * io + ii]
                    for si in 0 .. 8 unroll:
                        y[8 * io + si] = a[si]
            else:
                alloc a: register f32[8]:
                    for k in 0 .. 9:
                        for ii in 0 .. 4 unroll:
                            a[ii] sum= x[8 * io + ii]
                    for si in 0 .. 4 unroll:
                        y[8 * io + si] = a[si]
        """,
    )


def test_rows_of_a_triangle_are_no_tiles():
    """A loop of lanes that is full only once is not written twice."""
    rows = """
        for i in 0 .. 50:
            for j in 0 .. i + 1 vector:
                x[j] = y[j]
        """
    check("separate", rows, rows)


def test_unroll():
    check(
        "unroll",
        """
        for n in 0 .. 9:
            for i in 0 .. min(n, 2) unroll:
                x[i] = y[n]
            for i in 1 .. 6 step 3 unroll:
                x[i] = y[n]
        alloc a: register f32[2]:
            for k in 0 .. 2:
                a[k] = x[k]
        """,
        """
        for n in 0 .. 9:
            if 0 < min(n, 2):
                x[0] = y[n]
            if 1 < min(n, 2):
                x[1] = y[n]
            x[1] = y[n]
            x[4] = y[n]
        alloc a: register f32[2]:
            a[0] = x[0]
            a[1] = x[1]
        """,
    )


def test_unrolling_has_a_budget():
    many = "for i in 0 .. {} unroll:\n    x[i] = y[i]"
    sized = "x: param f32[5000], y: param f32[5000]"
    check("unroll", many.format(5000), many.format(5000).replace(" unroll", ""), sized)
    check("unroll", "for n in 0 .. i64(y[0]) unroll:\n    x[n] = 0.0:f32",
          "for n in 0 .. i64(y[0]):\n    x[n] = 0.0:f32")  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "alloc a: register f32[257]:\n    a[0] = x[0]",
            "a: a register buffer of 257 elements, and 16 registers of 4 lanes allow 256 at most; "
            'stage it further in, split a loop around it, or use scope="stack"',
        ),
        (
            "alloc a: register f32[16, 16]:\n    for i in 0 .. 16:\n        for j in 0 .. 16:\n"
            "            for k in 0 .. 100:\n                a[i, j] sum= x[k]",
            "a: a register buffer needs the loops over it unrolled, and loop i becomes 2304 "
            "statements, an inner loop counting for 8; the budget is 1536: stage it further in, "
            'split a loop around it, or use scope="stack"',
        ),
    ],
)
def test_register_buffers_have_a_budget(body, message):
    step = next(step for step in passes.PASSES if step.name == "unroll")
    with pytest.raises(ScheduleError) as caught:
        step.apply(function(body, "x: param f32[100]"), MACHINE)
    assert str(caught.value) == message


def test_shorten():
    check(
        "shorten",
        """
        for i in 0 .. 9:
            at[i] = 9223372036854775807:i64
            for k in 0 .. 50 vector:
                at[i] min= where(x[k] == y[i], k, 9223372036854775807:i64)
        for i in 0 .. 9:
            for k in 0 .. 50 vector:
                at[i] max= 2 * k
        """,
        """
        for i in 0 .. 9:
            at[i] = 9223372036854775807:i64
            alloc at.short: register i32[1] align 64:
                at.short[0] = 2147483647:i32
                for k in 0 .. 50 vector:
                    at.short[0] min= where(x[k] == y[i], i32(k), 2147483647:i32)
                at[i] min= where(at.short[0] == 2147483647:i32, 9223372036854775807:i64, i64(at.short[0]))
        for i in 0 .. 9:
            alloc at.short1: register i32[1] align 64:
                at.short1[0] = -2147483648:i32
                for k in 0 .. 50 vector:
                    at.short1[0] max= i32(2 * k)
                at[i] max= where(at.short1[0] == -2147483648:i32, -9223372036854775808:i64, i64(at.short1[0]))
        """,  # noqa: E501
        params="x: param f32[50], y: param f32[9], at: param i64[9]",
        again=False,
    )


@pytest.mark.parametrize(
    "body",
    [
        "for k in 0 .. 50 vector:\n    at[0] min= where(z[k] == z[0], k, 5)",  # wide lanes anyway
        "for k in 0 .. 50 vector:\n    at[0] min= 2147483600 * k",  # does not fit
        "for k in 0 .. 50 vector:\n    at[0] sum= k",
        "for k in 0 .. 50:\n    at[0] min= k",
        "for k in 0 .. 50 vector:\n    at[k] min= k",  # a cell each
        "for k in 0 .. 50 vector:\n    at[0] min= where(x[k] == 0.0:f32, i64(x[k]), k)",
    ],
)
def test_what_is_not_shortened(body):
    check("shorten", body, body, "x: param f32[50], z: param f64[50], at: param i64[50]")


def test_unswitch():
    check(
        "unswitch",
        """
        for i in 0 .. 9:
            for o in 0 .. 2:
                for k in 0 .. 8 vector:
                    m[k] min= where(y[i] != y[i], x[8 * o + k], 2.0:f32)
        """,
        """
        for i in 0 .. 9:
            if y[i] != y[i]:
                for o in 0 .. 2:
                    for k in 0 .. 8 vector:
                        m[k] min= x[8 * o + k]
            else:
                for o in 0 .. 2:
                    for k in 0 .. 8 vector:
                        m[k] min= 2.0:f32
        """,
        params="x: param f32[16], y: param f32[9], m: param f32[8]",
    )


def test_unswitch_within_a_choice():
    check(
        "unswitch",
        """
        for k in 0 .. 8 vector:
            m[k] = where(n[0] < 9, where(y[n[0]] < 2.0:f32, x[k], 2.0:f32), 0.0:f32)
        """,
        """
        if n[0] < 9:
            if y[n[0]] < 2.0:f32:
                for k in 0 .. 8 vector:
                    m[k] = x[k]
            else:
                for k in 0 .. 8 vector:
                    m[k] = 2.0:f32
        else:
            for k in 0 .. 8 vector:
                m[k] = 0.0:f32
        """,
        params="x: param f32[16], y: param f32[9], m: param f32[8], n: param i64[1]",
    )


def test_unswitch_makes_no_copies_of_copies():
    """Of many choices side by side the first is made around the loop, of two both."""
    for count, copies in ((2, 4), (3, 2), (40, 2)):
        terms = " + ".join(f"where(y[{n}] < 2.0:f32, x[k + {n}], 2.0:f32)" for n in range(count))
        params = "x: param f32[64], y: param f32[64], m: param f32[8]"
        made = passes.unswitch(function(f"for k in 0 .. 8 vector:\n    m[k] = {terms}", params))
        assert print_function(made).count("m[k] =") == copies


@pytest.mark.parametrize(
    "body",
    [
        "for k in 0 .. 8 vector:\n    m[k] = where(x[k] < 2.0:f32, x[k], 2.0:f32)",  # varies
        "for k in 0 .. 8 vector:\n    m[k] = where(m[0] < 2.0:f32, x[k], 2.0:f32)",  # written
        "for k in 0 .. 8:\n    m[k] = where(y[0] < 2.0:f32, x[k], 2.0:f32)",  # no lanes
        "for k in 0 .. n[0] vector:\n    m[k] = where(y[0] < 2.0:f32, x[k], 2.0:f32)",  # or never
        "for k in 0 .. 8 vector:\n"  # as the condition around it, which varies, guards its read
        "    m[k] = where(k < n[0], where(y[n[0]] < 2.0:f32, x[k], 2.0:f32), 0.0:f32)",
        "for k in 0 .. 8 vector:\n    m[k] = x[k]\n    x[k] = where(y[0] < 2.0:f32, m[k], 2.0:f32)",
    ],
)
def test_choices_that_stay(body):
    params = "x: param f32[16], y: param f32[9], m: param f32[8], n: param i64[1]"
    check("unswitch", body, body, params)


def test_first():
    check(
        "first",
        """
        for s in 0 .. 9:
            for k in 0 .. 8 vector:
                m[0] min= where(x[8 * s + k] == y[0], i32(8 * s + k), 2147483647:i32)
        """,
        """
        alloc s.found: register bool[1] align 64:
            s.found[0] = false:bool
            for s in 0 .. 9 until s.found[0]:
                for k in 0 .. 8 vector:
                    s.found[0] any= x[8 * s + k] == y[0]
                if s.found[0]:
                    for k in 0 .. 8 vector:
                        m[0] min= where(x[8 * s + k] == y[0], i32(8 * s + k), 2147483647:i32)
        """,
        params="x: param f32[72], y: param f32[9], m: param i32[8]",
    )


SEARCH = "for s in 0 .. 9:\n    for k in 0 .. 8 vector:\n        m[0] min= where({}, {}, {}:i32)"
NONE = 2**31 - 1


@pytest.mark.parametrize(
    "body",
    [
        SEARCH.format("x[8*s + k] == y[0]", "i32(8*s + k)", 100),  # no identity
        SEARCH.format("x[8*s + k] == y[0]", "i32(6*s + k)", NONE),  # strips overlap
        SEARCH.format("x[8*s + k] == y[0]", "i32(72 - 8*s + k)", NONE),  # descends
        SEARCH.format("x[8*s + k] == y[0]", "i32(8*s + k + 2147483600)", NONE),  # wraps
        SEARCH.format("x[8*s + k] == y[0]", "n[8*s + k]", NONE),  # data
        SEARCH.format("n[8*s + k] == m[0]", "i32(8*s + k)", NONE),  # changes on the way
        SEARCH.format("x[i64(n[8*s + k])] == y[0]", "i32(8*s + k)", NONE),  # is looked at
        SEARCH.format("x[8*s + k] == y[0]", "i32(8*s + k)", NONE).replace("9", "7"),  # short
        SEARCH.format("x[8*s + k] == y[0]", "i32(8*s + k)", NONE).replace("min=", "sum="),
        SEARCH.format("x[8*s + k] == y[0]", "i32(s)", NONE).replace("m[0]", "m[k]"),  # of each k
        SEARCH.format("x[8*s + k] == y[0]", "i32(8*s + k)", NONE).replace("m[0]", "m[k]"),
        SEARCH.format("x[8*s + k] == y[0]", "i32(k)", NONE).replace("m[0]", "m[s]"),  # of each s
    ],
)
def test_what_is_no_search(body):
    check(
        "first", body, body, "x: param f32[72], y: param f32[9], m: param i32[9], n: param i32[72]"
    )


def test_accumulate():
    check(
        "accumulate",
        """
        x[7] = 0.0:f32
        for o in 0 .. 6:
            for i in 0 .. 8 vector:
                x[7] sum= y[8 * o + i]
        """,
        """
        x[7] = 0.0:f32
        alloc x.lanes: register f32[1, 8] align 64:
            for x.lanes.v in 0 .. 8 vector:
                x.lanes[0, x.lanes.v] = 0.0:f32
            for o in 0 .. 6:
                for i in 0 .. 8 vector:
                    x.lanes[0, i] sum= y[8 * o + i]
            for x.lanes.v in 0 .. 4 vector:
                x.lanes[0, x.lanes.v] sum= x.lanes[0, x.lanes.v + 4]
            for x.lanes.v in 0 .. 4 vector:
                x[7] sum= x.lanes[0, x.lanes.v]
        """,
    )


def test_lanes_of_several_cells_are_combined_together():
    """Cells side by side get theirs as a vector, whatever their order was."""
    check(
        "accumulate",
        """
        for o in 0 .. 6:
            for i in 0 .. 2 vector:
                x[43] max= y[2 * o + i]
            for i in 0 .. 2 vector:
                x[42] max= y[2 * o + i + 12]
            for i in 0 .. 2 vector:
                x[0] max= y[2 * o + i + 24]
        """,
        """
        alloc x.lanes: register f32[3, 2] align 64, x.totals: register f32[2] align 64:
            for x.lanes.v in 0 .. 2 vector:
                x.lanes[0, x.lanes.v] = -inf:f32
            for x.lanes.v in 0 .. 2 vector:
                x.lanes[1, x.lanes.v] = -inf:f32
            for x.lanes.v in 0 .. 2 vector:
                x.lanes[2, x.lanes.v] = -inf:f32
            for o in 0 .. 6:
                for i in 0 .. 2 vector:
                    x.lanes[2, i] max= y[2 * o + i]
                for i in 0 .. 2 vector:
                    x.lanes[1, i] max= y[2 * o + i + 12]
                for i in 0 .. 2 vector:
                    x.lanes[0, i] max= y[2 * o + i + 24]
            for x.lanes.v in 0 .. 2 vector:
                x[0] max= x.lanes[0, x.lanes.v]
            for x.totals.v in 0 .. 2 vector:
                x.totals[x.totals.v] = max(x.lanes[x.totals.v + 1, 0], x.lanes[x.totals.v + 1, 1])
            for x.totals.v in 0 .. 2 vector:
                x[x.totals.v + 42] max= x.totals[x.totals.v]
        """,
    )


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0 .. 4 vector:\n    x[7] sum= y[i]",  # one vector, once
        "for o in 0 .. 6:\n    for i in 0 .. 4 vector:\n        x[o] sum= y[i]",  # a cell each
        "for o in 0 .. 6:\n    for i in 0 .. 4 vector:\n        x[7] sum= y[i] * x[o]",  # read
        "for o in 0 .. 6 parallel:\n    for i in 0 .. 4 vector:\n        x[7] sum= y[i]",
        "for o in 0 .. 6:\n    for i in 0 .. 4 vector:\n        x[i64(y[0])] sum= y[i]",
    ],
)
def test_what_needs_no_lanes_or_must_not_have_them(body):
    check("accumulate", body, body)


def test_vectorize():
    check(
        "vectorize",
        """
        for i in 0 .. 7 vector:
            x[i] = y[i]
        for n in 3 .. 8:
            for i in 0 .. n vector:
                x[i] = y[i]
        """,
        """
        for i in 0 .. 4 vector(4):
            x[i] = y[i]
        for i in 4 .. 7 vector(4):
            x[i] = y[i]
        for n in 3 .. 8:
            for i in 0 .. min(n, 4) vector(4):
                x[i] = y[i]
            if 4 < n:
                for i in 4 .. min(n, 8) vector(4):
                    x[i] = y[i]
        """,
        again=False,
    )


def test_registers():
    check(
        "registers",
        """
        for n in 0 .. 9:
            alloc t: heap f32[1]:
                t[0] = x[n]
                y[n] = t[0]
            alloc r: register f32[9]:
                r[n] = x[n]
                y[n] = r[n]
            alloc p: stack f32[2, 5]:
                for i in 4 .. 5 vector(4):
                    p[1, i] = x[i]
        """,
        """
        for n in 0 .. 9:
            alloc t: register f32[1]:
                t[0] = x[n]
                y[n] = t[0]
            alloc r: stack f32[9]:
                r[n] = x[n]
                y[n] = r[n]
            alloc p: register f32[2, 5] strides [8, 1]:
                for i in 4 .. 5 vector(4):
                    p[1, i] = x[i]
        """,
    )


def test_lanes_before_the_first_cell_are_in_memory():
    """Rows of registers are padded behind their ends only; a row or a column starts within."""
    check(
        "registers",
        """
        for n in 0 .. 9:
            alloc t: register f32[4]:
                for i in 0 .. 8 vector(8):
                    if i >= 4:
                        t[i - 4] = x[i]
            alloc s: register f32[4, 4]:
                for j in 0 .. 4 vector(4):
                    y[j] = where(j >= 1, s[j - 1, 2], 0.0:f32)
            alloc r: register f32[4]:
                for i in 4 .. 8 vector(4):
                    r[i - 4] = x[i]
        """,
        """
        for n in 0 .. 9:
            alloc t: stack f32[4]:
                for i in 0 .. 8 vector(8):
                    if i >= 4:
                        t[i - 4] = x[i]
            alloc s: stack f32[4, 4]:
                for j in 0 .. 4 vector(4):
                    y[j] = where(j >= 1, s[j - 1, 2], 0.0:f32)
            alloc r: register f32[4]:
                for i in 4 .. 8 vector(4):
                    r[i - 4] = x[i]
        """,
    )


def test_registers_are_read_in_columns():
    """The rows of a tile that is read across are whole vectors; one written across is no such."""
    check(
        "registers",
        """
        for n in 0 .. 9:
            alloc t: stack f32[3, 5]:
                for i in 4 .. 5 vector(4):
                    t[1, i] = x[i]
                for j in 0 .. 3 vector(4):
                    y[j] = t[j, 4]
            alloc s: stack f32[4, 4]:
                for j in 0 .. 4 vector(4):
                    s[j, 1] = x[j]
        """,
        """
        for n in 0 .. 9:
            alloc t: register f32[4, 5] strides [8, 1]:
                for i in 4 .. 5 vector(4):
                    t[1, i] = x[i]
                for j in 0 .. 3 vector(4):
                    y[j] = t[j, 4]
            alloc s: stack f32[4, 4]:
                for j in 0 .. 4 vector(4):
                    s[j, 1] = x[j]
        """,
    )


def test_what_is_the_same_in_all_lanes_does_not_narrow_vectors():
    check(
        "vectorize",
        """
        for d in 0 .. 4 vector:
            x[d] = y[at[3] + d]
        for d in 0 .. 4 vector:
            x[d] = y[at[d]]
        """,
        """
        for d in 0 .. 4 vector(4):
            x[d] = y[at[3] + d]
        for d in 0 .. 2 vector(2):
            x[d] = y[at[d]]
        for d in 2 .. 4 vector(2):
            x[d] = y[at[d]]
        """,
        "x: param f32[100], y: param f32[100], at: param i64[9]",
        again=False,
    )


def test_the_driver_stops_observes_and_prints(capsys, monkeypatch):
    monkeypatch.setenv("DIPTYCH_DEBUG", "4")
    first = function("for i in 2 .. 3:\n    x[i] = y[i]", "x: param f32[9], y: param f32[9]")
    seen = []
    got = passes.run(first, MACHINE, stop_after=1, observe=lambda name, f: seen.append((name, f)))
    assert print_function(got).splitlines()[1:] == ["    x[2] = y[2]"]
    assert seen == [("simplify", got)]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("diptych: f: pass 1 simplify took ")
    assert said[1:4] == ["diptych: after simplify:", *print_function(got).splitlines()]


def test_guards():
    """What all statements ask stands around them; what one asks, around it."""
    check(
        "guards",
        """
        for i in 0 .. 9:
            for k in 0 .. 9:
                for j in 0 .. 4 vector(4):
                    x[j] sum= where((i > 2) & (k > 1) & (j < 3), y[j], 0.0:f32)
                for j in 0 .. 4 vector(4):
                    x[4 + j] sum= where((k > 1) & (i > 2), y[4 + j], 0.0:f32)
                x[9] sum= where((i > 2) & (k > 5), y[9], 0.0:f32)
        """,
        """
        for i in 0 .. 9:
            if i > 2:
                for k in 0 .. 9:
                    if k > 1:
                        for j in 0 .. 4 vector(4):
                            x[j] sum= where(j < 3, y[j], 0.0:f32)
                        for j in 0 .. 4 vector(4):
                            x[4 + j] sum= y[4 + j]
                    if k > 5:
                        x[9] sum= y[9]
        """,
    )


def test_guards_stay_where_they_mean_something():
    """With another number beside, where memory is read, around a name, on threads."""
    check(
        "guards",
        """
        for i in 0 .. 9 parallel:
            x[i] sum= where(i > 2, y[i], 1.0:f32)
            x[i] min= where(i > 2, y[i], inf:f32)
            x[i] max= where(i > 2, y[i], inf:f32)
            x[i] sum= where(y[i] > 2.0:f32, y[i], 0.0:f32)
            let n = i + 1:
                x[n] sum= where(n > 2, y[n], 0.0:f32)
        """,
        """
        for i in 0 .. 9 parallel:
            x[i] sum= where(i > 2, y[i], 1.0:f32)
            if i > 2:
                x[i] min= y[i]
            x[i] max= where(i > 2, y[i], inf:f32)
            x[i] sum= where(y[i] > 2.0:f32, y[i], 0.0:f32)
            let n = i + 1:
                if n > 2:
                    x[n] sum= y[n]
        """,
    )
