"""What `explain` says of default schedules, on a machine whose figures are given."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import diptych as dt
import pytest
from diptych.autotune.cli import diptych
from diptych.codegen import kept, peaks
from diptych.codegen.host import machine
from diptych.sched.loop.explain import explain
from diptych.sched.loop.machine import Machine
from diptych.sched.loop.peaks import Peaks

MACHINE = Machine(
    vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=8 << 20, threads=2
)  # fmt: skip
PEAKS = Peaks(
    2,
    {"f32": (150e9, 300e9), "f64": (75e9, 150e9)},
    {"l1": (300e9, 600e9), "l2": (100e9, 200e9), "memory": (12e9, 20e9)},
    2e-6,
)


def said(text: str, sizes: dict[str, int], **given: str) -> str:
    """What is said before the schedule and its loops, which other tests look at."""
    op = dt.op(text, **given)
    whole = explain(op, {p.name: dt.f32 for p in op.params}, sizes, MACHINE, PEAKS)
    head, schedule = whole.split("\n\nschedule:\n")
    assert "\n\nloops:\n" in schedule
    return head


def test_a_matrix_product() -> None:
    assert (
        said("C[i,j] = sum(A[i,k] * B[k,j])", {"I": 64, "J": 64, "K": 64})
        == """\
C at I=64, J=64, K=64
on 2 threads with vectors of 64 bytes, 32 registers, caches of 48 KiB and 2 MiB

C: i 64 x j 64 x k 64, k reduced; 524 k operations on 48 KiB
  at least 3.5 us: 3.5 us by arithmetic, 164 ns by memory
  lanes along j, 4 vectors wide: A[i,k] stays, B[k,j] goes on, C[i,j] goes on
    else along i: A[i,k] jumps by 64, B[k,j] stays, C[i,j] jumps by 64
    else along k: A[i,k] goes on, B[k,j] jumps by 64, lanes combined at the end
  unrolled 6 of i: B[k,j] serves 6
  one thread: less work than 30 us, which another is worth, or no loop to share

in all 3.5 us"""
    )


def test_a_window_of_rows() -> None:
    text = "h[i,j] = x[i,j] + x[i,j+1]\ny[i,j] = h[i,j] + h[i+2,j]"
    lines = said(text, {"I": 514, "J": 513}, returns="y").split("\n")
    assert "  computed inside loop y.j, anew for the first rows of a block" in lines
    assert "  unrolled 8 of i" in lines


def test_rows_by_their_maximum() -> None:
    text = "m[i] = max(x[i,j])\ne[i,j] = exp(x[i,j] - m[i])\ny[i,j] = e[i,j] / sum(e[i,l])"
    assert (
        said(text, {"I": 4096, "J": 1024}, returns="y")
        == """\
y at I=4096, J=1024
on 2 threads with vectors of 64 bytes, 32 registers, caches of 48 KiB and 2 MiB

m: i 4096 x j 1024, j reduced; 4.19 M operations on 16 MiB
  at least 839 us: 14 us by arithmetic, 839 us by memory
  computed inside loop y.i, where nothing of it is needed twice
  lanes along j: x[i,j] goes on, lanes combined at the end
    else along i: x[i,j] jumps by 1024, m[i] goes on

e: i 4096 x j 1024; 79.7 M operations on 0 B
  at least 266 us: 266 us by arithmetic, 0 ns by memory
  computed inside loop y.i, where nothing of it is needed twice
  lanes along j: x[i,j] goes on, m[i] stays, e[i,j] goes on
    else along i: x[i,j] jumps by 1024, m[i] goes on, e[i,j] jumps by 1024

y_sum: i 4096 x l 1024, l reduced; 4.19 M operations on 0 B
  at least 14 us: 14 us by arithmetic, 0 ns by memory
  computed inside loop y.i, where nothing of it is needed twice
  lanes along l: e[i,l] goes on, lanes combined at the end
    else along i: e[i,l] jumps by 1024, y_sum[i] goes on

y: i 4096 x j 1024; 16.8 M operations on 16 MiB
  at least 839 us: 55.9 us by arithmetic, 839 us by memory
  lanes along j: e[i,j] goes on, y_sum[i] stays, y[i,j] goes on
    else along i: e[i,j] jumps by 1024, y_sum[i] goes on, y[i,j] jumps by 1024
  stored past the caches, which what the kernel touches would pass through
  2 threads share i

in all 1.96 ms"""
    )


def test_four_elements() -> None:
    assert (
        said("y[i] = 2 * x[i]", {"I": 4})
        == """\
y at I=4
on 2 threads with vectors of 64 bytes, 32 registers, caches of 48 KiB and 2 MiB

y: i 4; 4 operations on 32 B
  at least 0.107 ns: 0.0267 ns by arithmetic, 0.107 ns by memory
  lanes along i: x[i] goes on, y[i] goes on
  one thread: less work than 30 us, which another is worth, or no loop to share

in all 0.107 ns"""
    )


def test_the_methods_and_the_command_say_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path))
    text = "C[i,j] = sum(A[i,k] * B[k,j])"
    by_method = dt.op(text).explain(I=8, K=8, J=8)
    assert diptych(["explain", text, "-s", "I=8", "-s", "K=8", "-s", "J=8"]) == 0
    assert capsys.readouterr().out == by_method + "\n"
    assert diptych(["explain", __file__ + ":MACHINE"]) == 2
    assert capsys.readouterr().err.endswith(":MACHINE is a Machine, not an operator\n")


def test_peaks_of_another_version_are_another_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions share a folder: none reads what another has written, nor calls it damaged."""
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path))
    figures = Peaks(1, {"f32": (1.0, 1.0)}, {"l1": (1.0, 1.0)}, 0.0)
    monkeypatch.setattr(peaks, "measure", lambda host: figures)
    peaks.peaks()
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(b"a later version's form")
    monkeypatch.setattr(kept, "compiler", lambda: "an earlier version")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert peaks.peaks() == figures
        monkeypatch.setattr(peaks, "measure", None)
        assert peaks.peaks() == figures
    assert entry.read_bytes() == b"a later version's form"
    assert len(list(tmp_path.iterdir())) == 2


def test_peaks_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path))
    measured = peaks.peaks()
    monkeypatch.setattr(peaks, "measure", None)
    assert peaks.peaks() == measured
    slow = Peaks(measured.threads, {"f32": (1.0, 1.0)}, {"l1": (1.0, 1.0)}, 1.0)
    monkeypatch.setattr(peaks, "measure", lambda host: measured)
    assert slow.or_better(measured).operations == {"f32": measured.operations["f32"]}
    assert peaks.peaks(again=True) == measured
    host = machine()
    assert measured.threads == host.threads
    rates = [*measured.operations.values(), *measured.bytes.values()]
    assert all(rate > 1e8 for pair in rates for rate in pair)
    assert measured.floor(1e9, 4.0, "f32", host, 1) == 1e9 / measured.operations["f32"][0]
    assert measured.floor(1.0, 1e9, "f32", host, 1) == 1e9 / measured.bytes["memory"][0]


def test_products_of_bf16() -> None:
    """What is not done by default, since it changes results, is named where it would be faster."""
    op = dt.op("C[i,j] = sum(A[i,k] * B[k,j])")
    types, sizes = dict.fromkeys("AB", dt.bf16), dict.fromkeys("IJK", 64)
    plain, able = (
        explain(op, types, sizes, replace(MACHINE, dots=dots), PEAKS) for dots in ((4,), (2, 4))
    )
    line = (
        "  bf16 is multiplied as f32; tensorize takes words of two, about twice as fast, and "
        "subnormal numbers as 0\n"
    )
    assert line not in plain
    assert able.replace(line, "") == plain
    assert line in able


def test_a_band_has_no_tiles_and_is_explained_at_its_sizes() -> None:
    """Few cells of a tile would be needed; and its loops are those that it has at these sizes."""
    band = "A[i,k] = sum(C[i,j] * B[k,j], where=(k >= i - 1) & (k < i + 2))"
    op = dt.op(f"f(B: [N, M], C: [N, M]) -> A:\n {band}")
    assert "split" not in (text := op.explain(N=50, M=5)) and "for A.i:" in text
    triangle = dt.op(op.text.replace(" & (k < i + 2)", ""))
    assert "split" in (text := triangle.explain(N=50, M=5)) and "A.ko" in text
