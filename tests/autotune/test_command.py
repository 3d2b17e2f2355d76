"""The `autotune` and `diptych` commands, as a user calls them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import diptych as dt
import numpy as np
import pytest
from diptych.autotune.cli import autotune, diptych, dropped

EXAMPLES = Path(dt.__file__).parent / "examples"
TEXT = "C[i,j] = sum(A[i,k]*B[k,j])"


def test_an_operator_text_is_tuned_and_the_file_replays(tmp_path: Path) -> None:
    file = tmp_path / "mm.sched"
    types = ["-i", "A=f32[64,48]", "-i", "B=f32[48,80]"]
    records = ["--records", str(tmp_path / "records")]
    args = [TEXT, *types, "-o", str(file), "--time", "20", "--trials", "4", *records]
    assert autotune(args) == 0
    op = dt.op(TEXT)
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 48), np.float32), rng.random((48, 80), np.float32)
    np.testing.assert_allclose(op.with_schedule(file, strict=True)(a, b), a @ b, rtol=1e-5)
    assert len((tmp_path / "records").read_text().splitlines()) >= 3
    assert "# sizes: " in file.read_text()


def test_a_file_is_tuned_by_sizes(tmp_path: Path) -> None:
    target = f"{EXAMPLES / 'matmul.py'}:matmul"
    sizes = ["-s", "M=32", "-s", "N=32", "-s", "K=32"]
    file = tmp_path / "mm.sched"
    assert autotune([target, *sizes, "-o", str(file), "--time", "10", "--trials", "2"]) == 0
    assert file.read_text().startswith("# diptych loop schedule, format 1\n")


def test_a_program_is_tuned_at_both_levels(tmp_path: Path) -> None:
    target = f"{EXAMPLES / 'digits.py'}:step"
    inputs = f"{EXAMPLES / 'digits.py'}:example"
    file = tmp_path / "digits.sched"
    args = [target, "--inputs", inputs, "--both", "-o", str(file), "--time", "40", "--trials", "3"]
    assert autotune(args) == 0
    assert file.read_text().startswith("# diptych graph schedule, format 1\n")


def test_dropped_candidates_say_why() -> None:
    assert dropped([]) == "0 dropped"
    assert dropped(["took longer than\n3.0 s  [split('i', 8)]", "other"]) == (
        "2 dropped, the first because: took longer than 3.0 s [split('i', 8)]"
    )


def test_what_an_example_lacks_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = EXAMPLES / "digits.py"
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    args = [f"{digits}:step", "--inputs", f"{digits}:example", "-o", str(tmp_path / "a")]
    assert autotune(args) == 2
    line = digits.read_text().split("raise ImportError")[0].count("\n") + 1
    assert capsys.readouterr().err == (
        f"autotune: {digits}:{line}: example() raised ImportError: the digits come with "
        "scikit-learn: pip install scikit-learn\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([TEXT], "autotune: C: give sizes, for example -s I=64\n"),
        (
            [TEXT, "-i", "A=f32(2,2)"],
            "autotune: -i 'A=f32(2,2)': expected NAME=TYPE[SIZES], such as A=f32[64,64]\n",
        ),
        (
            [TEXT, "-i", "A=f33[2,2]"],
            "autotune: -i 'A=f33[2,2]': f33 is no element type; expected one of bool, i8, i16, "
            "i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64\n",
        ),
        ([TEXT, "-i", "Z=f32[2,2]"], "autotune: -i 'Z=f32[2,2]': C has no input Z, only A, B\n"),
        ([TEXT, "-s", "Q=2"], "autotune: -s 'Q=2': C has no size Q, only I, K, J\n"),
        ([TEXT, "-s", "I=x"], "autotune: -s 'I=x': expected NAME=NUMBER, such as M=1024\n"),
        ([TEXT, "--both"], f"autotune: {TEXT} is an operator: --both is for programs\n"),
        (
            ["missing.py:op"],
            "autotune: missing.py: no such file (expected file.py:name, or operator text)\n",
        ),
    ],
)
def test_mistakes_exit_with_2(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert autotune([*args, "-o", "unused.sched"]) == 2
    assert capsys.readouterr().err == message


FILE = """import diptych as dt, numpy as np
mm = dt.op("C[i,j] = sum(A[i,k] * B[k,j])", name="mm")
prog = dt.program(lambda x, w: mm(x, w), name="prog")
def bad():
    raise RuntimeError("no data here")
def few():
    return np.ones((2, 2), np.float32)
"""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["t.py"], "t.py: the name is missing; expected t.py:NAME, it defines bad, few, mm, prog"),
        (["t.py:q"], "t.py: it has no q; expected t.py:NAME, it defines bad, few, mm, prog"),
        (["t.py:bad"], "t.py:bad is a function, not an operator or a program"),
        (["bad.py:f"], "bad.py:1: importing it raised SyntaxError: invalid syntax"),
        (
            ["missing.py:f"],
            "missing.py: no such file (expected file.py:name, or operator text)",
        ),
        (
            ["raises.py:f"],
            "raises.py:2: importing it raised ZeroDivisionError: division by zero",
        ),
        (
            ["t.py:prog"],
            "a program needs --inputs file.py:function, which returns its arguments",
        ),
        (
            ["t.py:prog", "--inputs", "t.py:bad"],
            "t.py:5: bad() raised RuntimeError: no data here",
        ),
        (
            ["t.py:prog", "--inputs", "t.py:few"],
            "prog(x, w): missing a required argument: 'w'",
        ),
        (["t.py:mm", "-s", "I=-8"], "-s 'I=-8': expected NAME=NUMBER, such as M=1024"),
        (
            ["t.py:mm", "-s", "I=9999999", "-s", "K=9999999", "-s", "J=1"],
            "Unable to allocate 728. TiB for an array with shape (9999999, 9999999) and data type "
            "float64; give smaller sizes",
        ),
    ],
)
def test_files_and_inputs_that_do_not_work_exit_with_2(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(FILE)
    Path("bad.py").write_text("def f(:")
    Path("raises.py").write_text("x = 1\ny = x / 0\n")
    assert autotune([*args, "-o", "unused.sched"]) == 2
    assert capsys.readouterr().err == f"autotune: {message}\n"


MORE = "(autotune --help tells more)\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--time", "0"], "argument --time: 0 came; expected a number of seconds above 0"),
        (["--time", "-3"], "argument --time: -3 came; expected a number of seconds above 0"),
        (["--time", "nan"], "argument --time: nan came; expected a number of seconds above 0"),
        (["--time", "x"], "argument --time: x came; expected a number of seconds above 0"),
        (["--trials", "0"], "argument --trials: 0 came; expected an integer of at least 1"),
        (["--threads", "0"], "argument --threads: 0 came; expected an integer of at least 1"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["-o", "."], "argument -o/--output: . is a folder; expected the name of a file"),
        (
            ["-o", "no/such/x.sched"],
            "argument -o/--output: no/such/x.sched cannot be written: no/such: No such file or "
            "directory",
        ),
        (
            ["--records", "no/such/r"],
            "argument --records: no/such/r cannot be written: no/such: No such file or directory",
        ),
    ],
)
def test_the_command_line_is_checked_before_the_search(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        autotune([TEXT, "-o", "x.sched", *args])
    assert refused.value.code == 2
    assert capsys.readouterr().err == f"autotune: {message} {MORE}"


def test_ctrl_c_leaves_the_best_so_far(tmp_path: Path) -> None:
    """R46, thin: exit code 130 within 2 s, a loadable file, no process left over."""
    file = tmp_path / "mm.sched"
    args = [TEXT, "-i", "A=f32[128,128]", "-i", "B=f32[128,128]", "-o", str(file), "--time", "90"]
    # Tests that run in the background inherit that interrupts are ignored.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from diptych.autotune.cli import autotune; sys.exit(autotune(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, *args], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    children = _children(process.pid)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - start < 4
    assert process.returncode == 130, err
    assert f"interrupted; the best so far is in {file}" in err
    dt.Schedule.load(dt.op(TEXT), file)
    time.sleep(0.3)
    assert children and not [pid for pid in children if os.path.exists(f"/proc/{pid}")]
    assert [p.name for p in tmp_path.iterdir()] == ["mm.sched"]


def test_a_reader_may_have_seen_enough() -> None:
    """What head does to a command that still writes is no failure of the command."""
    code = "import sys; from diptych.autotune.cli import diptych; sys.exit(diptych(sys.argv[1:]))"
    args = ["show", str(EXAMPLES / "matmul.sched")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *args], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def _children(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


def test_r85_doctor_names_versions_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert diptych(["doctor"]) == 0
    text = capsys.readouterr().out
    versions = ("python", "diptych", "islpy", "llvmlite", "pycuda", "LLVM", "driver")
    for word in (*versions, "host", "ptxas"):
        assert f"\n{word}" in "\n" + text
    with pytest.raises(SystemExit) as caught:
        diptych(["--version"])
    assert caught.value.code == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if line.split()[0] in versions] == list(versions)
    assert text.startswith("\n".join(said))


def test_show_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm.sched"
    dt.op(TEXT).schedule().split("i", 8).save(file)
    assert diptych(["show", str(file)]) == 0
    assert 'split("i", 8)' in capsys.readouterr().out
    assert diptych(["verify", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 1 primitive of C, all legal\n"
    file.write_text(file.read_text().replace('split("i", 8)', 'parallel("k")'))
    assert diptych(["verify", str(file)]) == 2
    assert "C[0,0] is updated by k=0 and by k=1" in capsys.readouterr().err


def test_an_interrupt_before_anything_was_measured_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("diptych.autotune.tune.tune_op", interrupted)
    types = ["-i", "A=f32[8,8]", "-i", "B=f32[8,8]"]
    assert autotune([TEXT, *types, "-o", str(tmp_path / "x.sched")]) == 130
    assert capsys.readouterr().err == "autotune: interrupted; nothing was measured yet\n"
