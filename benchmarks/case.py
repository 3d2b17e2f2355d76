"""What a case of the benchmark is: an operator, its arrays, its peers and what it has to do."""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SCHEDULES = Path(__file__).parent / "schedules"

EXP = 18
"""Operations that an exponential costs at least: reduction of its range and a polynomial."""
ERF = 40


@dataclass(frozen=True)
class Case:
    """One operator at one size.

    `arrays` draws the arguments. A peer is a function of them: `numpy` of arrays; `torch` of the
    module torch, then tensors; `jax` of the module jax.numpy, then arrays, and it is jitted. With
    `compiled` torch's runs under torch.compile too. `operations` and `moved` (bytes; what is not
    said is all arguments and results once) are the least that any program has to do. Results are
    compared within `tolerance` of the greatest absolute value, integers exactly.

    With `wrt` it is the derivative by these parameters, of `forward` together with the results or
    after them; the peers' functions are those to differentiate, and arrays of the results' shapes
    are drawn as cotangents. A `program` is made of several operators: a function without arguments
    gives what runs them, by their default schedules, and `text` only says what they are.
    """

    name: str
    text: str
    arrays: Callable[[np.random.Generator], Sequence[Array]]
    operations: float
    numpy: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    jax: Callable[..., Any] | None = None
    compiled: bool = False
    returns: Any = None
    moved: float | None = None
    tolerance: float = 1e-4
    wrt: tuple[str, ...] = ()
    forward: bool = True
    program: Callable[[], Callable[..., Any]] | None = None

    def op(self) -> Any:
        """The operator."""
        import diptych as dt

        return dt.op(self.text, returns=self.returns)

    def drawn(self) -> tuple[Array, ...]:
        """The arguments, the same each time."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        found = tuple(self.arrays(rng))
        if not self.wrt:
            return found
        results = self.op()(*found)
        listed = results if isinstance(results, tuple) else (results,)
        return *found, *(np.asarray(floats(rng, *r.shape)) for r in listed)

    def schedule(self, kind: str) -> Path | None:
        """The file of its `hand`-written or `tuned` schedule, where there is one.

        By hand there may be one for a kind of processor, `NAME.znver5.sched`, which comes first.
        """
        from llvmlite.binding import get_host_cpu_name

        names = [f".{get_host_cpu_name()}", ""] if kind == "hand" else [f".{kind}"]
        files = (SCHEDULES / f"{self.name}{name}.sched" for name in names)
        return next((file for file in files if file.exists()), None)


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal numbers of single precision."""
    return rng.standard_normal(shape, np.float32)


def chosen(cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """The cases whose names match one of the patterns."""
    found = [c for c in cases if any(fnmatch.fnmatch(c.name, p) for p in patterns)]
    if not found:
        names = ", ".join(c.name for c in cases)
        raise SystemExit(f"no case is called {' or '.join(patterns)}; there are {names}")
    return found
