"""A nest's tree planted as an isl schedule tree: a mark and a band a loop, sequences, filters.

Copies and recomputed stages are ordinary statements with dims of their own, so there are no
extension nodes. The mark keeps the place of a loop that turns out to have one iteration.
"""

from __future__ import annotations

from ..algo import isl
from ..algo.isl import raw
from ..algo.tensor_expr.affine import to_isl
from ..sched.loop.nest import Leaf, Loop, Nest, Seq, Stmt, Tree, leaves


def domain_text(stmt: Stmt) -> str:
    """`S[i, j] : conditions`, without braces."""
    conditions = " and ".join(f"({to_isl(cond)})" for cond in stmt.domain)
    return space(stmt) + (f" : {conditions}" if conditions else "")


def space(stmt: Stmt) -> str:
    """`S[i, j]` in isl's spelling."""
    return isl.tuple_text(stmt.dims, stmt.name)


def schedule(nest: Nest) -> raw.Schedule:
    """The schedule tree of a nest whose sizes are bound. Call it inside a quota."""
    domain = isl.parse_union_set("{ " + "; ".join(map(domain_text, nest.stmts.values())) + " }")
    root = raw.Schedule.from_domain(domain).get_root()
    return _plant(root.child(0), nest.tree, nest).get_schedule()


def _plant(leaf: raw.ScheduleNode, tree: Tree, nest: Nest) -> raw.ScheduleNode:
    """Grows `tree` in place of `leaf`; returns the topmost node it made."""
    match tree:
        case Leaf():
            return leaf
        case Loop() as loop:
            values = "; ".join(
                f"{space(nest.stmts[stmt])} -> [{to_isl(value)}]"
                for stmt, value in loop.values.items()
            )
            band = raw.MultiUnionPwAff.from_union_map(isl.parse_union_map(f"{{ {values} }}"))
            mark = leaf.insert_partial_schedule(band).insert_mark(raw.Id(loop.name))
            return _plant(mark.child(0).child(0), loop.body, nest).ancestor(2)
        case Seq(parts):
            filters = raw.UnionSetList.alloc(raw.DEFAULT_CONTEXT, len(parts))
            for part in parts:
                spaces = "; ".join(space(nest.stmts[stmt]) for stmt in leaves(part))
                filters = filters.add(isl.parse_union_set(f"{{ {spaces} }}"))
            node = leaf.insert_sequence(filters)
            for n, part in enumerate(parts):
                node = _plant(node.child(n).child(0), part, nest).ancestor(2)
            return node
