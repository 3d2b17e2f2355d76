"""Element types and their promotion, against NumPy for all pairs."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from diptych.algo.dtypes import (
    BY_NAME,
    TensorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    from_numpy,
    i8,
    i16,
    i32,
    i64,
    promote,
    promote_weak,
    u8,
    u16,
    u32,
    u64,
)
from diptych.algo.errors import DTypeError

ALL = list(BY_NAME.values())
NUMPY = [t for t in ALL if t is not bf16]


def test_promotion_is_numpys():
    for a, b in itertools.product(NUMPY, NUMPY):
        if u64 in (a, b) and "i" in (a.kind, b.kind):
            continue
        assert promote(a, b).numpy == np.result_type(a.numpy, b.numpy), (a, b)


def test_promotion_is_commutative_and_associative_where_it_is_defined():
    def joined(*types):
        out = types[0]
        for t in types[1:]:
            out = promote(out, t)
        return out

    for a, b in itertools.product(ALL, ALL):
        try:
            assert promote(a, b) is promote(b, a)
        except DTypeError:
            with pytest.raises(DTypeError):
                promote(b, a)
    floats = [f16, bf16, f32, f64]
    for a, b, c in itertools.product(floats, floats, floats):
        assert joined(a, b, c) is joined(c, b, a)


@pytest.mark.parametrize("signed", [i8, i16, i32, i64])
def test_u64_with_a_signed_integer_needs_a_cast(signed):
    with pytest.raises(DTypeError) as err:
        promote(u64, signed)
    assert str(err.value) == f"u64 with {signed} has no exact common type; cast one of them"


def test_bf16():
    assert promote(bf16, f16) is f32
    assert promote(bf16, bf16) is bf16
    assert promote(bf16, f32) is f32
    assert promote(bf16, f64) is f64
    assert promote(bf16, i8) is promote(bf16, bool_) is bf16
    assert promote(bf16, i16) is promote(bf16, u16) is f32
    assert promote(bf16, i32) is promote(bf16, u32) is f64


@pytest.mark.parametrize("scalar", [True, 3, 2.5])
def test_literals_are_weak(scalar):
    for t in NUMPY:
        expected = (np.ones(1, t.numpy) + scalar).dtype
        assert promote_weak(t, scalar).numpy == expected, (t, scalar)
    assert promote_weak(bf16, scalar) is bf16


def test_accumulators():
    wanted = {
        f16: f32, bf16: f32, f32: f32, f64: f64, bool_: i64, i8: i32, i16: i32, i32: i32,
        i64: i64, u8: i32, u16: i32, u32: u32, u64: u64,
    }  # fmt: skip
    assert {t: t.accumulator for t in ALL} == wanted


def test_numpy_round_trip():
    for t in NUMPY:
        assert from_numpy(t.numpy) is t
        assert t.itemsize == t.numpy.itemsize
    assert bf16.itemsize == 2 and bf16.numpy == np.uint16
    with pytest.raises(DTypeError) as err:
        from_numpy(np.complex64)
    assert str(err.value) == (
        "arrays of complex64 are not supported; expected one of bool, i8, i16, i32, i64, u8, u16, "
        "u32, u64, f16, bf16, f32, f64"
    )


def test_annotations():
    assert f32["M", 3] is TensorType(f32, ("M", 3))
    assert f32["M"] is TensorType(f32, ("M",))
    assert repr(f32) == "f32"
    assert pickle.loads(pickle.dumps(f16)) is f16


def test_kinds():
    assert [t.name for t in ALL if t.is_float] == ["f16", "bf16", "f32", "f64"]
    assert [t.name for t in ALL if t.is_int] == [f"{k}{b}" for k in "iu" for b in (8, 16, 32, 64)]
    assert u8.bits == 8 and bool_.bits == 8


def test_annotations_read_as_written() -> None:
    assert repr(f32["M", 3]) == "f32['M', 3]"
    assert repr(f32["M"]) == "f32['M']"
