"""Defaults take products of matrices of bytes by words where the machine can, and only those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diptych as dt
import numpy as np
import pytest
from diptych.algo.dtypes import from_numpy
from diptych.algo.tensor_expr.check import check
from diptych.algo.tensor_expr.sizes import bind_sizes
from diptych.codegen import host
from diptych.sched.loop.default import default
from diptych.sched.loop.explain import explain
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.peaks import Peaks

MACHINES = {
    "matrices": Machine(vector_bytes=64, registers=32, dots=(2, 4), matrices=True, threads=2),
    "AVX-512": Machine(vector_bytes=64, registers=32, dots=(4,), threads=2),
    "AVX2": Machine(vector_bytes=32, registers=16, dots=(4,)),
    "none": Machine(vector_bytes=32, registers=16),
}

BY_WORDS = {
    "A B": ("C[i,j] = sum(A[i,k] * B[k,j])", [(37, 100), (100, 53)]),
    "large": ("C[i,j] = sum(A[i,k] * B[k,j])", [(130, 129), (129, 600)]),
    "A B^T": ("C[i,j] = sum(A[i,k] * B[j,k])", [(40, 90), (35, 90)]),
    "A^T B": ("C[i,j] = sum(A[k,i] * B[k,j])", [(90, 40), (90, 35)]),
    "C^T": ("C[j,i] = sum(A[i,k] * B[k,j])", [(40, 64), (64, 50)]),
    "batched": ("C[b,i,j] = sum(A[b,i,k] * B[b,k,j])", [(3, 33, 70), (3, 70, 34)]),
    "batch of rows": ("C[b,i,j] = sum(A[b,i,k] * B[k,j])", [(3, 33, 70), (70, 34)]),
    "batch of columns": ("C[b,i,j] = sum(A[i,k] * B[b,k,j])", [(33, 70), (3, 70, 34)]),
    "two sums": ("C[i,j] = sum(A[i,r,k] * B[r,k,j])", [(33, 3, 40), (3, 40, 34)]),
    "scaled": (
        "C[i,j] = f32(sum(A[i,k] * B[k,j])) * s[j] + t[i]",
        [(33, 70), (70, 34), (34,), (33,)],
    ),
    "convolution": (
        "y[n,f,p,q] = sum(x.zero[n,c,p+r-1,q+s-1] * w[f,c,r,s]) where p in 0:11, q in 0:20",
        [(2, 17, 11, 20), (9, 17, 3, 3)],
    ),
    "unit stride": ("y[f,p,q] = sum(x[c,p+r,q+s] * w[f,c,r,s])", [(20, 9, 21), (8, 20, 2, 2)]),
    "filters": ("C[i,j] = sum(A[i+k] * B[k,j])", [(140,), (40, 33)]),
}
OTHERWISE = {
    "one operand": ("C[i,j] = sum(A[i,k] * A[j,k])", [(40, 70)]),
    "triangular": ("C[i,j] = sum(A[i,k] * B[k,j], where=k <= i)", [(70, 70), (70, 40)]),
    "from the diagonal on": (
        "C[j,i] = sum(A[i,k] * B[k,j], over=(k in i:N)) where i in 0:N",
        [(97, 97), (97, 100)],
    ),
    "strided columns": (
        "y[f,p,q] = sum(x[c,2*p+r,2*q+s] * w[f,c,r,s])",
        [(20, 19, 41), (8, 20, 3, 3)],
    ),
    "matrix and vector": ("C[i] = sum(A[i,k] * B[k])", [(300, 300), (300,)]),
    "short sum": ("C[i,j] = sum(A[i,k] * B[k,j])", [(100, 7), (7, 100)]),
    "little": ("C[i,j] = sum(A[i,k] * B[k,j])", [(16, 16), (16, 16)]),
}


def case(text: str, shapes: Any, seed: int) -> tuple[Any, list[Any]]:
    """An operator and arrays: bytes of random types, f32 where they have one dimension only."""
    rng = np.random.default_rng(seed)
    arrays: list[Any] = []
    for n, shape in enumerate(shapes):
        if n > 1:
            arrays.append(rng.integers(-8, 9, shape).astype(np.float32))
            continue
        kind = rng.choice([np.int8, np.uint8])
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        arrays.append(rng.integers(low, high, shape, kind, endpoint=True))
    return dt.op(text), arrays


def chosen(op: Any, arrays: Any, machine: Machine) -> Any:
    types = {p.name: from_numpy(a.dtype) for p, a in zip(op.params, arrays, strict=True)}
    shapes = {p.name: a.shape for p, a in zip(op.params, arrays, strict=True)}
    return default(op, types, bind_sizes(check(op), shapes), machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", BY_WORDS)
def test_by_words(name: str, machine: str) -> None:
    """What is chosen for a machine runs on any other, with the same result."""
    op, arrays = case(*BY_WORDS[name], seed=len(name))
    made = chosen(op, arrays, MACHINES[machine])
    assert made.text.count("tensorize") == (machine != "none"), made.text
    np.testing.assert_array_equal(made(*arrays), dt.interpret(op, *arrays), err_msg=made.text)
    if machine == "matrices" and host.machine().matrices:
        assert "tdpb" in made.source("asm")
    if machine == "AVX-512" and 4 in host.machine().dots:
        assert "vpdpbusd" in made.source("asm")


@pytest.mark.parametrize("name", OTHERWISE)
def test_otherwise(name: str) -> None:
    op, arrays = case(*OTHERWISE[name], seed=len(name))
    made = chosen(op, arrays, MACHINES["matrices"])
    assert "tensorize" not in made.text
    np.testing.assert_array_equal(made(*arrays), dt.interpret(op, *arrays), err_msg=made.text)


@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = (int(size) for size in rng.integers(4, 150, 3))
    op, arrays = case("C[i,j] = sum(A[i,k] * B[k,j])", [(m, k), (k, n)], seed)
    for machine in MACHINES.values():
        made = chosen(op, arrays, machine)
        np.testing.assert_array_equal(made(*arrays), dt.interpret(op, *arrays), err_msg=made.text)


def test_bf16_is_never_taken_by_an_instruction_that_flushes() -> None:
    op = dt.op("f(A: bf16[M, K], B: bf16[K, N]) -> C:\n  C[i,j] = sum(A[i,k] * B[k,j])")
    arrays = [np.zeros((64, 64), np.uint16)] * 2
    types = {p.name: p.type.dtype for p in op.params}
    sizes = bind_sizes(check(op), {p.name: a.shape for p, a in zip(op.params, arrays, strict=True)})
    assert "tensorize" not in default(op, types, sizes, MACHINES["matrices"]).text


def test_explained() -> None:
    op, arrays = case(*BY_WORDS["large"], seed=0)
    moved = {"l1": (3e11, 6e11), "l2": (1e11, 2e11), "memory": (1e10, 2e10)}
    slow = Peaks(2, {"f32": (1e11, 2e11)}, moved, 5e-6)
    peaks = replace(slow, operations={"f32": (1e11, 2e11), "i8": (2e12, 4e12)})
    types = {p.name: from_numpy(a.dtype) for p, a in zip(op.params, arrays, strict=True)}
    sizes = bind_sizes(check(op), {p.name: a.shape for p, a in zip(op.params, arrays, strict=True)})
    for machine, unit, block in (
        ("matrices", "the matrix unit", "32 i by 32 j"),
        ("AVX-512", "dot products of four", "13 i by 32 j"),
    ):
        text = explain(op, types, sizes, MACHINES[machine], peaks)
        assert f"  by {unit}, in blocks of {block}, four bytes along k at a time\n" in text
        assert "  copied so that these lie side by side: B\n" in text
        assert text != explain(op, types, sizes, MACHINES[machine], slow)  # by the rate of bytes
