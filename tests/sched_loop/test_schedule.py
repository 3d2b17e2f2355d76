"""Schedules as values: text, replay, files, comparison, pickling, printing."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from diptych.algo.dtypes import f16, f64
from diptych.algo.errors import FileFormatError, ScheduleError
from diptych.algo.tensor_expr.parse import parse
from diptych.algo.tensor_expr.trace import indices
from diptych.sched.loop.schedule import PRIMITIVES, Schedule
from sched_loop.speed import seconds

OP = parse("matmul(A: f32[M, K], B: f32[K, N]) -> C:\n    C[i,j] = sum(A[i,k] * B[k,j])")


def fast() -> Schedule:
    return (
        Schedule(OP)
        .tile(i=8, j=48)
        .reorder("io", "jo", "k", "ii", "ji")
        .stage("C", at="jo", scope="register")
        .unroll("ii")
        .vectorize("ji")
        .parallel("io")
    )


def test_text_replays() -> None:
    text = (
        '.tile(i=8, j=48).reorder("io", "jo", "k", "ii", "ji")'
        '.stage("C", at="jo", scope="register").unroll("ii").vectorize("ji").parallel("io")'
    )
    assert fast().text == text
    for spelled in (text, text[1:], text.replace(".", "\n.").strip(), f"  {text}  "):
        assert Schedule.parse(OP, spelled) == fast()
    assert Schedule.parse(OP, "") == Schedule(OP)


def test_arguments_may_be_indices_any_integers_and_lists() -> None:
    i, j, k = indices("i j k")
    made = (
        Schedule(OP)
        .tile({i: np.int64(8), "j": np.array(48)})
        .reorder(["io", "jo", k, "ii", "ji"])
        .stage("B", at=k, layout=[j // 16, k, j % 16])
        .split(k, np.uint8(4), into=["ka", "kb"])
    )
    assert made.text == (
        '.tile(i=8, j=48).reorder("io", "jo", "k", "ii", "ji")'
        '.stage("B", at="k", layout=("j // 16", "k", "j % 16"))'
        '.split("k", 4, into=("ka", "kb"))'
    )
    assert Schedule.parse(made.op, made.text) == made


def test_equality_is_by_operator_and_primitives() -> None:
    other = parse("matmul(A: f32[M, K], B: f32[K, N]) -> C:\n    C[i,j] = sum(B[k,j] * A[i,k])")
    assert fast() == fast() and hash(fast()) == hash(fast())
    assert fast() != Schedule(OP)
    assert Schedule(OP) != Schedule(other)
    assert Schedule(OP).split("i", 8) != Schedule(OP).split("i", 4)


def test_pickles_and_copies() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(fast(), protocol))
        assert again == fast() and str(again) == str(fast())
    assert copy.deepcopy(fast()) == fast()


def test_nest_at_types_and_sizes() -> None:
    untyped = Schedule(parse("C[i,j] = sum(A[i,k] * B[k,j])")).reorder("k", "j")
    assert untyped.nest().buffers["C"].dtype.name == "f32"
    wide = untyped.nest({"A": f64, "B": f64}, {"I": 2, "J": 3, "K": 4})
    assert wide.buffers["C"].dtype is f64 and wide.kernel.sizes == {"I": 2, "J": 3, "K": 4}
    half = untyped.nest({"A": f16, "B": f16})
    assert half.buffers["C.acc"].dtype.name == "f32" and "C.final" in half.stmts


def test_every_primitive_is_a_method_with_a_before_and_after() -> None:
    for name, primitive in PRIMITIVES.items():
        assert callable(getattr(Schedule, name))
        assert "==>" in (primitive.__doc__ or "")


def test_repr_and_html() -> None:
    made = Schedule(OP).split("i", 8)
    assert repr(made) == '<schedule of matmul: .split("i", 8)>'
    assert repr(Schedule(OP)) == "<schedule of matmul: as written>"
    assert made._repr_html_().startswith("<pre>for C.io = i // 8:\n")
    assert "&lt;" not in made._repr_html_()


FILE = """\
# diptych loop schedule, format 1
# diptych: 0.1.0
# op: {fingerprint}
#   matmul(A: f32[M, K], B: f32[K, N]) -> C:
#       C[i,j] = sum(A[i,k] * B[k,j])
# sizes: M=1024, N=1024, K=1024
# gflops: 108.5
tile(i=8, j=48)
reorder("io", "jo", "k", "ii", "ji")
stage("C", at="jo", scope="register")
unroll("ii")
vectorize("ji")
parallel("io")
# end
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mm.sched"


def test_save(path: Path) -> None:
    fast().save(path, sizes={"M": 1024, "N": 1024, "K": 1024}, figures={"gflops": "108.5"})
    assert path.read_text() == FILE.format(fingerprint=OP.fingerprint)
    assert [p.name for p in path.parent.iterdir()] == ["mm.sched"]
    assert Schedule.load(OP, path) == fast()


def test_an_edited_file_loads(path: Path) -> None:
    text = FILE.format(fingerprint=OP.fingerprint)
    text = text.replace("j=48", "j=32").replace("# gflops", "# colour: blue\n# gflops")
    path.write_text(
        text.replace('unroll("ii")\n', '\n# a remark\nunroll("ii").vectorize("ji")\n').replace(
            'vectorize("ji")\nvectorize("ji")\n', 'vectorize("ji")\n'
        )
    )
    assert Schedule.load(OP, path).text == fast().text.replace("j=48", "j=32")


def refused(path: Path, text: str | bytes, error: type[Exception] = FileFormatError) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error) as caught:
        Schedule.load(OP, path)
    return str(caught.value).replace(str(path), "mm.sched")


def test_files_that_do_not_fit(path: Path) -> None:
    good = FILE.format(fingerprint=OP.fingerprint)
    other = parse("matmul(A: f32[M, K], B: f32[N, K]) -> C:\n    C[i,j] = sum(A[i,k] * B[j,k])")
    assert refused(path, b"\x80\x81\xff") == ("mm.sched: not a schedule file: it is not text")
    assert (
        refused(path, "")
        == refused(path, "hello\n")
        == (
            "mm.sched: not a schedule file: its first line is not "
            "'# diptych loop schedule, format 1'"
        )
    )
    newer = good.replace("format 1", "format 2").replace("0.1.0", "9.0")
    assert refused(path, newer) == (
        "mm.sched: written in format 2 by diptych 9.0; this version reads format 1; "
        "a newer Diptych reads it"
    )
    assert refused(path, good[: len(good) // 2]) == (
        "mm.sched: cut off: its last line is not '# end'"
    )
    nameless = good.replace(f"# op: {OP.fingerprint}\n", "")
    assert refused(path, nameless) == ("mm.sched: damaged: its header has no line '# op: ...'")
    foreign = good.replace(OP.fingerprint, other.fingerprint).replace("B[k,j]", "B[j,k]")
    foreign = foreign.replace("B: f32[K, N]", "B: f32[N, K]")
    assert refused(path, foreign) == (
        f"mm.sched: made for another operator:\n{other.text.rstrip()}\nnot for\n{OP.text}"
    )
    assert refused(path, good.replace("unroll(", "unfold(")) == (
        "mm.sched:11: there is no primitive unfold; this version has "
        + ", ".join(sorted(PRIMITIVES))
    )
    assert refused(path, good.replace('unroll("ii")', "unroll(ii)")) == (
        "mm.sched:11: unroll: arguments in the text of a schedule are names in quotes, integers "
        "and tuples of them, not ii"
    )
    assert refused(path, good.replace('parallel("io")', 'parallel("k")'), ScheduleError) == (
        "mm.sched:13: parallel(k): C[0,0] is updated by k=0 and by k=1 (<text>:2); use "
        "rfactor(k), or parallel on io or jo"
    )


def test_a_missing_file_is_the_systems_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Schedule.load(OP, path)


def test_checks_are_quick() -> None:
    """About 30 ms a primitive on a nest five deep; asserted loosely, for machines are shared."""
    op = parse("y[b,i,f] = sum(x[b,i+p,c] * w[p,c,f])")
    made = Schedule(op).tile(i=8, f=32)
    calls = [
        ("reorder", ("io", "fo", "p", "c", "ii", "fi"), {}),
        ("stage", ("y",), {"at": "fo", "scope": "register"}),
        ("unroll", ("ii",), {}),
        ("vectorize", ("fi",), {}),
        ("parallel", ("b",), {}),
    ]
    spent = {}
    for name, args, keywords in calls:
        steps: list[Schedule] = []
        spent[name] = seconds(lambda: steps.append(made.call(name, *args, **keywords)))  # noqa: B023
        (made,) = steps
    assert max(spent.values()) < 0.25 and sum(spent.values()) < 0.5, spent
