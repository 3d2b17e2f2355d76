"""Names a person would choose for the indices of a derived equation.

An element of a cotangent is named by the indices with which its tensor is read, where those are
plain; other dimensions and clashes take letters that the equation has free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from string import ascii_lowercase
from types import MappingProxyType

from ..algo.tensor_expr.affine import normalize
from ..algo.tensor_expr.expr import Expr, Index, Range, Reduce, children, transform, walk
from ..algo.tensor_expr.op import Equation

LETTERS = "yxzuvpqrstwijklmnabcdefgho"


def named(
    eq: Equation,
    hints: Sequence[Sequence[str]],
    taken: Collection[str],
    numbered: Mapping[str, str] = MappingProxyType({}),
) -> Equation:
    """The equation with all indices renamed for people: `hints` are names to try for each
    placeholder, best first; `taken` are names that no index may have; `numbered` says what names
    stand for which a number only keeps apart from those of other equations."""
    free, conflicts = _scopes(eq.roots)

    def wishes(*names: str) -> Iterator[str]:
        yield from (numbered[name] for name in names if name in numbered)
        yield from names

    bases = [_base(name) for name in (*free, *conflicts)]
    names: dict[str, str] = {}
    for name in free:
        tries = hints[int(name[1:])] if name[0] == "%" and int(name[1:]) < len(hints) else ()
        wanted = chain(wishes(*tries, _base(name)), _letters(LETTERS, bases))
        names[name] = _first(wanted, {*taken, *names.values()})
    for name, others in conflicts.items():
        busy = {names[other] for other in (*free, *others) if other in names}
        after = ascii_lowercase[ascii_lowercase.find(_base(name)) + 1 :] + ascii_lowercase
        wanted = chain(wishes(_base(name)), _letters(after, bases))
        names[name] = _first(wanted, {*taken, *busy})
    ranges = tuple(r for r in (rename_indices(r, names) for r in eq.ranges) if isinstance(r, Range))
    return Equation(
        eq.tensor,
        tuple(rename_indices(e, names) for e in eq.lhs),
        normalize(rename_indices(eq.rhs, names)),
        ranges,
        None if eq.where is None else rename_indices(eq.where, names),
        eq.reducer,
    )


def numbered_indices(written: Iterable[Equation], checked: Iterable[Equation]) -> dict[str, str]:
    """Of indices that are numbered to be unique, as i_1 is, the names as they are written."""
    mine, unique = (
        {e.name for eq in each for root in eq.roots for e in walk(root) if isinstance(e, Index)}
        for each in (written, checked)
    )
    return {n: base for n in unique - mine if (base := n.rpartition("_")[0]) in mine}


def rename_indices(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Indices renamed, those bound by reductions and ranges too."""

    def rule(item: Expr) -> Expr:
        match item:
            case Index(name):
                return Index(names.get(name, name))
            case Range(name, lo, hi):
                return Range(names.get(name, name), lo, hi)
            case Reduce(reducer, bound, body, ranges, where, dtype):
                new = tuple(names.get(name, name) for name in bound)
                return Reduce(reducer, new, body, ranges, where, dtype)
        return item

    return transform(expr, rule)


def _scopes(roots: Sequence[Expr]) -> tuple[list[str], dict[str, set[str]]]:
    """The indices of the equation itself, and each bound index with those bound around or inside
    it. A bound index has one name wherever its reduction occurs."""
    conflicts: dict[str, set[str]] = {}
    free: dict[str, None] = {}
    stack: list[tuple[Expr, tuple[str, ...]]] = [(root, ()) for root in reversed(roots)]
    seen: set[tuple[Expr, tuple[str, ...]]] = set()
    while stack:
        item, around = stack.pop()
        if (item, around) in seen:
            continue
        seen.add((item, around))
        if isinstance(item, (Index, Range)):
            name = item.name if isinstance(item, Index) else item.index
            if name not in around:
                free.setdefault(name)
        if isinstance(item, Reduce):
            for name in item.indices:
                conflicts.setdefault(name, set()).update(around, set(item.indices) - {name})
            for name in around:
                conflicts[name].update(item.indices)
            around = (*around, *item.indices)
        stack.extend((child, around) for child in reversed(children(item)))
    return list(free), conflicts


def _base(name: str) -> str:
    return name.split("%")[0]


def _letters(letters: str, bases: Collection[str]) -> Iterator[str]:
    """Letters that no index of the equation would like to have, then numbered ones."""
    yield from (letter for letter in letters if letter not in bases)
    yield from (f"i{number}" for number in count())


def _first(wanted: Iterable[str], taken: Collection[str]) -> str:
    return next(name for name in wanted if name and name not in taken)


def fresh_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, with a number behind it if it is taken."""
    names = set(taken)
    if wanted not in names:
        return wanted
    count = 1
    while f"{wanted}_{count}" in names:
        count += 1
    return f"{wanted}_{count}"
