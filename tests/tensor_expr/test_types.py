"""Element types against NumPy's, conversions made explicit, and errors."""

from __future__ import annotations

import itertools
import warnings

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import (
    BY_NAME,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u64,
)
from diptych.algo.errors import DTypeError
from diptych.algo.tensor_expr import types
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.expr import Access, Call, Const, Expr, Index, Reduce, Size, walk
from diptych.algo.tensor_expr.operations import OPERATIONS
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.printer import print_expr

NUMPY = [t for t in BY_NAME.values() if t is not bf16]
INFIX = ["+", "-", "*", "<", "==", "//", "%"]


def result(text: str, tensor: str = "y", **dtypes):
    return types.infer(check(parse(text)), dtypes)[tensor]


def typed(text: str, **dtypes) -> str:
    checked = check(parse(text))
    env = types.infer(checked, dtypes)
    return print_expr(types.elaborate(checked.equations[-1].rhs, env))


def numpys(op: str, a: object, b: object) -> np.dtype | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(
                {
                    "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
                    "<": lambda: a < b, "==": lambda: a == b, "/": lambda: a / b,
                    "//": lambda: a // b, "%": lambda: a % b,
                }[op]()
            ).dtype  # fmt: skip
        except (TypeError, OverflowError):
            return None


def ones(dtype):
    return np.ones(2, dtype.numpy)


@pytest.mark.parametrize("op", INFIX)
def test_two_arrays_promote_as_in_numpy(op):
    checked = check(parse(f"y[i] = a[i] {op} b[i]"))
    for a, b in itertools.product(NUMPY, NUMPY):
        if u64 in (a, b) and "i" in (a.kind, b.kind):
            with pytest.raises(DTypeError):
                types.infer(checked, {"a": a, "b": b})
            continue
        if a is b is bool_ and op in ("//", "%"):
            continue  # NumPy counts in i8 here; we refuse
        expected = numpys(op, ones(a), ones(b))
        if expected is None:
            with pytest.raises(DTypeError):
                types.infer(checked, {"a": a, "b": b})
        else:
            assert types.infer(checked, {"a": a, "b": b})["y"].numpy == expected, (a, b)


@pytest.mark.parametrize("op", [*INFIX, "/"])
@pytest.mark.parametrize("literal", ["2", "2.5"])
def test_literals_are_weak_as_in_numpy(op, literal):
    checked = check(parse(f"y[i] = a[i] {op} {literal}"))
    value = float(literal) if "." in literal else int(literal)
    for a in NUMPY:
        if op == "/" and not a.is_float:
            continue  # integers of 16 bits and less give f32 here, see below
        expected = numpys(op, ones(a), value)
        assert types.infer(checked, {"a": a})["y"].numpy == expected, a


def test_division_and_functions_of_integers_are_floats():
    assert result("y[i] = a[i] / b[i]", a=i16, b=i8) is f32
    assert result("y[i] = a[i] / 2", a=i32) is f64
    assert result("y[i] = exp(a[i])", a=u8) is f32
    assert result("y[i] = sqrt(a[i])", a=f16) is f16
    assert result("y[i] = exp(a[i])", a=bf16) is bf16
    assert result("y[i] = a[i] * b[i]", a=bf16, b=f16) is f32


def test_what_meets_no_array_is_what_numpy_makes_of_it():
    assert result("y[i] = i where i in 0:3") is i64
    assert result("y[i] = i / 2 where i in 0:3") is f64
    assert result("y[i] = 1.0 where i in 0:3") is f64
    assert result("y[i] = i < 2 where i in 0:3") is bool_
    assert result("s = sum(1, over=(k in 0:4,))", "s") is i64


@pytest.mark.parametrize(
    ("text", "dtypes", "expected"),
    [
        ("y[i] = x[i] * 2 + 1", {"x": f16}, "x[i] * f16(2.0) + f16(1.0)"),
        ("y[i] = x[i] * 2.5", {"x": i32}, "f64(x[i]) * f64(2.5)"),
        ("y[i] = x[i] * i", {}, "x[i] * f32(i)"),
        ("y[i] = x[i] * (2*i + 1)", {"x": f64}, "x[i] * f64(2 * i + 1)"),
        ("y[i] = x[i] / I", {}, "x[i] / f32(I)"),
        ("y[i] = x[i] + (i / 2)", {}, "x[i] + f32(f64(i) / f64(2.0))"),
        ("y[i] = where(x[i] > 0, 1, 0) * x[i]", {},
         "where(x[i] > f32(0.0), f32(1.0), f32(0.0)) * x[i]"),
        ("y[i] = where(i < 3, x[i], -1) where i in 0:1", {}, "where(i < 3, x[i], f32(-1.0))"),
        ("y[i] = x[i] * -(1)", {}, "x[i] * f32(-1.0)"),
        ("y[i] = W[idx[i] + 1]", {"idx": u8}, "W[i64(idx[i])+1]"),
        ("y[i] = W[idx[i]]", {}, "W[idx[i]]"),
        ("y[i] = (x[i] > 1) + (x[i] < 3)", {}, "(x[i] > f32(1.0)) | (x[i] < f32(3.0))"),
        ("y[i] = where(x[i], 1.0, z[i])", {"x": i32}, "where(x[i] != i32(0), f32(1.0), z[i])"),
        ("y[i] = ~(i < 3) & x[i]", {"x": bool_}, "~(i < 3) & x[i]"),
        ("y = sum(a[k] * b[k])", {"a": i8, "b": i8}, "sum(i32(a[k]) * i32(b[k]), dtype=i32)"),
        ("y = sum(a[k] * b[k])", {"a": f16, "b": f16},
         "f16(sum(f32(a[k]) * f32(b[k]), dtype=f32))"),
        ("y = sum(a[k])", {"a": bool_}, "sum(i64(a[k]), dtype=i64)"),
        ("y = max(a[k])", {"a": f16}, "max(a[k], dtype=f16)"),
        ("y = any(a[k])", {"a": f32}, "any(a[k] != f32(0.0), dtype=bool)"),
        ("y = sum(a[k], dtype=f64)", {"a": f32}, "sum(f64(a[k]), dtype=f64)"),
        ("y = sum(a[k], where=a[k] > 0)", {}, "sum(a[k], where=a[k] > f32(0.0), dtype=f32)"),
    ],
)  # fmt: skip
def test_conversions_are_explicit(text, dtypes, expected):
    assert typed(text, **dtypes) == expected


def test_a_recurrence_has_the_type_of_all_its_equations():
    text = "c[0] = x[0]\nc[t] = c[t-1] + x[t] * 0.5"
    assert result(text, "c", x=f32) is f32
    assert result(text, "c", x=i32) is f64
    assert result("e[0] = 1\ne[t] = e[t-1] * x[t]", "e", x=f16) is f16
    text = "f(x: f32[N]) -> c:\n c[t] = x[t] + where(t > 0, c[t-1], 0)"
    assert result(text, "c") is f32


def test_accumulations():
    assert result("H: [4]\nH[b[n]] += 1", "H") is i64
    assert result("H: [4]\nH[b[n]] += x[n]", "H", x=f16) is f16
    assert result("H: [4]\nH[b[n]] += x[n]", "H", x=i8) is i32


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.float16])
def test_accumulations_multiply_as_reductions_do(dtype):
    """In the accumulator's type: i8 in i32, f16 in f32."""
    a, b = np.full((2, 3), 100, dtype), np.full((3, 2), 120, dtype)
    added, summed = dt.op("C[i,j] += A[i,k] * B[k,j]"), dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    wanted = (a.astype(np.float64) @ b.astype(np.float64)).astype(summed(a, b).dtype)
    for op in (added, summed):
        np.testing.assert_array_equal(op(a, b), wanted, strict=True)
        np.testing.assert_array_equal(dt.interpret(op, a, b), wanted, strict=True)


def test_inputs_without_types():
    env = types.infer(check(parse("y[i,d] = W[idx[i],d]")), {})
    assert env == {"W": f32, "idx": i64, "y": f32}
    joined = "t[i] = any(where(c[i] > 0, m[i,k], n[i,k]))\ny[i] = where(~t[i], c[i], 1)"
    env = types.infer(check(parse(joined)), {})
    assert env == {"m": bool_, "n": bool_, "c": f32, "t": bool_, "y": f32}


def consistent(expr: Expr, env) -> None:
    """Both arguments of every operation have one type, and constants have theirs."""
    for item in walk(expr):
        if isinstance(item, Call) and OPERATIONS[item.op].result != "bool":
            kinds = {types.dtype_of(a, env) for a in item.args[1 if item.op == "where" else 0 :]}
            assert len(kinds) == 1, item
        elif isinstance(item, Call) and item.op not in ("and", "or", "not"):
            assert len({types.dtype_of(a, env) for a in item.args}) == 1, item


@pytest.mark.parametrize("a", NUMPY)
@pytest.mark.parametrize(
    "text",
    ["y[i] = max(a[i] * 2 + 1, b[i]) / 3", "y[i] = where(a[i] > b[i], a[i], 1) + exp(b[i] * i)",
     "y[i] = sum(a[i] * b[k]) + a[i]", "y[i] = (a[i] * b[i]) ** 2 % 3"],
)  # fmt: skip
def test_typed_expressions_are_consistent(text, a):
    checked = check(parse(text))
    for b in NUMPY:
        if u64 in (a, b) and (a.kind != "f" or b.kind != "f"):
            continue
        if a is bool_ and b is bool_:
            continue
        env = types.infer(checked, {"a": a, "b": b})
        made = types.elaborate(checked.equations[0].rhs, env)
        consistent(made, env)
        assert types.dtype_of(made, env) is env["y"]


def test_index_arithmetic_keeps_untyped_constants():
    made = types.elaborate(Call("lt", (Call("add", (Index("i"), Const(1))), Size("N"))), {})
    assert made is Call("lt", (Call("add", (Index("i"), Const(1))), Size("N")))
    assert types.dtype_of(Const(3), {}) is i64
    assert types.dtype_of(Reduce("sum", ("k",), Const(1.0, f16)), {}) is f32


@pytest.mark.parametrize(
    ("text", "dtypes", "message"),
    [
        ("y[i] = a[i] + b[i]", {"a": u64, "b": i64},
         "+: u64 with i64 has no exact common type; cast one of them\n"
         "    in y[i] = a[i] + b[i] (<text>:1)"),
        ("y[i] = W[idx[i]]", {"idx": f32},
         "idx is f32, but idx[i] is used as an index; indices are integers, as i64(idx[i]) is\n"
         "    in y[i] = W[idx[i]] (<text>:1)"),
        ("y[i] = x[i] + 300", {"x": u8},
         "300 does not fit u8, which holds 0 to 255; cast what it is combined with to a wider "
         "type\n    in y[i] = x[i] + 300 (<text>:1)"),
        ("y[i] = -(x[i] > 1)", {},
         "- of bool is not defined; cast it to a number\n    in y[i] = -(x[i] > 1) (<text>:1)"),
        ("y[i] = a[i] & b[i]", {"a": bool_, "b": i64},
         "& takes conditions, and b[i] is i64; for whether it is not zero write b[i] != 0\n"
         "    in y[i] = a[i] & b[i] (<text>:1)"),
        ("y[i] = where(~x[i], 1, 0)", {"x": f64},
         "~ takes conditions, and x[i] is f64; for whether it is not zero write x[i] != 0\n"
         "    in y[i] = where(~x[i], 1, 0) (<text>:1)"),
        ("y[i] = x[i] ** -1", {"x": i32},
         "** -1 of integers is no integer; cast what is raised to a float\n"
         "    in y[i] = x[i]**-1 (<text>:1)"),
        ("f(x: f32[N]) -> y:\n y[i] = x[i]", {"x": f64},
         "x is declared f32, but an array of f64 came; convert it, or declare x without a type"),
        ("y[i] = x[i]", {"z": f64}, "y has no input z; its inputs are x"),
    ],
)  # fmt: skip
def test_refusals(text, dtypes, message):
    with pytest.raises(DTypeError) as err:
        result(text, **dtypes)
    assert str(err.value) == message


@pytest.mark.parametrize("dtype", [bool_, i8, u8, f16, f32, f64])
def test_numbers_in_the_type_of_something(dtype: DType) -> None:
    """They read nothing and compute nothing; in the type of a number they are numbers."""
    assert result("y[i] = ones_like(x[i])", x=dtype) is dtype
    assert typed("y[i] = ones_like(x[i])", x=dtype) == print_expr(
        Const(dtype.numpy.type(1).item(), dtype)
    )
    assert typed("y[i] = zeros_like(sum(x[i,k]))", x=f32) == print_expr(Const(0.0, f32))
    assert typed("y[i] = x[i] + ones_like(2)", x=i8) == print_expr(
        Call("add", (Access("x", (Index("i"),)), Const(1, i8)))
    )
