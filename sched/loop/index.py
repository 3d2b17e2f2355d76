"""In which parts of a sequence statements and loops stand.

A primitive changes few parts of a nest. What it leaves has its place in the index of the sequence
before, so a step costs what it changed, and names are looked up, not sought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import accumulate

from .nest import Index, Leaf, Loop, Places, Seq, Tree
from .origins import base

STMT, LOOP, ORIGIN = range(3)
"""What is looked up: a statement, a loop, or all loops that are copies of one (`base`)."""

Names = tuple[Set[str], Set[str], Set[str]]
"""Those in a tree, of each kind."""


def index(tree: Seq) -> Index:
    """The parts of a sequence by the names of what they hold; made once."""
    if tree.index is None:
        found: tuple[dict[str, tuple[int, ...]], ...] = ({}, {}, {})
        for n, part in enumerate(tree.parts):
            for places, held in zip(found, names(part), strict=True):
                for name in held:
                    places[name] = (*places.get(name, ()), n)
        _keep(tree, found)
    assert tree.index is not None
    return tree.index


def names(tree: Tree) -> Names:
    """The statements in a tree, its loops, and those that these are copies of."""
    around: list[str] = []
    while isinstance(tree, Loop):
        around.append(tree.name)
        tree = tree.body
    origins = [base(name) for name in around]
    if isinstance(tree, Leaf):
        return {tree.stmt}, set(around), set(origins)
    inside = index(tree)
    return inside[STMT].keys(), inside[LOOP].keys() | around, inside[ORIGIN].keys() | origins


def replaced(tree: Seq, new: Mapping[int, Tree]) -> Seq:
    """The sequence with others for some parts; those that are sequences give it several."""
    parts: list[Tree] = []
    done = 0
    for n in sorted(new):
        parts += tree.parts[done:n]
        parts += _items(new[n])
        done = n + 1
    made = Seq((*parts, *tree.parts[done:]))
    if tree.index is not None:
        _keep(made, _followed(tree, new))
    return made


def _followed(tree: Seq, new: Mapping[int, Tree]) -> list[Places]:
    """The index of what `replaced` makes, from that of the sequence before."""
    width = [1] * len(tree.parts)
    for n, part in new.items():
        width[n] = len(_items(part))
    at = [0, *accumulate(width)]
    gone = [names(tree.parts[n]) for n in new]
    come = [(at[n] + k, names(item)) for n in new for k, item in enumerate(_items(new[n]))]
    found: list[Places] = []
    for kind, before in enumerate(index(tree)):
        places = before
        if len(tree.parts) != at[-1]:
            places = {name: tuple([at[n] for n in where]) for name, where in before.items()}
        changed: dict[str, list[int]] = {name: [] for held in gone for name in held[kind]}
        changed |= {name: [] for _, held in come for name in held[kind]}
        for name, where in changed.items():
            where += [at[n] for n in before.get(name, ()) if n not in new]
            where += [n for n, held in come if name in held[kind]]
        differ = {name: tuple(sorted(where)) for name, where in changed.items()}
        differ = {name: where for name, where in differ.items() if places.get(name, ()) != where}
        if differ:
            places = {**places, **differ}
            for name in [name for name, where in differ.items() if not where]:
                del places[name]
        found.append(places)
    return found


def _items(tree: Tree) -> tuple[Tree, ...]:
    return tree.parts if isinstance(tree, Seq) else (tree,)


def _keep(tree: Seq, found: Sequence[Places]) -> None:
    object.__setattr__(tree, "index", tuple(found))
