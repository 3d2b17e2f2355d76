"""torch itself, and its tensors as arrays of the same memory (DLPack) and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from .algo.dtypes import BY_NAME, DType, as_bits, bf16
from .algo.errors import DeviceError, DTypeError, UnsupportedError
from .algo.tensor_expr.op import Op

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def torch_module() -> Any:
    """torch. Raises `UnsupportedError` where it is absent."""
    try:
        return import_module("torch")
    except ImportError:
        raise UnsupportedError(
            "dt.torch makes functions of torch tensors, and torch is not installed here; "
            "install it (pip install torch), or call the operator on arrays"
        ) from None


@lru_cache(maxsize=1)
def transformed() -> Callable[[], bool]:
    """Whether transforms of torch.func are running, if this torch tells; else always."""
    asked: Callable[[], bool] = getattr(
        torch_module()._C, "_are_functorch_transforms_active", lambda: True
    )
    return asked


@lru_cache(maxsize=1)
def _is_legacy_batch() -> Callable[[Any], bool]:
    """Whether a tensor is a batch of the transforms before torch.func, if this torch tells."""
    functorch = getattr(torch_module()._C, "_functorch", None)
    asked: Callable[[Any], bool] = getattr(functorch, "is_legacy_batchedtensor", lambda _: False)
    return asked


def array_of(given: Any, op: Op, position: int) -> Array:
    """A tensor as an array of the same memory; a bf16 one as its bits."""
    try:
        found: Array = given.detach().numpy()
        return found
    except (
        TypeError,
        RuntimeError,
    ):  # elsewhere, of another layout or type, its sign still to turn
        pass
    torch = torch_module()
    if _is_legacy_batch()(given):
        raise UnsupportedError(
            f"{op.name}: torch calls it for a batch in the way that preceded torch.func; instead "
            "of is_grads_batched, check_batched_grad or vectorize use torch.vmap, "
            "torch.func.jacrev or torch.func.jacfwd"
        )
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


def tensor_of(array: Array, dtype: DType) -> Any:
    """An array as a tensor of the same memory."""
    torch = torch_module()
    if dtype is bf16:
        return torch.from_dlpack(as_bits(array)).view(torch.bfloat16)
    return torch.from_numpy(array)


@lru_cache(maxsize=64)
def array_like(dtype: Any) -> Array:
    """An empty array of the type that tensors of this type have as arrays."""
    name = str(dtype).removeprefix("torch.")
    try:
        found = np.empty(0, bf16.numpy if name == "bfloat16" else name)
    except TypeError:
        found = None
    if found is None or found.dtype.kind == "V":  # NumPy knows it where ml_dtypes is imported
        raise DTypeError(
            f"tensors of {name} are not supported; expected one of {', '.join(BY_NAME)}"
        )
    return found


def cast(tensor: Any, dtype: Any) -> Any:
    """A tensor of this type, the same where it is of it."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)
