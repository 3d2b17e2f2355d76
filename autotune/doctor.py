"""What `diptych doctor` and `diptych --version` say of the system."""

from __future__ import annotations

import importlib.metadata
import platform


def doctor() -> str:
    """Versions of what Diptych stands on, the machine as schedules see it, and GPU tools."""
    from ..codegen.host import host_name, machine
    from ..codegen.ptxas import find_ptxas

    host = machine()
    return "\n".join([
        *versions(),
        f"host        {host_name()}, vectors of {host.vector_bytes} bytes, "
        f"{host.registers} registers, caches {host.l1 >> 10} KiB, {host.l2 >> 10} KiB, "
        f"{host.l3 >> 20} MiB, {host.threads} threads",
        f"ptxas       {find_ptxas() or 'not found (the optional extra ptxas)'}",
    ])  # fmt: skip


def versions() -> list[str]:
    """Versions of Python, of the packages that Diptych stands on, and of the GPU's driver."""
    import llvmlite.binding as llvm

    from ..codegen.cuda import driver_version

    lines = [f"python      {platform.python_version()} on {platform.machine()}"]
    for package in ("diptych", "numpy", "islpy", "llvmlite", "sympy", "lightgbm", "pycuda"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed" + (
                " (the optional extra cuda)" if package == "pycuda" else ""
            )
        lines.append(f"{package:<11} {version}")
    lines.append(f"LLVM        {'.'.join(map(str, llvm.llvm_version_info))}")
    lines.append(f"driver      {driver_version() or 'no NVIDIA driver found'}")
    return lines
