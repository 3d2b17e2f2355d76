"""Finding ptxas, NVIDIA's assembler, and letting it check a kernel. No GPU is needed for that."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..algo.errors import DeviceError, InternalError

_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc-cu12")


@dataclass(frozen=True, slots=True)
class Assembled:
    """What ptxas made of a kernel: the machine code and what each entry uses.

    `registers` and `spills` (bytes stored to spill) are the largest over the entries.
    """

    cubin: bytes
    registers: int
    spills: int


@lru_cache(maxsize=1)
def find_ptxas() -> str | None:
    """The path of ptxas on PATH, in CUDA_HOME or CUDA_PATH, or in NVIDIA's compiler wheel."""
    folders = [Path(os.environ[v], "bin") for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    for wheel in _WHEELS:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        folders += [Path(str(f.locate())).parent for f in files if f.stem == "ptxas"]
    return shutil.which("ptxas") or shutil.which("ptxas", path=os.pathsep.join(map(str, folders)))


def assemble(ptx: str, target: str) -> Assembled:
    """Machine code of PTX text for `target` (such as sm_80).

    Raises `DeviceError` where there is no ptxas or it does not know the target, and
    `InternalError` with ptxas' own words where it refuses the text.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise DeviceError(
            "ptxas was not found on PATH, in CUDA_HOME or in a wheel; "
            "install CUDA, or the extra diptych[ptxas]"
        )
    with tempfile.TemporaryDirectory(prefix="diptych-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas, "-v", f"-arch={target}", str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        if done.returncode == 0:
            return Assembled(
                cubin.read_bytes(),
                _largest(r"Used (\d+) registers", said),
                _largest(r"(\d+) bytes spill stores", said),
            )
    if "not defined for option" in said:
        raise DeviceError(f"{ptxas} does not know the target {target}; expected sm_75 or later")
    raise InternalError(f"ptxas refuses a kernel for {target}: {said.strip()}\n{ptx}")


def _largest(pattern: str, said: str) -> int:
    return max((int(found) for found in re.findall(pattern, said)), default=0)
