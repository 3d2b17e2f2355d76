"""Operators traced from Python: equal to their text, errors at the user's line."""

from __future__ import annotations

import builtins
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import TensorType, bf16, f16, f32, f64, i8
from diptych.algo.errors import DTypeError, OpError
from diptych.algo.tensor_expr import trace as dt
from diptych.algo.tensor_expr.expr import Call, Cast, Const, Index
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.trace import (
    all,
    any,
    cast,
    erf,
    exp,
    max,
    maximum,
    min,
    minimum,
    prod,
    rsqrt,
    size,
    sqrt,
    sum,
    tensor,
    trace,
    where,
)

i, j, k, l = dt.indices("i j, k l")  # noqa: E741
N = size("N")


def equation(make: Callable[..., Any], *params: str) -> str:
    """The text of `y[i, j] = make(*tensors)`."""
    if not params:
        params = ("A", "B", "x")
    scope: dict[str, Any] = {"make": make, "tensor": tensor, "i": i, "j": j}
    used = ", ".join(params)
    exec(f"def f({used}):\n y = tensor('y')\n y[i, j] = make({used})\n return y", scope)
    return trace(scope["f"]).text.split("\n")[-1].strip()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda A, B, x: sum(A[i, k] * B[k, j]), "sum(A[i,k] * B[k,j])"),
        (lambda A, B, x: A[i, j] + 1 - 2 * x[i] / 3, "A[i,j] + 1 - 2 * x[i] / 3"),
        (lambda A, B, x: 1 - A[i, j] // 2 % 3, "1 - A[i,j] // 2 % 3"),
        (lambda A, B, x: 7 // x[i] + 7 % x[i] + 1 / x[i], "7 // x[i] + 7 % x[i] + 1 / x[i]"),
        (lambda A, B, x: -(x[i] ** 2) + 2 ** x[i], "-x[i]**2 + 2**x[i]"),
        (lambda A, B, x: +x[i], "x[i]"),
        (lambda A, B, x: abs(x[i]) + dt.abs(x[j]), "abs(x[i]) + abs(x[j])"),
        (lambda A, B, x: (x[i] < 1) & (x[j] >= x[i]) | ~(i == j), None),
        (lambda A, B, x: (0 <= i) & (i < size("J")), "0 <= i < J"),  # noqa: SIM300
        (lambda A, B, x: True & (x[i] != 0) | False, "True & (x[i] != 0) | False"),
        (lambda A, B, x: where(i >= 1, x[i - 1], 0.0), "where(i >= 1, x[i-1], 0.0)"),
        (lambda A, B, x: max(A[i, k]) + max(x[i], 0, x[j]),
         "max(A[i,k]) + max(max(x[i], 0), x[j])"),
        (lambda A, B, x: min([x[i], x[j]]) * min(A[i, k]), "min(x[i], x[j]) * min(A[i,k])"),
        (lambda A, B, x: sum([x[i], x[j], 1]), "x[i] + x[j] + 1"),
        (lambda A, B, x: sum(A[i, n] for n in range(2)), "A[i,0] + A[i,1]"),
        (lambda A, B, x: minimum(x[i], 1) + maximum(1, x[j]), "min(x[i], 1) + max(1, x[j])"),
        (lambda A, B, x: sum(A[i, k], over=(k,), where=k <= i, dtype=f64),
         "sum(A[i,k], where=k <= i, dtype=f64)"),
        (lambda A, B, x: prod(A[k, l], over=(l, k)), "prod(A[k,l], over=(l, k))"),
        (lambda A, B, x: any(A[i, k] > 0) & all(B[k, j] < 1), "any(A[i,k] > 0) & all(B[k,j] < 1)"),
        (lambda A, B, x: sum(A[k, l], over=(k.within(0, 3), l.within("N"))),
         "sum(A[k,l]) where k in 0:3, l in 0:N"),
        (lambda A, B, x: cast(x[i], f64) + f16(x[j]), "f64(x[i]) + f16(x[j])"),
        (lambda A, B, x: cast(0.5, f32) * x[i] + cast(0.5, i8), "f32(0.5) * x[i] + i8(0.5)"),
        (lambda A, B, x: np.float32(0.1) * x[i] + x[i] * np.int8(3),
         "f32(0.1) * x[i] + x[i] * i8(3)"),
        (lambda A, B, x: x[i] * f32(0.1), "x[i] * f32(0.1)"),
        (lambda A, B, x: A[x[i], np.int64(0)], "A[x[i],0]"),
        (lambda A, B, x: np.maximum(np.exp(x[i]), 2) - np.float32(1) / np.negative(x[j]),
         "max(exp(x[i]), 2) - f32(1.0) / -x[j]"),
        (lambda A, B, x: np.logical_not(np.int8(1) < x[i]) & (np.float32(2) != x[j]),
         "~(x[i] > i8(1)) & (x[j] != f32(2.0))"),
        (lambda A, B, x: exp(x[i]) * sqrt(2.25) + rsqrt(x[i]) + erf(x[j]),
         "exp(x[i]) * 1.5 + rsqrt(x[i]) + erf(x[j])"),
    ],
)  # fmt: skip
def test_traced_and_text_are_the_same(make: Callable[..., Any], text: str | None) -> None:
    traced = equation(make)
    if text is not None:
        expected = parse(f"f(A, B, x) -> y: y[i,j] = {text}").text.split("\n")[-1].strip()
        assert traced == expected
    assert parse(f"f(A, B, x) -> y: {traced}").text.split("\n")[-1].strip() == traced


def test_softmax_equals_its_text() -> None:
    def softmax(x):  # type: ignore[no-untyped-def]
        m, e, y = tensor("m"), tensor("e"), tensor("y")
        m[i] = max(x[i, j])
        e[i, j] = exp(x[i, j] - m[i])
        y[i, j] = e[i, j] / sum(e[i, l])
        return y

    op = trace(softmax)
    text = "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])"
    assert op == parse(text)
    assert op.name == "softmax"
    assert trace(softmax, name="other").name == "other"
    lines = [loc.line for loc in op.locations]
    assert lines == [lines[0], lines[0] + 1, lines[0] + 2]
    assert op.locations[0].file == __file__
    assert op.locations[0].text == "m[i] = max(x[i, j])"
    assert pickle.loads(pickle.dumps(op)) == op


def test_annotations_that_are_strings() -> None:
    def matmul(  # type: ignore[no-untyped-def]
        A: f32["M", "K"],
        B: f32[size("M"), 3],
        c: f64,
        d: Any,
        e: bf16[()],
    ):
        C = tensor("C")
        C[i, j] = sum(A[i, k] * B[k, j]) + c[i] * d[i] * e
        return C

    assert isinstance(matmul.__annotations__["A"], str)
    types = {p.name: p.type for p in trace(matmul).params}
    assert types == {
        "A": TensorType(f32, ("M", "K")),
        "B": TensorType(f32, ("M", 3)),
        "c": TensorType(f64, None),
        "d": TensorType(None, None),
        "e": TensorType(bf16, ()),
    }


def test_annotations_that_are_values() -> None:
    def f(x):  # type: ignore[no-untyped-def]
        y = tensor("y")
        y[i] = x[i]
        return y

    f.__annotations__["x"] = f32["N"]
    assert trace(f).text == "f(x: f32[N]) -> y:\n    y[i] = x[i]"


def test_accumulating_assignments() -> None:
    def f(A, b, bins):  # type: ignore[no-untyped-def]
        s, p, m, h = tensor("s"), tensor("p"), tensor("m"), tensor("h", shape=("B", 3))
        s[i] += A[i, k] * b[k]
        p[i] *= A[i, k]
        m.accumulate("max")[i] = A[i, k]
        h[bins[i], j] += 1
        return s, p, m, h

    assert trace(f) == parse(
        "s[i] += A[i,k] * b[k]\np[i] *= A[i,k]\nm[i] max= A[i,k]\nh: [B, 3]\nh[bins[i],j] += 1"
    )
    assert [eq.reducer for eq in trace(f).equations] == ["sum", "prod", "max", "sum"]


def test_an_expression_may_be_updated_in_place() -> None:
    def f(A, b):  # type: ignore[no-untyped-def]
        y = tensor("y")
        value = A[i]
        value += b[i]
        value *= 2
        y[i] = value
        return y

    assert trace(f).text == "y[i] = (A[i] + b[i]) * 2"


def test_ranges_and_conditions() -> None:
    def f(x):  # type: ignore[no-untyped-def]
        c, y = tensor("c"), tensor("y")
        c[0] = x[0]
        c[i.within(1, N)] = c[i - 1] + x[i]
        y.where(i <= j, k.within(3))[i, j] += x[i + k] * c[j]
        return y

    assert trace(f) == parse(
        "c[0] = x[0]\n"
        "c[i] = c[i-1] + x[i] where i in 1:N\n"
        "y[i,j] += x[i+k] * c[j] where k in 0:3, i <= j"
    )


def test_python_around_it_is_python() -> None:
    coefficients = [1.0, -2.0, 1.0]

    def stage(x: Any, scale: float) -> Any:
        h = tensor("h")
        h[i] = sum([c * x[i + n] for n, c in enumerate(coefficients)]) * scale
        return h

    def f(x, steps=2):  # type: ignore[no-untyped-def]
        for n in range(steps):
            x = stage(x, n + 1.0)
        return x

    assert trace(f).text == (
        "h[i] = (1.0 * x[i+0] + -2.0 * x[i+1] + 1.0 * x[i+2]) * 1.0\n"
        "h_1[i] = (1.0 * h[i+0] + -2.0 * h[i+1] + 1.0 * h[i+2]) * 2.0"
    )


def test_two_functions_of_one_name_are_two_operators() -> None:
    ops = []
    for factor in (2, 3):

        def cell(x, factor=factor):  # type: ignore[no-untyped-def]
            y = tensor("y")
            y[i] = x[i] * factor
            return y

        ops.append(trace(cell))
    assert [op.text for op in ops] == ["y[i] = x[i] * 2", "y[i] = x[i] * 3"]
    assert ops[0] != ops[1]


def test_names_of_builtins_keep_their_meaning_for_plain_values() -> None:
    assert sum([1, 2, 3]) == 6 and sum([[1], [2]], []) == [1, 2] and sum(range(3), start=4) == 7
    assert max(3, 4) == 4 and max([1, 5]) == 5 and max([], default=0) == 0
    assert max("a", "bc", key=len) == "bc" and min(iter([3, 2])) == 2
    assert any([0, 1]) is True and all([]) is True and dt.abs(-3) == 3
    assert np.array_equal(sum(np.ones((2, 3))), np.full(3, 2.0))
    assert builtins.sum is not sum
    assert sqrt(4) == 2.0 and maximum(1, 2) == 2 and where(True, 1, 2) == 1


def test_terms_wrap_expressions() -> None:
    assert (i + 1).expr is Call("add", (Index("i"), Const(1)))
    assert f64(i).expr is Cast(f64, Index("i"))
    assert {i: 1}[i] == 1
    assert repr(i * 2 + 1) == "i * 2 + 1" and repr(k.within(1, N)) == "k in 1:N"
    assert dt.indices("a").expr is Index("a")
    assert f32(2).dtype == np.float32


def test_values_of_other_layers_apply_operations_themselves() -> None:
    class Value:
        def __operation__(self, name: str, *operands: Any) -> Any:
            return name, operands

    v = Value()
    assert exp(v) == ("exp", (v,)) and dt.abs(v) == ("abs", (v,))
    assert max(1, v) == ("max", (1, v)) and where(v, 1, 2) == ("where", (v, 1, 2))


def failing(body: Callable[..., Any], params: str = "A, x") -> str:
    """The message of the `OpError` that tracing raises, without the place."""
    scope: dict[str, Any] = {"body": body}
    exec(f"def f({params}):\n return body({params.replace('=3', '')})", scope)
    with pytest.raises(OpError) as caught:
        trace(scope["f"])
    return str(caught.value)


def here(message: str) -> str:
    """A message without its place and source line."""
    return message.split(": ", 1)[1].split("\n")[0]


def define(value: Callable[..., Any], at: Any = i) -> Callable[..., Any]:
    def body(A: Any, x: Any) -> Any:
        y = tensor("y")
        y[at] = value(A, x)
        return y

    return body


REFUSED = [
    (lambda A, x: list(x),
     "x cannot be iterated over: an index already stands for all its values; reduce with dt.sum, "
     "dt.max and the like"),
    (lambda A, x: x[i] if x[i] > 0 else 0,
     "x[i] > 0 has no truth value while it is traced; choose with dt.where(c, a, b), join with "
     "& | ~ instead of and, or, not, and write a < b < c as (a < b) & (b < c)"),
    (lambda A, x: 0 <= i < 3,
     "i >= 0 has no truth value while it is traced; choose with dt.where(c, a, b), join with "
     "& | ~ instead of and, or, not, and write a < b < c as (a < b) & (b < c)"),
    (lambda A, x: len(x), "x has no length; name the size of a dimension with dt.size('N')"),
    (lambda A, x: 3 in x, "x cannot be searched; reduce with dt.any"),
    (lambda A, x: A @ x, "@ has no meaning on elements; write dt.sum(A[i,k] * B[k,j])"),
    (lambda A, x: x[i] ^ 1,
     "^ has no meaning on elements; write a ** b for powers, != for exclusive or"),
    (lambda A, x: 1 << x[i],
     "shifts have no meaning on elements; multiply by 2 ** n, or divide by it with //"),
    (lambda A, x: divmod(x[i], 2), "divmod has no meaning for x[i]; write a // b and a % b"),
    (lambda A, x: round(x[i]), "round has no meaning for x[i]; write dt.floor(e + 0.5)"),
    (lambda A, x: math.exp(x[i]),
     "x[i] is no Python number while it is traced; dt.exp, dt.floor and the like are the functions "
     "of expressions, dt.cast(e, dtype) converts them"),
    (lambda A, x: np.ones(3)[i],
     "i stands for many numbers, so it is no Python number and cannot index a list or an array; "
     "make the array a parameter of the function and read it as A[i]"),
    (lambda A, x: [1, 2][k],
     "k stands for many numbers, so it is no Python number and cannot index a list or an array; "
     "make the array a parameter of the function and read it as A[i]"),
    (lambda A, x: x[i].astype("f4"),
     "x[i] is an expression and has no astype; write dt.cast(e, dtype)"),
    (lambda A, x: dt.indices(["i", "j"]),
     "expected names of indices, as in dt.indices(\"i j k\"), got ['i', 'j']"),
    (lambda A, x: A[i, :],
     "slices are not part of the language; write an index for each dimension"),
    (lambda A, x: A[i, 1.5],
     "expected an index expression or a whole number, got 1.5; write an index for each dimension"),
    (lambda A, x: A[i, None],
     "expected an index expression or a whole number, got None; write an index for each "
     "dimension"),
    (lambda A, x: x[i] + "a", "expected an expression or a number, got 'a' (str)"),
    (lambda A, x: x[i] + k.within(0, 3),
     "the range k in 0:3 stands inside an expression; give it on the left side or in over=, and "
     "use the index itself here"),
    (lambda A, x: x[i] + np.ones(3),
     "an array of shape (3,) stands inside an expression; make it a parameter of the function and "
     "read it as A[i]"),
    (lambda A, x: np.ones(3) * x[i],
     "an array of shape (3,) stands inside an expression; make it a parameter of the function and "
     "read it as A[i]"),
    (lambda A, x: np.sum(x[i]),
     "NumPy's add.reduce with axis, dtype has no meaning for x[i]; there are dt.min, dt.max, "
     "dt.abs, dt.sign, dt.where, dt.sqrt, dt.rsqrt, dt.cbrt, dt.exp, dt.exp2, dt.expm1, dt.log, "
     "dt.log2, dt.log1p, dt.tanh, dt.sigmoid, dt.softplus, dt.erf, dt.sin, dt.cos, dt.floor, "
     "dt.ceil, dt.stop_gradient, dt.ones_like, dt.zeros_like, and reductions such as dt.sum"),
    (lambda A, x: sum(A[i, k], over="k"),
     "over= takes indices such as k or k.within(0, 3), got 'k'"),
    (lambda A, x: sum(A[i, k], over=(k, k)), "index k is listed twice in over="),
    (lambda A, x: sum(A[i, k], k), "sum takes one expression, got 2; indices go in over="),
    (lambda A, x: max(x[i], 0, over=k), "max of several values takes no over="),
    (lambda A, x: cast(x[i], "f31"),
     "'f31' is no element type; expected one of bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, "
     "bf16, f32, f64"),
    (lambda A, x: A[i, k],
     "index k is not on the left and is used outside any reducer; put it on the left, or reduce "
     "over it: sum(...)"),
    (lambda A, x: sum(A[i, k]) + A[i], "A has 1 index here and 2 indices elsewhere"),
    (lambda A, x: tensor("z")[i],
     "z is read here but defined by no equation above and is no input"),
    (lambda A, x: tensor("2")[i], "'2' cannot name a tensor; expected a name such as C"),
    (lambda A, x: dt.indices("a 2"), "'2' cannot name an index; expected a name such as i"),
    (lambda A, x: dt.indices(" "), 'no index is named; expected dt.indices("i j k")'),
    (lambda A, x: size("in"), "'in' cannot name a size; expected a name such as N"),
    (lambda A, x: tensor("q").accumulate("mean"),
     "unknown reducer 'mean'; expected one of sum, prod, max, min, any, all"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_what_tracing_refuses(value: Callable[..., Any], message: str) -> None:
    assert here(failing(define(value))) == message


def test_errors_show_the_line() -> None:
    def f(A):  # type: ignore[no-untyped-def]
        y = tensor("y")
        y[i] = A[i, k]
        return y

    line = f.__code__.co_firstlineno + 2
    with pytest.raises(OpError) as caught:
        trace(f)
    assert str(caught.value) == (
        f"test_trace.py:{line}: index k is not on the left and is used outside any reducer; put "
        f"it on the left, or reduce over it: sum(...)\n    y[i] = A[i, k]"
    )


def returned(value: Any) -> Callable[..., Any]:
    def body(A: Any, x: Any) -> Any:
        y = tensor("y")
        y[i] = x[i]
        return value(x) if callable(value) else value

    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (returned(None), "f returns nothing; expected a tensor: C = dt.tensor('C'), C[i] = ..., "
         "return C"),
        (returned(lambda x: x[i] + 1), "f returns the expression x[i] + 1; expected a tensor: "
         "C = dt.tensor('C'), C[i] = ..., return C"),
        (returned(3), "f returns 3; expected a tensor: C = dt.tensor('C'), C[i] = ..., return C"),
        (returned(lambda x: x), "x is returned but not defined; defined are y"),
        (lambda A, x: A, "f defines no tensor; expected an equation such as C[i, j] = ..."),
    ],
)  # fmt: skip
def test_what_a_traced_function_must_return(body: Callable[..., Any], message: str) -> None:
    assert here(failing(body)) == message


def test_what_a_traced_function_must_take() -> None:
    def many(*arrays: Any) -> None: ...
    def plain(x: Any, /) -> None: ...
    def typo(x: f23["N"]) -> None: ...  # type: ignore[name-defined]

    wanted = {
        many: "parameter *arrays of many has no fixed number of tensors; name each one",
        plain: "parameter x of plain is positional only; tensors are called by name, remove the /",
        typo: "the annotation of x does not evaluate (name 'f23' is not defined); expected a type "
        'such as f32["M", "K"], or none',
    }
    for fn, message in wanted.items():
        with pytest.raises(OpError) as caught:
            trace(fn)
        assert here(str(caught.value)) == message
    with pytest.raises(OpError) as caught:
        trace(len)
    assert (
        here(str(caught.value))
        == "expected a function written in Python or the text of an operator, got "
        "<built-in function len>"
    )


def test_a_definition_outside_a_traced_function_is_refused() -> None:
    with pytest.raises(OpError) as caught:
        tensor("y")[i] = i
    assert here(str(caught.value)) == (
        "y[...] is assigned outside a traced function; write it in a function decorated with @dt.op"
    )
    with pytest.raises(DTypeError, match=r"NumPy has no bf16 scalar; write dt.cast\(value, bf16\)"):
        bf16(1.0)


def test_one_name_for_two_tensors_is_refused() -> None:
    C = tensor("C")

    def f(x):  # type: ignore[no-untyped-def]
        tensor("C")[i] = x[i]
        C[i] = x[i]
        return C

    with pytest.raises(OpError) as caught:
        trace(f)
    assert here(str(caught.value)) == "two tensors are named C; give one another name"


def test_sizes_may_be_numbers_of_numpy():
    def twice(x: f64[np.int64(6)]):
        y = dt.tensor("y")
        y[i] = 2 * x[i]
        return y

    assert dt.trace(twice).text.startswith("twice(x: f64[6]) -> y:")
