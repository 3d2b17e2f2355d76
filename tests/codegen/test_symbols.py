"""No object file asks for foreign numeric code."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import pytest
from diptych.algo.dtypes import BY_NAME
from diptych.algo.errors import UnsupportedError
from diptych.algo.tensor_expr.operations import ERASED, OPERATIONS
from diptych.codegen import host_code, jit
from diptych.codegen.dispatch_code import dispatch_module
from diptych.codegen.layout import layout
from diptych.codegen.pool_code import pool_llvm
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.codegen.target import Target

FLOAT_ONLY = {n for n, op in OPERATIONS.items() if op.result == "float"}
BOOL = ("and", "or", "not")


def call(name: str, dtype: str) -> str:
    arity = OPERATIONS[name].arity
    args = ["x[i] < y[i]", "x[i]", "y[i]"] if name == "where" else ["x[i]", "y[i]"][:arity]
    text = f"{name}({', '.join(args)})" if OPERATIONS[name].symbol is None else {
        1: f"{OPERATIONS[name].symbol}(x[i])", 2: f"x[i] {OPERATIONS[name].symbol} y[i]",
    }[arity]  # fmt: skip
    return f"{dtype}({text})" if OPERATIONS[name].result == "bool" else text


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "i8", "i32", "u32", "i64", "u64", "f32", "f64", "bf16"])
def test_every_operation_of_every_type_is_complete(native: Any, dtype: str, least: bool) -> None:
    """Scalar and vector, on this machine and on the least one of its kind."""
    host = host_code.host_target()
    target, machine = host, None
    if least:
        target = Target(host.triple, fma=False, rounding=False)
        machine = jit.target_machine("x86-64" if "x86" in host.triple else "generic")
    for lanes in ("", " vector(8)"):
        lines = []
        for name in (n for n in OPERATIONS if n not in ERASED):
            if (dtype == "bool" and name not in BOOL) or (dtype != "bool" and name in BOOL):
                continue
            if name in FLOAT_ONLY and not BY_NAME[dtype].is_float:
                continue
            lines.append(f"        r[i] = {call(name, dtype)}")
        for other in ("f32", "f64", "i64", "u64", "i32", "bool"):
            lines.append(f"        r[i] = {dtype}({other}(x[i]))")
        kernel = native(
            f"function all(x: param {dtype}[8], y: param {dtype}[8], r: param {dtype}[8]):\n"
            f"    for i in 0 .. 8{lanes}:\n" + "\n".join(lines) + "\n",
            target,
            machine,
        )
        assert undefined_symbols(kernel.object) <= ALLOWED


def test_f16_is_complete_where_the_machine_converts_it(native: Any) -> None:
    kernel = native("""
function half(x: param f16[8], y: param f32[8]):
    for i in 0 .. 8 vector(8):
        y[i] = f32(x[i])
        x[i] = f16(y[i])
""")
    assert undefined_symbols(kernel.object) <= ALLOWED


@pytest.mark.skipif(layout() is None, reason="no compiled code enters here")
def test_what_calls_kernels_asks_for_no_more() -> None:
    """CPython's functions are reached by addresses that are given at run time."""
    lay = layout()
    assert lay is not None
    assert undefined_symbols(jit.object_code(dispatch_module(jit.triple(), lay))) <= ALLOWED


def test_the_pool_asks_for_threads_only() -> None:
    asked = undefined_symbols(jit.object_code(pool_llvm(llvm.get_process_triple())))
    names = "cond_broadcast cond_init cond_wait mutex_init mutex_lock mutex_unlock create detach"
    assert asked == {
        *(f"pthread_{name}" for name in (*names.split(), "sigmask")),
        *("sigfillset", "sigdelset", "sched_yield"),
    }


def test_a_foreign_symbol_is_seen() -> None:
    code = jit.object_code(
        f'target triple = "{llvm.get_process_triple()}"\n'
        "declare double @cosh(double)\n"
        "define double @f(double %x) {\n  %y = call double @cosh(double %x)\n  ret double %y\n}\n"
    )
    assert undefined_symbols(code) == {"cosh"}


def test_other_objects_are_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        undefined_symbols(b"\xcf\xfa\xed\xfe")
    assert str(caught.value) == ("undefined_symbols reads 64-bit little-endian ELF objects only")
