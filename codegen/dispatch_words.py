"""What Python and compiled code tell each other when a call is dispatched: arrays of 64-bit words,
whose places have these names."""

from __future__ import annotations

API = ("Py_IncRef", "Py_DecRef", "PyObject_Vectorcall", "PyTuple_New", "PyTuple_SetItem",
       "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_AsVoidPtr", "PyLong_FromLongLong",
       "empty", "none", "true")  # fmt: skip
"""Functions of CPython, then objects: `numpy.empty`, None and True."""

TABLE = {"api": 0, "last": 1, "count": 2, "entries": 3}
"""`self` of `dispatch`: the address of `API`, that of a word for the object of the entry used last,
and the addresses of entries."""
ENTRY_WORDS = {"object": 0, "kernel": 1, "inputs": 2, "outputs": 3, "given": 4, "python": 5,
               "arrays": 6, "results": 7, "same": 8}  # fmt: skip
"""An entry: its Python object; the kernel's words; how many inputs and outputs; are outputs among
the arguments; is the Python object to be called instead of the kernel; then addresses: of the
arrays' words, of a shape and a dtype for each output, and of a table of outputs by arguments that
says which are the same memory."""
ARRAY_WORDS = {"type": 0, "dtype": 1, "rank": 2, "low": 3, "high": 4, "align": 5, "flags": 6,
               "extents": 7}  # fmt: skip
"""An argument: the objects that its type and dtype must be; the bytes from `low` to `high` from its
data on; bits that its address must not have, and that its flags must have; the address of an
extent, a stride and a mask (0 where the stride is no matter) for each dimension."""
ARRAY_SIZE = len(ARRAY_WORDS)
KERNEL_WORDS = {"api": 0, "code": 1, "release": 2, "count": 3, "params": 4}
"""`self` of `invoke`: `API`, the kernel's entry; does it run without the interpreter lock; the
number of its parameters; for each the position of an argument, or -1 and an address."""
