"""What is kept of an operator's own computation for its gradient, and what is computed again.

A gradient operator computes what it reads of the operator's temporaries again, unless they are
given to it. `keeping` is the operator that returns them, `worth_keeping` the usual choice: what a
reduction or a recurrence gives, which takes more work than reading it; the rest is arithmetic on
elements that are at hand. Source: Griewank and Walther, "Evaluating Derivatives" (2008), ch. 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..algo.errors import GradientError
from ..algo.tensor_expr.op import Op
from .assemble import again
from .checkpoint import checkpoints
from .derivatives import EVEN
from .elide import elide
from .results import with_floats
from .reverse import adjoint, normal_of
from .statements import Normal, reads
from .tidy import in_order

Keep = Mapping[str, int] | Sequence[str] | str
Kept = tuple[tuple[str, int], ...]
"""Names of tensors with the number of steps of which one is kept, 1 for all."""


def kept(keep: Keep) -> Kept:
    """What is to be kept, each once. Raises `GradientError` for what names no tensors."""
    names = [keep] if isinstance(keep, str) or not isinstance(keep, Iterable) else keep
    pairs = list(keep.items() if isinstance(keep, Mapping) else ((name, 1) for name in names))
    for name, every in pairs:
        if not isinstance(name, str) or type(every) is not int or every < 1:
            raise GradientError(
                f"keep={keep!r}: expected names of tensors, or a dict from names to the number of "
                'steps of which one is kept, as {"h": 16}'
            )
    return tuple(dict(pairs).items())


def gradient(op: Op, wrt: tuple[str, ...] | str, keep: Keep = (), ties: str = EVEN) -> Op:
    """The gradient operator, which takes of the tensors `keep` those that it reads as parameters,
    and no cotangent of a result that is surely no float, where others are. Of a recurrence of
    which steps are kept it takes the other results too, as they are.

    Raises what `adjoint` and `keeping` raise.
    """
    what = kept(keep)
    keeping(op, what)  # which knows the names
    steps = {name: every for name, every in what if every > 1}
    cycles = normal_of(op).cycles if steps else {}
    beside = [r for r in op.returns if r in cycles and cycles[r] in map(cycles.get, steps)]
    whole = tuple(n for n in (*(name for name, _ in what), *beside) if n not in steps)
    return adjoint(with_floats(op), wrt, whole, ties, tuple(steps.items()))


def keeping(op: Op, what: Kept) -> Op:
    """The operator that returns these of its tensors too, after its results.

    Each is a tensor that it defines, or a reduction inside an equation of it, called as gradients
    print it (`y_sum`); of one that is kept every so many steps, those steps as `h_kept`. Raises
    `GradientError` for other names, and where steps cannot be computed again.
    """
    more = tuple((n, every) for n, every in what if every > 1 or n not in op.returns)
    made: Op = op.memo(f"keeping {more}", lambda: _keeping(op, more)) if more else op
    return made


def _keeping(op: Op, what: Kept) -> Op:
    form = normal_of(op)
    known = [name for name in keepable(op, form) if name not in op.returns]
    for name, every in what:
        if name in [p.name for p in op.params]:
            raise GradientError(
                f"gradient of {op.name}: it cannot keep {name}, a parameter, which gradients take "
                "where they read it; for gradients by several parameters give a tuple of names"
            )
        if name not in known and not (every > 1 and name in op.returns):
            listed = f"expected some of {', '.join(known)}" if known else "it computes nothing else"
            raise GradientError(f"gradient of {op.name}: it cannot keep {name}; {listed}")
    names = [name for name, every in what if every == 1]
    some = {name: every for name, every in what if every > 1}
    steps = checkpoints(form, some, {*names, *op.returns}.difference(some))
    returns = (*op.returns, *names, *steps.kept)
    more = tuple(steps.keep)
    if {eq.tensor for eq in op.equations} >= set(names):
        return replace(op, equations=(*op.equations, *more), returns=returns, _memo={})
    whole = [*op.returns, *names, *(a.tensor for eq in more for a in reads(eq))]
    equations = (*in_order(again(op, form, whole)), *more)
    defined = {eq.tensor for eq in equations} | {p.name for p in op.params}
    shapes = {name: shape for name, shape in op.shapes.items() if name in defined}
    fresh = replace(op, equations=equations, returns=returns, shapes=shapes,
                    locations=(), _memo={})  # fmt: skip
    return elide(fresh)


def worth_keeping(op: Op, wrt: tuple[str, ...]) -> tuple[str, ...]:
    """The tensors that the gradient by `wrt` had better be given, besides the results."""
    made: tuple[str, ...] = op.memo(f"worth keeping {wrt}", lambda: _worth_keeping(op, wrt))
    return made


def _worth_keeping(op: Op, wrt: tuple[str, ...]) -> tuple[str, ...]:
    form = normal_of(op)
    recurrent = set(form.cycles)
    costly = {s.tensor for s in form.statements if s.reducer is not None} | recurrent
    costly |= {tensor for fold in form.folds for tensor in fold.tensors}
    # What is part of a recurrence is computed after it, so that keeping it is no less work.
    costly -= {t for t, owner in form.temporaries.items() if owner in recurrent}
    costly |= {form.temporaries[t] for t in costly if t in form.temporaries}
    names = [n for n in keepable(op, form) if n in costly and n not in op.returns]

    def read() -> list[str]:
        back = adjoint(op, wrt, (*op.returns, *names))
        return [p.name for p in back.params if p.name in names]

    # Elements of a reduction that is kept itself are no work.
    plain = {form.temporaries[t] for t in read() if t in form.temporaries} - recurrent
    names = [name for name in names if name not in plain]
    return tuple(read())


def keepable(op: Op, form: Normal) -> list[str]:
    """The tensors whose values mean the same in every gradient: not the prefixes of folds."""
    inside = {name for fold in form.folds for name in fold.inside}
    defined = dict.fromkeys(
        (*(s.tensor for s in form.statements), *(e.tensor for e in op.equations))
    )
    return [name for name in defined if name not in inside]
