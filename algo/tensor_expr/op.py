"""What an operator is: equations in single assignment over named tensors.

An `Op` says what is computed and nothing about how. It is polymorphic in sizes and in the element
types it does not annotate. Text and traced Python build the same one, and two ops are equal when
they print the same and have the same rules for derivatives. `check.py` turns it into a `Checked`,
in which every range is explicit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..dtypes import DType, TensorType
from ..location import Loc
from ..node import node
from ..upward import open_upward
from .expr import Expr, Index, Range, walk
from .folds import Joint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


@node
class Param:
    """An input. Unread inputs are legal: their shapes may still bind sizes."""

    name: str
    type: TensorType = TensorType(None, None)


@node
class Equation:
    """`tensor[lhs] = rhs`, or with a `reducer`, `tensor[lhs] += rhs` and the like.

    An accumulating equation starts from the reducer's identity, runs over all its indices, and is
    the only form whose `lhs` may depend on data; its tensor then needs a declared shape in `Op`.
    `ranges` are the given ranges of the indices that no reduction binds; `where` their condition.
    """

    tensor: str
    lhs: tuple[Expr, ...]
    rhs: Expr
    ranges: tuple[Range, ...] = ()
    where: Expr | None = None
    reducer: str | None = None

    @property
    def roots(self) -> tuple[Expr, ...]:
        """Every expression of it: left side, right side, ranges and condition."""
        condition = () if self.where is None else (self.where,)
        return (*self.lhs, self.rhs, *self.ranges, *condition)


@dataclass(frozen=True, slots=True)
class Rule:
    """Derivatives that somebody gives for an operator, instead of those of its equations.

    `vjp` maps cotangents of `results` to cotangents of `params`, `jvp` tangents of `params` to
    those of `results`; each is an operator that reads `params` and `results` by their names, and
    calls the cotangent or tangent of A `dA`. In the operator that has the rule (one that computes
    it as a part, perhaps) `params` and then `results` are called `names`.
    """

    params: tuple[str, ...]
    results: tuple[str, ...]
    vjp: Op | None
    jvp: Op | None
    names: tuple[str, ...]

    def called(self, new: Mapping[str, str]) -> Rule:
        """The rule in an operator whose tensors have new names."""
        names = tuple(new.get(name, name) for name in self.names)
        return Rule(self.params, self.results, self.vjp, self.jvp, names)


@open_upward
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """An operator. `shapes` declares extents of tensors whose lhs does not determine them.

    `locations` has one entry an equation and takes no part in equality. `maxima` holds the sizes
    that are dynamic, which stay symbols in compiled code, and the most that each can be. `rules`
    say how it is differentiated, and nothing of what it computes.
    """

    name: str
    params: tuple[Param, ...]
    equations: tuple[Equation, ...]
    returns: tuple[str, ...]
    shapes: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    locations: tuple[Loc, ...] = ()
    maxima: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    _memo: dict[str, Any] = field(default_factory=dict)

    def memo(self, key: str, make: Callable[[], Any]) -> Any:
        """A derived fact, computed once for this op (idempotent, so a race is harmless)."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def location(self, number: int) -> Loc | None:
        """Where an equation was written, if that is known."""
        return self.locations[number] if number < len(self.locations) else None

    @property
    def text(self) -> str:
        """The canonical text; it parses back to an equal op."""
        from .printer import print_op

        text: str = self.memo("text", lambda: print_op(self))
        return text

    @property
    def fingerprint(self) -> str:
        """A stable key of the canonical text, the same in every process."""
        key: str = self.memo(
            "fingerprint", lambda: hashlib.sha256(self.text.encode()).hexdigest()[:20]
        )
        return key

    def dynamic(self, **maxima: int) -> Op:
        """The operator with these sizes dynamic: one compilation serves every value up to the
        given one. Raises `OpError` for what is no size of it, or no number of at least 1."""
        from .dynamic import with_maxima

        return with_maxima(self, {**self.maxima, **maxima})

    def at(self, **sizes: int) -> Op:
        """The operator with numbers put in for sizes. Raises `OpError` for what is no size."""
        from .settle import at

        return at(self, sizes)

    if TYPE_CHECKING:
        # What reaches upward is bound by the root's api.py; here stand the types only.
        def __call__(self, *arrays: Any, out: Any = None) -> Any: ...
        def schedule(self) -> Any: ...
        def with_schedule(self, schedule: Any, strict: bool = False) -> Any: ...
        def gradient(self, wrt: Any, keep: Any = (), *, ties: str = "even") -> Op: ...
        def keeping(self, *names: Mapping[str, int] | Sequence[str] | str, **steps: int) -> Op: ...
        def defvjp(self, rule: Any) -> Op: ...
        def defjvp(self, rule: Any) -> Op: ...
        def source(self, kind: str = "llvm", *, target: str = "sm_80", **sizes: int) -> str: ...

    @property
    def rules_of_reducers(self) -> tuple[Rule | None, ...]:
        """The rules of its users' reducers, which the text does not say."""
        from .folds import part_of

        def find() -> tuple[Rule | None, ...]:
            items = [item for eq in self.equations for item in walk(eq.rhs)]
            parts = [part for item in items if (part := part_of(item)) is not None]
            return tuple(part.fold.rule for part in parts)

        found: tuple[Rule | None, ...] = self.memo("rules of reducers", find)
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op) or self.text != other.text:
            return False
        mine, its = self.rules_of_reducers, other.rules_of_reducers
        return self.rules == other.rules and mine == its

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        shapes, maxima = dict(self.shapes), dict(self.maxima)
        return Op, (
            self.name, self.params, self.equations, self.returns, shapes, self.locations, maxima,
            self.rules,
        )  # fmt: skip

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class SizeRule:
    """Dimension `dim` of input `param` must equal `extent`, whose index is called `index`."""

    param: str
    dim: int
    extent: Expr
    index: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One equation, by its number, in the order in which an op is computed.

    It has its `joined` outermost loops in common with the step before it, whatever indices those
    run over. Where it needs elements that it defines itself, or that equations which need it
    define, the outermost loops see to it that they are there: one for each of `carries`, True
    where elements of an earlier iteration are needed. Those loops run in order; all other
    instances may be computed at once.

    `loops` are the values of the loops over its indices, outermost first; none where those are
    the indices of its ranges.
    """

    equation: int
    joined: int = 0
    carries: tuple[bool, ...] = ()
    loops: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """An op with every range explicit and proved in bounds, for all sizes.

    `op` is the original; `equations` are its equations with a `Range` for every index, on the
    equation or on the reduction that binds it, and unique index names within an equation.
    `shapes` gives every tensor's extents over size symbols. `sizes` lists the symbols; each is
    bound by the first rule whose extent is that bare symbol, and all rules must then hold.
    `steps` are the equations in the order in which they run.
    """

    op: Op
    equations: tuple[Equation, ...]
    shapes: Mapping[str, tuple[Expr, ...]]
    sizes: tuple[str, ...]
    rules: tuple[SizeRule, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a typed operator. `role` is input, output or temp."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    role: str


@dataclass(frozen=True, slots=True)
class Turn:
    """When a stage touches the cells of a fold, which are written again and again.

    Of two accesses to one cell by stages of the same fold, the one with the lexicographically
    lesser `at`, over the stage's indices, comes first: 0 of an initial value, 1 and the instance of
    an update, 2 of what reads the result. Whatever else reads such a cell comes after all writes.
    """

    joint: Joint
    at: tuple[Expr, ...]

    @property
    def fold(self) -> str:
        """What the fold is called."""
        return self.joint.name


@dataclass(frozen=True, slots=True)
class Stage:
    """One statement of a typed operator: for all `ranges` where `where`: tensor[lhs] = value.

    `ranges` are the loops in default order, outermost first. `value` is typed and contains no
    `Reduce`. With a `reducer` the statement is `tensor[lhs] = combine(tensor[lhs], value)`.
    A reduction of tensor C is the stages C.init, C.update and, where the result is cast or used
    in an epilogue, C.final; then init and update work on the temporary `C.acc`. `where` holds
    affine conditions only; others are inside `value`.

    `joined` says how many of its outermost loops the stage has in common with the stage before it,
    by position: 0 for a nest of its own, 2 for C.update under the loops i and j of C.init.
    `loops` are the values of its loops, outermost first; none where those are the indices of its
    ranges. `carries` is as in `Step`: which of its outermost loops a recurrence needs in order.
    With a `turn` the stage is one of a fold (a user's reducer) and may write its cells repeatedly.
    """

    name: str
    tensor: str
    ranges: tuple[Range, ...]
    where: Expr | None
    lhs: tuple[Expr, ...]
    value: Expr
    reducer: str | None
    loc: Loc | None
    joined: int = 0
    loops: tuple[Expr, ...] = ()
    turn: Turn | None = None
    carries: tuple[bool, ...] = ()

    @property
    def values(self) -> tuple[Expr, ...]:
        """The values of its loops, outermost first."""
        return self.loops or tuple(Index(r.index) for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The normal form that schedules act on: typed stages in program order.

    `sizes` holds the sizes that are bound; they are already substituted in every expression.
    A kernel with symbolic sizes has legality like any other, and is bound before lowering.
    """

    checked: Checked
    tensors: Mapping[str, Tensor]
    stages: tuple[Stage, ...]
    sizes: Mapping[str, int]
