"""Calls of ours and of the peers, each without arguments and ready to be timed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import diptych as dt
import numpy as np
from case import Array, Case
from pulled import behind, jax_pulled, together, torch_pulled

Call = Callable[[], Any]
PEERS = ("numpy", "torch", "torch.compile", "jax")
KINDS = ("default", "hand", "tuned")


def ours(case: Case, arrays: Sequence[Array], kinds: Sequence[str]) -> dict[str, Call]:
    """Our calls: by the default schedule, and by those that lie beside the benchmark."""
    if case.program is not None:
        program = case.program()
        return {"default": lambda: program(*arrays)} if "default" in kinds else {}
    op = case.op()
    if case.wrt and case.forward:
        return {"default": together(case, op, arrays)} if "default" in kinds else {}
    if case.wrt:
        op, arrays = behind(case, op, arrays)
    calls: dict[str, Call] = {}
    for kind in kinds:
        file = case.schedule(kind)
        if kind == "default":
            calls[kind] = lambda: op(*arrays)
        elif file is not None:
            run = op.with_schedule(file, strict=True)
            calls[kind] = lambda run=run: run(*arrays)
    return calls


def peers(case: Case, arrays: Sequence[Array], wanted: Sequence[str]) -> dict[str, Call]:
    """The calls of those wanted peers that are installed and have such an operator."""
    calls: dict[str, Call] = {}
    if "numpy" in wanted and case.numpy is not None:
        calls["numpy"] = lambda: case.numpy(*arrays)  # type: ignore[misc]
    if case.torch is not None and _there("torch", wanted):
        calls |= _torch(case, arrays, wanted)
    if case.jax is not None and _there("jax", wanted):
        calls["jax"] = _jax(case, arrays)
    return calls


def _there(name: str, wanted: Sequence[str]) -> bool:
    asked = any(w.split(".")[0] == name for w in wanted)
    return asked and importlib.util.find_spec(name) is not None


def _torch(case: Case, arrays: Sequence[Array], wanted: Sequence[str]) -> dict[str, Call]:
    import torch

    torch.set_grad_enabled(False)
    tensors = [torch.from_numpy(a) for a in arrays]

    def run(*given: Any) -> Any:
        return case.torch(torch, *given)  # type: ignore[misc]

    def called(function: Callable[..., Any]) -> Call:
        return torch_pulled(case, function, tensors) if case.wrt else lambda: function(*tensors)

    calls: dict[str, Call] = {}
    if "torch" in wanted:
        calls["torch"] = called(run)
    if case.compiled and "torch.compile" in wanted:
        calls["torch.compile"] = called(torch.compile(run, dynamic=False))
    return calls


def _jax(case: Case, arrays: Sequence[Array]) -> Call:
    import jax

    on_device = [jax.numpy.asarray(a) for a in arrays]

    def run(*given: Any) -> Any:
        return case.jax(jax.numpy, *given)  # type: ignore[misc]

    if case.wrt:
        return jax_pulled(case, run, on_device)
    jitted = jax.jit(run)
    return lambda: jax.block_until_ready(jitted(*on_device))


def check(case: Case, arrays: Sequence[Array], calls: dict[str, Call], other: Call | None) -> None:
    """Asserts that ours give what the other one gives; the interpreter, where there is none."""
    assert other is not None or not (case.wrt or case.program), f"{case.name}: no peer to check by"
    expected = _results(dt.interpret(case.op(), *arrays) if other is None else other())
    for kind, call in calls.items():
        got = _results(call())
        assert len(got) == len(expected), f"{case.name}: {len(got)} results, not {len(expected)}"
        for mine, want in zip(got, expected, strict=True):
            label = f"{case.name}, {kind}"
            assert mine.shape == want.shape, f"{label}: shape {mine.shape}, not {want.shape}"
            if mine.dtype.kind != "f":
                np.testing.assert_array_equal(mine, want, label)
                continue
            allowed = case.tolerance * float(np.abs(want).max())
            np.testing.assert_allclose(mine, want, case.tolerance, allowed, err_msg=label)


def _results(found: Any) -> list[Array]:
    return [np.asarray(f) for f in (found if isinstance(found, (tuple, list)) else (found,))]
