"""Where the stages of a lift go: in the loops of its blocks, before what combines their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...algo.tensor_expr.build import add
from ...algo.tensor_expr.expr import Expr, Index, Range
from .factored import Factored
from .initial import statement
from .lift import lift_of
from .names import index_of, stem_and_part, unlike
from .nest import Loop, Nest, Seq, Tree, leaves
from .tree import around_stmt, edit, remove, seq


def lifted(fold: Factored, block: tuple[Range, int], apart: bool) -> Nest:
    """The nest in which the lift makes the partial results of every block.

    They are combined in the same iteration, or `apart`, in a loop of its own after all.
    """
    nest, parts = fold.nest, fold.parts()
    one = lift_of(fold, parts, block)
    new, tensors, own = one.made()
    parts.tensors.update(tensors)
    kernel = fold.kernel(parts, [*new, *parts.last])
    gone = {s.name for s in fold.updates}
    stmts = {name: stmt for name, stmt in nest.stmts.items() if name not in gone}
    stmts |= {s.name: statement(s) for s in (*new, *parts.last)}
    outer, _ = fold.around()
    deepest = around_stmt(nest.tree, fold.widest.name)
    shared = {r.index for r in one.shared}
    inner = [
        item
        for item in deepest[len(outer) + 1 :]
        if all(fold.widest.name in item.values and name in item.values for name in gone)
        and fold.is_free(item)
    ]
    main = fold.joint.members[0]
    owner = fold.owners(parts)
    values: dict[str, dict[str, Expr]] = {}
    for item in (*outer, *inner):
        of_lift = dict.fromkeys((s.name for s in new), fold.follow(main, item))
        values[item.name] = of_lift | {n: fold.follow(m, item) for n, m in owner.items()}
    here = add(Index(parts.dim), fold.origin)
    taken = fold.taken

    def wrapped(tree: Tree, stem: str) -> Tree:
        """A part in loops over the output's indices that are inside the block."""
        names = list(leaves(tree))
        known = [values[item.name][names[0]] for item in (*outer, *inner)]
        for d in reversed(fold.shared_dims(stmts[names[0]], [*known, Index(parts.dim)])):
            tree = Loop(f"{stem}.{d}", dict.fromkeys(names, Index(d)), tree)
        for item in reversed(inner):
            name = unlike(f"{stem}.{index_of(item.name)}", taken)
            taken.add(name)
            mine = {n: values[item.name][n] for n in names}
            tree = replace(item, name=name, values=mine, body=tree)
        return tree

    begun = [wrapped(part, stem) for stem, part in _by_stem(own)]
    names = [s.name for s in parts.last]
    rest = remove(fold.loop.body, gone)
    body = [] if rest is None else [rest]
    if not apart:
        levels = [values[item.name] for item in (*outer, *inner)]
        combine = fold.inner(stmts, parts, levels, sorted(shared))
        begun.append(wrapped(combine, fold.joint.name))
    inside = [s.name for s in new] + ([] if apart else names)
    kept = {n: v for n, v in fold.loop.values.items() if n not in gone}
    loop = replace(fold.loop, values=kept | dict.fromkeys(inside, here), body=seq([*body, *begun]))
    ended: list[Tree] = []
    if apart:
        ended = [fold.combining(stmts, parts, [values[item.name] for item in outer])]

    def enter(item: Loop) -> Tree:
        mine = {n: v for n, v in item.values.items() if n not in gone} | values[item.name]
        return replace(item, values=mine)

    changes: dict[str, Callable[[Loop], Tree]] = {item.name: enter for item in outer}
    changes[fold.loop.name] = lambda _: seq([loop, *ended])
    return fold.with_buffers(kernel, stmts, edit(nest.tree, changes))


def _by_stem(tree: Tree) -> list[tuple[str, Tree]]:
    """The parts of a tree, those of one reduction together, and what their loops are called by."""
    found: list[tuple[str, list[Tree]]] = []
    for item in tree.parts if isinstance(tree, Seq) else (tree,):
        stem, _ = stem_and_part(list(leaves(item))[-1])
        if found and found[-1][0] == stem:
            found[-1][1].append(item)
        else:
            found.append((stem, [item]))
    return [(stem, seq(items)) for stem, items in found]
