"""New statements beside an old one, each as far inside the loops around it as it can be."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ...algo.tensor_expr.expr import Expr, Index
from .names import index_of, unlike
from .nest import Leaf, Loop, Seq, Stmt, Tree, leaves
from .relations import agree, differ
from .tree import seq
from .witness import first_pair

Follow = Callable[[Loop], Expr | None]
"""A loop's value over the dims of a new statement, None where they do not determine it."""


@dataclass(frozen=True)
class Place:
    """Where a new statement goes: values of the outermost loops of a chain, then its own tree."""

    values: tuple[Expr, ...]
    tree: Tree


def placed(
    stmt: Stmt,
    chain: list[Loop],
    follow: Follow,
    inner: tuple[Loop, ...],
    taken: Collection[str],
) -> Place:
    """As far inside the chain as the statement's dims determine the loops, then copies of others.

    `follow` gives the loops' values. Where those that are determined do not tell all instances
    apart, the statement gets one loop a dim. `inner` loops are its own, and the names `taken` are
    those of others.
    """
    values: list[Expr] = []
    for loop in chain:
        value = follow(loop)
        if value is None:
            break
        values.append(value)
    own: list[tuple[Loop, Expr]] = []
    for loop in chain[len(values) :]:
        value = follow(loop)
        if value is not None:
            own.append((loop, value))
    known = [*values, *(value for _, value in own), *(loop.values[stmt.name] for loop in inner)]
    tree: Tree = Leaf(stmt.name)
    for loop in inner:
        tree = replace(loop, body=tree)
    if _tell_apart(stmt, known):
        for loop, value in reversed(own):
            name = unlike(f"{stmt.name}.{index_of(loop.name)}", taken)
            tree = replace(loop, name=name, values={stmt.name: value}, body=tree)
    else:
        given = {*values, *(loop.values[stmt.name] for loop in inner)}
        for dim in reversed(stmt.dims):
            if Index(dim) not in given:
                name = unlike(f"{stmt.name}.{dim}", taken)
                tree = Loop(name, {stmt.name: Index(dim)}, tree)
    return Place(tuple(values), tree)


def _tell_apart(stmt: Stmt, values: list[Expr]) -> bool:
    """Do these values of loops differ for different instances?"""
    apart = differ([Index(dim) for dim in stmt.dims], stmt.dims)
    return first_pair(stmt, stmt, [*agree(values, stmt.dims), apart], stmt.name) is None


def inserted(
    tree: Tree,
    depth: int,
    old: str,
    new: str,
    before: tuple[str, Place],
    after: tuple[str, Place],
) -> Tree:
    """The tree with statement `old` called `new`, and trees put before and after what holds it."""
    if old not in leaves(tree):
        return tree
    if isinstance(tree, Seq):
        return seq([inserted(part, depth, old, new, before, after) for part in tree.parts])
    made: Tree = Leaf(new)
    if isinstance(tree, Loop):
        values = {(new if name == old else name): value for name, value in tree.values.items()}
        for name, it in (before, after):
            if depth < len(it.values):
                values[name] = it.values[depth]
        body = inserted(tree.body, depth + 1, old, new, before, after)
        made = replace(tree, values=values, body=body)
    parts = [made]
    if depth == len(before[1].values):
        parts.insert(0, before[1].tree)
    if depth == len(after[1].values):
        parts.append(after[1].tree)
    return seq(parts)
