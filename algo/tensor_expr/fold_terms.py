"""`dt.reducer`: users' own reducers, from Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import counted
from ..upward import open_upward
from .expr import Access, Call, Cast, Const, Expr, walk
from .fold_laws import broken_law
from .folds import Fold, Part
from .functions import reduction
from .op import Op
from .refusing import error
from .surface import is_name
from .terms import Term, Value, to_expr
from .together import Together


def reducer(
    combine: Callable[[Any, Any], Any],
    identity: Any,
    lift: Any = None,
    commutative: bool = True,
    *,
    name: str | None = None,
) -> Reducer:
    """A reducer of the user's own, of one value or of a tuple of values.

    `combine(a, b)` gives the combination of two values, tuples where `identity` is a tuple; it
    runs once, on symbols, and must be associative. `identity` changes nothing it is combined with.
    Instances are combined in ascending order of the reduction's indices; `commutative=False` says
    that no other order is right. `lift` is an operator that gives the results of a whole block,
    from one tensor a component: `rfactor` uses it. Types are those of what is combined, kept as a
    sum's are: f16 in f32, i8 in i32; an infinite identity of an integer is its least or greatest
    value. The laws are tried on numbers: raises `OpError` where one does not hold.

        online = dt.reducer(lambda a, b: (...), identity=(-inf, 0.0, 0.0))
        m[i], s[i], o[i, d] = online(S[i, j], 1.0, V[j, d])
    """
    several = isinstance(identity, tuple | list)
    items = tuple(identity) if several else (identity,)
    given = getattr(combine, "__name__", "")
    if not callable(combine):
        raise error(f"combine is {combine!r}; expected a function of two values, lambda a, b: ...")
    title = name or (given if is_name(given) else "fold")
    if not is_name(title):
        raise error(f"{title!r} cannot name a reducer; expected a name such as online")
    if not items:
        raise error(f"{title}: the identity is empty; expected one value a component")
    start = []
    for value in items:
        if isinstance(value, Term) or not isinstance(expr := to_expr(value), Const):
            raise error(f"{title}: the identity {value!r} is no number")
        start.append(Const(expr.value))
    count = len(items)
    left, right = (
        ((letter,) if not several else tuple(f"{letter}{n}" for n in range(count)))
        for letter in "ab"
    )
    a, b = (tuple(Value(Access(n, ())) for n in names) for names in (left, right))
    if not _takes_two(combine):
        raise error(f"{title}: combine takes the two values that it combines: lambda a, b: ...")
    result = combine(a, b) if several else combine(a[0], b[0])
    found = tuple(result) if several and isinstance(result, tuple | list) else (result,)
    if len(found) != count or (several and not isinstance(result, tuple | list)):
        raise error(
            f"{title}: combine gives {_shown(result)}, and the identity has {count} components; "
            f"both are one tuple"
        )
    made = Fold(title, left, right, tuple(map(to_expr, found)), tuple(start), commutative)
    if lift is not None:
        made = with_lift(made, lift)
    checked(made)
    return Reducer(made)


def _takes_two(combine: Callable[..., Any]) -> bool:
    try:
        inspect.signature(combine).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True  # a function of another language does not say
    return True


def with_lift(fold: Fold, lift: Any) -> Fold:
    """The fold with the operator that gives a whole block's results."""
    count = len(fold.combine)
    if not isinstance(lift, Op):
        raise error(f"{fold}: lift is {lift!r}; expected an operator: dt.op(...)")
    if len(lift.params) != count or len(lift.returns) != count:
        raise error(
            f"{fold}: lift takes {counted(len(lift.params), 'tensor')} and returns "
            f"{len(lift.returns)}; expected {count} of each, one a component in order"
        )
    return fold.but(lift=lift)


def checked(fold: Fold) -> None:
    """Raises unless `combine` is made of scalars, and the laws hold for numbers tried."""
    for expr in fold.combine:
        for item in walk(expr):
            if not isinstance(item, Call | Cast | Const) and not (
                isinstance(item, Access) and item.tensor in (*fold.left, *fold.right)
            ):
                raise error(
                    f"{fold}: combine uses {_shown_expr(item)}; it may use only the two values "
                    f"that it combines, and numbers"
                )
    broken = broken_law(fold)
    if broken is not None:
        raise error(f"{fold}: {broken}")


def _shown_expr(expr: Expr) -> str:
    from .printer import print_expr

    return print_expr(expr)


def _shown(result: Any) -> str:
    many = isinstance(result, tuple | list)
    return counted(len(result), "value") if many else "1 value"


@open_upward
class Reducer:
    """A user's reducer in traced code: called like `sum`, with one expression a component.

    Of several components the results are a tuple, for as many left sides at once.
    """

    __slots__ = ("fold", "used")

    def __init__(self, fold: Fold) -> None:
        self.fold, self.used = fold, False

    if TYPE_CHECKING:
        # What reaches upward is bound by the root's api.py; here stand the types only.
        def defvjp(self, rule: Any) -> Reducer: ...
        def defjvp(self, rule: Any) -> Reducer: ...

    def __repr__(self) -> str:
        return f"<reducer {self.fold.name} of {len(self.fold.combine)}>"

    def __call__(self, *values: Any, over: Any = None, where: Any = None) -> Any:
        self.used = True
        count = len(self.fold.combine)
        if len(values) != count:
            raise error(f"{self.fold} combines {count} at a time, got {len(values)}")
        parts = tuple(
            reduction(Part(self.fold, n), value, over, where) for n, value in enumerate(values)
        )
        return Together.of(self.fold, parts) if count > 1 else parts[0]
