"""What a statement uses of the LLVM function around it, so that one of its own can hold it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import llvmlite.ir as ir

from ..algo.tensor_expr.expr import Access, Index, walk
from ..lower.ir import Stmt, Store, Update, expressions, variables
from ..lower.ir import walk as walk_statements
from .frame import Frame


class Closure:
    """Variables and buffers of a frame that a statement mentions."""

    def __init__(self, f: Frame, stmt: Stmt) -> None:
        names = used(stmt)
        lengths = [n for b in names if b in f.buffers for n in variables(f.buffers[b].buffer)]
        names = list(dict.fromkeys([*names, *lengths]))
        self.values = {name: f.vars[name] for name in names if name in f.vars}
        self.storages = {name: f.buffers[name] for name in names if name in f.buffers}

    @property
    def passed(self) -> list[ir.Value]:
        """What the other function must be given."""
        values = [value.llvm for value in self.values.values() if value.llvm is not None]
        return [*values, *(storage.pointer for storage in self.storages.values())]

    def enter(self, g: Frame, given: Iterator[ir.Value], *, shared: bool) -> None:
        """Makes them known in the other function, where it was given those. `shared`: it runs in
        several threads, so that no buffer from outside is its own."""
        for name, value in self.values.items():
            g.vars[name] = replace(value, llvm=None if value.llvm is None else next(given))
        for name, storage in self.storages.items():
            own = storage.own and not shared
            g.buffers[name] = replace(storage, pointer=next(given), own=own)


def used(stmt: Stmt) -> list[str]:
    """Names of the variables and buffers that a statement mentions, in order of appearance."""
    names: dict[str, None] = {}
    for item in walk_statements(stmt):
        if isinstance(item, (Store, Update)):
            names.setdefault(item.buffer)
        for expr in expressions(item):
            for part in walk(expr):
                match part:
                    case Index(name) | Access(name, _):
                        names.setdefault(name)
    return list(names)
