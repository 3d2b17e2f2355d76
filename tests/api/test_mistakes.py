"""Mistakes that are made around operators rather than in them: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np
import pytest

MATMUL = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
i, j = dt.indices("i j")


def traced(body: Callable[[Any, Any], None]) -> None:
    def f(x: Any) -> Any:
        y = dt.tensor("y")
        body(x, y)
        return y

    dt.op(f)


def slices(x: Any, y: Any) -> None:
    y[i] = x[i, :]


def ellipsis(x: Any, y: Any) -> None:
    y[i] = x[i, ...]


def rows(x: Any, y: Any) -> None:
    y[i] = x[np.arange(3), i]


def one_by_one(x: Any, y: Any) -> None:
    y[i, j] = x[i][j]


def misspelt(x: Any, y: Any) -> None:
    y[i] = x.edges[i - 1]


def transposed(x: Any, y: Any) -> None:
    y[i, j] = x.T[i, j]


def shaped(x: Any, y: Any) -> None:
    y[i] = x[i] / x.shape[0]


def method(x: Any, y: Any) -> None:
    y[i] = x.mean()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (slices, "slices are not part of the language; write an index for each dimension"),
        (ellipsis, "expected an index expression or a whole number, got Ellipsis; write an index "
         "for each dimension"),
        (rows, "expected an index expression or a whole number, got array([0, 1, 2]); to choose "
         "elements by data, pass the indices as a tensor, as in x[at[n], j]"),
        (one_by_one, "x[i] is one number and has no elements; write all indices together, as in "
         "x[i, j]"),
        (misspelt, "tensor x has no edges; did you mean edge?"),
        (transposed, "tensor x has no T; write the indices in the other order, as in x[j, i]"),
        (shaped, "tensor x has no shape; name its sizes, as in f(x: f32['N']), and use "
         "dt.size('N')"),
        (method, "tensor x has no mean; it is read by indices, as in x[i, j], and functions are "
         "called as in dt.sum(x[i, j])"),
    ],
)  # fmt: skip
def test_numpy_style_in_a_traced_operator(body: Callable[[Any, Any], None], message: str) -> None:
    with pytest.raises(dt.OpError) as caught:
        traced(body)
    first = str(caught.value).splitlines()[0]
    line = body.__code__.co_firstlineno + 1
    assert first == f"test_mistakes.py:{line}: {message}"


def test_a_default_argument_is_a_constant() -> None:
    @dt.op
    def f(x: Any, n: int = 3) -> Any:
        y = dt.tensor("y")
        y[i] = x[i] * n
        return y

    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [3, 3])


def test_hasattr_asks_a_tensor() -> None:
    found = []

    def look(x: Any, y: Any) -> None:
        found.extend([hasattr(x, "edge"), hasattr(x, "edges")])
        y[i] = x[i]

    traced(look)
    assert found == [True, False]


def test_a_missing_schedule_file(tmp_path: Path) -> None:
    path = tmp_path / "none.sched"
    for load in (MATMUL.with_schedule, lambda p: dt.Schedule.load(MATMUL, p)):
        with pytest.raises(dt.Error) as caught:
            load(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert str(caught.value) == f"there is no schedule file {path}"
    with pytest.raises(dt.FileFormatError) as other:
        MATMUL.with_schedule(tmp_path)
    assert str(other.value) == f"{tmp_path}: not a schedule file that can be read: Is a directory"


def test_a_program_called_with_too_many_arguments() -> None:
    @dt.program
    def square(x: Any) -> Any:
        return MATMUL(x, x)

    a = np.ones((2, 2), np.float32)
    with pytest.raises(dt.GraphError) as caught:
        square(a, a, a)
    assert str(caught.value) == (
        "square(x: 'Any') -> 'Any': too many positional arguments: 1 expected, 3 given"
    )


@pytest.mark.parametrize("value", ["banana", "-1", "6", "2.5"])
def test_a_debug_level_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIPTYCH_DEBUG", value)
    with pytest.raises(dt.Error) as caught:
        dt.op("y[i] = x[i] * 17")(np.ones(3, np.float32))
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == f"DIPTYCH_DEBUG is {value!r}; expected a number from 0 to 5"


def test_an_empty_array_has_no_nearest_element() -> None:
    op = dt.op("f(x: [N], z: [M]) -> y:\n  y[i] = x.edge[i-1] + z[i]")
    with pytest.raises(dt.ShapeError) as caught:
        op(np.ones(0, np.float32), np.ones(3, np.float32))
    assert str(caught.value).splitlines()[0] == (
        "at N=0, x.edge[i-1] has no element to give: dim 0 of x has extent 0"
    )


@pytest.mark.parametrize("kind", ["edge", "reflect", "wrap"])
def test_an_empty_tensor_has_none_by_its_number_either(kind: str) -> None:
    with pytest.raises(dt.Error) as caught:
        dt.op(f"f(x: [0]) -> y:\n  y[i] = x.{kind}[i-1] where i in 0:3")(np.ones(0, np.float32))
    assert str(caught.value).splitlines()[0] == (
        f"x.{kind}[i-1] has no element to give: dim 0 of x has extent 0"
    )


def test_ptx_at_the_sizes_of_a_call_on_an_emulated_gpu() -> None:
    op = dt.op("Y[j,i] = A[j,i] * 2")
    schedule = op.schedule().bind("j", "block.x").bind("i", "thread.x")
    schedule.on("simt")(np.ones((4, 5), np.uint8))
    assert ".visible .entry" in schedule.source("ptx")


def bound(*, shared: bool = False) -> Any:
    schedule = MATMUL.schedule().tile(i=64, j=32).reorder("io", "jo", "ii", "ji", "k")
    return (
        schedule.bind("io", "block.y").bind("jo", "block.x").bind("ii", "thread.y")
        .bind("ji", "thread.x")
    )  # fmt: skip


def test_r14_too_many_threads() -> None:
    message = (
        "loops C.ii (thread.y, 64) and C.ji (thread.x, 32) give 64*32=2048 threads a block, and "
        "{} allows 1024; split them by smaller factors"
    )
    a = np.ones((256, 256), np.float32)
    with pytest.raises(dt.DeviceError) as caught:
        bound().on("simt")(a, a)
    assert str(caught.value) == message.format("simt")
    with pytest.raises(dt.DeviceError) as caught:
        bound().source("ptx", I=256, J=256, K=256)
    assert str(caught.value) == message.format("sm_80")


@pytest.mark.parametrize("axis", ["y", "z"])
def test_r68_too_many_blocks(axis: str) -> None:
    op = dt.op("Y[j,i] = A[j,i] * 2")
    schedule = op.schedule().bind("j", f"block.{axis}").bind("i", "thread.x")
    with pytest.raises(dt.DeviceError) as caught:
        schedule.on("simt")(np.zeros((65537, 2), np.uint8))
    assert str(caught.value) == (
        f"loop Y.j gives 65537 blocks on block.{axis}, and simt allows 65535; bind it to block.x, "
        "which allows 2147483647"
    )
    with pytest.raises(dt.DeviceError) as caught:
        op.schedule().bind("j", "thread.x").source("ptx", J=2000, I=4)
    assert str(caught.value) == (
        "loop Y.j gives 2000 threads on thread.x, and sm_80 allows 1024; split it by at most 1024 "
        "and bind the inner loop to thread.x"
    )


def test_r69_too_much_shared_memory() -> None:
    schedule = (
        MATMUL.schedule().tile(i=256, j=256).split("k", 256)
        .reorder("io", "jo", "ko", "ii", "ji", "ki")
        .stage("A", at="ko", scope="shared").stage("B", at="ko", scope="shared")
        .bind("io", "block.y").bind("jo", "block.x")
    )  # fmt: skip
    a = np.ones((512, 512), np.float32)
    with pytest.raises(dt.DeviceError) as caught:
        schedule.on("simt")(a, a)
    assert str(caught.value) == (
        "the shared buffers of a block need 524288 bytes (A.shared 262144, B.shared 262144), and "
        "simt allows 232448; stage smaller tiles"
    )
