"""Joints: empty statements that hold the iterations of a loop together.

Where some statements of a loop all run before all others of it (the first iteration of the one, and
every iteration of the other), isl makes them loops of their own, one after the other. A buffer that
lives in an iteration would then be several. A joint stands at the begin and one at the end of the
body, in every iteration: all statements run after the one and before the other, so none of them can
be put apart. Code is made for no joint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..algo import isl
from ..algo.isl import raw
from ..algo.tensor_expr.affine import to_isl
from ..algo.tensor_expr.expr import Const, Expr, Index
from ..sched.loop.nest import Leaf, Loop, Nest, Stmt, Tree, leaves
from ..sched.loop.tree import edit, loops_to, seq
from .context import Context


@dataclass(frozen=True)
class Held:
    """A nest with joints: their domains, which need not be convex, and the loops they hold."""

    nest: Nest
    domains: Mapping[str, raw.Set]
    loops: frozenset[str]


def hold(nest: Nest, names: Collection[str], context: Context) -> Held:
    """The nest with joints in the loops `names`, which hold these and all loops around them."""
    chains = {name: loops_to(nest.tree, name) for name in names}
    ends = {name: (f"{name} begins", f"{name} ends") for name in names}
    stmts, domains = dict(nest.stmts), dict[str, raw.Set]()
    values: dict[str, dict[str, Expr]] = {}
    for name, chain in chains.items():
        dims = tuple(f"v{n}" for n in range(len(chain)))
        inside = [nest.stmts[stmt] for stmt in leaves(chain[-1])]
        for end in ends[name]:
            stmts[end] = Stmt(end, dims, (), "", (), Const(0), None, (end, ()))
            domains[end] = _iterations(inside, chain, dims, end, context)
            for loop, dim in zip(chain, dims, strict=True):
                values.setdefault(loop.name, {})[end] = Index(dim)

    def enter(loop: Loop) -> Tree:
        body = loop.body
        if loop.name in ends:
            begin, end = map(Leaf, ends[loop.name])
            body = seq([begin, body, end])
        return replace(loop, values={**loop.values, **values[loop.name]}, body=body)

    tree = edit(nest.tree, dict.fromkeys(values, enter))
    return Held(replace(nest, stmts=stmts, tree=tree), domains, frozenset(values))


def _iterations(
    inside: Sequence[Stmt], chain: Sequence[Loop], dims: tuple[str, ...], end: str, context: Context
) -> raw.Set:
    """The values of loops for which one of the statements inside runs."""
    total = isl.make_set(dims, ["1 = 0"], list(context.maxima), end)
    for stmt in inside:
        values = [to_isl(loop.values[stmt.name]) for loop in chain]
        conditions = [to_isl(condition) for condition in stmt.domain]
        spaces = stmt.name, end
        one = isl.make_map(stmt.dims, values, conditions, list(context.maxima), spaces).range()
        total = total.union(one)
    return total.coalesce()
