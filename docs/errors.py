"""Makes `docs/errors.md`: small pieces of a user's code, each with the one error that it gives.

A chapter is a file of `docs/errors/`, whose name gives its place and title. A line `## title`
starts a case; the code under it runs as the file `case.py` in an empty directory, and raises.
"""

from __future__ import annotations

import linecache
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np

DOCS = Path(__file__).parent
HEAD = """# Errors

Every way to be wrong gets one error that says where, what was expected, what came, and what would
help. Each piece of code below raises what stands under it. Before it come
`import numpy as np, diptych as dt`, `from diptych import f32, f64, i32, i64` and
`i, j, k, l, n = dt.indices("i j k l n")`. Made by `make docs`, and checked by the tests.
"""


@dataclass(frozen=True)
class Case:
    """A piece of code that is wrong, under a title."""

    chapter: str
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.chapter}: {self.title}"

    def run(self) -> str:
        """The error it raises: its type, then its whole text."""
        names: dict[str, Any] = dict(zip("ijkln", dt.indices("i j k l n"), strict=True))
        names |= {"np": np, "dt": dt, "f32": dt.f32, "f64": dt.f64, "i32": dt.i32, "i64": dt.i64}
        lines = self.code.splitlines(keepends=True)
        linecache.cache["case.py"] = (len(self.code), None, lines, "case.py")
        with _empty_directory():
            try:
                exec(compile(self.code, "case.py", "exec"), names)
            except dt.Error as error:
                return f"{type(error).__name__}: {error}"
        raise AssertionError(f"{self}: the code raises nothing")


@contextmanager
def _empty_directory() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)


def cases() -> list[Case]:
    """All cases, chapter by chapter."""
    found = []
    for file in sorted((DOCS / "errors").glob("*.case")):
        title = file.stem.partition("-")[2].replace("-", " ").capitalize()
        for part in ("\n" + file.read_text()).split("\n## ")[1:]:
            name, _, code = part.partition("\n")
            found.append(Case(title, name.strip(), code.strip() + "\n"))
    return found


def page() -> str:
    """The whole page."""
    out, title = [HEAD], ""
    for case in cases():
        if case.chapter != title:
            title = case.chapter
            out.append(f"## {title}\n")
        shown = f"```python\n{case.code}```\n```text\n{case.run()}\n```\n"
        out.append(f"**{case.title}**\n\n{shown}")
    return "\n".join(out)


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(page())
