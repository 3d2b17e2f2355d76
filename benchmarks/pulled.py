"""Derivatives: what is timed is the backward pass, after the results or together with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import diptych as dt
from case import Array, Case

Call = Callable[[], Any]


def behind(case: Case, op: Any, arrays: Sequence[Array]) -> tuple[Any, tuple[Array, ...]]:
    """The gradient operator, with the results kept, and its arguments."""
    from diptych.autodiff.reverse import adjoint

    primals, seeds = _parted(op, arrays)
    results = _listed(op(*primals))
    back = adjoint(op, case.wrt, saved=op.returns)
    given = dict(zip((p.name for p in op.params), primals, strict=True))
    given |= zip(op.returns, results, strict=True)
    names = [p.name for p in back.params[: len(back.params) - len(seeds)]]
    return back, (*(given[name] for name in names), *seeds)


def together(case: Case, op: Any, arrays: Sequence[Array]) -> Call:
    """Results, then the gradient, as `dt.vjp` runs them."""
    primals, seeds = _parted(op, arrays)
    at = [n for n, p in enumerate(op.params) if p.name in case.wrt]

    def run() -> Any:
        _, pull = dt.vjp(op, *primals)
        found = pull(seeds if len(seeds) > 1 else seeds[0])
        return tuple(found[n] for n in at)

    return run


def torch_pulled(case: Case, function: Callable[..., Any], tensors: Sequence[Any]) -> Call:
    """torch.autograd of a function of tensors."""
    import torch

    op = case.op()
    primals, seeds = _parted(op, tensors)
    at = [n for n, p in enumerate(op.params) if p.name in case.wrt]
    primals = tuple(t.requires_grad_() if n in at else t for n, t in enumerate(primals))
    leaves = [primals[n] for n in at]

    def forward() -> Any:
        with torch.enable_grad():
            return _listed(function(*primals))

    if case.forward:
        return lambda: torch.autograd.grad(forward(), leaves, seeds)
    results = forward()
    return lambda: torch.autograd.grad(results, leaves, seeds, retain_graph=True)


def jax_pulled(case: Case, function: Callable[..., Any], arrays: Sequence[Any]) -> Call:
    """jax.vjp of a function of arrays, jitted: all of it, or what comes after the results."""
    import jax

    op = case.op()
    primals, seeds = _parted(op, arrays)
    at = [n for n, p in enumerate(op.params) if p.name in case.wrt]

    def forward(*given: Any) -> Any:
        def moved(*leaves: Any) -> Any:
            every = list(given)
            for n, leaf in zip(at, leaves, strict=True):
                every[n] = leaf
            return _listed(function(*every))

        return jax.vjp(moved, *(given[n] for n in at))

    def both(given: Any, seeds: Any) -> Any:
        results, pull = forward(*given)
        return results, pull(seeds)

    if case.forward:
        step = jax.jit(both)
        return lambda: jax.block_until_ready(step(primals, seeds))[1]
    _, pull = jax.jit(forward)(*primals)
    back = jax.jit(lambda pull, seeds: pull(seeds))
    return lambda: jax.block_until_ready(back(pull, seeds))


def _parted(op: Any, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments, and the cotangents behind them."""
    return tuple(arrays[: len(op.params)]), tuple(arrays[len(op.params) :])


def _listed(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)
