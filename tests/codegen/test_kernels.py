"""Compiled operators against the interpreter: arrays of every kind, results given and made."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diptych.algo.dtypes import bool_, f32, f64, from_numpy, i32, i64
from diptych.algo.errors import DTypeError, ShapeError
from diptych.algo.tensor_expr.interpret import interpret
from diptych.algo.tensor_expr.op import Op
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen import outside, pool
from diptych.codegen.cache import compiler, default_cache
from diptych.codegen.kernels import Compiled, compile_op
from diptych.codegen.symbols import ALLOWED, undefined_symbols
from diptych.sched.loop.schedule import Schedule

RNG = np.random.default_rng(0)
ADD = parse("C[i] = A[i] + B[i]", name="add")
MATMUL = parse("C[i,j] = sum(A[i,k] * B[k,j])", name="matmul")
SOFTMAX = parse(
    "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])",
    name="softmax",
    returns="y",
)
EMBEDDING = parse("y[b,d] = W[idx[b],d]", name="embedding")


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(dtype)


def types(arrays: Any) -> list[Any]:
    return [(from_numpy(a.dtype), a.shape) for a in arrays]


def compiled(op: Op, *arrays: Any, schedule: Schedule | None = None) -> Compiled:
    return compile_op(op, types(arrays), schedule)


def agrees(op: Op, *arrays: Any, schedule: Schedule | None = None) -> Compiled:
    """The compiled operator, after it has given what the interpreter gives."""
    kernel = compiled(op, *arrays, schedule=schedule)
    got, want = kernel(*arrays), interpret(op, *arrays)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,),
        want if isinstance(want, tuple) else (want,),
        strict=True,
    ):
        assert g.dtype == w.dtype and g.shape == w.shape
        if g.dtype.kind == "f":
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(g, w)
    return kernel


OPERATORS = {
    "matmul": (MATMUL, [floats(17, 23), floats(23, 31)]),
    "matmul f64": (MATMUL, [floats(9, 5, dtype=float), floats(5, 33, dtype=float)]),
    "matmul i32": (MATMUL, [np.arange(35, dtype=np.int32).reshape(5, 7), np.ones((7, 9), "i4")]),
    "abt": (parse("C[i,j] = sum(A[i,k]*B[j,k])", name="abt"), [floats(8, 40), floats(9, 40)]),
    "bias": (parse("y[i,j] = max(x[i,j] + b[j], 0)", name="bias"), [floats(6, 37), floats(37)]),
    "softmax": (SOFTMAX, [floats(5, 50)]),
    "layernorm": (
        parse(
            "s[i] = sum(x[i,j])\nq[i] = sum(x[i,j] * x[i,j])\n"
            "y[i,j] = (x[i,j] - s[i] / 40) * rsqrt(q[i] / 40 - (s[i] / 40) * (s[i] / 40) + 0.1)",
            name="layernorm",
            returns="y",
        ),
        [floats(6, 40)],
    ),
    "conv": (
        parse(
            "y[n,f,p,q] = sum(x[n,c,2*p+r,2*q+s] * w[f,c,r,s])", name="conv"
        ),
        [floats(2, 3, 9, 11), floats(4, 3, 3, 3)],
    ),
    "pool": (
        parse("y[c,p,q] = max(x[c,2*p+r,2*q+s], over=(r in 0:2, s in 0:2))", name="pool"),
        [floats(3, 8, 10)],
    ),
    "embedding": (EMBEDDING, [floats(10, 7), np.array([3, 0, 9, 9, 1])]),
    "several": (parse("s[i] = sum(x[i,j])\nm[i] = max(x[i,j])", name="several"), [floats(4, 30)]),
    "unread": (
        parse("unread(A: f32[N], B: f32[N], S: f32[N]) -> C:\n    C[i] = A[i] - S[i]"),
        [floats(9), floats(9), floats(9)],
    ),
    "scalar": (parse("y[i] = x[i] * a", name="scale"), [floats(5), np.float64(2.5).astype("f4")]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_under_the_default_schedule(name: str) -> None:
    op, arrays = OPERATORS[name]
    agrees(op, *map(np.asarray, arrays))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_as_they_are_written(name: str) -> None:
    op, arrays = OPERATORS[name]
    kernel = agrees(op, *map(np.asarray, arrays), schedule=Schedule(op))
    code = kernel._last.code.loaded.data
    assert undefined_symbols(code) <= ALLOWED


def test_a_scheduled_product_on_several_threads() -> None:
    schedule = (
        Schedule(MATMUL).tile(i=4, j=32).reorder("io", "jo", "k", "ii", "ji")
        .stage("C", at="jo", scope="register").unroll("ii").vectorize("ji").parallel("io")
    )  # fmt: skip
    with pool.using(pool.Pool(3)):
        agrees(MATMUL, floats(33, 20), floats(20, 70), schedule=schedule)


def test_strides_of_every_kind() -> None:
    a, b = floats(40, 60), floats(60, 50)
    kernel = compiled(MATMUL, a[:20, :30], b[:30, :25])
    for left in (a[:20, :30], a[20:40, 30:], a[::2, ::2], a[::-2, ::-2], a.T[:20, :30],
                 np.broadcast_to(a[0, :30], (20, 30))):  # fmt: skip
        np.testing.assert_allclose(kernel(left, b[:30, :25]), left @ b[:30, :25], 1e-4, 1e-4)
        out = np.full((25, 20), np.nan, np.float32).T
        assert kernel(left, b[:30, :25], out=out) is out
        np.testing.assert_allclose(out, left @ b[:30, :25], 1e-4, 1e-4)


def test_unaligned_arrays() -> None:
    raw = bytearray(1 + 4 * 64)
    x = np.frombuffer(raw, np.float32, offset=1)
    x[:] = np.arange(64)
    assert not x.flags.aligned
    y = np.ones(64, np.float32)
    kernel = compiled(ADD, y, y)
    np.testing.assert_array_equal(kernel(x, y), x + y)
    np.testing.assert_array_equal(kernel(y, y, out=x), y + y)


def test_empty_arrays() -> None:
    agrees(ADD, floats(0), floats(0))
    kernel = compiled(MATMUL, floats(3, 0), floats(0, 2))
    np.testing.assert_array_equal(kernel(floats(3, 0), floats(0, 2)), np.zeros((3, 2)))


def test_results_of_several_tensors_with_out() -> None:
    op, (x,) = OPERATORS["several"]
    kernel = compiled(op, x)
    outs = np.zeros(4, np.float32), np.zeros(4, np.float32)
    assert kernel(x, out=outs) is outs
    np.testing.assert_allclose(outs[0], x.sum(1), 1e-5)
    np.testing.assert_array_equal(outs[1], x.max(1))


def test_writing_over_an_input() -> None:
    """Elementwise it is harmless and allowed; a product would read what it has written."""
    a, b = floats(32), floats(32)
    want = a + b
    kernel = compiled(ADD, a, b)
    assert kernel(a, b, out=a) is a
    np.testing.assert_array_equal(a, want)
    x = floats(8, 8)
    with pytest.raises(ShapeError) as caught:
        compiled(MATMUL, x, x)(x, x.copy(), out=x)
    assert str(caught.value) == (
        "matmul: out= overlaps the input A, which would be read after it is written; "
        "pass an array of its own"
    )
    with pytest.raises(ShapeError, match="out= overlaps the input A"):
        kernel(x.ravel()[:32], x.ravel()[:32], out=x.ravel()[1:33])


def message(call: Any, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_what_does_not_fit_is_refused() -> None:
    a, b = floats(4), floats(4)
    kernel = compiled(ADD, a, b)
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    said = {
        "count": message(lambda: kernel(a), ShapeError),
        "type": message(lambda: kernel(a, b.astype(float)), DTypeError),
        "list": message(lambda: kernel(a, [1, 2]), DTypeError),
        "shape": message(lambda: kernel(a, floats(5)), ShapeError),
        "outs": message(lambda: kernel(a, b, out=(a, b)), ShapeError),
        "out type": message(lambda: kernel(a, b, out=np.zeros(4)), DTypeError),
        "out shape": message(lambda: kernel(a, b, out=floats(5)), ShapeError),
        "read-only": message(lambda: kernel(a, b, out=read_only), ShapeError),
        "stride": message(
            lambda: kernel(a, b, out=np.lib.stride_tricks.as_strided(floats(1), (4,), (0,))),
            ShapeError,
        ),
        "types": message(lambda: compile_op(ADD, [(f32, (4,))]), ShapeError),
    }
    assert said == {
        "count": "add takes 2 arrays (A, B), 1 given",
        "type": "add: B was compiled for f32, an array of float64 came",
        "list": "add: B was compiled for f32, [1, 2] came",
        "shape": "add: B was compiled for shape (4,), (5,) came",
        "outs": "add returns 1 array, out= has 2",
        "out type": "add: out= must be an array of float32, an array of float64 came",
        "out shape": "add: out= must have shape (4,), (5,) came",
        "read-only": "add: out= is read-only; pass a copy of it",
        "stride": "add: out= has stride 0, so several results would share an element; "
        "pass an array of its own",
        "types": "add takes 2 arrays, types of 1 given",
    }


def test_outputs_that_overlap() -> None:
    op, (x,) = OPERATORS["several"]
    out = np.zeros(6, np.float32)
    assert message(lambda: compiled(op, x)(x, out=(out[:4], out[2:])), ShapeError) == (
        "several: out= for s and for m overlap"
    )


def test_an_index_out_of_range_is_an_error() -> None:
    w = floats(10, 7)
    kernel = compiled(EMBEDDING, w, np.zeros(5, np.int64))
    at = np.array([0, 1, 10, 3, 4])
    said = message(lambda: kernel(w, at), ShapeError)
    assert said == (
        "embedding: W[idx[b],d] is outside W: dim 0 has extent 10, but idx[b] is 10 at b=2\n"
        "    in y[b,d] = W[idx[b],d] (<text>:1)"
    )
    assert said == message(lambda: interpret(EMBEDDING, w, at), ShapeError)


def test_an_index_out_of_range_where_searching_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outside, "LIMIT", 0)
    w, at = floats(10, 7), np.array([0, 1, 10, 3, 4])
    assert message(lambda: compiled(EMBEDDING, w, at)(w, at), ShapeError) == (
        "embedding: W[idx[b],d] is outside W: dim 0 has extent 10, but an index read from an array "
        "is not in it\n    in y[b,d] = W[idx[b],d] (<text>:1)"
    )
    op = parse("y[i] = w[a[i]] + w[b[i]]")
    arrays = floats(3), np.array([0]), np.array([4])
    with pytest.raises(ShapeError) as refused:
        compiled(op, *arrays)(*arrays)
    assert str(refused.value) == (
        "y: an index read from an array is out of range for w axis 0 of size 3"
    )
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_an_index_is_not_asked_where_nothing_is_added() -> None:
    op = parse(
        "f(x: f32[N], at: i64[N]) -> h:\n  h: [4]\n  h[at[n]] += x[n] where at[n] >= 0, n > 0"
    )
    x, at = floats(6), np.array([9, 1, -2, 3, 3, -(2**63)])
    np.testing.assert_allclose(compiled(op, x, at)(x, at), interpret(op, x, at), rtol=1e-6)
    at[5] = 4
    assert "at[n] is 4 at n=5" in message(lambda: compiled(op, x, at)(x, at), ShapeError)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_is_added_to_a_tensor_without_elements(shape: tuple[int, int]) -> None:
    op = parse(
        "f(x: f32[N], at: i64[N], to: i64[N], z: f32[M, K]) -> h:\n  h: [M, K]\n"
        "  h[at[n], to[n]] += x[n] where at[n] >= 0, to[n] >= 0"
    )
    arrays = floats(2), np.array([-1, 1]), np.array([1, -1]), floats(*shape)
    assert compiled(op, *arrays)(*arrays).shape == interpret(op, *arrays).shape == shape
    arrays[1][0] = 0
    assert "is outside h" in message(lambda: compiled(op, *arrays)(*arrays), ShapeError)
    assert "is outside h" in message(lambda: interpret(op, *arrays), ShapeError)


def test_calls_from_many_threads_have_workspaces_of_their_own() -> None:
    x = floats(40, 300)
    kernel, want = compiled(SOFTMAX, x), interpret(SOFTMAX, x)
    failures = []

    def work() -> None:
        for _ in range(20):
            if not np.allclose(kernel(x), want, 1e-4, 1e-6):
                failures.append("wrong")

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not failures


def test_a_second_process_loads_what_the_first_compiled() -> None:
    x = floats(30, 20)
    first = compiled(SOFTMAX, x)
    files = {p: p.stat().st_mtime_ns for p in default_cache().folder.iterdir()}
    script = f"""
import numpy as np
from diptych.algo.dtypes import f32
from diptych.algo.tensor_expr.parse import parse
from diptych.codegen import kept, specialize
from diptych.codegen.kernels import compile_op
def refuse(*_): raise AssertionError("compiled again")
specialize._compile = refuse
kept.compiler = lambda: {compiler()!r}  # the sources may have been edited since
op = parse({SOFTMAX.text!r})
kernel = compile_op(op, [(f32, (30, 20))])
y = kernel(np.ones((30, 20), np.float32))
assert np.allclose(y, 1 / 20)
assert kernel.loop_ir == {first.loop_ir!r}
assert "define" in kernel.llvm and "ret" in kernel.asm
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {p: p.stat().st_size for p in files} == {p: p.stat().st_size for p in files}


def test_another_text_or_schedule_is_another_object() -> None:
    a = floats(8)
    compiled(ADD, a, a)
    compiled(parse("C[i] = A[i] - B[i]", name="add"), a, a)
    compiled(ADD, a, a, schedule=Schedule(ADD))
    compiled(ADD, a, a)
    objects = [p for p in default_cache().folder.iterdir() if "-" not in p.name]
    assert len(objects) == 3  # beside those of the compiler itself, dispatch-... and pool-...


def test_types_are_those_of_the_operator() -> None:
    op = parse("y[i] = x[i] < 2", name="less")
    assert compiled(op, floats(4)).signature.results == (((4,), bool_.numpy),)
    assert compile_op(op, [(i32, (3,))])(np.array([1, 2, 3], np.int32)).tolist() == [1, 0, 0]
    count = parse("n[i] = sum(x[i,j])", name="count")
    assert compile_op(count, [(bool_, (2, 3))]).signature.results == (((2,), i64.numpy),)
    assert compile_op(count, [(f64, (2, 3))]).signature.results == (((2,), f64.numpy),)


def test_tiny_calls_are_cheap() -> None:
    a, b = floats(16), floats(16)
    kernel = compiled(ADD, a, b)
    import timeit

    best = min(timeit.repeat(lambda: kernel(a, b), number=2000, repeat=7)) / 2000
    assert best < 10e-6


def test_the_place_of_the_cache(tmp_path: Path) -> None:
    assert default_cache().folder == tmp_path / "cache"
