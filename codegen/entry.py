"""The entry of a kernel: one signature for kernels of any number of arrays."""

from __future__ import annotations

import llvmlite.ir as ir

from .emit import Emitted
from .target import PTR
from .values import I64

ENTRY = ir.FunctionType(I64, [PTR, PTR, PTR])


def add_entry(emitted: Emitted) -> str:
    """Adds `name.entry(pool, workspace, pointers)` to the module and returns its name.

    It calls the kernel with the data pointers that it finds in memory, one a parameter.
    """
    module, function = emitted.module, emitted.function
    name = f"{function.name}.entry"
    fn = ir.Function(module, ENTRY, name)
    ib = ir.IRBuilder(fn.append_basic_block("entry"))
    pool, workspace, pointers = fn.args
    arrays = [
        ib.load(ib.gep(pointers, [I64(n)], source_etype=PTR), typ=PTR)
        for n in range(len(function.params))
    ]
    ib.ret(ib.call(module.get_global(function.name), [pool, workspace, *arrays]))
    return name
