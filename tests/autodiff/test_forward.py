"""Forward mode: tangents against central differences, and how they read."""

from __future__ import annotations

from typing import Any

import diptych as dt
import numpy as np
from diptych.algo.tensor_expr.parse import parse
from diptych.autodiff.forward import tangent
from exact import run


def test_against_central_differences(case: tuple[str, list[Any]]) -> None:
    text, arrays = case
    op = parse(text)
    values = dict(zip((p.name for p in op.params), map(np.asarray, arrays), strict=True))
    names = tuple(n for n, a in values.items() if a.dtype.kind == "f")
    rng = np.random.default_rng(0)
    moves = {n: rng.standard_normal(values[n].shape) for n in names}
    forth = tangent(op, names)
    found = run(forth, values | {f"d{n}": move for n, move in moves.items()})
    up = run(op, values | {n: values[n] + 1e-6 * moves[n] for n in names})
    down = run(op, values | {n: values[n] - 1e-6 * moves[n] for n in names})
    for result in op.returns:
        wanted = (up[result] - down[result]) / 2e-6
        np.testing.assert_allclose(found[f"d{result}"], wanted, rtol=1e-6, atol=1e-8)


def test_text(texts: dict[str, str]) -> None:
    assert tangent(parse(texts["matmul"]), ("A", "B")).text == (
        "C_tangent(A: [I, K], B: [K, J], dA: [I, K], dB: [K, J]) -> dC:\n"
        "    dC[i,j] = sum(A[i,k] * dB[k,j]) + sum(dA[i,k] * B[k,j])"
    )
    assert tangent(parse(texts["conv1d"]), "X").text == (
        "O_tangent(W: [K, C, R], dX: [N, C, X_2]) -> dO:\n"
        "    dO[n,k,y] = sum(dX[n,c,r+y] * W[k,c,r]) where y in 0:X_2-R+1"
    )


def test_a_size_that_only_an_unread_parameter_says() -> None:
    op = parse("f(x: [], q: [N]) -> y:\n y[i] = x[] * x[] where i in 0:N")
    assert tangent(op, "x").text == (
        "f_tangent(x: [], q: [N], dx: []) -> dy:\n    dy[i] = 2 * dx[] * x[] where i in 0:N"
    )


def test_a_result_that_nothing_moves_gives_its_type() -> None:
    assert tangent(parse("f(x: [N]) -> y:\n y[i] = floor(x[i])"), "x").text == (
        "f_tangent(y: [N], dx: [N]) -> dy:\n    dy[x] = zeros_like(y[x])"
    )
    op = dt.op("f(x: [N, M]) -> m, a:\n m[i] = max(x[i,k])\n a[i] = argmax(x[i,k])")
    x = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]], np.float32)
    _, (dm, da) = dt.jvp(op, (x,), (10 * x,))
    assert dm.tolist() == [30.0, 50.0] and da.tolist() == [0, 0] and da.dtype == np.int64


def test_an_unread_parameter_whose_extent_is_a_formula() -> None:
    op = parse("f(x: [H], g) -> y:\n  g: [3*H]\n  y[i] = x[i] * g[2*i]")
    assert tangent(op, "g").text == (
        "f_tangent(x: [H], dg) -> dy:\n    dg: [3*H]\n    dy[i] = x[i] * dg[2*i]"
    )
