"""The compiled half of `dispatch.py`: two functions that CPython calls as its own.

Both are of the kind METH_FASTCALL, `PyObject *f(self, args, nargs)`. What they work on lies in
arrays of words (`dispatch_words.py`); `self` is such a NumPy array. They reach CPython's interface
by the addresses in `API`, so the object has no undefined symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import llvmlite.ir as ir

from .dispatch_words import API, ARRAY_SIZE, ARRAY_WORDS, ENTRY_WORDS, KERNEL_WORDS, TABLE
from .entry import ENTRY
from .layout import Layout
from .target import PTR
from .values import I1, I8, I32, I64, VOID

_SIGNATURES = {
    "Py_IncRef": ir.FunctionType(VOID, [PTR]),
    "Py_DecRef": ir.FunctionType(VOID, [PTR]),
    "PyObject_Vectorcall": ir.FunctionType(PTR, [PTR, PTR, I64, PTR]),
    "PyTuple_New": ir.FunctionType(PTR, [I64]),
    "PyTuple_SetItem": ir.FunctionType(I32, [PTR, I64, PTR]),
    "PyEval_SaveThread": ir.FunctionType(PTR, []),
    "PyEval_RestoreThread": ir.FunctionType(VOID, [PTR]),
    "PyLong_AsVoidPtr": ir.FunctionType(PTR, [PTR]),
    "PyLong_FromLongLong": ir.FunctionType(PTR, [I64]),
}
_FASTCALL = ir.FunctionType(PTR, [PTR, PTR, I64])
_RUN = ir.FunctionType(I64, [PTR, PTR, PTR, PTR])
_FITS = ir.FunctionType(I1, [PTR, PTR, I64])


def dispatch_module(triple: str, layout: Layout) -> str:
    """The LLVM IR of `dispatch` and `invoke`.

    `invoke(pool, workspace, arrays...)` runs a kernel and returns its status, checking nothing.
    `dispatch(arrays...)` does so for the first entry that the arrays fit, and returns the new
    outputs, or True where they were given; None where no entry fits or the kernel has a complaint.
    """
    module = ir.Module()
    module.triple = triple
    code = _Functions(module, layout)
    code.run()
    code.fits()
    code.invoke()
    code.dispatch()
    return str(module)


class _Functions:
    """One function after another; `fn` and `ib` are those of the function being written."""

    def __init__(self, module: ir.Module, layout: Layout) -> None:
        self.module, self.layout = module, layout

    def start(self, name: str, type_: ir.FunctionType, linkage: str = "") -> list[ir.Value]:
        self.fn = ir.Function(self.module, type_, name)
        self.fn.linkage = linkage
        self.ib = ir.IRBuilder(self.fn.append_basic_block("entry"))
        return list(self.fn.args)

    def at(self, words: ir.Value, index: int | ir.Value) -> ir.Value:
        index = I64(index) if isinstance(index, int) else index
        return self.ib.gep(words, [index], source_etype=I64)

    def word(self, words: ir.Value, index: int | ir.Value, type_: ir.Type = I64) -> ir.Value:
        return self.ib.load(self.at(words, index), typ=type_)

    def field(self, thing: ir.Value, offset: int, type_: ir.Type) -> ir.Value:
        """What lies that many bytes into an object."""
        return self.ib.load(self.ib.gep(thing, [I64(offset)], source_etype=I8), typ=type_)

    def api(self, words: ir.Value, name: str, *args: ir.Value) -> ir.Value:
        """Calls a function of CPython; `words` begin with the address of `API`."""
        table = self.word(words, 0, PTR)
        return self.ib.call(self.word(table, API.index(name), _SIGNATURES[name].as_pointer()), args)

    def returned(self, words: ir.Value, name: str) -> None:
        """Returns None or True."""
        found = self.word(self.word(words, 0, PTR), API.index(name), PTR)
        self.api(words, "Py_IncRef", found)
        self.ib.ret(found)

    @contextmanager
    def each(self, count: ir.Value) -> Iterator[ir.Value]:
        """A loop over 0 .. count-1; `break_` within leads behind it."""
        again, body, after = (self.fn.append_basic_block() for _ in range(3))
        with self.ib.goto_entry_block():
            index = self.ib.alloca(I64)
        self.ib.store(I64(0), index)
        self.ib.branch(again)
        self.ib.position_at_end(again)
        n = self.ib.load(index, typ=I64)
        self.ib.cbranch(self.ib.icmp_signed("<", n, count), body, after)
        self.ib.position_at_end(body)
        yield n
        self.ib.store(self.ib.add(n, I64(1)), index)
        self.ib.branch(again)
        self.ib.position_at_end(after)

    def unless(self, bad: ir.Value, other: ir.Block) -> None:
        """Goes on here unless `bad`, else in another block."""
        good = self.fn.append_basic_block()
        self.ib.cbranch(bad, other, good)
        self.ib.position_at_end(good)

    # The functions

    def run(self) -> None:
        """`i64 run(kernel, args, pool, workspace)`: its status."""
        kernel, args, pool, workspace = self.start("run", _RUN, "internal")
        ib, field = self.ib, KERNEL_WORDS
        count = self.word(kernel, field["count"])
        pointers = ib.alloca(PTR, count)
        with self.each(count) as n:
            param = self.at(kernel, ib.add(ib.shl(n, I64(1)), I64(field["params"])))
            position = self.word(param, 0)
            place = ib.gep(pointers, [n], source_etype=PTR)
            with ib.if_else(ib.icmp_signed("<", position, I64(0))) as (fixed, given):
                with fixed:
                    ib.store(self.word(param, 1, PTR), place)
                with given:
                    array = ib.load(ib.gep(args, [position], source_etype=PTR), typ=PTR)
                    ib.store(self.field(array, self.layout.data, PTR), place)
        code = self.word(kernel, field["code"], ENTRY.as_pointer())
        keeps = ib.icmp_signed("==", self.word(kernel, field["release"]), I64(0))
        with ib.if_then(keeps):
            ib.ret(ib.call(code, [pool, workspace, pointers]))
        thread = self.api(kernel, "PyEval_SaveThread")
        status = ib.call(code, [pool, workspace, pointers])
        self.api(kernel, "PyEval_RestoreThread", thread)
        ib.ret(status)

    def invoke(self) -> None:
        kernel, args, _ = self.start("invoke", _FASTCALL)
        ib = self.ib
        words = self.field(kernel, self.layout.data, PTR)
        pool = self.api(words, "PyLong_AsVoidPtr", self.word(args, 0, PTR))
        workspace = self.api(words, "PyLong_AsVoidPtr", self.word(args, 1, PTR))
        status = ib.call(self.module.get_global("run"), [words, self.at(args, 2), pool, workspace])
        ib.ret(self.api(words, "PyLong_FromLongLong", status))

    def fits(self) -> None:
        """`i1 fits(entry, args, nargs)`: are these the arrays that an entry is for?"""
        entry, args, nargs = self.start("fits", _FITS, "internal")
        ib, at = self.ib, self.layout
        no = self.fn.append_basic_block("no")
        inputs, outputs = (self.word(entry, ENTRY_WORDS[n]) for n in ("inputs", "outputs"))
        given = self.word(entry, ENTRY_WORDS["given"])
        outputs = ib.select(ib.icmp_signed("!=", given, I64(0)), outputs, I64(0))
        self.unless(ib.icmp_signed("!=", nargs, ib.add(inputs, outputs)), no)
        arrays = self.word(entry, ENTRY_WORDS["arrays"], PTR)
        starts, ends = (ib.alloca(I64, nargs) for _ in range(2))
        with self.each(nargs) as n:
            array = self.word(args, n, PTR)
            want = self.at(arrays, ib.mul(n, I64(ARRAY_SIZE)))
            wanted = {name: self.word(want, i) for name, i in ARRAY_WORDS.items()}
            self.unless(ib.icmp_signed("!=", self.field(array, at.type, I64), wanted["type"]), no)
            rank = ib.sext(self.field(array, at.rank, I32), I64)
            self.unless(ib.icmp_signed("!=", rank, wanted["rank"]), no)
            self.unless(ib.icmp_signed("!=", self.field(array, at.dtype, I64), wanted["dtype"]), no)
            data = self.field(array, at.data, I64)
            low = ib.and_(data, wanted["align"])
            flags = ib.sext(self.field(array, at.flags, I32), I64)
            lacks = ib.and_(ib.xor(flags, I64(-1)), wanted["flags"])
            self.unless(ib.icmp_signed("!=", ib.or_(low, lacks), I64(0)), no)
            extents = ib.inttoptr(wanted["extents"], PTR)
            shape, strides = (self.field(array, o, PTR) for o in (at.shape, at.strides))
            with self.each(rank) as dim:
                dim3 = self.at(extents, ib.mul(dim, I64(3)))
                extent = ib.xor(self.word(shape, dim), self.word(dim3, 0))
                stride = ib.xor(self.word(strides, dim), self.word(dim3, 1))
                wrong = ib.or_(extent, ib.and_(stride, self.word(dim3, 2)))
                self.unless(ib.icmp_signed("!=", wrong, I64(0)), no)
            ib.store(ib.add(data, wanted["low"]), self.at(starts, n))
            ib.store(ib.add(data, wanted["high"]), self.at(ends, n))
        pairs = self.word(entry, ENTRY_WORDS["same"], PTR)
        with self.each(outputs) as out:
            target = ib.add(inputs, out)
            start, end = self.word(starts, target), self.word(ends, target)
            with self.each(target) as n:
                other, its_end = self.word(starts, n), self.word(ends, n)
                crossing = [(start, its_end), (other, end), (start, end), (other, its_end)]
                meet = reduce(ib.and_, [ib.icmp_unsigned("<", a, b) for a, b in crossing])
                same = self.word(pairs, ib.add(ib.mul(out, nargs), n))
                wrong = ib.select(
                    ib.icmp_signed("!=", same, I64(0)),
                    ib.icmp_signed("!=", start, other),
                    meet,
                )
                self.unless(wrong, no)
        ib.ret(I1(1))
        ib.position_at_end(no)
        ib.ret(I1(0))

    def dispatch(self) -> None:
        table, args, nargs = self.start("dispatch", _FASTCALL)
        ib = self.ib
        found = self.fn.append_basic_block("found")
        words = self.field(table, self.layout.data, PTR)
        entries = self.at(words, TABLE["entries"])
        with self.each(self.word(words, TABLE["count"])) as n:
            entry = self.word(entries, n, PTR)
            fits = ib.call(self.module.get_global("fits"), [entry, args, nargs])
            self.unless(fits, found)
        self.returned(words, "none")

        ib.position_at_end(found)
        # Those used much move to the front, where they are found soon.
        before = ib.sub(n, ib.zext(ib.icmp_signed(">", n, I64(0)), I64))
        ib.store(self.word(entries, before), self.at(entries, n))
        ib.store(entry, self.at(entries, before))
        object_ = self.word(entry, ENTRY_WORDS["object"], PTR)
        ib.store(object_, self.word(words, TABLE["last"], PTR))
        # While Python runs, the table may drop the entry: it and all it owns stay until the end.
        self.api(words, "Py_IncRef", object_)
        with ib.if_then(self.is_set(entry, "python")):
            result = self.api(words, "PyObject_Vectorcall", object_, args, nargs, PTR(None))
            self.api(words, "Py_DecRef", object_)
            ib.ret(result)
        with ib.if_else(self.is_set(entry, "given")) as (into, new):
            with into:
                self._into(words, entry, object_, args)
            with new:
                self._new(words, entry, object_, args, nargs)
        ib.unreachable()

    def is_set(self, entry: ir.Value, name: str) -> ir.Value:
        return self.ib.icmp_signed("!=", self.word(entry, ENTRY_WORDS[name]), I64(0))

    def _run(self, entry: ir.Value, args: ir.Value) -> ir.Value:
        """Runs the kernel of an entry that needs no pool and no workspace: is all well?"""
        kernel = self.word(entry, ENTRY_WORDS["kernel"], PTR)
        run = self.module.get_global("run")
        status = self.ib.call(run, [kernel, args, PTR(None), PTR(None)])
        return self.ib.icmp_signed("==", status, I64(0))

    def _into(self, words: ir.Value, entry: ir.Value, object_: ir.Value, args: ir.Value) -> None:
        good = self._run(entry, args)
        self.api(words, "Py_DecRef", object_)
        with self.ib.if_else(good) as (well, ill):
            with well:
                self.returned(words, "true")
            with ill:
                self.returned(words, "none")
        self.ib.unreachable()

    def _new(
        self, words: ir.Value, entry: ir.Value, object_: ir.Value, args: ir.Value, nargs: ir.Value
    ) -> None:
        """Makes the outputs by `numpy.empty` and runs the kernel."""
        ib = self.ib
        outputs = self.word(entry, ENTRY_WORDS["outputs"])
        everything = ib.alloca(PTR, ib.add(nargs, outputs))
        with self.each(nargs) as n:
            ib.store(self.word(args, n), self.at(everything, n))
        results = self.at(everything, nargs)
        made = self.word(entry, ENTRY_WORDS["results"], PTR)
        empty = self.word(self.word(words, 0, PTR), API.index("empty"), PTR)
        with self.each(outputs) as n:
            arguments = self.at(made, ib.shl(n, I64(1)))
            array = self.api(words, "PyObject_Vectorcall", empty, arguments, I64(2), PTR(None))
            with ib.if_then(ib.icmp_unsigned("==", array, PTR(None))):  # it has raised
                self._drop(words, results, n)
                self.api(words, "Py_DecRef", object_)
                ib.ret(PTR(None))
            ib.store(array, self.at(results, n))
        good = self._run(entry, everything)
        self.api(words, "Py_DecRef", object_)
        with ib.if_then(ib.not_(good)):
            self._drop(words, results, outputs)
            self.returned(words, "none")
        with ib.if_then(ib.icmp_signed("==", outputs, I64(1))):
            ib.ret(self.word(results, 0, PTR))
        several = self.api(words, "PyTuple_New", outputs)
        with ib.if_then(ib.icmp_unsigned("==", several, PTR(None))):
            self._drop(words, results, outputs)
            ib.ret(PTR(None))
        with self.each(outputs) as n:
            self.api(words, "PyTuple_SetItem", several, n, self.word(results, n, PTR))
        ib.ret(several)

    def _drop(self, words: ir.Value, objects: ir.Value, count: ir.Value) -> None:
        with self.each(count) as n:
            self.api(words, "Py_DecRef", self.word(objects, n, PTR))
