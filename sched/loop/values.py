"""`reverse`, `shift` and `skew`: the loops stay, and run their instances at other values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ...algo.errors import ScheduleError
from ...algo.tensor_expr.build import add, const, mul, sub
from ...algo.tensor_expr.expr import Expr
from .names import find_loop, find_loops, suggest_from, where
from .nest import Loop, Nest, leaves
from .primitive import Primitive
from .storage import family
from .tree import around_loop, edit, with_tree
from .validate import check_change


def _revalued(
    nest: Nest, loop: Loop, value: Callable[[str, Expr], Expr], extent: int | None
) -> Nest:
    """The nest with other values of one loop, of which `extent` says how many there are."""

    def change(item: Loop) -> Loop:
        values = {name: value(name, old) for name, old in item.values.items()}
        tail = item.tail if extent is not None else "guard"
        return replace(item, values=values, extent=extent, tail=tail)

    return with_tree(nest, edit(nest.tree, {loop.name: change}))


def _check_serial(nest: Nest, loop: Loop, who: str) -> None:
    if loop.kind != "serial":
        verb = who.partition("(")[0]
        raise ScheduleError(
            f"{who}: loop {loop.name}{where(nest, loop)} is {loop.kind}; {verb} before marking "
            "loops"
        )


@dataclass(frozen=True)
class Reverse(Primitive):
    """Runs the iterations of a loop from the last one to the first.

        for i in 0:N: S(i)   ==>   for i in 1-N:1: S(-i)

    A loop of constant extent made by a factor keeps its range: S(7 - ii) for ii in 0:8. A bare
    name means all copies of the loop. Dependences are checked.
    """

    called: ClassVar[str] = "reverse"
    loop: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.loop,), {}

    def legal(self, nest: Nest) -> None:
        for loop in find_loops(nest, self.loop, self.who):
            _check_serial(nest, loop, self.who)
        check_change(nest, self.after(nest), self.who)

    def apply(self, nest: Nest) -> Nest:
        for loop in find_loops(nest, self.loop, self.who):
            nest = _revalued(nest, loop, partial(_mirrored, loop.extent), loop.extent)
        return nest


def _mirrored(extent: int | None, _: str, old: Expr) -> Expr:
    return sub(const(0 if extent is None else extent - 1), old)


@dataclass(frozen=True)
class Shift(Primitive):
    """Runs the instances of one stage `n` iterations of a loop later than those of the others.

        for y: { F(y); G(y) }   ==>   for y: { F(y); G(y - n) }

    Where G(y) reads what F(y + n) gives, this is what lets the two share a loop. `n` may be
    negative. All stages of a reduction move (init, update and final). Dependences are checked.
    """

    called: ClassVar[str] = "shift"
    stage: str
    loop: str
    n: int

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.stage, self.loop, self.n), {}

    def legal(self, nest: Nest) -> None:
        loop = self._loop(nest)
        _check_serial(nest, loop, self.who)
        if not self._moved(nest, loop):
            under = list(dict.fromkeys(nest.stmts[name].buffer for name in leaves(loop)))
            raise ScheduleError(
                f"{self.who}: there is no stage {self.stage} under loop {loop.name}"
                f"{suggest_from(self.stage, under)}"
            )
        check_change(nest, self.after(nest), self.who)

    def _loop(self, nest: Nest) -> Loop:
        """The loop of that name; of several, the one around the stage."""
        return find_loop(nest, self.loop, self.who, lambda loop: self._moved(nest, loop))

    def _moved(self, nest: Nest, loop: Loop) -> set[str]:
        """The statements of the stage under the loop."""
        own = family(nest, self.stage)
        return {
            name for name in leaves(loop) if name == self.stage or nest.stmts[name].buffer in own
        }

    def apply(self, nest: Nest) -> Nest:
        loop = self._loop(nest)
        moved, by = self._moved(nest, loop), const(self.n)

        def later(name: str, old: Expr) -> Expr:
            return add(old, by) if name in moved else old

        return _revalued(nest, loop, later, None)


@dataclass(frozen=True)
class Skew(Primitive):
    """Starts a loop `factor` iterations later with every iteration of a loop around it.

        for t: for x: S(t, x)   ==>   for t: for x: S(t, x - factor*t)

    The order of instances stays. Where S(t, x) needs S(t-1, x+1), a skew by 1 makes every
    dependence run forwards in both loops, so that they may be tiled or take each other's places.
    """

    called: ClassVar[str] = "skew"
    inner: str
    outer: str
    factor: int = 1

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.inner, self.outer, self.factor), {}

    def legal(self, nest: Nest) -> None:
        inner, outer = self._loops(nest)
        if all(loop is not outer for loop in around_loop(nest.tree, inner.name)):
            raise ScheduleError(
                f"{self.who}: loop {outer.name} is not around loop {inner.name}; name the inner "
                "loop first"
            )
        _check_serial(nest, inner, self.who)
        check_change(nest, self.after(nest), self.who)

    def _loops(self, nest: Nest) -> tuple[Loop, Loop]:
        return find_loop(nest, self.inner, self.who), find_loop(nest, self.outer, self.who)

    def apply(self, nest: Nest) -> Nest:
        inner, outer = self._loops(nest)
        by = const(self.factor)

        def later(name: str, old: Expr) -> Expr:
            return add(old, mul(outer.values[name], by))

        return _revalued(nest, inner, later, None)
