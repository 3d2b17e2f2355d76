"""Operators as functions of torch tensors, with derivatives of ours.

Tensors come as arrays of the same memory (DLPack) and go back so. The backward pass of an operator
is its gradient operator, called in the same way, hence differentiable again, to any depth.
"""

from __future__ import annotations

from typing import Any

from .algo.dtypes import DType, bf16, from_numpy
from .algo.errors import GradientError
from .algo.tensor_expr.annotation import annotated
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import needs
from .arguments import arguments, in_order
from .autodiff.derivatives import EVEN, sharing
from .autodiff.keep import Keep, Kept, keeping, kept
from .torch_autograd import run
from .torch_step import How, Step
from .torch_tensors import array_like, tensor_of, torch_module


def torch(function: Any, *, ties: str = EVEN, keep: Keep | None = None) -> TorchFunction:
    """A differentiable function of torch tensors that runs an operator, plainly or scheduled.

    `function` is an operator, a schedule, or `op.with_schedule(..)`. Arguments are tensors on the
    CPU, of any strides (or arrays and numbers), in order or by name; results are tensors that
    share the memory of what was computed. Reverse and forward mode of torch.autograd work, to any
    depth, each by an operator of ours that runs under the schedule attached to it, if any; so do
    torch.func's transforms, a batch (`vmap`) being one more index of the operator. `ties` is as in
    `dt.grad`, and `keep` as in `dt.vjp`. Raises `GradientError` for other functions and for what
    cannot be kept, `UnsupportedError` where torch is not installed, and when called `DeviceError`
    for tensors elsewhere, else what the operator raises.
    """
    return TorchFunction(function, ties, keep)


class TorchFunction:
    """An operator as a function of torch tensors; `op` is the operator."""

    def __init__(self, function: Any, ties: str = EVEN, keep: Keep | None = None) -> None:
        op = function if isinstance(function, Op) else getattr(function, "op", None)
        if not isinstance(op, Op):
            raise GradientError(
                f"torch({shown(function)}): expected an operator, a schedule of one, or "
                "op.with_schedule(...)"
            )
        what = None if keep is None else _kept(function, op, keep)
        self.function, self.op, self._torch = function, op, torch_module()
        self.how = How(sharing(ties), what, _function)
        self._typed: dict[tuple[DType, ...], Step] = {}
        self._known: dict[tuple[Any, ...], Step] = {}  # by torch's types, where all are tensors
        self._rules = op.rules  # of which these steps know

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results, a tuple if there are several. Inputs are given in order, or by name."""
        if self._torch.compiler.is_compiling():  # torch's compiler goes on behind the call
            return self._torch.compiler.disable(self._call)(args, named)
        return self._call(args, named)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._rules is not self.op.rules:
            self._typed, self._known, self._rules = {}, {}, self.op.rules
        known = self._known.get(tuple([getattr(x, "dtype", None) for x in args]))
        if known is None or named:
            return self._admit(args, named)
        return run(known, args)

    def _admit(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A call of arguments that have not been looked at, or are not all tensors in order."""
        given = in_order(self.op, args, named) if named else args
        tensor = self._torch.Tensor
        like = [array_like(x.dtype) if isinstance(x, tensor) else x for x in given]
        declared = [p.type.dtype for p in self.op.params]
        for n, (dtype, x) in enumerate(zip(declared, given, strict=False)):
            if dtype is None and isinstance(x, tensor) and x.dtype is self._torch.bfloat16:
                declared[n] = bf16
        arrays = arguments(annotated(self.op, declared), like)
        dtypes = tuple(from_numpy(a.dtype, d) for a, d in zip(arrays, declared, strict=True))
        typed = self._typed.get(dtypes)
        if typed is None:
            typed = self._typed[dtypes] = Step(self.function, self.op, dtypes, self.how)
        tensors = [
            x if isinstance(x, tensor) else tensor_of(a, d)
            for x, a, d in zip(given, arrays, dtypes, strict=True)
        ]
        if all(isinstance(x, tensor) for x in given):
            self._known[tuple([x.dtype for x in given])] = typed
        return run(typed, tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        keep = self.how.keep
        return TorchFunction, (
            self.function, self.how.ties, None if keep is None else dict(keep)
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<torch function {shown(self.function)}>"


def _function(op: Op, ties: str) -> TorchFunction:
    """An operator that was derived, as a function of tensors like the one that it was made of."""
    made: TorchFunction = op.memo(f"torch {ties}", lambda: TorchFunction(op, ties))
    return made


def _kept(function: Any, op: Op, keep: Keep) -> Kept:
    """What is kept of an operator. Raises `GradientError` where nobody can choose."""
    what = kept(keep)
    if not isinstance(function, Op):
        raise GradientError(
            f"torch of a schedule of {op.name}: keep={keep!r} is for operators alone; to keep more "
            "is to compute more, which the schedule does not know; give the operator, or leave "
            "keep out"
        )
    error = needs(op)
    if error is not None:
        listed = ", ".join(f"{name}=..." for name in error.sizes)
        raise GradientError(
            f"torch of {op.name}: what keep={keep!r} may name is known where "
            f"{', '.join(error.sizes)} is a number; give {op.name}.at({listed})"
        )
    keeping(op, what)  # which knows the names
    return what


def shown(function: Any) -> str:
    return function.name if isinstance(function, Op) else repr(function)
