"""Looking around in a loop tree and rebuilding parts of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from operator import is_not

from .index import LOOP, ORIGIN, STMT, index, replaced
from .nest import Leaf, Loop, Nest, Seq, Tree, leaves
from .origins import base

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
    return list(_way(tree, stmt, STMT) or ())


def way_to_loop(tree: Tree, name: str) -> list[Step]:
    """The way from the root to a loop, itself excluded."""
    return list(_way(tree, name, LOOP) or ())[:-1]


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


def _way(tree: Tree, name: str, kind: int) -> tuple[Step, ...] | None:
    """The way to a statement, or to and into a loop, as `kind` says; None where there is none."""
    way: list[Step] = []
    while True:
        match tree:
            case Seq(parts):
                found = index(tree)[kind].get(name)
                if found is None:
                    return None
                way.append((tree, found[0]))
                tree = parts[found[0]]
            case Loop() as loop:
                way.append((loop, 0))
                if kind == LOOP and loop.name == name:
                    return tuple(way)
                tree = loop.body
            case Leaf(stmt):
                return tuple(way) if kind == STMT and stmt == name else None


def parts_of(tree: Seq, stmts: Iterable[str]) -> list[int]:
    """The parts of a sequence in which those of the statements stand that are in it, in order."""
    places = index(tree)[STMT]
    return sorted({n for stmt in stmts for n in places.get(stmt, ())})


def copies_of(tree: Tree, origins: Collection[str]) -> Iterator[Loop]:
    """The loops that are copies of these by their names, or they themselves, outer before inner."""
    match tree:
        case Seq(parts):
            places = index(tree)[ORIGIN]
            for n in sorted({n for origin in origins for n in places.get(origin, ())}):
                yield from copies_of(parts[n], origins)
        case Loop() as loop:
            if base(loop.name) in origins:
                yield loop
            yield from copies_of(loop.body, origins)


def loops_around(tree: Tree, stmts: Set[str]) -> Iterator[Loop]:
    """The loops around any of the statements, outer before inner and first before next."""
    match tree:
        case Seq(parts):
            for n in parts_of(tree, stmts):
                yield from loops_around(parts[n], stmts)
        case Loop() as loop:
            stmts = stmts & loop.values.keys()
            if stmts:
                yield loop
                yield from loops_around(loop.body, stmts)


def around_stmt(tree: Tree, stmt: str) -> list[Loop]:
    """The loops around a statement, outermost first."""
    return [node for node, _ in way_to(tree, stmt) if isinstance(node, Loop)]


def around_loop(tree: Tree, name: str) -> list[Loop]:
    """The loops around a loop, outermost first, without itself."""
    return [node for node, _ in way_to_loop(tree, name) if isinstance(node, Loop)]


def loops_to(tree: Tree, name: str | None) -> list[Loop]:
    """The loops around a loop and itself, outermost first; none where there is no name."""
    way = () if name is None else _way(tree, name, LOOP)
    if way is None:
        raise KeyError(name)
    return [node for node, _ in way if isinstance(node, Loop)]


def loop_named(tree: Tree, name: str) -> Loop:
    """The loop of that full name."""
    return loops_to(tree, name)[-1]


def named(tree: Tree, name: str) -> Loop | None:
    """The loop of that full name, if there is one."""
    way = _way(tree, name, LOOP)
    loop = way[-1][0] if way else None
    return loop if isinstance(loop, Loop) else None


def in_order(tree: Tree, names: Iterable[str]) -> list[str]:
    """Those of the names that loops have, outer before inner and first before next."""
    ways = {name: _way(tree, name, LOOP) for name in names}
    places = {name: [n for _, n in way] for name, way in ways.items() if way}
    return sorted(places, key=places.__getitem__)


def edit(tree: Tree, change: Mapping[str, Callable[[Loop], Tree]]) -> Tree:
    """Rebuilds the tree with the named loops replaced (their new bodies already rebuilt)."""
    match tree:
        case Seq(parts):
            places = index(tree)[LOOP]
            at = {n for name in change for n in places.get(name, ())}
            return replaced(tree, {n: edit(parts[n], change) for n in at}) if at else tree
        case Loop() as loop:
            body = edit(loop.body, change)
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
        same = _common(before.parts, after.parts)
        end = _common(before.parts[same:][::-1], after.parts[same:][::-1])
        middles = (tree.parts[same : len(tree.parts) - end] for tree in (before, after))
        old, new = ({id(part): part for part in middle} for middle in middles)
        if [key for key in old if key in new] == [key for key in new if key in old]:
            return {stmt for key, part in new.items() if key not in old for stmt in leaves(part)}
    return set(leaves(after))


def _common(one: Sequence[Tree], two: Sequence[Tree]) -> int:
    """How many parts two sequences have in common at their beginnings."""
    differ = map(is_not, one, two)
    return next((n for n, other in enumerate(differ) if other), min(len(one), len(two)))


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
