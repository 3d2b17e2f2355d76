"""The text of a schedule: calls chained by dots, with literal arguments only. Nothing is run."""

from __future__ import annotations

import ast
from typing import Any

from ...algo.errors import ScheduleError

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def calls(text: str) -> list[Call]:
    """The calls of `.tile(i=8, j=48).reorder("io", "jo")`, in order; the first dot is optional."""
    text = text.strip()
    if not text:
        return []
    try:
        # Parentheses, so that a call may go on in the next line.
        node: ast.expr = ast.parse(f"(_.{text.lstrip('.')})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        reason = err.msg if isinstance(err, SyntaxError) else "too deep"
        raise ScheduleError(f"not the text of a schedule ({reason}): {short(text)}") from None
    found: list[Call] = []
    while not isinstance(node, ast.Name):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            raise ScheduleError(
                f'not the text of a schedule: {short(text)}; expected calls as in .split("i", 8)'
            )
        found.append(_call(node, node.func.attr))
        node = node.func.value
    return found[::-1]


def _call(node: ast.Call, name: str) -> Call:
    args = tuple(_literal(arg, name) for arg in node.args)
    keywords = {str(word.arg): _literal(word.value, name) for word in node.keywords}
    return name, args, keywords


def _literal(node: ast.expr, name: str) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        raise ScheduleError(
            f"{name}: arguments in the text of a schedule are names in quotes, integers and "
            f"tuples of them, not {short(ast.unparse(node))}"
        ) from None
    return tuple(value) if isinstance(value, list) else value


def short(text: str, most: int = 60) -> str:
    """A text on one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
