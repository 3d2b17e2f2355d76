"""Makes `docs/errors.md`: small pieces of a user's code, each with the one error that it gives.

A chapter is a file of `docs/errors/`, whose name gives its place and title. A line `## title`
starts a case; the code under it runs as the file `case.py` in an empty directory, and raises.
What stands before the first case runs before each, as the file `shared.py`.
"""

from __future__ import annotations

import ast
import linecache
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import diptych as dt
import numpy as np

DOCS = Path(__file__).parent
HEAD = """# Errors

Every way to be wrong gets one error that says where, what was expected, what came, and what would
help. Each piece of code below raises what stands under it. Before it come
`import numpy as np, diptych as dt`, `from diptych import f32, f64, i32, i64` and
`i, j, k, l, n = dt.indices("i j k l n")`, and the file `shared.py` where a chapter begins with one.
Made by `make docs`, and checked by the tests.
"""


@dataclass(frozen=True)
class Case:
    """A piece of code that is wrong, under a title; `shared` runs before it."""

    chapter: str
    title: str
    shared: str
    code: str

    def __str__(self) -> str:
        return f"{self.chapter}: {self.title}"

    def run(self) -> str:
        """The error it raises: its type, as users can name it, then its whole text."""
        error = self.error()
        kind = next(kind for kind in type(error).__mro__ if kind.__name__ in dt.__all__)
        return f"{kind.__name__}: {error}"

    def error(self) -> dt.Error:
        """The error itself, with its traceback."""
        return _error(self)


def value(case: Case) -> Any:
    """What the last line of a case gives, for a case that is not wrong."""
    names = _names()
    _execute(case.shared, "shared.py", names)
    *before, last = ast.parse(case.code).body
    assert isinstance(last, ast.Expr), f"{case}: the last line is no expression"
    _execute("\n".join(map(ast.unparse, before)), "case.py", names)
    return eval(compile(ast.Expression(last.value), "case.py", "eval"), names)


@cache
def _error(case: Case) -> dt.Error:
    names = _names()
    with _empty_directory():
        _execute(case.shared, "shared.py", names)
        try:
            _execute(case.code, "case.py", names)
        except dt.Error as error:
            return error
    raise AssertionError(f"{case}: the code raises nothing")


def _names() -> dict[str, Any]:
    """What stands before every case."""
    names: dict[str, Any] = dict(zip("ijkln", dt.indices("i j k l n"), strict=True))
    names |= {"np": np, "dt": dt, "f32": dt.f32, "f64": dt.f64, "i32": dt.i32, "i64": dt.i64}
    return names


def _execute(code: str, name: str, names: dict[str, Any]) -> None:
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), names)


@contextmanager
def _empty_directory() -> Iterator[None]:
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def cases(folder: str = "errors") -> list[Case]:
    """All cases of a page, chapter by chapter."""
    found = []
    for file in sorted((DOCS / folder).glob("*.case")):
        title = file.stem.partition("-")[2].replace("-", " ").capitalize()
        shared, *parts = ("\n" + file.read_text()).split("\n## ")
        for part in parts:
            name, _, code = part.partition("\n")
            found.append(Case(title, name.strip(), shared.strip() + "\n", code.strip() + "\n"))
    return found


def page(head: str = HEAD, folder: str = "errors", result: Callable[[Case], str] = Case.run) -> str:
    """A whole page: its head, then every case of a folder with its result."""
    out, title = [head], ""
    for case in cases(folder):
        if case.chapter != title:
            title = case.chapter
            out.append(f"## {title}\n")
            if case.shared.strip():
                out.append(f"```python\n{case.shared}```\n")
        shown = f"```python\n{case.code}```\n```text\n{result(case)}\n```\n"
        out.append(f"**{case.title}**\n\n{shown}")
    return "\n".join(out)


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(page())
