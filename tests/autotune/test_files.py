"""Schedule files that are not as they should be, and what the commands and calls say (R50)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import diptych as dt
import numpy as np
import pytest
from diptych.autotune import cli
from diptych.autotune.cli import diptych
from diptych.sched.loop.schedule import PRIMITIVES

TEXT = "C[i,j] = sum(A[i,k] * B[k,j])"
KNOWN = ", ".join(sorted(PRIMITIVES))
LOOPS = "C.io, C.ii, C.j, C.k"
FINGERPRINT = dt.op(TEXT).fingerprint

# What is done to the file, and the message, in which PATH stands for the file.
DAMAGED: dict[str, tuple[Callable[[str], str], str]] = {
    "newer format": (
        lambda s: s.replace("format 1", "format 9"),
        "PATH: written in format 9 by diptych 0.1.0; this version reads format 1; a newer Diptych "
        "reads it",
    ),
    "cut off": (
        lambda s: s.removesuffix("# end\n"), "PATH: cut off: its last line is not '# end'"),
    "unknown step": (
        lambda s: s.replace("# end", 'swizzle("i")\n# end'),
        f"PATH:6: there is no primitive swizzle; this version has {KNOWN}",
    ),
    "unknown loop": (
        lambda s: s.replace("# end", 'split("C.q", 3)\n# end'),
        f"PATH:6: split(C.q, 3): there is no loop C.q; did you mean C.k? (loops: {LOOPS})",
    ),
    "not a call": (
        lambda s: s.replace("# end", "split(3,\n# end"),
        "PATH:6: not the text of a schedule ('(' was never closed): split(3,",
    ),
    "fingerprint": (
        lambda s: s.replace("# op: ", "# op: 00"),
        f"PATH: damaged: the line '# op: 00{FINGERPRINT}' is not the fingerprint of the operator "
        "under it",
    ),
    "index expression": (
        lambda s: s.replace("A[i,k]", "A[k,i]"),
        f"PATH: damaged: the line '# op: {FINGERPRINT}' is not the fingerprint of the operator "
        "under it",
    ),
    "operator text": (
        lambda s: s.replace("sum(A", "sum((A"),
        "PATH: damaged: the operator in its header: <text>:1: '(' is never closed\n"
        "    C[i,j] = sum((A[i,k] * B[k,j])\n                ^",
    ),
    "nothing": (
        lambda s: "", "PATH: the header has no operator text, so nothing can be checked"),
    "graph": (
        lambda s: "# diptych graph schedule, format 1\n# program: p\n# end\n",
        "PATH: a graph schedule is checked against its program; give both, as in diptych verify "
        "PATH FILE.py:PROGRAM --inputs FILE.py:FUNCTION",
    ),
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm.sched"
    dt.op(TEXT).schedule().split("i", 8).save(path)
    return path


@pytest.mark.parametrize("case", DAMAGED)
def test_r50_a_damaged_file_is_one_error(
    case: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGED[case]
    file.write_text(change(file.read_text()))
    assert diptych(["verify", str(file)]) == 2
    assert capsys.readouterr().err == f"diptych: {message.replace('PATH', str(file))}\n"


def test_r50_an_operator_that_has_changed(file: Path) -> None:
    changed = dt.op("C[i,j] = sum(A[k,i] * B[k,j])")
    with pytest.raises(dt.FileFormatError) as refused:
        changed.with_schedule(file)
    assert str(refused.value) == (
        f"{file}: made for another operator:\n{TEXT}\nnot for\nC[i,j] = sum(A[k,i] * B[k,j])"
    )


def test_r50_unknown_fields_and_other_machines_are_for_readers(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = file.read_text().replace("split", "# machine: another\n# colour: red\nsplit")
    file.write_text(text)
    assert diptych(["verify", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 1 primitive of C, all legal\n"
    a = np.ones((9, 4), np.float32)
    np.testing.assert_array_equal(dt.op(TEXT).with_schedule(file, strict=True)(a, a.T), a @ a.T)


def test_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(bytes(range(256)))
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    said = {}
    for path in (junk, tmp_path, tmp_path / "missing", tmp_path / "pipe", Path("/dev/zero")):
        for command in ("show", "verify"):
            assert diptych([command, str(path)]) == 2
            said[command, path.name] = capsys.readouterr().err.replace(f"{tmp_path}", "")
    assert set(said.values()) == {
        "diptych: /junk: not a schedule file: it is not text\n",
        "diptych: : not a schedule file that can be read: Is a directory\n",
        "diptych: /pipe: not a schedule file that can be read: Neither a file nor a link to one\n",
        "diptych: /dev/zero: not a schedule file that can be read: Neither a file nor a link to "
        "one\n",
        "diptych: /missing: no such file\n",
    }
    with pytest.raises(SystemExit) as refused:
        diptych(["frobnicate"])
    assert refused.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_files_are_checked_against_what_they_are_for(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(
        "import diptych as dt, numpy as np\n"
        f'mm = dt.op("{TEXT}")\n'
        "@dt.program\ndef p(x):\n    return mm(x, x)\n"
        "def example():\n    return np.ones((8, 8), np.float32)\n"
    )
    head = "# diptych graph schedule, format 1\n# program: p\n"
    Path("p.sched").write_text(f'{head}# kernel: C[0]\nsplit("i", 4)\n# end\n')
    Path("q.sched").write_text(f'{head}recompute("D[0]")\n# end\n')
    inputs = ["--inputs", "t.py:example"]
    assert diptych(["verify", "p.sched", "t.py:p", *inputs]) == 0
    assert diptych(["verify", "mm.sched", "t.py:mm"]) == 0
    assert capsys.readouterr().out == (
        "p.sched: 1 primitive of p, all legal\nmm.sched: 1 primitive of C, all legal\n"
    )
    for args in (["q.sched", "t.py:p", *inputs], ["p.sched", "t.py:mm", *inputs],
                 ["mm.sched", "t.py:p"]):  # fmt: skip
        assert diptych(["verify", *args]) == 2
    assert capsys.readouterr().err == (
        "diptych: q.sched:3: recompute(D[0]): no node is called D[0]; there are C[0]\n"
        "diptych: t.py:mm is of type Op, not a program\n"
        "diptych: t.py:p is of type Program, not an operator\n"
    )


def test_a_bug_is_one_line_with_a_way_to_see_more(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(args: object) -> int:
        raise KeyError("i")

    monkeypatch.setattr(cli, "_command", broken)
    monkeypatch.delenv("DIPTYCH_DEBUG", raising=False)
    assert diptych(["show", str(file)]) == 1
    assert capsys.readouterr().err == (
        "diptych: KeyError: 'i' (a bug; DIPTYCH_DEBUG=1 shows where)\n"
    )
    monkeypatch.setenv("DIPTYCH_DEBUG", "1")
    with pytest.raises(KeyError):
        diptych(["show", str(file)])
