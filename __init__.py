"""Diptych: index expressions and graphs of them, compiled under schedules at both levels.

    import diptych as dt
    from diptych import f32, sum

    i, j, k = dt.indices("i j k")

    @dt.op
    def matmul(A: f32["M", "K"], B: f32["K", "N"]):
        C = dt.tensor("C")
        C[i, j] = sum(A[i, k] * B[k, j])
        return C

Operators are called on NumPy arrays; `matmul.schedule()` gives the right panel of the diptych.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .algo import started as _started  # noqa: F401  before any source of the compiler is read
from .algo.dtypes import (
    DType,
    TensorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from .algo.errors import (
    DeviceError,
    DTypeError,
    Error,
    FileFormatError,
    GradientError,
    GraphError,
    InternalError,
    OpError,
    ParseError,
    ScheduleError,
    ShapeError,
    UnsupportedError,
)
from .algo.graph.graph import ArrayType
from .algo.graph.program import Program
from .algo.tensor_expr.dynamic import dynamic
from .algo.tensor_expr.fold_terms import reducer
from .algo.tensor_expr.functions import (
    abs,
    all,
    any,
    argmax,
    argmin,
    cast,
    cbrt,
    ceil,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    log2,
    max,
    maximum,
    min,
    minimum,
    ones_like,
    prod,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    sum,
    tanh,
    where,
    zeros_like,
)
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.scalar_terms import scalar
from .algo.tensor_expr.terms import indices, size
from .algo.tensor_expr.trace import tensor
from .api import bind as _bind
from .calls import cache_info, op, schedules, threads
from .programs import interpret, program, stop_gradient

if _TYPE_CHECKING:
    from .gradient_check import check_grads
    from .gradients import grad, jvp, value_and_grad, vjp
    from .sched.graph.schedule import GraphSchedule
    from .sched.loop.schedule import Schedule
    from .torch_function import torch

_bind()
__all__ = [
    "ArrayType",
    "DType",
    "DTypeError",
    "DeviceError",
    "Error",
    "FileFormatError",
    "GradientError",
    "GraphError",
    "GraphSchedule",
    "InternalError",
    "Op",
    "OpError",
    "ParseError",
    "Program",
    "Schedule",
    "ScheduleError",
    "ShapeError",
    "TensorType",
    "UnsupportedError",
    "abs",
    "all",
    "any",
    "argmax",
    "argmin",
    "bf16",
    "bool_",
    "cache_info",
    "cast",
    "cbrt",
    "ceil",
    "check_grads",
    "cos",
    "dynamic",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "f16",
    "f32",
    "f64",
    "floor",
    "grad",
    "i8",
    "i16",
    "i32",
    "i64",
    "indices",
    "interpret",
    "jvp",
    "log",
    "log1p",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "ones_like",
    "op",
    "prod",
    "program",
    "reducer",
    "rsqrt",
    "scalar",
    "schedules",
    "sigmoid",
    "sign",
    "sin",
    "size",
    "softplus",
    "sqrt",
    "stop_gradient",
    "sum",
    "tanh",
    "tensor",
    "threads",
    "torch",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "vjp",
    "where",
    "zeros_like",
]  # fmt: skip


# Calls of operators need none of these, so they are imported when they are asked for.
_LATE = {
    "Schedule": ".sched.loop.schedule",
    "GraphSchedule": ".sched.graph.schedule",
    **dict.fromkeys(("grad", "jvp", "value_and_grad", "vjp"), ".gradients"),
    "check_grads": ".gradient_check",
    "torch": ".torch_function",
}


def __getattr__(name: str) -> _Any:
    if name == "__version__":  # what reads it takes longer to import than all of NumPy's core
        from importlib.metadata import version

        return version("diptych")
    if name not in _LATE:
        raise AttributeError(f"module 'diptych' has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(_LATE[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
