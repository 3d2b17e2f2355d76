"""What a stage of a user's reducer computes: the reducer's laws are known, its operations are not.

Tuples are combined in order, and how they are grouped does not matter: a component is known by the
product of what was combined, in the free monoid (the free commutative one, if the reducer is), and
by those of the components that it needs. The identity is the empty product.
"""

from __future__ import annotations

from diptych.algo.tensor_expr.expr import Access, Call, Expr, children
from diptych.algo.tensor_expr.fold_types import identity, typed_combine
from diptych.algo.tensor_expr.folds import Joint, Part
from diptych.algo.tensor_expr.op import Stage
from properties.brute.meaning import WHOLE, Chain, Meaning, Product, Token, constant, key

Tokens = dict[int, Token]
"""Tokens by the number of the component."""


def stage_value(stage: Stage, value: Expr, meaning: Meaning) -> Token:
    """What an instance of a stage computes; `value` is its value as the nest has it."""
    if stage.turn is None:
        return meaning.value(value)
    joint = stage.turn.joint
    stem = stage.name.rpartition(".")[0]
    number = next((n for n, m in enumerate(joint.members) if m.stem == stem), None)
    if number is None:
        return meaning.value(value)
    fold = joint.fold
    pattern = typed_combine(fold, tuple(m.acc for m in joint.members))[number]
    lefts, rights = ([Access(name, ()) for name in names] for names in (fold.left, fold.right))
    chosen: Token | None = None
    found: dict[Expr, Expr] = {}
    if not _matches(pattern, value, {*lefts, *rights}, found):
        found.clear()
        match value:
            case Call("where", (cond, combine, Access())):  # a condition on data: else it stays
                chosen = key(meaning.value(cond))
            case combine:
                pass
        if chosen is None or not _matches(pattern, combine, {*lefts, *rights}, found):
            return meaning.value(value)  # a start, a result, or what was kept aside
    left = {n: meaning.value(found[hole]) for n, hole in enumerate(lefts) if hole in found}
    right = {n: meaning.value(found[hole]) for n, hole in enumerate(rights) if hole in found}
    if chosen is not None:
        right = {n: hash(("if", chosen, key(token))) for n, token in right.items()}
    made = _combined(joint, number, left, right)
    return meaning.value(value) if made is None else made


def _matches(pattern: Expr, expr: Expr, holes: set[Access], found: dict[Expr, Expr]) -> bool:
    """Is an expression the pattern with something in each hole?"""
    if pattern in holes:
        return found.setdefault(pattern, expr) is expr
    if pattern is expr:
        return True
    inner, parts = children(pattern), children(expr)
    return (
        type(pattern) is type(expr)
        and (not isinstance(pattern, Call) or pattern.op == expr.op)  # type: ignore[attr-defined]
        and len(inner) == len(parts) > 0
        and all(_matches(p, e, holes, found) for p, e in zip(inner, parts, strict=True))
    )


def _combined(joint: Joint, number: int, left: Tokens, right: Tokens) -> Token | None:
    """A component after one more tuple; None where what it is made of does not belong together."""
    before, after = _products(joint, number, left), _products(joint, number, right)
    if after is None:
        needed = _needed(joint, number)
        after = {m: _element([right[k] for k in _needed(joint, m)], joint) for m in needed}
    if before is None:
        return None
    one = _one(joint)
    products = tuple((m, _times(before[m], after[m])) for m in _needed(joint, number))
    if all(product == one for _, product in products):
        return _start(joint, number)
    return Chain(joint.fold.name, number, products)


def _products(joint: Joint, number: int, tokens: Tokens) -> dict[int, Product] | None:
    """The products that tokens of the components stand for, if they are of one sequence."""
    needed = _needed(joint, number)
    if all(token == _start(joint, n) for n, token in tokens.items()):
        return dict.fromkeys(needed, _one(joint))
    own = tokens.get(number)
    if not isinstance(own, Chain) or (own.fold, own.number) != (joint.fold.name, number):
        return None
    known = dict(own.products)
    for n, token in tokens.items():
        theirs = token.products if isinstance(token, Chain) else None
        if token == _start(joint, n):
            theirs = tuple((m, _one(joint)) for m in _needed(joint, n))
        if theirs is None or any(known[m] != product for m, product in theirs):
            return None
    return known


def _needed(joint: Joint, number: int) -> list[int]:
    """The components that one is combined from, itself among them."""
    needed = sorted({number, *joint.fold.needs(number)})
    assert all(set(joint.fold.needs(n)) <= set(needed) for n in needed), "not transitive"
    return needed


def _start(joint: Joint, number: int) -> Token:
    return constant(identity(Part(joint.fold, number), joint.members[number].acc))


def _element(tokens: list[Token], joint: Joint) -> Product:
    seed = hash(("element", *map(key, tokens)))
    return tuple(hash((seed, n)) % WHOLE for n in range(len(_one(joint))))


def _one(joint: Joint) -> Product:
    return (0,) if joint.fold.commutative else (1, 0, 0, 1)


def _times(a: Product, b: Product) -> Product:
    """Of sums where order does not matter, else of matrices of 2 by 2."""
    if len(a) == 1:
        return ((a[0] + b[0]) % WHOLE,)
    return tuple(
        (a[i] * b[j] + a[i + 1] * b[j + 2]) % WHOLE for i, j in ((0, 0), (0, 1), (2, 0), (2, 1))
    )
