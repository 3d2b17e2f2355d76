"""Printer and parser of loop IR are inverses; the verifier refuses; the executor executes."""

import numpy as np
import pytest
from diptych.algo.dtypes import BY_NAME, bool_, f32, f64, i32
from diptych.algo.errors import InternalError, ParseError, UnsupportedError
from diptych.algo.tensor_expr.expr import Access, Call, Cast, Const, Index
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.lower.ir import Block, For, Function, Store, block
from diptych.lower.ir_parse import parse_expr, parse_function
from diptych.lower.ir_print import print_expr, print_function
from diptych.lower.run import run
from diptych.lower.verify import verify
from hypothesis import given, settings
from hypothesis import strategies as st

EVERYTHING = """\
function every(x: param f32[100] align 64, s: param f64[], y: param f32[100] strides [2]):
    alloc acc: register f32[8, 16]:
        acc[0, 0] = -0.0:f32
        for io in 0 .. 13 parallel separate:
            for ii in 0 .. min(8, 100 - io * 8) vector(8):
                y[io * 8 + ii] = where(x[io * 8 + ii] > 0.0:f32, x[io * 8 + ii], inf:f32)
        let n = 3 * (2 + 1) - (1 - -1):
            for C.update.k in 0 .. n step 4 separate:
                if ~(n < 3) & true:
                    s[] sum= f64(acc[0, 0])
                else:
                    s[] max= neg(1.5:f64) ** 2:f64
            for t in 0 .. 3 until s[] > 1.0:f64:
                s[] sum= 1.0:f64
            for t in 0 .. 0:
                pass
"""


def test_strides_in_bytes_parse_back():
    params = "x: param f32[3] strides [5] bytes, y: param f32[2] strides [1] bytes"
    text = f"function f({params}):\n    pass\n"
    assert print_function(parse_function(text)) == text
    assert parse_function(text).params[0].bytewise


def test_text_parses_back():
    function = parse_function(EVERYTHING)
    assert print_function(function) == EVERYTHING
    assert parse_function(print_function(function)) is function
    verify(function)


def leaves():
    return st.one_of(
        st.sampled_from(["i", "C.update.ko"]).map(Index),
        st.integers(-5, 5).map(Const),
        st.booleans().map(lambda b: Const(b, bool_)),
        st.floats(allow_nan=False, width=32).map(lambda v: Const(v, f32)),
        st.integers(-5, 5).map(lambda v: Const(v, i32)),
    )


def grow(inner):
    calls = st.sampled_from(sorted(OPERATIONS.values(), key=lambda op: op.name)).flatmap(
        lambda op: st.tuples(*[inner] * op.arity).map(lambda args: Call(op.name, args))
    )
    casts = st.builds(Cast, st.sampled_from(sorted(BY_NAME.values(), key=lambda t: t.name)), inner)
    cells = st.lists(inner, max_size=3).map(lambda index: Access("A.pack", tuple(index)))
    return st.one_of(calls, casts, cells)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.recursive(leaves(), grow, max_leaves=12))
def test_any_expression_parses_back(expr):
    assert parse_expr(print_expr(expr)) is expr


def wrong(text):
    with pytest.raises(ParseError) as caught:
        parse_function(text)
    return str(caught.value)


def test_parse_errors():
    assert wrong("") == "loop IR is empty; expected `function name(...):`"
    assert wrong("function f():\n    for i in 0 .. :\n        barrier") == (
        "loop IR line 2: expected a name, got :\n    for i in 0 .. :"
    )
    assert wrong("function f():\n    x[0] = what(1)") == (
        "loop IR line 2: expected a type or an operation of 1 arguments (not what), got the end "
        "of the line\n    x[0] = what(1)"
    )
    assert wrong("function f():\n  if 1 < 2:\n  barrier") == (
        "loop IR line 2: expected an indented body below it, got the end of the line\n    if 1 < 2:"
    )
    assert wrong("function f():\n    x[0] = $") == "loop IR line 2: cannot read ' $'"


def refused(body, params="x: param f32[4]", final=False):
    indented = "\n".join("    " + line for line in body.splitlines())
    with pytest.raises(InternalError) as caught:
        verify(parse_function(f"function f({params}):\n{indented}\n"), final)
    return str(caught.value).splitlines()[0]


def test_verifier_refuses():
    loop = "for i in 0 .. 4{}:\n    x[i] = 0.0:f32"
    assert refused("x[i] = 0.0:f32") == "loop IR: i is not bound, in"
    assert refused("z[0] = 0.0:f32") == "loop IR: buffer z is not bound, in"
    assert refused("x[0, 0] = 0.0:f32") == "loop IR: buffer x has rank 1, not 2, in"
    assert refused("x[0] avg= 0.0:f32") == "loop IR: avg is no reducer, in"
    assert refused("barrier") == "loop IR: a barrier is outside the loops over threads, in"
    assert refused(loop.format(" diagonal")) == "loop IR: diagonal is no kind of loop, in"
    assert refused(loop.format(" vector(3)")) == "loop IR: 3 lanes are not a power of two, in"
    assert refused(loop.format(" parallel(4)")) == "loop IR: a parallel loop has lanes, in"
    assert refused(loop.format(" step 2 vector")) == "loop IR: a vector loop has step 2, in"
    assert refused(loop.format(" unroll"), final=True) == "loop IR: an unroll loop is left, in"
    nested = "for i in 0 .. 4:\n    for i in 0 .. 4:\n        x[i] = 0.0:f32"
    assert refused(nested) == "loop IR: i is bound within its own scope, in"
    nested = "for i in 0 .. 4 vector:\n    for j in 0 .. 4 vector:\n        x[j] = 0.0:f32"
    assert refused(nested) == "loop IR: a vector loop is inside a vector loop, in"
    nested = "for i in 0 .. 4 thread.x:\n    for j in 0 .. 4 thread.x:\n        x[j] = 0.0:f32"
    assert refused(nested) == "loop IR: thread.x is bound twice, in"
    alloc = "alloc {}:\n    for i in 0 .. 4:\n        r[i] = 0.0:f32"
    assert refused(alloc.format("x: heap f32[4]")) == (
        "loop IR: buffer x is bound within its own scope, in"
    )
    assert refused(alloc.format("r: cloud f32[4]")) == (
        "loop IR: buffer r has scope cloud, not heap/stack/register/shared/local/tile, in"
    )
    assert refused(alloc.format("r: register f32[4]"), final=True) == (
        "loop IR: register buffer access r[i] is not constant, in"
    )
    assert refused("x[0] = 0.0:f64") == "loop IR: 0.0:f64 is f64, not f32, in"
    assert refused("x[0] = x[0] + 1:i32") == (
        "loop IR: operands of add in x[0] + 1:i32 are f32, i32, in"
    )
    assert refused("x[0] = where(1, x[0], x[1])") == (
        "loop IR: operands of where in where(1, x[0], x[1]) are i64, f32, f32, in"
    )
    assert refused("x[i32(0)] = 0.0:f32") == "loop IR: i32(0) is i32, not i64, in"
    assert refused("x[0] = x[i32(0)]") == "loop IR: an index of x[i32(0)] is no i64, in"
    assert refused("if 1:\n    x[0] = 0.0:f32") == "loop IR: 1 is i64, not bool, in"
    odd = Function("f", (), Block((Block(()), For("i", Const(0), Const(1), Block(())))))
    with pytest.raises(InternalError, match="a block is not flat"):
        verify(odd)
    assert block(*odd.body.stmts) is odd.body.stmts[1]


def test_executor():
    function = parse_function(EVERYTHING.replace("register f32[8, 16]", "stack f32[8, 16]"))
    x, y = np.linspace(-1, 1, 100, dtype=np.float32), np.zeros(100, np.float32)
    s = np.zeros((), np.float64)
    run(function, x, s, y)
    assert np.array_equal(y, np.where(x > 0, x, np.inf)) and s == 2.0


def test_executor_refuses():
    outside = parse_function("function f(x: param f32[4]):\n    x[5 - 6] = 0.0:f32\n")
    with pytest.raises(InternalError) as caught:
        run(outside, np.zeros(4, np.float32))
    assert str(caught.value) == "x[5 - 6] is [-1] in [4]"
    with pytest.raises(InternalError) as caught:
        run(outside, np.zeros(5, np.float64))
    assert str(caught.value) == "f: x is f32[4], got float64[5]"
    threads = parse_function("function f():\n    for i in 0 .. 4 thread.x:\n        barrier\n")
    with pytest.raises(UnsupportedError) as caught:
        run(threads)
    assert str(caught.value) == (
        "the loop IR executor runs one thread after the other and so cannot run a barrier; "
        "codegen.simt emulates threads"
    )


def test_executor_poisons_memory_and_reorders_parallel_loops():
    poison = "function f(x: param f64[1]):\n    alloc t: stack f64[1]:\n        x[0] = t[0]\n"
    x = np.zeros(1, f64.numpy)
    run(parse_function(poison), x)
    assert np.isnan(x[0])
    order = "function f(x: param f64[1]):\n    for i in 0 .. 3 parallel:\n        x[0] = f64(i)\n"
    run(parse_function(order), x)
    assert x[0] == 0
    run(parse_function(order.replace(" parallel", "")), x)
    assert x[0] == 2


def test_store_of_guarded_access_is_lazy():
    text = "function f(x: param f64[2]):\n    x[0] = where(0 < 2, 1.0:f64, x[7])\n"
    x = np.zeros(2)
    run(parse_function(text), x)
    assert x[0] == 1
    assert isinstance(parse_function(text).body, Store)
