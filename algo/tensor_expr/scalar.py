"""Scalar functions of the user's own: `gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2)))`.

In a `Call` a `Scalar` stands where the name of an operation would. It is part of the expression, so
that no registry is needed: text spells it out. Typing (`elaborate.py`) puts in its place what it
is, so only what reads operators as they are written meets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..node import node
from .expr import Access, Call, Expr, substitute, transform, walk

VALUE = Access("", ())
"""In given derivatives, the value of the function."""


@node
class Scalar:
    """`name(params) = body`, which reads its parameters as tensors of rank 0.

    `partials`, where they are given, are its derivatives by each parameter, over the parameters
    and `VALUE`.
    """

    name: str
    params: tuple[str, ...]
    body: Expr
    partials: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return self.name

    def given(self, args: Sequence[Expr]) -> dict[Expr, Expr]:
        """What each parameter is where it is called on `args`."""
        return {Access(p, ()): arg for p, arg in zip(self.params, args, strict=True)}

    def expanded(self, args: Sequence[Expr]) -> Expr:
        """What a call is."""
        return substitute(self.body, self.given(args))


def scalars(exprs: Iterable[Expr]) -> list[Scalar]:
    """The functions that expressions call, those that these are made of before them."""
    found: dict[Scalar, None] = {}
    stack = [iter(_called(exprs))]
    path: list[Scalar] = []
    while stack:
        each = next(stack[-1], None)
        if each is None:
            stack.pop()
            if path:
                found[path.pop()] = None
        elif each not in found and each not in path:
            path.append(each)
            stack.append(iter(_called((each.body, *each.partials))))
    return list(found)


def _called(exprs: Iterable[Expr]) -> list[Scalar]:
    items = (item for expr in exprs for item in walk(expr))
    return list(dict.fromkeys(
        item.op for item in items if isinstance(item, Call) and isinstance(item.op, Scalar)
    ))  # fmt: skip


def renamed(expr: Expr, new: Mapping[Scalar, Scalar]) -> Expr:
    """The expression with functions replaced by the same ones of other names."""

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and isinstance(item.op, Scalar):
            return Call(new.get(item.op, item.op), item.args)
        return item

    return transform(expr, rule) if new else expr


def named_apart(functions: Iterable[Scalar], taken: set[str]) -> dict[Scalar, Scalar]:
    """Each function under a name that nothing else has; `functions` as `scalars` gives them."""
    new: dict[Scalar, Scalar] = {}
    for old in functions:
        count, name = 1, old.name
        while name in taken:
            count, name = count + 1, f"{old.name}_{count}"
        taken.add(name)
        body, *partials = (renamed(e, new) for e in (old.body, *old.partials))
        new[old] = Scalar(name, old.params, body, tuple(partials))
    return new
