"""An operator for tensors of given types: what one step of torch's autograd runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .algo.dtypes import DType, bf16
from .algo.errors import Error
from .algo.tensor_expr.annotation import annotated
from .algo.tensor_expr.batch import batched
from .algo.tensor_expr.check import check
from .algo.tensor_expr.dynamic import carried
from .algo.tensor_expr.op import Op
from .algo.tensor_expr.settle import needs, settled, settled_on
from .algo.tensor_expr.types import infer
from .attached import State, attached
from .autodiff.blocks import reads_value
from .autodiff.forward import tangent
from .autodiff.keep import Kept, keeping, kept
from .autodiff.results import returning
from .autodiff.reverse import adjoint
from .kept import kept_for
from .torch_tensors import array_of, cast, tensor_of, torch_module

KNOWN = 64
"""Backward passes of a function that are remembered: of which arguments, at which shapes."""

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class How:
    """How an operator is differentiated: `ties` as in `dt.grad`; what of it is kept, None where
    nobody says; and what makes a function of tensors of an operator that is derived."""

    ties: str
    keep: Kept | None
    function: Callable[[Op, str], Run]


class Like(NamedTuple):
    """A tensor that is not kept alive."""

    shape: tuple[int, ...]
    dtype: Any

    def empty(self) -> Any:
        """One of its shape, for who reads no element."""
        return torch_module().empty(self.shape, dtype=self.dtype)


class Step:
    """An operator for arguments of these types: what one step of torch's autograd runs."""

    def __init__(self, function: Any, op: Op, dtypes: tuple[DType, ...], how: How) -> None:
        self.how = how
        self.op = annotated(op, [d if d is bf16 else p.type.dtype
                                  for p, d in zip(op.params, dtypes, strict=True)])  # fmt: skip
        self.function = function if self.op is op else moved(function, self.op)
        self.dtypes = dict(zip((p.name for p in op.params), dtypes, strict=True))
        self._of: tuple[Op, Kept] | None = None
        self._returns: tuple[DType, ...] | None = None
        self._backwards: dict[tuple[Any, ...], Backward | None] = {}
        self._keeping: dict[tuple[bool, ...], tuple[State, Step]] = {}
        self._batched: dict[tuple[Any, ...], tuple[Step, tuple[bool, ...]]] = {}

    @property
    def is_as_given(self) -> bool:
        """Does what somebody said of this very operator count: a schedule, or rules?"""
        scheduled = not isinstance(self.function, Op) or attached.get(self.op) is not None
        return scheduled or bool(self.op.rules)

    def batched(
        self, tensors: Sequence[Any], many: tuple[bool, ...]
    ) -> tuple[Step, tuple[bool, ...]]:
        """The step for tensors of which `many` have a batch as their first dimension, and which of
        its results have."""
        shapes = [x.shape[1:] if is_many else x.shape
                  for x, is_many in zip(tensors, many, strict=True)]  # fmt: skip
        params = self.op.params
        op = settled(self.op, {p.name: s for p, s in zip(params, shapes, strict=True)})
        key = (many, op.fingerprint)
        if key not in self._batched:
            names = tuple(p.name for p, is_many in zip(params, many, strict=True) if is_many)
            made, results = batched(op, names)
            step = Step(made, made, tuple(self.dtypes.values()), self.how)
            self._batched[key] = step, results
        return self._batched[key]

    def keeping(self, moving: tuple[bool, ...]) -> Step:
        """The operator with more results: what is worth keeping for the gradient by the arguments
        that are `moving`. Itself where it is nothing, where somebody scheduled it, and where sizes
        have to be numbers."""
        state, step = self._keeping.get(moving, (None, self))
        if state is not attached.state:
            step = self._kept(moving)
            self._keeping[moving] = (attached.state, step)
        return step

    def _kept(self, moving: tuple[bool, ...]) -> Step:
        wrt = tuple(p.name for p, moves in zip(self.op.params, moving, strict=True) if moves)
        if not isinstance(self.function, Op) or not wrt or needs(self.op) is not None:
            return self
        what = kept(kept_for(self.op, wrt)) if self.how.keep is None else self.how.keep
        larger = keeping(self.op, what)
        if larger is self.op:
            return self
        op = carried(self.op, larger)
        step = Step(op, op, tuple(self.dtypes.values()), replace(self.how, keep=None))
        step._of = (self.op, what)
        return step

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The results, of the memory that the kernel wrote."""
        arrays = [array_of(x, self.op, n) for n, x in enumerate(tensors)]
        results = self.function(*arrays)
        if self._returns is None:  # types are the same whatever the sizes are
            types = infer(check(settled_on(self.op, arrays)), self.dtypes)
            self._returns = tuple(types[name] for name in self.op.returns)
        listed = results if isinstance(results, tuple) else (results,)
        return tuple(tensor_of(a, d) for a, d in zip(listed, self._returns, strict=True))

    def read(self, every: Sequence[Any], moving: tuple[bool, ...]) -> Collection[int]:
        """Which of the arguments and results the backward pass takes, by the arguments that are
        `moving`; all where it is refused, so that it says why when it runs. What is kept has
        cotangents in second derivatives alone, which may read any argument."""
        count = len(moving)
        own = count + len((self.op if self._of is None else self._of[0]).returns)
        came = tuple([n < own and x.is_floating_point() for n, x in enumerate(every)][count:])
        try:
            back = self._found(every, came, moving)
        except Error:
            return range(len(every))
        if back is None:
            return ()
        return back.read if self._of is None else {*range(count), *back.read}

    def pull(
        self,
        every: Sequence[Any],
        cotangents: Sequence[Any],
        needed: tuple[bool, ...],
        moving: tuple[bool, ...],
    ) -> list[Any]:
        """The cotangents of those arguments that need one, None for the others. Of `every`, the
        arguments and results, those that are not `read` may be no more than `Like` them."""
        back = self._found(every, tuple([c is not None for c in cotangents]), needed)
        if back is None:
            return [None] * len(needed)
        if back.lacks(every):  # fewer cotangents, or fewer needed, and yet other arguments
            whole = [
                torch_module().zeros(x.shape, dtype=x.dtype)
                if c is None and x.dtype.is_floating_point
                else c
                for x, c in zip(every[len(moving) :], cotangents, strict=True)
            ]
            found = self.pull(every, whole, moving, moving)
            return [x if need else None for x, need in zip(found, needed, strict=True)]
        primals = [x.empty() if isinstance(x := every[n], Like) else x for n in back.primals]
        found = back.run(*primals, *[c for c in cotangents if c is not None])
        given = iter(found if isinstance(found, tuple) else (found,))
        return [cast(next(given), x.dtype) if need else None
                for need, x in zip(needed, every, strict=False)]  # fmt: skip

    def _found(
        self, every: Sequence[Any], came: tuple[bool, ...], needed: tuple[bool, ...]
    ) -> Backward | None:
        """`_backward`, which is made once; of results that are there, if it reads others else."""
        key: tuple[Any, ...] = (needed, came, tuple([x.shape for x in every]))
        for own in (key, (*key, tuple([isinstance(x, Like) for x in every]))):
            if own not in self._backwards:
                if len(self._backwards) >= KNOWN:
                    self._backwards.clear()
                there = [own is key or not isinstance(x, Like) for x in every]
                self._backwards[own] = self._backward(every, came, needed, there)
            back = self._backwards[own]
            if back is None or not back.lacks(every):
                break
        return back

    def _backward(
        self,
        every: Sequence[Any],
        came: Sequence[bool],
        needed: Sequence[bool],
        there: Sequence[bool],
    ) -> Backward | None:
        """What gives the cotangents of the arguments, reading the results that are `there`; None
        where there is nothing to give."""
        op, values = self._at(every)
        given = tuple(name for name, c in zip(op.returns, came, strict=True) if c)
        wrt = tuple(p.name for p, need in zip(op.params, needed, strict=True) if need)
        if not given or not wrt:
            return None
        names = list(values)
        results = tuple(n for n, here in zip(names, there, strict=True) if here and n in op.returns)
        back = carried(op, self._adjoint(op, given, wrt, results))
        primals = tuple(names.index(p.name) for p in back.params[: -len(given)])
        read = frozenset(n for n in primals if reads_value(back, names[n]))
        return Backward(self.how.function(back, self.how.ties), primals, read)

    def _adjoint(
        self, op: Op, given: tuple[str, ...], wrt: tuple[str, ...], results: tuple[str, ...]
    ) -> Op:
        whole, what = self._of or (op, ())
        steps = tuple(pair for pair in what if pair[1] > 1)
        if not steps or not set(given) <= set(whole.returns):  # a derivative by what is kept, too
            return adjoint(returning(op, given), wrt, results, self.how.ties)
        own = (name for name in whole.returns if name in results)
        saved = tuple(n for n in (*own, *dict(what)) if n not in dict(steps))
        return adjoint(returning(whole, given), wrt, saved, self.how.ties, steps)

    def push(self, saved: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The tangents of the results, of those of the arguments, None where one does not move."""
        op, values = self._at(saved)
        moves = {p.name: t for p, t in zip(op.params, tangents, strict=True) if t is not None}
        kept = tuple(name for name in op.returns if values[name].is_floating_point())
        if not moves or not kept:
            return (None,) * len(op.returns)
        forth = carried(op, tangent(returning(op, kept), tuple(moves), self.how.ties))
        primal = [values[p.name] for p in forth.params[: -len(moves)]]
        results = self.how.function(forth, self.how.ties)(*primal, *moves.values())
        listed = results if isinstance(results, tuple) else (results,)
        found = dict(zip(kept, listed, strict=True))
        return tuple(
            t if (t := found.get(name)) is None else t.to(values[name].dtype) for name in op.returns
        )

    def _at(self, saved: Sequence[Any]) -> tuple[Op, dict[str, Any]]:
        """The operator at these arguments, and all tensors by name, the results last."""
        names = (*(p.name for p in self.op.params), *self.op.returns)
        values = dict(zip(names, saved, strict=True))
        return settled(self.op, {name: x.shape for name, x in values.items()}), values


@dataclass(frozen=True, slots=True)
class Backward:
    """A gradient operator, which of the saved tensors it takes before the cotangents, and of which
    it reads elements."""

    run: Run
    primals: tuple[int, ...]
    read: frozenset[int]

    def lacks(self, every: Sequence[Any]) -> bool:
        """Does it read elements of what is not kept alive?"""
        return any(isinstance(every[n], Like) for n in self.read)


def moved(function: Any, op: Op) -> Any:
    """What runs an operator, for the same one with types declared."""
    if isinstance(function, Op):
        return op
    from .runner import Runner
    from .sched.loop.schedule import Schedule

    if isinstance(function, Runner):
        schedule = function.schedule and Schedule(op, function.schedule.primitives)
        return Runner(op, schedule, function.strict)
    return Schedule(op, function.primitives)
