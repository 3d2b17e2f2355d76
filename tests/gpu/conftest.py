"""Kernels over GPU axes, written as loop IR."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from diptych.lower.ir import Barrier, Block, Function, Stmt, rebuild, walk
from diptych.lower.ir_parse import parse_function
from diptych.lower.passes.axes import axes
from diptych.lower.passes.barriers import barriers
from diptych.lower.passes.simplify import simplify
from diptych.lower.verify import verify


def _matmul(m: int, n: int, k: int, tile: int = 16, depth: int = 24) -> Function:
    """C = A B with both tiles in shared memory. Tile A is copied by nobody in particular, tile B
    by the threads of x alone: the passes find work for the others."""
    rows, columns = f"min({tile}, {m} - io*{tile})", f"min({tile}, {n} - jo*{tile})"
    inner = f"min({depth}, {k} - ko*{depth})"
    return parse_function(f"""
function matmul(A: param f32[{m}, {k}], B: param f32[{k}, {n}], C: param f32[{m}, {n}]):
    for io in 0 .. {-(-m // tile)} block.y:
        for jo in 0 .. {-(-n // tile)} block.x:
            alloc C.acc: register f32[{tile}, {tile}]:
                for C.init.ii in 0 .. {rows} thread.y:
                    for C.init.ji in 0 .. {columns} thread.x:
                        C.acc[C.init.ii, C.init.ji] = 0.0:f32
                for ko in 0 .. {-(-k // depth)}:
                    alloc A.shared: shared f32[{tile}, {depth}]:
                        alloc B.shared: shared f32[{depth}, {tile}]:
                            for a.i in 0 .. {rows}:
                                for a.k in 0 .. {inner}:
                                    A.shared[a.i, a.k] = A[io*{tile} + a.i, ko*{depth} + a.k]
                            for b.k in 0 .. {inner}:
                                for b.j in 0 .. {columns} thread.x:
                                    B.shared[b.k, b.j] = B[ko*{depth} + b.k, jo*{tile} + b.j]
                            for ii in 0 .. {rows} thread.y:
                                for ji in 0 .. {columns} thread.x:
                                    for ki in 0 .. {inner}:
                                        C.acc[ii, ji] sum= A.shared[ii, ki] * B.shared[ki, ji]
                for C.ii in 0 .. {rows} thread.y:
                    for C.ji in 0 .. {columns} thread.x:
                        C[io*{tile} + C.ii, jo*{tile} + C.ji] = C.acc[C.ii, C.ji]
""")


@pytest.fixture(scope="session")
def matmul() -> Callable[..., Function]:
    """Makes the loop IR of a matrix product with `bind` and shared memory, as lowering does."""
    return _matmul


@pytest.fixture(scope="session")
def prepare() -> Callable[[str | Function], Function]:
    """Parses loop IR and runs the passes that make GPU kernels of it, verifying after each."""

    def run(function: str | Function) -> Function:
        function = parse_function(function) if isinstance(function, str) else function
        for step in (simplify, axes, simplify, barriers):
            verify(function)
            function = step(function)
        verify(function)
        return function

    return run


@pytest.fixture(scope="session")
def without_barrier() -> Callable[[Function, int], Function]:
    """Takes the n-th barrier out."""

    def run(function: Function, number: int) -> Function:
        left = [number]

        def stmt(item: Stmt) -> Stmt:
            if isinstance(item, Barrier):
                left[0] -= 1
                return Block(()) if left[0] == -1 else item
            return rebuild(item, stmt)

        return Function(function.name, function.params, stmt(function.body))

    return run


@pytest.fixture(scope="session")
def count_barriers() -> Callable[[Function], int]:
    """How many barriers a function has."""
    return lambda function: sum(isinstance(s, Barrier) for s in walk(function.body))
