"""Makes `docs/operators.md`: common layers and kernels, each as an operator of the language.

A chapter is a file of `docs/operators/`, whose name gives its place and title. It lists entries:

    operator(title, text, reference, **inputs)

The reference is a Python expression of NumPy or SciPy over the inputs, in float64; the functions
that it calls beyond those stand in the chapter. An input is a `Spec`, which draws an array.
Chapters know `np`, `scipy` and the specs of this file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import diptych as dt
import numpy as np
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.sparse.csgraph
import scipy.spatial.distance
import scipy.special

Array = np.ndarray[Any, Any]
Spec = Callable[[np.random.Generator], Array]
DOCS = Path(__file__).parent
HEAD = """# Operators

Common layers and kernels of machine learning, imaging and science, each written as an operator of
the language. The tests run every one on random arrays, by its default schedule and by another, in
float32 and float64, and compare it with what stands under it, computed in float64; the functions
there that are not of NumPy or SciPy are plain loops in `docs/operators/`. Made by `make docs`.
"""


@dataclass(frozen=True)
class Entry:
    """An operator, and what its results are compared with.

    `within` bounds the error, in units of the type's epsilon times the greatest absolute value.
    """

    chapter: str
    title: str
    text: str
    reference: str
    inputs: dict[str, Spec]
    names: dict[str, Any] = field(repr=False)
    schedule: str
    returns: Any
    within: float

    def __str__(self) -> str:
        return f"{self.chapter}: {self.title}"

    def op(self) -> Any:
        """The operator."""
        return dt.op(self.text, returns=self.returns)

    def arrays(self, dtype: str) -> dict[str, Array]:
        """The inputs, the same each time; those of floats have this type."""
        rng = np.random.default_rng(zlib.crc32(self.title.encode()))
        drawn = {name: spec(rng) for name, spec in self.inputs.items()}
        return {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in drawn.items()}

    def expected(self, arrays: dict[str, Array]) -> tuple[Array, ...]:
        """What the reference gives, in float64."""
        wide = {n: a.astype(float) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        found = eval(self.reference, self.names | wide)
        return found if isinstance(found, tuple) else (found,)


# What chapters draw their inputs by


def floats(*shape: int) -> Spec:
    """Numbers around 0 of size 1."""
    return lambda rng: rng.standard_normal(shape)


def unit(*shape: int, low: float = 0.0) -> Spec:
    """Numbers between `low` and 1."""
    return lambda rng: low + (1 - low) * rng.random(shape)


def whole(limit: int, *shape: int, dtype: str = "int64") -> Spec:
    """Whole numbers from 0 up to and without the limit; from -limit for signed small ones."""
    low = -limit if dtype in ("int8", "int16") else 0
    return lambda rng: rng.integers(low, limit, shape).astype(dtype)


def number(value: float) -> Spec:
    """A single number."""
    return lambda rng: np.array(value)


def made(make: Callable[[np.random.Generator], Array]) -> Spec:
    """Anything else."""
    return make


def entries() -> list[Entry]:
    """All entries, chapter by chapter."""
    found: list[Entry] = []
    for file in sorted((DOCS / "operators").glob("*.py")):
        chapter = file.stem.partition("-")[2].replace("-", " ").capitalize()
        names: dict[str, Any] = {"np": np, "scipy": scipy, "floats": floats, "unit": unit}
        names |= {"whole": whole, "number": number, "made": made}

        def operator(
            title: str,
            text: str,
            reference: str,
            *,
            schedule: str = "",
            returns: Any = None,
            within: float = 32,
            chapter: str = chapter,
            names: dict[str, Any] = names,
            **inputs: Spec,
        ) -> None:
            said = dedent(text).strip()
            options = (schedule, returns, within)
            found.append(Entry(chapter, title, said, reference, inputs, names, *options))

        names["operator"] = operator
        exec(compile(file.read_text(), str(file), "exec"), names)
    return found


def page() -> str:
    """The whole page."""
    every = entries()
    out, title = [HEAD], ""
    out.append(f"There are {len(every)} of them.\n")
    for entry in every:
        if entry.chapter != title:
            title = entry.chapter
            out.append(f"## {title}\n")
        out.append(
            f"**{entry.title}**\n\n```\n{entry.text}\n```\ncompared with `{entry.reference}`\n"
        )
    return "\n".join(out)


if __name__ == "__main__":
    (DOCS / "operators.md").write_text(page())
