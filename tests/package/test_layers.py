"""The structure of the package: imports go downward only, and it is loaded once, as diptych."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import diptych
import pytest

ROOT = Path(diptych.__file__).parent

# A folder may import itself and those that are listed for it, and whatever those may import.
BELOW = {
    "algo": set(),
    "algo/tensor_expr": {"algo"},
    "algo/graph": {"algo/tensor_expr"},
    "autodiff": {"algo/graph"},
    "sched": set(),
    "sched/loop": {"algo/tensor_expr"},
    "sched/graph": {"autodiff", "sched/loop"},
    "lower": {"sched/graph"},
    "codegen": {"lower"},
    "autotune": {"codegen"},
    "": {"autotune"},
}
FILES = sorted(
    file
    for folder in BELOW
    for file in ((ROOT / folder).glob("**/*.py") if folder else ROOT.glob("*.py"))
)


def allowed(folder: str) -> set[str]:
    out = {folder}
    for below in BELOW[folder]:
        out |= allowed(below)
    return out


def home(parts: tuple[str, ...]) -> str:
    """The layer folder that a module path lies in."""
    for length in (2, 1):
        if "/".join(parts[:length]) in BELOW:
            return "/".join(parts[:length])
    return ""


def imported(file: Path) -> list[tuple[str, int]]:
    """The layer folders that a file imports relatively, with line numbers."""
    package = file.relative_to(ROOT).parent.parts
    out = []
    for item in ast.walk(ast.parse(file.read_text())):
        if isinstance(item, ast.ImportFrom) and item.level:
            base = package[: len(package) - item.level + 1]
            module = tuple(item.module.split(".")) if item.module else ()
            targets = [base + module] if module else [(*base, a.name) for a in item.names]
            out += [(home(target), item.lineno) for target in targets]
    return out


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_go_downward_and_are_relative(file: Path) -> None:
    layer = home(file.relative_to(ROOT).parent.parts)
    bad = [(target, line) for target, line in imported(file) if target not in allowed(layer)]
    assert not bad, f"{file.relative_to(ROOT)} in layer {layer or 'root'} imports upward: {bad}"
    for item in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(item, ast.Import):
            names = [alias.name for alias in item.names]
        elif isinstance(item, ast.ImportFrom) and not item.level:
            names = [item.module or ""]
        own = [n for n in names if n.split(".")[0] in ("diptych", "algo", "lower", "codegen")]
        assert not own, f"{file.relative_to(ROOT)}:{item.lineno} imports {own} absolutely"


def test_islpy_is_met_only_in_its_fence() -> None:
    users = [
        str(f.relative_to(ROOT))
        for f in FILES
        if any(
            (isinstance(n, ast.Import) and any(a.name.startswith("islpy") for a in n.names))
            or (isinstance(n, ast.ImportFrom) and (n.module or "").startswith("islpy"))
            for n in ast.walk(ast.parse(f.read_text()))
        )
    ]
    assert users == [user for user in users if user.startswith("algo/isl")], users
    assert users


def test_no_second_copy_is_loaded() -> None:
    """Under pytest's importlib mode the checkout must be known as diptych and as nothing else."""
    strangers = [
        name
        for name, module in sys.modules.items()
        if (file := getattr(module, "__file__", None))
        and Path(file).is_relative_to(ROOT)
        and not Path(file).is_relative_to(ROOT / "tests")
        and not Path(file).is_relative_to(ROOT / "examples")  # as users load theirs
        and ".venv" not in Path(file).parts
        and "site-packages" not in Path(file).parts
        and name != "diptych"
        and not name.startswith("diptych.")
    ]
    assert strangers == []


def test_import_is_light() -> None:
    """Importing loads nothing heavy, starts no thread and does not touch a GPU."""
    code = (
        "import sys, threading, diptych\n"
        "late = ('sympy', 'lightgbm', 'pycuda', 'sklearn', 'torch', 'llvmlite', 'scipy',\n"
        "    'numpy.ma', 'diptych.codegen', 'diptych.lower',\n"
        "    'diptych.autotune', 'diptych.sched.loop', 'diptych.sched.graph', 'diptych.autodiff')\n"
        "heavy = [m for m in late if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
