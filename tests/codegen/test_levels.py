"""Code for each feature level of x86-64, run here, and object code for AArch64."""

from __future__ import annotations

from typing import Any

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
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.lower.kernel import lower
from diptych.sched.loop.default import default
from diptych.sched.loop.machine import Machine
from operators.table import ENTRIES

ARM = "aarch64-unknown-linux-gnu"
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


@pytest.mark.parametrize("entry", ENTRIES[::4], ids=str)
def test_object_code_for_arm(entry: Any) -> None:
    """Default schedules of every fourth operator of the table, for AArch64: complete objects."""
    op, arrays = entry.op(), entry.arrays("float32")
    code = arm_object(op, arrays)
    assert code[18:20] == b"\xb7\x00"  # EM_AARCH64
    assert undefined_symbols(code) <= ALLOWED


def arm_object(op: Any, arrays: dict[str, Any]) -> bytes:
    """The object file of an operator's default schedule at the sizes of these arrays."""
    shapes = {p.name: arrays[p.name].shape for p in op.params}
    op = settled(op, shapes)
    types = {name: from_numpy(array.dtype) for name, array in arrays.items()}
    sizes = bind_sizes(check(op), shapes)
    machine = Machine(vector_bytes=16, registers=32)
    nest = default(op, types, sizes, machine).nest(types, sizes)
    emitted = emit(lower(nest, "kernel", machine=machine), host_code.target_of(ARM, {}))
    with jit.LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(ARM)
        arm = target.create_target_machine(cpu="generic", opt=jit.LEVEL, reloc="pic")
    return jit.object_code(str(emitted.module), arm)
