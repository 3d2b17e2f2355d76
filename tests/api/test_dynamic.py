"""Dynamic sizes as users meet them: declaring, printing, one compilation for all values, errors."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import diptych as dt
import numpy as np
import pytest
from diptych import f32
from diptych.autotune.operands import op_types
from diptych.autotune.space import LoopSpace
from diptych.codegen import specialize
from diptych.sched.loop.machine import Machine

Array = np.ndarray[Any, Any]
b, k = dt.indices("b k")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads what another process compiled."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the operators that were compiled, one a compilation."""
    found: list[str] = []
    before = specialize._compile

    def counted(signature: Any, *rest: Any) -> Any:
        found.append(signature.op.name)
        return before(signature, *rest)

    monkeypatch.setattr(specialize, "_compile", counted)
    monkeypatch.setattr(specialize, "codes", WeakValueDictionary())  # as in a new process
    yield found


def floats(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed + sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


def agree(op: Any, operator: dt.Op, *arrays: Array) -> None:
    """`op` gives what the interpreter gives for `operator`."""
    got, want = op(*arrays), dt.interpret(operator, *arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_declared_in_an_annotation_in_text_and_by_a_method() -> None:
    @dt.op
    def rows(x: f32[dt.dynamic("B", max=256), "K"]):
        y = dt.tensor("y")
        y[b] = dt.sum(x[b, k])
        return y

    text = "rows(x: f32[B, K]) -> y:\n    dynamic B <= 256\n    y[b] = sum(x[b,k])"
    plain = dt.op("rows(x: f32[B, K]) -> y:\n    y[b] = sum(x[b,k])")
    assert str(rows) == text
    assert rows == dt.op(text) == plain.dynamic(B=256) != plain
    assert pickle.loads(pickle.dumps(rows)) == rows
    both = rows.dynamic(K=7)
    assert both == dt.op(both.text)
    assert "dynamic B <= 256, K <= 7" in both.text


def test_a_size_that_only_an_index_names_may_be_dynamic() -> None:
    op = dt.op("dynamic K <= 9\ny[b] = sum(x[b,k])")
    assert op == dt.op("y[b] = sum(x[b,k])").dynamic(K=9) == dt.op(op.text)


def test_lengths_in_any_order_compile_once(compilations: list[str]) -> None:
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=200)
    lengths = list(range(100, 200))
    random.Random(3).shuffle(lengths)
    for n in lengths:
        agree(op, op, floats(n, 9), floats(9, 11))
    assert compilations == ["C"]


OPERATORS: dict[str, tuple[str, Callable[[int], tuple[Array, ...]]]] = {
    "matmul": (
        "f(A: f32[M, K], B: f32[K, N]) -> C:\n dynamic M <= 90, K <= 90, N <= 90\n"
        " C[i,j] = sum(A[i,k] * B[k,j])",
        lambda n: (floats(n, n // 3 + 1), floats(n // 3 + 1, n // 2 + 1)),
    ),
    "softmax": (
        "f(x: f32[B, T]) -> y:\n dynamic B <= 90, T <= 90\n m[i] = max(x[i,j])\n"
        " e[i,j] = exp(x[i,j] - m[i])\n y[i,j] = e[i,j] / sum(e[i,l])",
        lambda n: (floats(n // 4 + 1, n),),
    ),
    "convolution": (
        "f(x: f32[N], w: f32[K]) -> y:\n dynamic N <= 90\n y[i] = sum(x[i+k] * w[k])",
        lambda n: (floats(n), floats(3)),
    ),
    "recurrence": (
        "f(x: f32[T, D], U: f32[D, D]) -> h:\n dynamic T <= 90\n h[0,d] = x[0,d]\n"
        " h[t,d] = tanh(x[t,d] + sum(U[d,e] * h[t-1,e])) where t in 1:T",
        lambda n: (floats(n, 5), floats(5, 5)),
    ),
    "gather": (
        "f(W: f32[V, D], at: i64[B]) -> y:\n dynamic V <= 90, B <= 90\n y[b,d] = W[at[b],d]",
        lambda n: (floats(n, 5), np.arange(2 * n // 3 + 1) * 7 % n),
    ),
    "sum": ("f(x: f32[B]) -> s:\n dynamic B <= 90\n s[] = sum(x[b])", lambda n: (floats(n),)),
    "triangle": (
        "f(x: f32[N, N]) -> y:\n dynamic N <= 90\n y[i] = sum(x[i,j]) where j in 0:i+1",
        lambda n: (floats(n, n),),
    ),
    "temporaries": (
        "f(x: f32[N]) -> y:\n dynamic N <= 90\n t[i] = x[N-1-i] * 2\n u[i] = t[i] + x[i]\n"
        " y[i] = u[i] * sum(t[j]) + N",
        lambda n: (floats(n),),
    ),
    "edges": (
        "f(x: f32[N]) -> y:\n dynamic N <= 90\n"
        " y[i] = x.edge[i-2] + x.zero[i+3] + x.reflect[i-1] where i in 0:N",
        lambda n: (floats(n),),
    ),
    "histogram": (
        "f(at: i64[B]) -> h:\n dynamic B <= 90\n h: [9]\n h[at[b]] += 1.0",
        lambda n: (np.arange(n) * 5 % 9,),
    ),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_operators_at_random_lengths(kind: str, compilations: list[str]) -> None:
    text, arrays = OPERATORS[kind]
    op = dt.op(text)
    lengths = [1, 2, 3, 90, *random.Random(len(kind)).sample(range(4, 90), 6)]
    for n in lengths:
        agree(op, op, *arrays(n))
    assert compilations == ["f"]


MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])").dynamic(I=90, J=90, K=90)
SCHEDULES = [
    '.tile(i=8, j=16).reorder("io", "jo", "k", "ii", "ji").vectorize("ji").parallel("io")',
    '.tile(i=4, j=16).reorder("io", "jo", "k", "ii", "ji").stage("C", at="jo", scope="register")'
    '.unroll("ii").vectorize("ji").parallel("io")',
    '.split("k", 8).reorder("ko", "i", "j", "ki").stage("B", at="ko", scope="heap")',
    '.split("j", 8, tail="separate").unroll("ji")',
    '.reorder("i", "k", "j").vectorize("j")',
    '.tile(i=4, j=8).fuse("ii", "ji").parallel("io")',
    '.split("k", 8).rfactor("ko")',
    '.reverse("i").skew("j", "i", 1)',
]


@pytest.mark.parametrize("calls", SCHEDULES)
def test_schedules_of_dynamic_loops(calls: str, compilations: list[str]) -> None:
    scheduled = MATMUL.with_schedule(dt.Schedule.parse(MATMUL, calls), strict=True)
    for n in (1, 2, 17, 33, 64, 90):
        agree(scheduled, MATMUL, floats(n, n // 3 + 1), floats(n // 3 + 1, n // 2 + 1))
    assert compilations == ["C"]


def test_stages_computed_where_they_are_used(compilations: list[str]) -> None:
    op = dt.op(
        "f(x: f32[N]) -> y:\n dynamic N <= 300\n"
        " b[i] = x[i] + x[i+1] + x[i+2]\n y[i] = b[i] * b[i+1]"
    )
    schedule = op.schedule().split("y.i", 16).compute_at("b", "y.io").parallel("y.io")
    for n in (3, 4, 5, 19, 20, 21, 300):
        agree(schedule, op, floats(n))
    assert compilations == ["f"]


def test_unroll_wants_a_constant_extent() -> None:
    with pytest.raises(dt.ScheduleError) as caught:
        MATMUL.schedule().unroll("j")
    assert str(caught.value).replace(str(caught.value).split("(")[2].split(")")[0], "here") == (
        "unroll(j): loop C.j (here) has no constant extent; split it and unroll the inner loop"
    )


ROWS = "rows(x: f32[B, K]) -> y:\n    dynamic B <= 256\n    y[b] = sum(x[b,k])"


def test_strides_that_are_not_dense_are_numbers(compilations: list[str]) -> None:
    op, x = dt.op(ROWS), floats(200, 10)
    for n in (100, 50, 20):
        agree(op, op, np.ascontiguousarray(x[:n, :5]))
    for n in (100, 50, 20):
        agree(op, op, x[:n, :5])
    for n in (100, 50, 20):
        agree(op, op, x[::-2, 3:][:n])
    assert compilations == ["rows"] * 3


def test_strides_may_depend_on_the_size(compilations: list[str]) -> None:
    op = dt.op("f(x: f32[K, B, D], z: f32[B, C]) -> y, t:\n dynamic B <= 40, C <= 30\n"
               " y[b,k] = sum(x[k,b,d] * z[b,c])\n t[c,b] = z[b,c]")  # fmt: skip
    for n, m in ((1, 1), (40, 2), (13, 30), (12, 7)):
        arrays = floats(3, n, 4), floats(n, m)
        for got, want in zip(op(*arrays), dt.interpret(op, *arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert compilations == ["f"]


def test_out_takes_results_of_any_length(compilations: list[str]) -> None:
    op, out = dt.op(ROWS), np.zeros(256, np.float32)
    for n in (256, 7, 100):
        x = floats(n, 5)
        assert op(x, out=out[:n]).base is out
        np.testing.assert_allclose(out[:n], dt.interpret(op, x), rtol=1e-4, atol=1e-4)
    assert compilations == ["rows"]


def test_no_rows() -> None:
    op = dt.op(ROWS)
    assert op(np.zeros((0, 5), np.float32)).shape == (0,)
    np.testing.assert_allclose(op(np.ones((3, 0), np.float32)), [0, 0, 0])
    short = dt.op("f(x: f32[N]) -> y:\n dynamic N <= 9\n y[i] = x[i] + x[i+2]")
    assert short(floats(1)).shape == short(floats(2)).shape == (0,)


def test_the_cache_on_disk_serves_every_length(compilations: list[str]) -> None:
    for n in (5, 6, 7):
        op = dt.op(ROWS)  # an operator of its own, so nothing is remembered in memory
        agree(op, op, floats(n, 4))
    assert compilations == ["rows"]
    agree(dt.op(ROWS.replace("256", "128")), op, floats(5, 4))
    assert compilations == ["rows"] * 2


def test_a_longer_array_than_declared() -> None:
    op = dt.op(ROWS)
    for call in (op, op.schedule(), lambda x: dt.interpret(op, x)):
        with pytest.raises(dt.ShapeError) as caught:
            call(floats(257, 2))
        assert str(caught.value).partition(" (")[0] == (
            "size B: 257 from x dim 0, but B is declared dynamic with at most 256\n"
            "    in y[b] = sum(x[b,k])"
        )


def test_an_index_from_memory_is_checked_against_the_length_of_the_call() -> None:
    op = dt.op("f(W: f32[V, D], at: i64[B]) -> y:\n    dynamic V <= 3000, B <= 30000\n"
               "    y[b,d] = W[at[b],d]")  # fmt: skip
    with pytest.raises(dt.ShapeError) as caught:
        op(floats(10, 4), np.array([1, 10]))
    assert str(caught.value).partition("\n")[0] == (
        "f: W[at[b],d] is outside W: dim 0 has extent 10, but at[b] is 10 at b=1"
    )
    with pytest.raises(dt.ShapeError) as caught:  # too large for the interpreter to find it
        op(floats(2000, 500), np.array([1, 2000] * 10000))
    assert str(caught.value).partition("\n")[0] == (
        "f: W[at[b],d] is outside W: dim 0 has extent 2000, but an index read from an array is "
        "not in it"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: dt.op(ROWS).dynamic(N=3),
            "dynamic N <= 3: rows has no size N; its sizes are B, K",
        ),
        (
            lambda: dt.op("rows(x: f32[Batch]) -> y:\n y[b] = x[b]").dynamic(batch=3),
            "dynamic batch <= 3: rows has no size batch; did you mean Batch? Its sizes are Batch",
        ),
        (
            lambda: dt.op(ROWS).dynamic(B=0),
            "dynamic B <= 0: expected a whole number of at least 1",
        ),
        (
            lambda: dt.op("f(x: [B]) -> y:\n dynamic B <= 9223372036854775808\n y[i] = x[i]"),
            "dynamic B <= 9223372036854775808: expected less than 2**63, as any size has",
        ),
        (
            lambda: dt.dynamic("B", max="many"),
            "dynamic B <= 'many': expected a whole number of at least 1",
        ),
        (lambda: dt.dynamic("2x", max=4), "'2x' cannot name a size; expected a name such as B"),
    ],
)
def test_errors(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(dt.OpError) as caught:
        make()
    assert str(caught.value) == text


def test_two_maxima_for_one_size() -> None:
    def f(x: f32[dt.dynamic("B", max=8)], y: f32[dt.dynamic("B", max=9)]):
        z = dt.tensor("z")
        z[b] = x[b] + y[b]
        return z

    with pytest.raises(dt.OpError) as caught:
        dt.op(f)
    assert "size B is declared dynamic with at most 8, and for y with at most 9" in str(
        caught.value
    )
    with pytest.raises(dt.ParseError) as caught:
        dt.op("f(x: f32[B]) -> y:\n    dynamic B <= 8, B <= 9\n    y[b] = x[b]")
    assert str(caught.value).partition("\n")[0].endswith("size B is declared dynamic twice")


def test_generated_code_at_given_sizes() -> None:
    op = dt.op(ROWS)
    assert "B.size: param i64[]" in op.source("ir", B=3, K=4)
    assert "masked" in op.dynamic(K=64).source("llvm", B=3, K=4)


def test_in_a_program_the_size_is_that_of_its_arrays() -> None:
    op = dt.op(ROWS)

    @dt.program
    def twice(x):
        return op(x) + op(x)

    for n in (3, 8):
        x = floats(n, 4)
        np.testing.assert_allclose(twice(x), 2 * dt.interpret(op, x), rtol=1e-4, atol=1e-4)
    with pytest.raises(dt.ShapeError, match="declared dynamic with at most 256"):
        twice(floats(300, 4))


def test_gradients() -> None:
    op = dt.op(ROWS)
    back = op.gradient("x")
    assert "dynamic B <= 256" in back.text
    x, dy = floats(6, 4), floats(6)
    np.testing.assert_allclose(back(x, dy), np.repeat(dy[:, None], 4, 1))
    _, pull = dt.vjp(op, x)
    (dx,) = pull(dy)
    np.testing.assert_allclose(dx, np.repeat(dy[:, None], 4, 1))


def test_a_schedule_file_holds_the_declaration(tmp_path: Path) -> None:
    schedule = MATMUL.schedule().split("i", 8)
    schedule.save(tmp_path / "s.sched")
    assert dt.Schedule.load(MATMUL, tmp_path / "s.sched") == schedule


def test_a_length_seen_before_is_looked_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    op = dt.op(ROWS)
    x = {n: floats(n, 4) for n in (3, 5)}
    want = {n: op(array) for n, array in x.items()}

    def never(*args: Any) -> Any:
        raise AssertionError("a call with a known signature asks for no kernel")

    monkeypatch.setattr("diptych.codegen.kernels.specialize", never)
    for n, array in x.items():
        np.testing.assert_array_equal(op(array), want[n])


def test_the_tuner_measures_one_length_and_keeps_the_symbol() -> None:
    op, types = op_types(MATMUL, ["I=40", "J=32", "K=24"], [])
    assert op is MATMUL
    sizes = {"I": 40, "J": 32, "K": 24}
    space = LoopSpace(op, {name: t for name, (t, _) in types.items()}, sizes, Machine())
    rng = random.Random(5)
    for point in (space.default(), *(space.sample(rng) for _ in range(3))):
        text = space.text(point)
        assert text is not None
        scheduled = op.with_schedule(dt.Schedule.parse(op, text), strict=True)
        for n in (40, 3):
            agree(scheduled, op, floats(n, 24), floats(24, n + 1))


@pytest.mark.parametrize("condition", ["T != S", "T > S", "T == S", "T == 8", "T + S < 20"])
def test_conditions_on_sizes_that_hold_for_the_most_alone(condition: str) -> None:
    """Loops are laid out for sizes at which the operator has the stages that it has at any."""
    text = f"y[i] = z[i] + sum(x[j], where=({condition}) & (i > 1))"
    op = dt.op(f"f(x: [T], z: [S]) -> y:\n {text}")
    made = op.dynamic(T=8, S=8)
    for sizes in ((3, 4), (8, 8), (2, 3), (0, 2), (7, 8)):
        x, z = (np.arange(1.0, size + 1) for size in sizes)
        np.testing.assert_array_equal(made(x, z), dt.interpret(op, x, z))
