"""Operators as functions of torch tensors, with derivatives of ours. torch is imported here only.

Tensors come as arrays of the same memory (DLPack) and go back so. The backward pass of an operator
is its gradient operator, called in the same way, hence differentiable again, to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from .algo.dtypes import BY_NAME, DType, TensorType, as_bits, bf16, from_numpy
from .algo.errors import DeviceError, DTypeError, GradientError, UnsupportedError
from .algo.tensor_expr.check import check
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op, Param
from .algo.tensor_expr.settle import needs, settled, settled_on
from .algo.tensor_expr.types import infer
from .arguments import arguments, in_order
from .attached import State, attached
from .autodiff.derivatives import EVEN, sharing
from .autodiff.forward import tangent
from .autodiff.keep import keeping, kept
from .autodiff.results import returning
from .autodiff.reverse import adjoint
from .kept import kept_for

Array = np.ndarray[Any, Any]
KNOWN = 64
"""Backward passes of a function that are remembered: of which arguments, at which shapes."""


def torch(function: Any, *, ties: str = EVEN) -> TorchFunction:
    """A differentiable function of torch tensors that runs an operator, plainly or scheduled.

    `function` is an operator, a schedule, or `op.with_schedule(..)`. Arguments are tensors on the
    CPU, of any strides (or arrays and numbers), in order or by name; results are tensors that
    share the memory of what was computed. Reverse and forward mode of torch.autograd work, to any
    depth, each by an operator of ours that runs under the schedule attached to it, if any; `ties`
    is as in `dt.grad`. Raises `GradientError` for other functions, `UnsupportedError` where torch
    is not installed, and when called `DeviceError` for tensors elsewhere, else what the operator
    raises.
    """
    return TorchFunction(function, ties)


class TorchFunction:
    """An operator as a function of torch tensors; `op` is the operator."""

    def __init__(self, function: Any, ties: str = EVEN) -> None:
        op = function if isinstance(function, Op) else getattr(function, "op", None)
        if not isinstance(op, Op):
            raise GradientError(
                f"torch({_shown(function)}): expected an operator, a schedule of one, or "
                "op.with_schedule(...)"
            )
        self.function, self.op, self._torch, self.ties = function, op, _torch(), sharing(ties)
        self._typed: dict[tuple[DType, ...], _Typed] = {}
        self._known: dict[tuple[Any, ...], _Typed] = {}  # by torch's types, where all are tensors

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results, a tuple if there are several. Inputs are given in order, or by name."""
        if self._torch.compiler.is_compiling():  # torch's compiler goes on behind the call
            return self._torch.compiler.disable(self._call)(args, named)
        return self._call(args, named)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        known = self._known.get(tuple([getattr(x, "dtype", None) for x in args]))
        if known is None or named:
            return self._admit(args, named)
        return _apply(known, args)

    def _admit(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A call of arguments that have not been looked at, or are not all tensors in order."""
        given = in_order(self.op, args, named) if named else args
        tensor = self._torch.Tensor
        like = [_like(x.dtype) if isinstance(x, tensor) else x for x in given]
        declared = [p.type.dtype for p in self.op.params]
        for n, (dtype, x) in enumerate(zip(declared, given, strict=False)):
            if dtype is None and isinstance(x, tensor) and x.dtype is self._torch.bfloat16:
                declared[n] = bf16
        arrays = arguments(_annotated(self.op, declared), like)
        dtypes = tuple(from_numpy(a.dtype, d) for a, d in zip(arrays, declared, strict=True))
        typed = self._typed.get(dtypes)
        if typed is None:
            typed = self._typed[dtypes] = _Typed(self.function, self.op, dtypes, self.ties)
        tensors = [
            x if isinstance(x, tensor) else _tensor(a, d)
            for x, a, d in zip(given, arrays, dtypes, strict=True)
        ]
        if all(isinstance(x, tensor) for x in given):
            self._known[tuple([x.dtype for x in given])] = typed
        return _apply(typed, tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchFunction, (self.function, self.ties)

    def __repr__(self) -> str:
        return f"<torch function {_shown(self.function)}>"


class _Typed:
    """An operator for arguments of these types: what one step of torch's autograd runs."""

    def __init__(self, function: Any, op: Op, dtypes: tuple[DType, ...], ties: str) -> None:
        self.ties = ties
        self.op = _annotated(op, [d if d is bf16 else p.type.dtype
                                  for p, d in zip(op.params, dtypes, strict=True)])  # fmt: skip
        self.function = function if self.op is op else _moved(function, self.op)
        self.dtypes = dict(zip((p.name for p in op.params), dtypes, strict=True))
        self._returns: tuple[DType, ...] | None = None
        self._backwards: dict[tuple[Any, ...], _Backward | None] = {}
        self._keeping: dict[tuple[bool, ...], tuple[State, _Typed]] = {}

    def keeping(self, moving: tuple[bool, ...]) -> _Typed:
        """The operator with more results: what is worth keeping for the gradient by the arguments
        that are `moving`. Itself where it is nothing, where somebody scheduled it, and where sizes
        have to be numbers."""
        state, step = self._keeping.get(moving, (None, self))
        if state is not attached.state:
            step = self._kept(moving)
            self._keeping[moving] = (attached.state, step)
        return step

    def _kept(self, moving: tuple[bool, ...]) -> _Typed:
        wrt = tuple(p.name for p, moves in zip(self.op.params, moving, strict=True) if moves)
        if not isinstance(self.function, Op) or not wrt or needs(self.op) is not None:
            return self
        larger = keeping(self.op, kept(kept_for(self.op, wrt)))
        if larger is self.op:
            return self
        op = carried(self.op, larger)
        return _Typed(op, op, tuple(self.dtypes.values()), self.ties)

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The results, of the memory that the kernel wrote."""
        arrays = [_array(x, self.op, n) for n, x in enumerate(tensors)]
        results = self.function(*arrays)
        if self._returns is None:  # types are the same whatever the sizes are
            types = infer(check(settled_on(self.op, arrays)), self.dtypes)
            self._returns = tuple(types[name] for name in self.op.returns)
        listed = results if isinstance(results, tuple) else (results,)
        return tuple(_tensor(a, d) for a, d in zip(listed, self._returns, strict=True))

    def pull(
        self, saved: Sequence[Any], cotangents: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        """The cotangents of those arguments that need one, None for the others."""
        came = tuple([c is not None for c in cotangents])
        key = (tuple(needed), came, tuple([x.shape for x in saved]))
        if key not in self._backwards:
            if len(self._backwards) >= KNOWN:
                self._backwards.clear()
            self._backwards[key] = self._backward(saved, came, needed)
        back = self._backwards[key]
        if back is None:
            return [None] * len(needed)
        found = back.run(
            *[saved[n] for n in back.primals], *[c for c in cotangents if c is not None]
        )
        given = iter(found if isinstance(found, tuple) else (found,))
        return [_cast(next(given), x.dtype) if need else None
                for need, x in zip(needed, saved, strict=False)]  # fmt: skip

    def _backward(
        self, saved: Sequence[Any], came: Sequence[bool], needed: Sequence[bool]
    ) -> _Backward | None:
        """What gives the cotangents of the arguments; None where there is nothing to give."""
        op, values = self._at(saved)
        given = tuple(name for name, c in zip(op.returns, came, strict=True) if c)
        wrt = tuple(p.name for p, need in zip(op.params, needed, strict=True) if need)
        if not given or not wrt:
            return None
        back = carried(op, adjoint(returning(op, given), wrt, op.returns, self.ties))
        names = list(values)
        primals = tuple(names.index(p.name) for p in back.params[: -len(given)])
        return _Backward(_function(back, self.ties), primals)

    def push(self, saved: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The tangents of the results, of those of the arguments, None where one does not move."""
        op, values = self._at(saved)
        moves = {p.name: t for p, t in zip(op.params, tangents, strict=True) if t is not None}
        kept = tuple(name for name in op.returns if values[name].is_floating_point())
        if not moves or not kept:
            return (None,) * len(op.returns)
        forth = carried(op, tangent(returning(op, kept), tuple(moves), self.ties))
        primal = [values[p.name] for p in forth.params[: -len(moves)]]
        results = _function(forth, self.ties)(*primal, *moves.values())
        listed = results if isinstance(results, tuple) else (results,)
        found = dict(zip(kept, listed, strict=True))
        return tuple(
            t if (t := found.get(name)) is None else t.to(values[name].dtype) for name in op.returns
        )

    def _at(self, saved: Sequence[Any]) -> tuple[Op, dict[str, Any]]:
        """The operator at these arguments, and all tensors by name, the results last."""
        names = (*(p.name for p in self.op.params), *self.op.returns)
        values = dict(zip(names, saved, strict=True))
        return settled(self.op, {name: x.shape for name, x in values.items()}), values


@dataclass(frozen=True, slots=True)
class _Backward:
    """A gradient operator, and which of the saved tensors it takes before the cotangents."""

    run: TorchFunction
    primals: tuple[int, ...]


def _function(op: Op, ties: str) -> TorchFunction:
    """An operator that was derived, as a function of tensors like the one that it was made of."""
    made: TorchFunction = op.memo(f"torch {ties}", lambda: TorchFunction(op, ties))
    return made


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _apply(typed: _Typed, tensors: Sequence[Any]) -> Any:
    """Runs a step; where nothing is to be differentiated torch need not hear of it.

    Otherwise too, `Function.apply` is called only where transforms of torch.func need it: it binds
    arguments by their names each time, which takes longer than all else.
    """
    torch = _torch()
    if not _asked()():
        plain = not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors)
        level = getattr(torch.autograd.forward_ad, "_current_level", 0)  # of dual numbers
        if plain and level < 0:
            results = typed(tensors)
            return results if len(results) > 1 else results[0]
    made, step = _differentiable(), typed
    if torch.is_grad_enabled():
        step = typed.keeping(tuple([x.requires_grad for x in tensors]))
    if not _asked()():
        found = super(torch.autograd.Function, made).apply(step, *tensors)
    else:
        found = made.apply(step, *tensors)
    if step is typed:
        return found
    count = len(typed.op.returns)
    return found[:count] if count > 1 else found[0]


@lru_cache(maxsize=1)
def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise UnsupportedError(
            "dt.torch makes functions of torch tensors, and torch is not installed here; "
            "install it (pip install torch), or call the operator on arrays"
        ) from None


@lru_cache(maxsize=1)
def _asked() -> Callable[[], bool]:
    """Whether transforms of torch.func are running, if this torch tells; else always."""
    asked: Callable[[], bool] = getattr(
        _torch()._C, "_are_functorch_transforms_active", lambda: True
    )
    return asked


@lru_cache(maxsize=1)
def _differentiable() -> Any:
    """The torch.autograd.Function that runs a `_Typed`, made when torch is there."""
    base = _torch().autograd.Function

    def forward(typed: _Typed, *tensors: Any) -> Any:
        results = typed(tensors)
        return results if len(results) > 1 else results[0]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        typed, *tensors = inputs
        results = output if isinstance(output, tuple) else (output,)
        ctx.typed = typed
        ctx.save_for_backward(*tensors, *results)
        ctx.save_for_forward(*tensors, *results)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))

    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return None, *ctx.typed.pull(ctx.saved_tensors, cotangents, ctx.needs_input_grad[1:])

    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        found = ctx.typed.push(ctx.saved_tensors, tangents)
        return found if len(found) > 1 else found[0]

    rules: dict[str, Callable[..., Any]] = {
        "forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp
    }  # fmt: skip
    return type("Differentiable", (base,), {k: staticmethod(rule) for k, rule in rules.items()})


def _array(given: Any, op: Op, position: int) -> Array:
    """A tensor as an array of the same memory; a bf16 one as its bits."""
    try:
        found: Array = given.detach().numpy()
        return found
    except (
        TypeError,
        RuntimeError,
    ):  # elsewhere, of another layout or type, its sign still to turn
        pass
    torch = _torch()
    if given.device.type != "cpu" or given.layout is not torch.strided:
        name = op.params[position].name if position < len(op.params) else f"argument {position}"
        elsewhere = given.device.type != "cpu"
        raise DeviceError(
            f"{op.name}: {name} is a tensor "
            + (f"on {given.device}" if elsewhere else f"of layout {given.layout}")
            + "; expected a dense tensor on the CPU; convert it with "
            + (".cpu()" if elsewhere else ".to_dense()")
        )
    plain = given.detach().resolve_neg()
    if plain.dtype is torch.bfloat16:
        plain = plain.view(torch.uint16)
    return np.from_dlpack(plain)


def _tensor(array: Array, dtype: DType) -> Any:
    """An array as a tensor of the same memory."""
    torch = _torch()
    if dtype is bf16:
        return torch.from_dlpack(as_bits(array)).view(torch.bfloat16)
    return torch.from_numpy(array)


@lru_cache(maxsize=64)
def _like(dtype: Any) -> Array:
    """An empty array of the type that tensors of this type have as arrays."""
    name = str(dtype).removeprefix("torch.")
    try:
        return np.empty(0, bf16.numpy if name == "bfloat16" else name)
    except TypeError:
        raise DTypeError(
            f"tensors of {name} are not supported; expected one of {', '.join(BY_NAME)}"
        ) from None


def _annotated(op: Op, dtypes: Sequence[DType | None]) -> Op:
    """The operator with these element types declared; the same where they are already."""
    if all(p.type.dtype is d for p, d in zip(op.params, dtypes, strict=True)):
        return op
    params = tuple(
        Param(p.name, TensorType(d, p.type.dims)) for p, d in zip(op.params, dtypes, strict=True)
    )
    made: Op = op.memo(f"declared {dtypes}", lambda: replace(op, params=params, _memo={}))
    return made


def _moved(function: Any, op: Op) -> Any:
    """What runs an operator, for the same one with types declared."""
    if isinstance(function, Op):
        return op
    from .runner import Runner
    from .sched.loop.schedule import Schedule

    if isinstance(function, Runner):
        schedule = function.schedule and Schedule(op, function.schedule.primitives)
        return Runner(op, schedule, function.strict)
    return Schedule(op, function.primitives)


def _shown(function: Any) -> str:
    return function.name if isinstance(function, Op) else repr(function)
