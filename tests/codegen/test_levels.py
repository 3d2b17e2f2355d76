"""Code for each feature level of x86-64, run here, and object code for AArch64."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import diptych as dt
import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen.levels import LEVELS, level
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.settle import settled
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.codegen import host_code, jit
from diptych.codegen.emit import emit
from diptych.codegen.signature import Signature
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.lower.ir_print import print_function
from diptych.lower.kernel import lower
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine
from operators.table import ENTRIES, agree

ARM = "aarch64-unknown-linux-gnu"
FULL = os.environ.get("DIPTYCH_TEST") == "full"
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


@pytest.fixture(params=LEVELS)
def built(request: pytest.FixtureRequest, native: Any) -> Any:
    """Compiles loop IR for a level."""
    target, machine = level(request.param)

    def build(text: str) -> Any:
        kernel = native(text, target, machine)
        assert undefined_symbols(kernel.object) <= ALLOWED
        return kernel

    return build


@pytest.mark.parametrize("lanes", ["", " vector(16)"])
def test_integer_division(built: Any, lanes: str) -> None:
    """By zero 0, INT_MIN // -1 wraps, quotients are rounded down, of all widths."""
    rng = np.random.default_rng(1)
    for dtype in INTEGERS:
        info = np.iinfo(dtype.replace("u", "uint") if "u" in dtype else dtype.replace("i", "int"))
        low, high = int(info.min), int(info.max)
        kind = np.dtype(info.dtype)
        a = rng.integers(low, high, 64, kind, endpoint=True)
        b = rng.integers(max(low, -9), 9, 64, kind, endpoint=True)
        a[:4], b[:4] = [low, low, high, high], [-1 if low else 1, 0, high, 1]
        kernel = built(
            f"function k(a: param {dtype}[64], b: param {dtype}[64], "
            f"q: param {dtype}[64], r: param {dtype}[64], c: param {dtype}[64]):\n"
            f"    for j in 0 .. 4:\n        for i in 0 .. 16{lanes}:\n"
            "            q[16 * j + i] = a[16 * j + i] // b[16 * j + i]\n"
            "            r[16 * j + i] = a[16 * j + i] % b[16 * j + i]\n"
            f"            c[16 * j + i] = a[16 * j + i] // {dtype}(7)\n"
        )
        q, r, c = (np.zeros(64, kind) for _ in range(3))
        assert kernel(a, b, q, r, c) == 0
        wide = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
        want = [x // y if y else 0 for x, y in wide]
        rest = [x % y if y else 0 for x, y in wide]
        span = 1 << info.bits
        np.testing.assert_array_equal(q, [(w - low) % span + low for w in want])
        np.testing.assert_array_equal(r, rest)
        np.testing.assert_array_equal(c, [x // 7 for x, _ in wide])


@pytest.mark.parametrize("lanes", ["", " vector(16)"])
def test_sixteen_bit_floats(built: Any, lanes: str) -> None:
    """All f16 and bf16 there are become f32 and come back; f32 between them round to even."""
    count = 1 << 16
    kernel = built(
        f"function k(h: param f16[{count}], b: param bf16[{count}], x: param f32[{count}], "
        f"hx: param f32[{count}], bx: param f32[{count}], "
        f"xh: param f16[{count}], xb: param bf16[{count}]):\n"
        f"    for j in 0 .. {count // 16}:\n        for i in 0 .. 16{lanes}:\n"
        "            hx[16 * j + i] = f32(h[16 * j + i])\n"
        "            bx[16 * j + i] = f32(b[16 * j + i])\n"
        "            xh[16 * j + i] = f16(x[16 * j + i])\n"
        "            xb[16 * j + i] = bf16(x[16 * j + i])\n"
    )
    bits = np.arange(count, dtype=np.uint16)
    halves = bits.view(np.float16)
    rng = np.random.default_rng(2)
    x = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)  # of every size
    near = halves[:0x7C00].astype(np.float32)
    x[:0x7BFF] = (near[1:] + near[:-1]) / 2  # ties
    x[0x7C00:0xF800] = np.nextafter(near, np.float32(np.inf))
    hx, bx = (np.zeros(count, np.float32) for _ in range(2))
    xh, xb = (np.zeros(count, np.uint16) for _ in range(2))
    assert kernel(halves, bits, x, hx, bx, xh, xb) == 0
    np.testing.assert_array_equal(hx, halves.astype(np.float32))
    np.testing.assert_array_equal(bx, (bits.astype(np.uint32) << 16).view(np.float32))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(xh.view(np.float16), x.astype(np.float16))
    nan = np.isnan(x)
    wide = x.view(np.uint32)
    even = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    np.testing.assert_array_equal(xb[~nan], even[~nan])
    assert np.isnan((xb[nan].astype(np.uint32) << 16).view(np.float32)).all()


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 16), ("i32", 16), ("f64", 8), ("i64", 8)])
def test_two_vectors_in_registers_are_read_from_a_cell_on(
    built: Any, dtype: str, lanes: int
) -> None:
    kernel = built(
        f"function k(x: param {dtype}[{2 * lanes}], y: param {dtype}[{lanes}, {lanes}], "
        f"z: param {dtype}[{lanes}]):\n"
        f"    alloc r: register {dtype}[2, {3 * lanes}] align 64:\n"
        f"        for i in 0 .. {lanes} vector({lanes}):\n"
        f"            r[1, i + {lanes}] = x[i]\n"
        f"            r[1, i + {2 * lanes}] = x[i + {lanes}]\n"
        f"        for j in 0 .. {lanes}:\n"
        f"            for i in 0 .. {lanes} vector({lanes}):\n"
        f"                y[j, i] = r[1, j + i + {lanes}]\n"
        f"        for i in 0 .. {lanes} vector({lanes}):\n"
        f"            z[i] = r[1, i + {lanes + 5}]\n"
    )
    kind = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    x = np.arange(2 * lanes).astype(kind)
    y, z = np.zeros((lanes, lanes), kind), np.zeros(lanes, kind)
    assert kernel(x, y, z) == 0
    np.testing.assert_array_equal(y, np.lib.stride_tricks.sliding_window_view(x, lanes)[:lanes])
    np.testing.assert_array_equal(z, x[5 : lanes + 5])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i64", "bool", "f16"])
def test_masked_memory_gathers_and_scatters(built: Any, dtype: str) -> None:
    """A tail of lanes reads and writes its own cells only, at data, steps and runs."""
    n = 29
    kernel = built(
        f"function k(x: param {dtype}[{n}], at: param i64[{n}], y: param {dtype}[{n + 3}], "
        f"z: param {dtype}[{n}], w: param {dtype}[{2 * n}]):\n"
        f"    for j in 0 .. 2:\n        for i in 0 .. min({n} - 16 * j, 16) vector(16):\n"
        "            y[16 * j + i] = x[at[16 * j + i]]\n"
        "            z[at[16 * j + i]] = x[16 * j + i]\n"
        "            w[32 * j + 2 * i] = x[16 * j + i]\n"
    )
    rng = np.random.default_rng(3)
    kinds = {"bool": np.bool_, "f16": np.float16, "i8": np.int8, "i64": np.int64}
    kind = kinds.get(dtype, np.float32 if dtype == "f32" else np.float64)
    x = rng.integers(0, 2 if dtype == "bool" else 100, n).astype(kind)
    at = rng.permutation(n)
    y, z, w = (np.ones(m, kind) for m in (n + 3, n, 2 * n))
    assert kernel(x, at, y, z, w) == 0
    np.testing.assert_array_equal(y, [*x[at], 1, 1, 1])
    np.testing.assert_array_equal(z[at], x)
    np.testing.assert_array_equal(w[::2], x)
    np.testing.assert_array_equal(w[1::2], 1)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_what_is_rounded_once_has_the_same_bits(built: Any, dtype: str) -> None:
    """NumPy's: only functions and sums may differ between levels, within their bounds."""
    n = 64
    kind = np.float32 if dtype == "f32" else np.float64
    operations = {
        "x[i] + y[i]": np.add, "x[i] - y[i]": np.subtract, "x[i] * y[i]": np.multiply,
        "x[i] / y[i]": np.divide, "max(x[i], y[i])": np.maximum, "min(x[i], y[i])": np.minimum,
        "sqrt(x[i])": lambda x, y: np.sqrt(x), "floor(x[i])": lambda x, y: np.floor(x),
        "ceil(x[i])": lambda x, y: np.ceil(x), "-x[i]": lambda x, y: -x,
    }  # fmt: skip
    lines = "".join(
        f"            r[{n * k} + 16 * j + i] = {text.replace('[i]', '[16 * j + i]')}\n"
        for k, text in enumerate(operations)
    )
    kernel = built(
        f"function k(x: param {dtype}[{n}], y: param {dtype}[{n}], "
        f"r: param {dtype}[{n * len(operations)}]):\n"
        f"    for j in 0 .. {n // 16}:\n        for i in 0 .. 16 vector(16):\n{lines}"
    )
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(n).astype(kind) * kind(10) ** rng.integers(-9, 9, n) for _ in "xy")
    x, y = x.astype(kind), y.astype(kind)
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).tiny / 4, np.finfo(kind).max, 0.5]
    r = np.zeros((len(operations), n), kind)
    assert kernel(x, y, r) == 0
    for (text, reference), got in zip(operations.items(), r, strict=True):
        with np.errstate(all="ignore"):
            want = reference(x, y)
        np.testing.assert_array_equal(got, want, text)
        told = ~np.isnan(want) & ~(text.startswith("m") & (want == 0))  # max of both zeros
        np.testing.assert_array_equal(np.signbit(got[told]), np.signbit(want[told]), text)


def test_functions_that_use_the_same_instructions_have_the_same_bits(native: Any) -> None:
    """Levels 1 and 2 of x86-64 have neither fused operations nor masks."""
    rng = np.random.default_rng(5)
    for name in ("exp", "log", "tanh", "sin", "erf"):
        text = (
            "function k(x: param f32[64], y: param f32[64]):\n    for j in 0 .. 4:\n"
            f"        for i in 0 .. 16 vector(16):\n"
            f"            y[16 * j + i] = {name}(x[16 * j + i])\n"
        )
        x = rng.random(64, np.float32) * 9
        found = []
        for each in ("x86-64", "x86-64-v2"):
            y = np.zeros(64, np.float32)
            assert native(text, *level(each))(x, y) == 0
            found.append(y)
        assert found[0].tobytes() == found[1].tobytes()


LESSER = [name for name in LEVELS if name != "x86-64-v4"]


@pytest.mark.parametrize("number", range(len(ENTRIES)), ids=lambda n: str(ENTRIES[n]))
def test_operators_on_lesser_machines(native: Any, number: int) -> None:
    """Default schedules of the table's operators, each at one of the lesser levels by turn (at all
    of them in full): the reference's values, and nothing foreign."""
    entry = ENTRIES[number]
    for name in LESSER if FULL else [LESSER[number % len(LESSER)]]:
        agree(entry, partial(run_at, native, name, entry.op()), "float32")


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize(
    "text", ["y[i] = argmax(-x[i,j])", "t[i,j] = x[i,j] * 2\ny[i] = max(t[i,j])"]
)
def test_tails_of_rows_of_sixteen_bits(native: Any, name: str, text: str) -> None:
    """Only the last level has masks for them; a row on the stack begins a cache line."""
    op = dt.op(text, returns="y")
    x = np.random.default_rng(6).standard_normal((5, 173)).astype(np.float16)
    np.testing.assert_array_equal(run_at(native, name, op, x), dt.interpret(op, x))


def run_at(native: Any, name: str, op: dt.Op, *arrays: Any) -> Any:
    """The results of an operator's default schedule at a level."""
    target, machine = level(name)
    given = dict(zip((p.name for p in op.params), arrays, strict=True))
    made = Machine(vector_bytes=32 if name == "x86-64-v3" else 16, registers=16)
    op, function = lowered(op, given, made)
    kernel = native(print_function(function), target, machine)
    assert undefined_symbols(kernel.object) <= ALLOWED
    types = tuple(
        (from_numpy(a.dtype, p.type.dtype), a.shape) for p, a in zip(op.params, arrays, strict=True)
    )
    results = zip(op.returns, Signature(op, types).results, strict=True)
    every = {**given, **{name: np.empty(shape, dtype) for name, (shape, dtype) in results}}
    every = {name: np.array(array, order="C") for name, array in every.items()}
    assert kernel(*(every[p.name] for p in function.params)) == 0
    found = tuple(every[name] for name in op.returns)
    return found if len(found) > 1 else found[0]


def lowered(op: Any, arrays: dict[str, Any], machine: Machine) -> tuple[Any, Any]:
    """An operator, settled, and the loop IR of its default schedule at the sizes of arrays."""
    shapes = {p.name: arrays[p.name].shape for p in op.params}
    op = settled(op, shapes)
    types = {name: from_numpy(array.dtype) for name, array in arrays.items()}
    sizes = bind_sizes(check(op), shapes)
    nest = default(op, types, sizes, machine).nest(types, sizes)
    return op, lower(nest, "kernel", machine=machine)


@pytest.mark.parametrize("entry", ENTRIES[::4], ids=str)
def test_object_code_for_arm(entry: Any) -> None:
    """Default schedules of every fourth operator of the table, for AArch64: complete objects."""
    op, arrays = entry.op(), entry.arrays("float32")
    code = arm_object(op, arrays)
    assert code[18:20] == b"\xb7\x00"  # EM_AARCH64
    assert undefined_symbols(code) <= ALLOWED


def arm_object(op: Any, arrays: dict[str, Any]) -> bytes:
    """The object file of an operator's default schedule at the sizes of these arrays."""
    _, function = lowered(op, arrays, Machine(vector_bytes=16, registers=32))
    emitted = emit(function, host_code.target_of(ARM, {}))
    with jit.LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(ARM)
        arm = target.create_target_machine(cpu="generic", opt=jit.LEVEL, reloc="pic")
    return jit.object_code(str(emitted.module), arm)
