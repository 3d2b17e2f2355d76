"""Machine code of one kernel in this process, and how Python runs it.

What explains a kernel, its source and its complaints, is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algo.forked import cached_property
from ..algo.tensor_expr.op import Op
from . import jit, pool
from .fastcall import invoker, kernel_words

if TYPE_CHECKING:
    from ..lower.ir import Function
    from .host_code import Source

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Code:
    """An object in memory. `facts` are what the compiler found out: the loop IR (`function`) and
    its name (`symbol`), the inputs that it reads, the number of outputs, its dynamic `sizes`, the
    access sites that it may complain of, whether it runs on the pool, the bytes of workspace
    (`fixed`, and `thread` for each thread), and the text of the schedule."""

    facts: dict[str, Any]
    loaded: jit.Loaded

    @cached_property
    def function(self) -> Function:
        """The loop IR."""
        from ..lower.ir_parse import parse_function

        return parse_function(self.facts["function"])


class NativeKernel:
    """Code, and how it is run. Calls from several threads at once are safe: each has a workspace
    of its own.

    `inputs` are the names of the arguments, `sizes` the values of the code's dynamic sizes, as
    arrays of rank 0. A `tiny` kernel keeps the interpreter lock, which is cheaper.
    """

    def __init__(
        self,
        name: str,
        code: Code,
        inputs: Sequence[str],
        tiny: bool,
        sizes: tuple[Array, ...] = (),
    ) -> None:
        self.name, self.code, self.sizes = name, code, sizes
        facts = code.facts
        self.sites: list[str] = facts["sites"]
        self._parallel: bool = facts["parallel"]
        self._fixed, self._thread = facts["fixed"], facts["thread"]
        self._spare: list[tuple[Array, int]] = []
        params = [inputs.index(read) for read in facts["reads"]]
        params += range(len(inputs), len(inputs) + facts["outputs"])
        address = code.loaded.address(f"{facts['symbol']}.entry")
        words = kernel_words(address, params, sizes, self._parallel or not tiny)
        self._invoke = invoker(address, params, sizes, words)
        plain = not (self._parallel or self._fixed or self._thread)
        self.words = words if plain else None
        """What compiled code calls it by, if it needs neither pool nor workspace."""

    def __repr__(self) -> str:
        return f"<native kernel {self.name}>"

    def run(self, arrays: Sequence[Array], outs: Sequence[Array]) -> int:
        """Calls the code, checking nothing. Returns its status: 0, or 1 + the number of the site
        at which an index read from memory was out of range."""
        address, threads = pool.current().lease() if self._parallel else (0, 1)
        size = self._fixed + threads * self._thread
        if not size:
            return self._invoke(address, 0, *arrays, *outs)
        workspace = self._workspace(size)
        status = self._invoke(address, workspace[1], *arrays, *outs)
        self._spare.append(workspace)
        return status

    def _workspace(self, size: int) -> tuple[Array, int]:
        """Memory of at least `size` bytes, and where in it a multiple of 64 lies."""
        try:
            found = self._spare.pop()
            if found[0].size >= size + 64:
                return found
        except IndexError:
            pass
        memory = np.empty(size + 64, np.uint8)
        start = memory.ctypes.data
        return memory, start + -start % 64

    def error(self, status: int, op: Op, arrays: Sequence[Array]) -> Exception:
        """What a positive status of a call of `op` on `arrays` means."""
        from .outside import outside

        return outside(op, self.sites[status - 1], arrays)

    @property
    def function(self) -> Function:
        """The loop IR."""
        return self.code.function

    @property
    def source(self) -> Source:
        """The LLVM IR and the assembly, made again from the loop IR."""
        from .emit import emit
        from .host_code import Source, host_target

        return Source(emit(self.function, host_target()))
