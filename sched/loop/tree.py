"""Looking around in a loop tree and rebuilding parts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from .nest import Leaf, Loop, Nest, Seq, Tree, leaves

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
    return list(_ways(_Same(tree)).get(Leaf(stmt), ()))


def way_to_loop(tree: Tree, name: str) -> list[Step]:
    """The way from the root to a loop, itself excluded."""
    return list(_ways(_Same(tree)).get(name, ()))[:-1]


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


@lru_cache(maxsize=64)
def _ways(key: _Same) -> Mapping[Leaf | str, tuple[Step, ...]]:
    """The ways to all statements, and to and into all loops by their names."""
    found: dict[Leaf | str, tuple[Step, ...]] = {}
    for node, way in _nodes(key.tree):
        if isinstance(node, Leaf):
            found[node] = way
        elif isinstance(node, Loop):
            found[node.name] = (*way, (node, 0))
    return found


def around_stmt(tree: Tree, stmt: str) -> list[Loop]:
    """The loops around a statement, outermost first."""
    return [node for node, _ in way_to(tree, stmt) if isinstance(node, Loop)]


def around_loop(tree: Tree, name: str) -> list[Loop]:
    """The loops around a loop, outermost first, without itself."""
    return [node for node, _ in way_to_loop(tree, name) if isinstance(node, Loop)]


def loops_to(tree: Tree, name: str | None) -> list[Loop]:
    """The loops around a loop and itself, outermost first; none where there is no name."""
    if name is None:
        return []
    return [node for node, _ in _ways(_Same(tree))[name] if isinstance(node, Loop)]


def loop_named(tree: Tree, name: str) -> Loop:
    """The loop of that full name."""
    return loops_to(tree, name)[-1]


def edit(tree: Tree, change: Mapping[str, Callable[[Loop], Tree]]) -> Tree:
    """Rebuilds the tree with the named loops replaced (their new bodies already rebuilt)."""
    match tree:
        case Leaf():
            return tree
        case Seq(parts):
            new = [edit(part, change) for part in parts]
            same = all(a is b for a, b in zip(new, parts, strict=True))
            return tree if same else seq(new)
        case Loop() as loop:
            body = edit(loop.body, change)
            loop = loop if body is loop.body else replace(loop, body=body)
            rule = change.get(loop.name)
            return rule(loop) if rule else loop


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
    return {
        key.stmt: tuple(node for node, _ in way if isinstance(node, Loop))
        for key, way in _ways(_Same(tree)).items()
        if isinstance(key, Leaf)
    }


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
