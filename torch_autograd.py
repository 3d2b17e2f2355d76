"""An operator as a `torch.autograd.Function`: both modes of differentiation, and batches.

A batch (`torch.vmap`, and what is made of it: `jacrev`, `jacfwd`, `hessian`) is one more index of
the operator. An operator that somebody scheduled, or gave rules for its derivatives, is run for
one element after the other, for these are of the operator as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .torch_step import Like, Step
from .torch_tensors import torch_module, transformed


def run(typed: Step, tensors: Sequence[Any]) -> Any:
    """Runs a step; where nothing is to be differentiated torch need not hear of it.

    Otherwise too, `Function.apply` is called only where transforms of torch.func need it: it binds
    arguments by their names each time, which takes longer than all else.
    """
    torch = torch_module()
    if not transformed()():
        plain = not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors)
        if plain and _forward_level() < 0:
            return _plainly(typed(tensors))
    made, step = _differentiable(), typed
    if torch.is_grad_enabled():
        step = typed.keeping(tuple([x.requires_grad for x in tensors]))
    if not transformed()():
        found = super(torch.autograd.Function, made).apply(step, *tensors)
    else:
        found = made.apply(step, *tensors)
    if step is typed:
        return found
    return _plainly(found[: len(typed.op.returns)])


@lru_cache(maxsize=1)
def _differentiable() -> Any:
    """The torch.autograd.Function that runs a `Step`, made when torch is there."""
    base = torch_module().autograd.Function

    def forward(typed: Step, *tensors: Any) -> Any:
        return _plainly(typed(tensors))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        typed, *tensors = inputs
        results = output if isinstance(output, tuple) else (output,)
        every = *tensors, *results
        ctx.typed, ctx.moving = typed, ctx.needs_input_grad[1:]
        ctx.like = tuple([Like(x.shape, x.dtype) for x in every])
        if transformed()():
            ctx.save_for_backward(*every)
            ctx.save_for_forward(*every)
        else:  # what nobody reads is not kept alive, and may be changed in place
            read = typed.read(every, ctx.moving)
            ctx.save_for_backward(*[x if n in read else None for n, x in enumerate(every)])
            if _forward_level() >= 0:
                ctx.save_for_forward(*every)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))

    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        every = [x if x is not None else y for x, y in zip(saved, ctx.like, strict=True)]
        return None, *ctx.typed.pull(every, cotangents, ctx.needs_input_grad[1:], ctx.moving)

    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        return _plainly(ctx.typed.push(ctx.saved_tensors, tangents))

    rules: dict[str, Callable[..., Any]] = {
        "forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp,
        "vmap": _vmap,
    }  # fmt: skip
    return type("Differentiable", (base,), {k: staticmethod(rule) for k, rule in rules.items()})


def _forward_level() -> int:
    """Of dual numbers: below 0 there are none."""
    level: int = getattr(torch_module().autograd.forward_ad, "_current_level", 0)
    return level


def _vmap(info: Any, dims: tuple[int | None, ...], typed: Step, *tensors: Any) -> Any:
    """The results for a batch, which lies along `dims` of the tensors, and where it lies there."""
    pairs = list(zip(tensors, dims[1:], strict=True))
    if typed.is_as_given and info.batch_size:
        each = [
            _listed(run(typed, [x if d is None else x.select(d, n) for x, d in pairs]))
            for n in range(info.batch_size)
        ]
        stacked = tuple(torch_module().stack(items) for items in zip(*each, strict=True))
        return _plainly(stacked), _plainly((0,) * len(stacked))
    ahead = [x if d is None else x.movedim(d, 0) for x, d in pairs]
    step, many = typed.batched(ahead, tuple([d is not None for _, d in pairs]))
    return run(step, ahead), _plainly(tuple(0 if is_many else None for is_many in many))


def _plainly(results: tuple[Any, ...]) -> Any:
    return results if len(results) > 1 else results[0]


def _listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)
