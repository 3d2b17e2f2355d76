"""Nested Python containers of leaves: dicts, lists, tuples, named tuples and None.

A `Structure` is what is left when the leaves are taken out. It is interned, so two trees have one
shape exactly when their structures are the same object. Dicts keep their order of insertion and
None has no leaf, as in JAX's pytrees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import GraphError
from ..node import node


@node
class Structure:
    """`kind` is leaf, none, dict, list, tuple or named; `keys` are a dict's, or the fields."""

    kind: str
    parts: tuple[Structure, ...] = ()
    keys: tuple[Any, ...] = ()
    cls: Any = None

    def __repr__(self) -> str:
        return repr(unflatten(self, [_Star()] * leaf_count(self)))


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF = Structure("leaf")
NONE = Structure("none")


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves in order, and what is left. Anything that is no container is a leaf."""
    leaves: list[Any] = []
    return leaves, _take(tree, leaves)


def _take(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if tree is None:
        return NONE
    if kind is dict:
        return Structure("dict", tuple(_take(v, leaves) for v in tree.values()), tuple(tree))
    if kind is list:
        return Structure("list", tuple(_take(v, leaves) for v in tree))
    if isinstance(tree, tuple):
        parts = tuple(_take(v, leaves) for v in tree)
        if kind is tuple:
            return Structure("tuple", parts)
        if hasattr(tree, "_fields"):
            return Structure("named", parts, tuple(tree._fields), kind)
    leaves.append(tree)
    return LEAF


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree of that structure with these leaves."""
    return _put(structure, iter(leaves))


def _put(structure: Structure, leaves: Iterator[Any]) -> Any:
    match structure.kind:
        case "leaf":
            return next(leaves)
        case "none":
            return None
        case "dict":
            parts = structure.parts
            return {k: _put(p, leaves) for k, p in zip(structure.keys, parts, strict=True)}
        case "list":
            return [_put(part, leaves) for part in structure.parts]
        case "tuple":
            return tuple(_put(part, leaves) for part in structure.parts)
        case _:
            return structure.cls(*(_put(part, leaves) for part in structure.parts))


def leaf_count(structure: Structure) -> int:
    """How many leaves a tree of that structure has."""
    return 1 if structure is LEAF else sum(leaf_count(part) for part in structure.parts)


def paths(structure: Structure, root: str) -> list[str]:
    """A name for each leaf: "params.w1", "layers.0.b"; the root alone for a bare leaf.

    Names are distinct, and consist of letters, digits, underscores and dots.
    """
    taken: set[str] = set()
    names = []
    for path in _paths(structure, root):
        plain = re.sub(r"[^\w.]", "_", path)
        name, count = plain, 2
        while name in taken:
            name, count = f"{plain}_{count}", count + 1
        taken.add(name)
        names.append(name)
    return names


def _paths(structure: Structure, root: str) -> list[str]:
    if structure is LEAF:
        return [root]
    keys = structure.keys or range(len(structure.parts))
    return [
        name
        for key, part in zip(keys, structure.parts, strict=True)
        for name in _paths(part, f"{root}.{key}")
    ]


def map_tree(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` of the leaves of trees of one structure, as a tree of that structure."""
    leaves, structure = flatten(tree)
    columns = [leaves]
    for position, other in enumerate(others, 2):
        more, found = flatten(other)
        if found is not structure:
            raise GraphError(
                f"tree_map: tree 1 is {structure}, tree {position} is {found}; give trees of one "
                "structure (the same keys in the same order)"
            )
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])
