"""Which parts of expressions text names, so that it grows with their distinct parts only.

Expressions are interned, so one part may stand in many places: squaring an expression 500 times
makes 500 nodes, and a tree of 2**500. Text that would be large says such parts once:

    let e1 = x[i] * x[i]
    let e2 = e1 * e1
    y[i] = e2 * e2

A name also stands for what lies deeper than a parser should go.
"""

from __future__ import annotations

from collections.abc import Iterable

from .expr import Call, Expr, Range, children, walk
from .operations import OPERATIONS

LARGE = 200
"""Nodes of a tree that is printed as it is, whatever its parts are."""

SMALL = 8
"""Nodes of a part that is rather repeated than named."""

DEEPEST = 50
"""Brackets within brackets."""


def named_parts(roots: Iterable[Expr]) -> list[Expr]:
    """The parts that need names, each after those in it; few texts need any."""
    roots = tuple(roots)
    nodes = list(dict.fromkeys(item for root in roots for item in walk(root)))
    sizes: dict[Expr, int] = {}
    uses: dict[Expr, int] = {}
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    for item in nodes:
        sizes[item] = 1 + sum(sizes[child] for child in children(item))
        for child in children(item):
            uses[child] = uses.get(child, 0) + 1
    large = sum(sizes[root] for root in roots) > LARGE
    depths: dict[Expr, int] = {}
    found: list[Expr] = []
    for item in nodes:
        depths[item] = _depth(item, depths)
        shared = large and uses[item] > 1 and sizes[item] >= SMALL
        if (shared or depths[item] > DEEPEST) and not _spelled_out(item):
            found.append(item)
            depths[item] = 0
    return found


def _depth(item: Expr, depths: dict[Expr, int]) -> int:
    """How deep the parts of an expression stand in it: a chain `a + b + c` is not deep."""
    inner = children(item)
    deep = [depths[child] + 1 for child in inner]
    if isinstance(item, Call) and isinstance(inner[0], Call):
        both = (item, inner[0])
        mine, left = (OPERATIONS[str(part.op)] if part.symbol else None for part in both)
        if mine and left and mine.arity == 2 and mine.precedence == left.precedence:
            deep[0] -= 1
    return max(deep, default=0)


def _spelled_out(item: Expr) -> bool:
    """Ranges and comparisons, of which chains are written, have no names."""
    if isinstance(item, Call) and item.op == "and":
        item = item.args[1]
    return isinstance(item, Range) or (isinstance(item, Call) and item.op in _COMPARISONS)


_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
