"""Users' reducers in operator text.

    reducer moments(n, s; k, t) = n + k, s + t from 0.0, 0.0
    lift moments: moments(x: [K], w: [K]) -> n, s:
    lift moments:     n[] = sum(x[k])
    lift moments:     s[] = sum(w[k])
    n[i], s[i] = moments(1.0, x[i,j])

Two lists of names, one a component, the values so far and the next ones; what each component
becomes; the identity; then `ordered` where the reducer is not commutative. What follows `lift` on
its lines is the text of an operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import OpError, counted
from ..location import Loc
from .expr import Access, Const, Expr, Index, Reduce, substitute, walk
from .fold_terms import checked, with_lift
from .folds import Fold, Part
from .lexer import Token, fail
from .op import Op
from .parse_expr import ExpressionParser

T = TypeVar("T")
_LIFT = re.compile(r"^\s*lift[ \t]+(\w+)[ \t]*:(.*)$", re.MULTILINE)


def split_lifts(text: str) -> tuple[str, dict[str, tuple[str, int]]]:
    """The text with the lines of lifts left empty; their texts and the lines where they start."""
    found: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for match in _LIFT.finditer(text):
        found.setdefault(match[1], []).append(match[2])
        lines.setdefault(match[1], text.count("\n", 0, match.start()))
    rest = _LIFT.sub("", text) if found else text
    return rest, {name: ("\n".join(part), lines[name]) for name, part in found.items()}


class ReducerParser(ExpressionParser):
    """The line that defines a reducer, and equations that define several tensors by one."""

    lifts: Mapping[str, Op]

    def reducer(self) -> None:
        """`reducer name(m; n) = e from identity`, of which the first word is consumed."""
        title = self.identifier("a reducer")
        if title.text in self.folds:
            raise fail(f"reducer {title.text} is defined twice", title.loc)
        self.expect("(", f"and the names of two values: {title.text}(a; b)")
        left = self._names("a value")
        if not (self.token.kind == "newline" and self.token.text == ";"):
            self.unexpected("';' and the names of the next values")
        self.next()
        right = self._names("a value")
        self.expect(")", f"after the values of {title.text}")
        if len({*left, *right}) < 2 * len(left) or len(left) != len(right):
            raise fail(
                f"{title.text} has {counted(len(left), 'value')} before ';' and {len(right)} "
                f"after; expected as many, each of another name",
                title.loc,
            )
        self.expect("=", f"and what {title.text} gives")
        self.names.begin()
        scalars: dict[Expr, Expr] = {Index(name): Access(name, ()) for name in (*left, *right)}
        combine = self._items(lambda: self._scalar(title, scalars))
        self.expect("from", f"and the identity of {title.text}")
        identity = self._items(lambda: self._number(title))
        if not len(left) == len(combine) == len(identity):
            raise fail(
                f"{title.text} has {counted(len(left), 'component')}, "
                f"{counted(len(combine), 'result')} and {len(identity)} in its identity",
                title.loc,
            )
        ordered = self.accept("ordered") is not None
        fold = Fold(title.text, left, right, tuple(combine), tuple(identity), not ordered)
        try:
            if title.text in self.lifts:
                fold = with_lift(fold, self.lifts[title.text])
            checked(fold)
        except OpError as err:
            said = str(err).partition("\n")[0].partition(": ")[2]
            raise fail(said, title.loc, OpError) from None
        self.folds[title.text] = fold

    def _names(self, what: str) -> tuple[str, ...]:
        names = [self.identifier(what).text]
        while self.accept(","):
            names.append(self.identifier(what).text)
        return tuple(names)

    def _items(self, item: Callable[[], T]) -> list[T]:
        items = [item()]
        while self.accept(","):
            items.append(item())
        return items

    def _scalar(self, title: Token, scalars: Mapping[Expr, Expr]) -> Expr:
        at = self.token.loc
        expr = self.expression()
        for part in walk(expr):
            wrong = isinstance(part, Access | Reduce) or (
                isinstance(part, Index) and part not in scalars
            )
            if wrong:
                known = ", ".join(e.name for e in scalars if isinstance(e, Index))
                raise fail(
                    f"{title.text} combines scalars: it may use {known} and numbers only", at
                )
        return substitute(expr, scalars)

    def _number(self, title: Token) -> Const:
        at = self.token.loc
        value = self.expression()
        if not isinstance(value, Const):
            raise fail(f"the identity of {title.text} is made of numbers", at)
        return value

    def joint(self, targets: list[Token]) -> list[Expr]:
        """`online(e, f)` on the right of several left sides: what each of them is."""
        token = self.identifier("a reducer")
        fold = self.folds.get(token.text)
        if fold is None or not self.accept("("):
            raise fail(
                f"several tensors are defined at once by a reducer of as many components, which "
                f"{token.text} is not",
                token.loc,
            )
        args, options = self.arguments(token)
        for what, found in (("tensors on the left", len(targets)), ("arguments", len(args))):
            if found != len(fold.combine):
                raise fail(
                    f"{token.text} has {counted(len(fold.combine), 'component')}, and there are "
                    f"{found} {what}",
                    token.loc,
                )
        self.names.spot(token)
        return [
            Reduce(Part(fold, n), options.over, arg, options.ranges, options.where, options.dtype)
            for n, arg in enumerate(args)
        ]


def lifted(text: str, line: int, start: Loc, parse: Callable[..., Op]) -> Op:
    """The operator that the lines of a lift describe."""
    return parse(text, loc=Loc(start.file, start.line + line))
