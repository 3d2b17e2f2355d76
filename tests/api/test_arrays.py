"""What arrays a call takes and gives: every layout, every refused type, and who is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diptych as dt
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
ADD = dt.op("C[i] = A[i] + B[i]")
MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
TYPES = ("bool", "i1", "u2", "f2", "f4", "i8")
KNOWN = "bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64"


def numbers(dtype: str, *shape: int) -> Array:
    return RNG.integers(0, 2 if dtype == "bool" else 50, shape).astype(dtype)


def refusal(call: Callable[[], Any], kind: type[dt.Error]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


# Layouts


def zero_stride(a: Array) -> Array:
    return np.broadcast_to(a[3], a.shape)


def unaligned(a: Array) -> Array:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    view = np.frombuffer(raw.data, a.dtype, offset=1, count=a.size).reshape(a.shape)
    view[...] = a
    return view


def packed(a: Array) -> Array:
    """A field of records whose size is no multiple of the element's."""
    records = np.zeros(a.shape, np.dtype([("tag", "u1"), ("x", a.dtype), ("more", "u2")]))
    records["x"] = a
    return records["x"]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "dense": lambda a: a.copy(),
    "Fortran": np.asfortranarray,
    "transposed": lambda a: a.T.copy().T,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "zero stride": zero_stride,
    "unaligned": unaligned,
    "packed records": packed,
    "packed records, reversed": lambda a: packed(a[::-1, ::-1].copy())[::-1, ::-1],
    "rows with a tail": lambda a: np.pad(a, ((0, 0), (2, 5)))[:, 2:-5],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_of_an_input(name: str) -> None:
    op = dt.op("y[i,j] = x[i,j] + x[i,j]")
    tiled = op.schedule().tile(i=4, j=5).parallel("io").vectorize("ji")
    for dtype in TYPES:
        x = LAYOUTS[name](numbers(dtype, 7, 19))
        before = x.copy()
        for run in (op, op.schedule().vectorize("j", 8), tiled):
            np.testing.assert_array_equal(run(x), before + before)
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "zero stride"])
def test_every_layout_of_an_output(name: str) -> None:
    op = dt.op("y[i,j] = x[i,j] + x[i,j]")
    tiled = op.schedule().tile(i=4, j=5).parallel("io").vectorize("ji")
    for dtype in TYPES:
        x = numbers(dtype, 7, 19)
        for run in (op, op.schedule().vectorize("j", 8), tiled):
            out = LAYOUTS[name](np.ones_like(x))
            whole = out if out.base is None else out.base
            before, first = whole.tobytes(), out.copy()
            assert run(x, out=out) is out
            np.testing.assert_array_equal(out, x + x)
            out[...] = first  # whatever lies between its elements is as it was
            assert whole.tobytes() == before


def test_writing_a_field_leaves_the_bytes_around_it() -> None:
    kinds = [("a", "u1"), ("x", "f4"), ("y", "f4"), ("b", "u2")]
    records = np.frombuffer(RNG.bytes(11 * 37), np.dtype(kinds)).copy()
    x = RNG.random(37).astype("f4")
    for run in (ADD, ADD.schedule().vectorize("i", 8), ADD.schedule().split("i", 5).parallel("io")):
        want = records.copy()
        records["y"] = 0
        run(x, x, out=records["y"])
        want["y"] = x + x
        assert records.tobytes() == want.tobytes()
    records["x"] = x
    ADD(records["x"], x, out=records["y"])  # fields of the same records share no byte
    np.testing.assert_array_equal(records["y"], x + x)


def test_a_product_of_packed_rows() -> None:
    a = np.zeros(9, np.dtype([("tag", "u1"), ("row", "f4", (7,))]))
    c = np.zeros(9, np.dtype([("row", "f4", (11,)), ("tag", "u1")]))
    a["row"], b = RNG.random((9, 7)), RNG.random((7, 11)).astype("f4")
    MATMUL(a["row"], b, out=c["row"])
    np.testing.assert_allclose(c["row"], a["row"] @ b, 1e-5)
    assert not c["tag"].any()
    assert "A: param f32[9, 7] strides [29, 4] bytes" in MATMUL.source("ir")


def test_windows_that_overlap_byte_by_byte() -> None:
    raw = np.arange(80, dtype=np.uint8)
    x = np.lib.stride_tricks.as_strided(raw[:4].view("<u4"), (60,), (1,))
    np.testing.assert_array_equal(dt.op("y[i] = x[i]")(x), x.copy())


def test_layouts_of_one_shape_have_kernels_of_their_own() -> None:
    """Code for dense rows must not meet an array that is none."""
    a = numbers("f4", 12, 12)
    for x in (a, a.T, a[::-1], a, np.broadcast_to(a[0], (12, 12)), packed(a), unaligned(a), a.T):
        np.testing.assert_array_equal(MATMUL(x, a), (x.astype(float) @ a).astype("f4"))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_arrays_of_size_0(shape: tuple[int, int]) -> None:
    op = dt.op("y[i,j] = x[i,j] * 2\ns[i] = sum(x[i,j])\nm[] = sum(x[i,j])")
    x = np.ones(shape)
    y, s, m = op(x)
    assert (y.shape, s.shape, m.shape) == (shape, shape[:1], ())
    assert (s == 0).all() and m == 0
    y, s, m = op(x.T[::-1].T)
    assert y.shape == shape


def test_arrays_of_rank_0() -> None:
    op = dt.op("f(x: f32[], y: f32[]) -> z:\n    z = x + y")
    one = np.array(1, np.float32)
    packed_one = np.zeros((), np.dtype([("t", "u1"), ("x", "f4")]))
    for x in (one, np.float32(1), 1, 1.0, packed_one["x"] + 1):
        found = op(x, one)
        assert (found.shape, found.dtype, float(found)) == ((), np.float32, 2.0)
    out = np.array(np.nan, np.float32)
    assert op(one, one, out=out) is out and out == 2


# What else makes an array


class Offers:
    """Neither an array nor a number; it offers one, as tensors of other packages do."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array


def test_inputs_that_are_no_arrays() -> None:
    declared = dt.op("f(x: f32[N], n: i8[]) -> y:\n    y[i] = x[i] + n")
    for x in ([1, 2.5], (1, 2.5), Offers(np.array([1, 2.5], np.float32))):
        found = declared(x, 2)
        assert (found.dtype, found.tolist()) == (np.float32, [3, 4.5])
    free = dt.op("y[i] = x[i] + n")
    assert free([1, 2], 2).dtype == np.int64  # a list without a declared type is NumPy's
    assert free(Offers(np.array([1, 2], np.int16)), 2).dtype == np.int16
    assert free(np.array([1, 2], np.int16), np.float32(2)).dtype == np.float32
    assert free([], 1.0).shape == (0,)
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    assert free(masked, 0).tolist() == [1, 2]  # its data; a mask is no part of the language


def test_a_tensor_of_torch() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(ADD(torch.ones(3), torch.ones(3)), [2, 2, 2])


def test_numbers_that_a_type_cannot_hold() -> None:
    op = dt.op("f(x: f32[N], n: i8[], b: bool[]) -> y:\n    y[i] = where(b, x[i] + n, 0)")
    x = np.ones(2, np.float32)
    hint = "pass an array or a NumPy scalar of the type that is meant"
    for n, shown in ((300, "300"), (-129, "-129"), (2.5, "2.5"), (2.0, "2.0"), (10**30, 10**30)):
        assert refusal(lambda n=n: op(x, n, True), dt.DTypeError) == (
            f"f: n is of type i8 here, which cannot hold {shown}; {hint}"
        )
    assert refusal(lambda: op(x, 1, 2), dt.DTypeError) == (
        f"f: b is of type bool here, which cannot hold 2; {hint}"
    )
    scale = dt.op("y[i] = x[i] * n")
    assert refusal(lambda: scale(np.ones(2, np.uint8), -1), dt.DTypeError) == (
        f"y: n is of type u8 here, which cannot hold -1; {hint}"
    )
    assert scale(np.ones(2, np.float32), 10**30).tolist() == [np.float32(1e30)] * 2


REFUSED = {
    "complex128": (
        np.zeros(3, complex), "arrays of complex128 are not supported; expected one of "
        f"{KNOWN}; pass its .real and .imag as two arrays"),
    ">f4": (
        np.zeros(3, ">f4"), f"arrays of >f4 are not supported; expected one of {KNOWN}; convert "
        "it to the machine's byte order, .astype('float32')"),
    "object": (
        np.array([None, 1], object),
        f"arrays of object are not supported; expected one of {KNOWN}"),
    "datetime": (
        np.zeros(3, "M8[s]"),
        f"arrays of datetime64[s] are not supported; expected one of {KNOWN}"),
    "text": (np.zeros(3, "U3"), f"arrays of <U3 are not supported; expected one of {KNOWN}"),
    "long double": (
        np.zeros(3, np.longdouble),
        f"arrays of {np.dtype(np.longdouble)} are not supported; expected one of {KNOWN}"),
    "records": (
        np.zeros(3, [("a", "f4")]), "arrays of [('a', '<f4')] are not supported; expected one of "
        f"{KNOWN}; pass one of its fields, ['a']"),
    "a number": (3 + 4j, f"arrays of complex128 are not supported; expected one of {KNOWN}; pass "
        "its .real and .imag as two arrays"),
    "None": (None, "expected an array of numbers, None came"),
    "a list of texts": (["a"], "expected an array of numbers, ['a'] came"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_element_types_that_there_are_not(name: str) -> None:
    given, said = REFUSED[name]
    for run in (ADD, lambda a, b: dt.interpret(ADD, a, b)):
        assert refusal(lambda run=run: run(given, np.ones(3)), dt.DTypeError) == f"C: A: {said}"


# bf16


def test_bf16_comes_as_its_bits() -> None:
    op = dt.op("f(x: bf16[N], a: bf16[]) -> y:\n    y[i] = x[i] * a")
    bits = (np.array([1, 2.5, -3, 0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    want = (np.array([2.5, 6.25, -7.5, 0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for x in (bits, bits[::-1].copy()[::-1], [1, 2.5, -3, 0]):
        found = op(x, 2.5)
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(dt.interpret(op, bits, 2.5), want)


def test_bf16_of_ml_dtypes() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = np.array([1, 2.5, -3, 0.3], bfloat16)
    op = dt.op("y[i] = x[i] + 1")
    found = op(x)
    assert found.dtype == bfloat16
    np.testing.assert_array_equal(found, x + bfloat16(1))
    again = dt.interpret(op, x)
    assert again.dtype == bfloat16
    np.testing.assert_array_equal(again, found)
    declared = dt.op("f(x: bf16[N]) -> y:\n    y[i] = x[i] + 1")
    for out in (np.zeros(4, bfloat16), np.zeros(4, np.uint16)):
        declared(x, out=out)
        np.testing.assert_array_equal(out.view(bfloat16), found)
    assert dt.op("y[i] = x[i] + z[i]")(x, np.ones(4, np.float32)).dtype == np.float32
    assert dt.vjp(op, x)[1](x)[0].dtype == bfloat16


# Who is written


def test_only_outputs_are_written() -> None:
    """Inputs that cannot be written serve as well, under every way to run."""
    op = dt.op("t[i] = max(x[i,j] * w[j])\ny[i,j] = x[i,j] - t[i]\nh[b[i]] += t[i]\nh: [4]",
               returns=("y", "h"))  # fmt: skip
    x, w, b = RNG.random((6, 9)), RNG.random(9), RNG.integers(0, 4, 6)
    kept = [a.copy() for a in (x, w, b)]
    for a in (x, w, b):
        a.flags.writeable = False
    staged = op.schedule().stage("x", at="y.i").vectorize("y.j", 4)
    for run in (op, op.schedule(), staged, lambda *a: dt.interpret(op, *a)):
        y, h = run(x, w, b)
        assert y.flags.writeable and y.flags.owndata
        assert not any(np.shares_memory(r, a) for r in (y, h) for a in (x, w, b))
        for a, before in zip((x, w, b), kept, strict=True):
            np.testing.assert_array_equal(a, before)


def test_outputs_that_cannot_be_written() -> None:
    x = np.ones(3)
    locked = np.zeros(3)
    locked.flags.writeable = False
    assert refusal(lambda: ADD(x, x, out=locked), dt.ShapeError) == (
        "C: out= is read-only; pass a copy of it"
    )
    shared = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
    assert refusal(lambda: ADD(x, x, out=shared), dt.ShapeError) == (
        "C: out= has stride 0, so several results would share an element; pass an array of its own"
    )
    swapped = np.zeros(3, ">f8")
    assert refusal(lambda: ADD(x, x, out=swapped), dt.DTypeError) == (
        "C: out= must be an array of float64, an array of >f8 came"
    )
    with pytest.raises(dt.ShapeError):
        ADD(x, np.ones(4), out=x)
    np.testing.assert_array_equal(x, np.ones(3))
