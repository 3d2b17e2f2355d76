"""A nest's tree planted as an isl schedule tree: a mark and a band a loop, sequences, filters.

Copies and recomputed stages are ordinary statements with dims of their own, so there are no
extension nodes. The mark keeps the place of a loop that turns out to have one iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..algo import isl
from ..algo.errors import InternalError
from ..algo.isl import raw
from ..algo.tensor_expr.affine import to_isl
from ..algo.tensor_expr.expr import Expr, substitute
from ..sched.loop.nest import Leaf, Loop, Nest, Seq, Stmt, Tree, leaves
from .context import NOTHING, Context
from .joints import Held, hold


def domain_text(stmt: Stmt) -> str:
    """`S[i, j] : conditions`, without braces."""
    conditions = " and ".join(f"({to_isl(cond)})" for cond in stmt.domain)
    return space(stmt) + (f" : {conditions}" if conditions else "")


def space(stmt: Stmt) -> str:
    """`S[i, j]` in isl's spelling."""
    return isl.tuple_text(stmt.dims, stmt.name)


def schedule(
    nest: Nest,
    known: Mapping[str, Mapping[Expr, Expr]] | None = None,
    context: Context = NOTHING,
    held: Collection[str] = (),
) -> raw.Schedule:
    """The schedule tree of a nest whose sizes are bound or in the context. Call it inside a quota.

    `known` gives other words for dims of statements, to be used in the values of loops. Loops in
    which the buffers of the loops `held` live, and those around, stay in one piece.
    """
    covered = list(leaves(nest.tree))
    if sorted(covered) != sorted(nest.stmts):
        raise InternalError(
            f"the loop tree has the statements {', '.join(covered)}; expected each of "
            f"{', '.join(nest.stmts)} once"
        )
    texts = "; ".join(map(domain_text, nest.stmts.values()))
    domain = isl.parse_union_set(f"{context.prefix}{{ {texts} }}")
    joints = hold(nest, held, context)
    for joint in joints.domains.values():
        domain = domain.union(joint.to_union_set())
    root = raw.Schedule.from_domain(domain).get_root()
    planter = _Planter(joints, known or {}, context.prefix)
    return planter.plant(root.child(0), joints.nest.tree).get_schedule()


@dataclass(frozen=True)
class _Planter:
    joints: Held
    known: Mapping[str, Mapping[Expr, Expr]]
    prefix: str

    def plant(self, leaf: raw.ScheduleNode, tree: Tree) -> raw.ScheduleNode:
        """Grows `tree` in place of `leaf`; returns the topmost node it made."""
        stmts = self.joints.nest.stmts
        match tree:
            case Leaf():
                return leaf
            case Loop() as loop:
                values = "; ".join(
                    f"{space(stmts[stmt])} -> [{self._text(stmt, value)}]"
                    for stmt, value in loop.values.items()
                )
                text = f"{self.prefix}{{ {values} }}"
                band = raw.MultiUnionPwAff.from_union_map(isl.parse_union_map(text))
                node = leaf.insert_partial_schedule(band)
                if loop.name in self.joints.loops:
                    node = node.band_member_set_ast_loop_type(0, raw.ast_loop_type.atomic)
                mark = node.insert_mark(raw.Id(loop.name))
                return self.plant(mark.child(0).child(0), loop.body).ancestor(2)
            case Seq(parts):
                filters = raw.UnionSetList.alloc(raw.DEFAULT_CONTEXT, len(parts))
                for part in parts:
                    spaces = "; ".join(space(stmts[stmt]) for stmt in leaves(part))
                    filters = filters.add(isl.parse_union_set(f"{self.prefix}{{ {spaces} }}"))
                node = leaf.insert_sequence(filters)
                for n, part in enumerate(parts):
                    node = self.plant(node.child(n).child(0), part).ancestor(2)
                return node

    def _text(self, stmt: str, value: Expr) -> str:
        return to_isl(substitute(value, self.known.get(stmt, {})))
