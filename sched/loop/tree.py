"""Looking around in a loop tree and rebuilding parts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from .nest import Leaf, Loop, Nest, Seq, Tree, leaves, loops

Step = tuple[Loop | Seq, int]
"""A node on the way down, and which of its parts the way enters (0 for a loop)."""


def seq(parts: list[Tree]) -> Tree:
    """The parts in order; nested sequences are flattened, a single part stays alone."""
    flat: list[Tree] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def steps_to(tree: Tree, found: Callable[[Tree], bool]) -> list[Step] | None:
    """The way from the root to the first node that is `found`, that node excluded."""
    for node, way in _nodes(tree):
        if found(node):
            return list(way)
    return None


def way_to(tree: Tree, stmt: str) -> list[Step]:
    """The way from the root to a statement."""
    return list(_way(tree, stmt, 0) or ())


def way_to_loop(tree: Tree, name: str) -> list[Step]:
    """The way from the root to a loop, itself excluded."""
    return list(_way(tree, name, 1) or ())[:-1]


def _nodes(tree: Tree) -> Iterator[tuple[Tree, tuple[Step, ...]]]:
    """Every node, outer before inner and first before next, with the way to it."""
    stack: list[tuple[Tree, tuple[Step, ...]]] = [(tree, ())]
    while stack:
        node, way = stack.pop()
        yield node, way
        match node:
            case Seq(parts):
                stack += [(parts[n], (*way, (node, n))) for n in reversed(range(len(parts)))]
            case Loop() as loop:
                stack.append((loop.body, (*way, (loop, 0))))


class _Same:
    """A tree as a key that is equal to itself only: trees never change."""

    __slots__ = ("tree",)

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __hash__(self) -> int:
        return id(self.tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tree is self.tree


def _way(tree: Tree, name: str, kind: int) -> tuple[Step, ...] | None:
    """The way to a statement (kind 0), or to and into a loop (kind 1); None where there is none."""
    way: list[Step] = []
    while True:
        match tree:
            case Seq(parts):
                at = _positions(_Same(tree))[kind].get(name)
                if at is None:
                    return None
                way.append((tree, at))
                tree = parts[at]
            case Loop() as loop:
                way.append((loop, 0))
                if kind == 1 and loop.name == name:
                    return tuple(way)
                tree = loop.body
            case Leaf(stmt):
                return tuple(way) if kind == 0 and stmt == name else None


def parts_of(tree: Seq, stmts: Iterable[str]) -> list[int]:
    """The parts of a sequence in which those of the statements stand that are in it, in order."""
    positions = _positions(_Same(tree))[0]
    return sorted({positions[stmt] for stmt in stmts if stmt in positions})


@lru_cache(maxsize=4096)
def _positions(key: _Same) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """In which part of a sequence a statement stands, and a loop. A primitive changes few parts,
    and what the others hold is remembered."""
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    assert isinstance(key.tree, Seq)
    for n, part in enumerate(key.tree.parts):
        for positions, names in zip(found, _names(_Same(part)), strict=True):
            positions.update(dict.fromkeys(names, n))
    return found


@lru_cache(maxsize=4096)
def _names(key: _Same) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The statements and the loops of a tree."""
    return tuple(leaves(key.tree)), tuple(loop.name for loop in loops(key.tree))


def around_stmt(tree: Tree, stmt: str) -> list[Loop]:
    """The loops around a statement, outermost first."""
    return [node for node, _ in way_to(tree, stmt) if isinstance(node, Loop)]


def around_loop(tree: Tree, name: str) -> list[Loop]:
    """The loops around a loop, outermost first, without itself."""
    return [node for node, _ in way_to_loop(tree, name) if isinstance(node, Loop)]


def loops_to(tree: Tree, name: str | None) -> list[Loop]:
    """The loops around a loop and itself, outermost first; none where there is no name."""
    way = () if name is None else _way(tree, name, 1)
    if way is None:
        raise KeyError(name)
    return [node for node, _ in way if isinstance(node, Loop)]


def loop_named(tree: Tree, name: str) -> Loop:
    """The loop of that full name."""
    return loops_to(tree, name)[-1]


def named(tree: Tree, name: str) -> Loop | None:
    """The loop of that full name, if there is one."""
    way = _way(tree, name, 1)
    loop = way[-1][0] if way else None
    return loop if isinstance(loop, Loop) else None


def edit(tree: Tree, change: Mapping[str, Callable[[Loop], Tree]]) -> Tree:
    """Rebuilds the tree with the named loops replaced (their new bodies already rebuilt)."""
    nodes = {id(node) for name in change for node, _ in _way(tree, name, 1) or ()}
    return _edited(tree, change, nodes) if nodes else tree


def _edited(tree: Tree, change: Mapping[str, Callable[[Loop], Tree]], nodes: set[int]) -> Tree:
    """`edit`, where `nodes` are those on the way to a loop that changes."""
    match tree:
        case Seq(parts):
            return seq([_edited(p, change, nodes) if id(p) in nodes else p for p in parts])
        case Loop() as loop if id(loop) in nodes:
            body = _edited(loop.body, change, nodes)
            loop = loop if body is loop.body else replace(loop, body=body)
            rule = change.get(loop.name)
            return rule(loop) if rule else loop
    return tree


def wrap(body: Tree, around: list[Loop], stmts: set[str] | None = None) -> Tree:
    """Puts loops around a body, outermost first, each with the values of the body's statements."""
    stmts = set(leaves(body)) if stmts is None else stmts
    for loop in reversed(around):
        values = {stmt: value for stmt, value in loop.values.items() if stmt in stmts}
        body = replace(loop, values=values, body=body)
    return body


def remove(tree: Tree, gone: set[str]) -> Tree | None:
    """The tree without some statements and without the loops that are empty then."""
    match tree:
        case Leaf(stmt):
            return None if stmt in gone else tree
        case Seq(parts):
            kept = [part for part in (remove(part, gone) for part in parts) if part is not None]
            return seq(kept) if kept else None
        case Loop() as loop:
            body = remove(loop.body, gone)
            if body is None:
                return None
            if body is loop.body:
                return loop
            values = {stmt: value for stmt, value in loop.values.items() if stmt not in gone}
            return replace(loop, values=values, body=body)


def chains(tree: Tree) -> dict[str, tuple[Loop, ...]]:
    """The loops around every statement, outermost first."""
    return {stmt: tuple(around_stmt(tree, stmt)) for stmt in leaves(tree)}


def moved(before: Tree, after: Tree) -> set[str]:
    """The statements around which the loops are others than before, or that are new; those that
    are not run in the order in which they did."""
    if before is after:
        return set()
    if isinstance(before, Seq) and isinstance(after, Seq):
        old, new = ({id(part): part for part in tree.parts} for tree in (before, after))
        if [key for key in old if key in new] == [key for key in new if key in old]:
            return {stmt for key, part in new.items() if key not in old for stmt in leaves(part)}
    return set(leaves(after))


def common_loops(around: Sequence[Sequence[Loop]]) -> list[Loop]:
    """The loops that all of these chains begin with, outermost first."""
    out: list[Loop] = []
    for level in zip(*around, strict=False):
        if any(loop is not level[0] for loop in level):
            break
        out.append(level[0])
    return out


def with_tree(nest: Nest, tree: Tree) -> Nest:
    """The nest with another tree over the same statements."""
    return replace(nest, tree=tree)
