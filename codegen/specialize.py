"""One kernel for exact types, strides and schedule: lowered and compiled, or loaded from disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ..algo import debug
from ..algo.forked import fork_lock
from ..algo.tensor_expr.op import Op
from . import jit
from .cache import default_cache
from .kept import object_key
from .native import Code, NativeKernel
from .signature import Form, Signature

if TYPE_CHECKING:
    from ..sched.loop.schedule import Schedule

codes: WeakValueDictionary[str, Code] = WeakValueDictionary()
counts = {"compiled": 0, "loaded": 0}
"""Objects that this process has compiled, and those that it has loaded from the disk."""
building = fork_lock()  # isl and the compiler's own tables know one thread at a time


def specialize(signature: Signature, schedule: Schedule | None, form: Form) -> NativeKernel:
    """The kernel for a signature, a schedule (None: the default one) and a form.

    Signatures that differ in the values of dynamic sizes alone share one code.
    """
    key = _key(signature, schedule, form)
    with building:
        code = codes.get(key)
        if code is None:
            found = default_cache().get(key)
            if found is None:
                found = _compile(signature, schedule, form)
                default_cache().put(key, *found)
                counts["compiled"] += 1
            else:
                debug.say(2, f"{signature.op.name}: object {key[:12]} from the cache")
                counts["loaded"] += 1
            code = codes[key] = Code(found[0], jit.Loaded(found[1]))
    dynamic = signature.dynamic
    sizes = tuple(np.array(dynamic[name], np.int64) for name in code.facts["sizes"])
    inputs = [p.name for p in signature.op.params]
    return NativeKernel(signature.op.name, code, inputs, signature.tiny, sizes)


def _compile(
    signature: Signature, schedule: Schedule | None, form: Form
) -> tuple[dict[str, Any], bytes]:
    from .build import build  # which imports lowering and the emitter: what is loaded needs neither

    return build(signature, schedule, form)


def _key(signature: Signature, schedule: Schedule | None, form: Form) -> str:
    """The name of the object: of everything on which it depends. The order in which an operator
    lists its inputs is no part of it."""
    return object_key(
        signature.op.memo("text in any order", lambda: _in_any_order(signature.op)),
        sorted((name, t.name) for name, t in signature.dtypes.items()),
        sorted(signature.bound.items()),
        None if schedule is None else schedule.text,
        repr(signature.machine),
        repr(replace(form, strides=tuple(sorted(form.strides)))),
    )


def _in_any_order(op: Op) -> str:
    params = tuple(sorted(op.params, key=lambda p: p.name))
    return Op(op.name, params, op.equations, op.returns, op.shapes, (), op.maxima).text
