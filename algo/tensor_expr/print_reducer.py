"""Users' reducers as text: the lines that define them, and joint reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..dtypes import BY_NAME
from .binding import OPEN, stays
from .expr import Access, Call, Expr, Index, Reduce, indices_of, substitute, transform, walk
from .expr_text import text
from .folds import Fold, Part
from .names import Written
from .op import Equation
from .operations import FUNCTIONS
from .reducers import NAMES
from .scalar import VALUE, Scalar, named_apart, scalars
from .scalar import renamed as renamed_calls


def with_own_names(
    equations: Iterable[Equation],
) -> tuple[list[Equation], list[Fold], list[Scalar]]:
    """The equations with every fold and every function of the user's own under a name that nothing
    else has, and those folds and functions, each after those that it is made of."""
    equations = list(equations)
    taken = {*FUNCTIONS, *NAMES, *BY_NAME, *(eq.tensor for eq in equations)}
    taken |= {"minimum", "maximum"}
    roots = [e for eq in equations for e in (*eq.lhs, eq.rhs, eq.where) if e is not None]
    items = [item for root in roots for item in walk(root)]
    taken |= {item.tensor for item in items if isinstance(item, Access)}
    named: dict[Fold, Fold] = {}
    for item in items:
        if isinstance(item, Reduce) and isinstance(item.reducer, Part):
            fold = item.reducer.fold
            if fold not in named:
                count, name = 1, fold.name
                while name in taken:
                    count, name = count + 1, f"{fold.name}_{count}"
                taken.add(name)
                named[fold] = fold.called(name)
    inside = [e for fold in named for e in fold.combine]
    functions = named_apart(scalars([*roots, *inside]), taken)
    same = all(old is new for old, new in functions.items())
    if same and all(old is new for old, new in named.items()):
        return equations, list(named), list(functions)
    for old, fold in named.items():
        named[old] = replaced(fold, functions)

    def rule(item: Expr) -> Expr:
        if isinstance(item, Call) and isinstance(item.op, Scalar):
            return Call(functions[item.op], item.args)
        if isinstance(item, Reduce) and isinstance(item.reducer, Part):
            part = Part(named[item.reducer.fold], item.reducer.number)
            return Reduce(part, item.indices, item.body, item.ranges, item.where, item.dtype)
        return item

    renamed = [
        Equation(
            eq.tensor, tuple(transform(e, rule) for e in eq.lhs), transform(eq.rhs, rule),
            eq.ranges, None if eq.where is None else transform(eq.where, rule), eq.reducer,
        )
        for eq in equations
    ]  # fmt: skip
    return renamed, list(named.values()), list(functions.values())


def replaced(fold: Fold, functions: Mapping[Scalar, Scalar]) -> Fold:
    """A fold that calls functions by other names."""
    combine = tuple(renamed_calls(e, functions) for e in fold.combine)
    return fold.but(combine=combine)


def function_lines(function: Scalar) -> list[str]:
    """The lines that define a function of the user's own, and its derivatives if they are given."""
    names: dict[Expr, Expr] = {Access(p, ()): Index(p) for p in function.params}
    names[VALUE] = Index(function.name)
    body = text(substitute(function.body, names), 0, False)
    lines = [f"function {function.name}({', '.join(function.params)}) = {body}"]
    if function.partials:
        partials = ", ".join(text(substitute(e, names), 0, False) for e in function.partials)
        lines.append(f"derivative {function.name} = {partials}")
    return lines


def definition(fold: Fold) -> list[str]:
    """The lines that define a reducer."""
    scalars: dict[Expr, Expr] = {Access(n, ()): Index(n) for n in (*fold.left, *fold.right)}
    combine = ", ".join(text(substitute(e, scalars), 0, False) for e in fold.combine)
    identity = ", ".join(text(e, 0, False) for e in fold.identity)
    ordered = "" if fold.commutative else " ordered"
    names = f"{', '.join(fold.left)}; {', '.join(fold.right)}"
    lines = [f"reducer {fold.name}({names}) = {combine} from {identity}{ordered}"]
    if fold.lift is not None:
        lines += [f"lift {fold.name}: {line}" for line in with_header(fold).splitlines()]
    return lines


def with_header(fold: Fold) -> str:
    """The text of a lift, whose header says the order of its parameters and results."""
    from .printer import print_op

    assert fold.lift is not None
    return print_op(fold.lift, header=True)


def written(eq: Equation, opened: Callable[[Expr, list[str]], Expr]) -> Written:
    """One equation of a joint reduction, whose indices are all given."""
    reduce = eq.rhs
    assert isinstance(reduce, Reduce)
    left = [name for e in eq.lhs for name in indices_of(e)]
    body = opened(reduce.body, [*left, *reduce.indices])
    rhs = Reduce(reduce.reducer, reduce.indices, body, reduce.ranges, reduce.where, None)
    return Written(eq.tensor, eq.lhs, rhs, eq.ranges, ())


def together(members: Sequence[Written]) -> str:
    """The equations of a joint reduction: `m[i], s[i] = online(S[i,j], 1.0)`."""
    parts = [member.rhs for member in members if isinstance(member.rhs, Reduce)]
    first = parts[0]
    targets = (f"{m.tensor}[{','.join(text(e, 0, True) for e in m.lhs)}]" for m in members)
    left = [name for m in members for e in m.lhs for name in indices_of(e)]
    body = Call("tuple", tuple(part.body for part in parts))
    found = stays(Reduce(first.reducer, OPEN, body, (), first.where), left)
    indices = OPEN if tuple(found) == first.indices and not first.ranges else first.indices
    last = Reduce(first.reducer, indices, parts[-1].body, first.ranges, first.where)
    bodies = [text(part.body, 0, False) for part in parts[:-1]]
    call = text(last, 0, False).removeprefix(f"{first.reducer}(")
    ranges = dict.fromkeys(text(r, 0, True) for m in members for r in m.ranges)
    clause = f" where {', '.join(ranges)}" if ranges else ""
    return f"{', '.join(targets)} = {first.reducer}({', '.join([*bodies, call])}{clause}"
