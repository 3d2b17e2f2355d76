"""What README shows is run, block by block, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import diptych as dt
import pytest

README = Path(dt.__file__).parent / "README.md"


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    space: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(blocks):
        file = tmp_path / f"block{number}.py"
        refused = 'matmul.schedule().parallel("k")\n'
        file.write_text(block.replace(refused, ""))
        exec(compile(file.read_text(), str(file), "exec"), space)
    dt.Schedule(space["matmul"]).detach()  # type: ignore[arg-type]


def test_the_refusal_of_the_tour() -> None:
    i, j, k = dt.indices("i j k")

    @dt.op
    def matmul(A: dt.f32["M", "K"], B: dt.f32["K", "N"]):  # type: ignore[no-untyped-def, valid-type, name-defined]
        C = dt.tensor("C")
        C[i, j] = dt.sum(A[i, k] * B[k, j])
        return C

    with pytest.raises(dt.ScheduleError) as refused:
        matmul.schedule().parallel("k")
    line = matmul.locations[0].line
    assert str(refused.value) == (
        f"parallel(k): C[0,0] is updated by k=0 and by k=1 (test_readme.py:{line}); "
        "use rfactor(k), or parallel on i or j"
    )
