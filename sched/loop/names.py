"""How users name loops: exactly, or by the last components where that says one thing.

A loop is `stage.index`. An exact name means that loop. A shorter one (`ii` for `C.ii`) means the
loops whose names end in it; they must be one loop of the computation, or copies of one loop that
distribution made (`C.ii`, `C.init.ii`, `C.store.ii`). Loops of packing copies (`B.pack.j`) are
meant only where nothing else has the name, so that staging does not make other names ambiguous.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping

from ...algo.errors import ScheduleError
from ...algo.remembered import remembered
from ...algo.tensor_expr.op import Kernel
from .nest import Loop, Nest, leaves, loops
from .origins import base
from .tree import copies_of, named


def origins(nest: Nest) -> Callable[[str], str]:
    """`base`, where the results of one fold have one: `s.init.ii` is a copy of `o.ii` too."""
    folds = _folds(nest.kernel)

    def origin(name: str) -> str:
        stem, _, index = base(name).rpartition(".")
        return f"{folds.get(stem, stem)}.{index}"

    return origin


def copies(nest: Nest, name: str) -> Iterator[Loop]:
    """The loops whose origin is the one of this name, outer before inner."""
    stem, _, index = name.rpartition(".")
    folds = _folds(nest.kernel)
    stems = [own for own, fold in folds.items() if fold == stem]
    stems += [] if stem in folds else [stem]
    return copies_of(nest.tree, {f"{own}.{index}" for own in stems})


@remembered(16)
def _folds(kernel: Kernel) -> Mapping[str, str]:
    """Whose loops those of each result of a fold are copies of."""
    found = [stage for stage in kernel.stages if stage.turn is not None]
    return {base(f"{s.name}.")[:-1]: base(f"{s.turn.fold}.")[:-1] for s in found if s.turn}


def stem_and_part(stage: str) -> tuple[str, str]:
    """`C` and `init` of `C.init`; a stage that is no part of a reduction has the part ""."""
    stem, _, part = stage.rpartition(".")
    return (stem, part) if stem and part in ("init", "update", "final") else (stage, "")


def index_of(name: str) -> str:
    """The last component of a loop's name."""
    return name.rpartition(".")[2]


def is_packing(name: str) -> bool:
    """Is this a loop of a copy that `stage` made of something not accumulated there?"""
    return ".pack" in name


def find_loops(
    nest: Nest, name: str, who: str, meant: Callable[[Loop], object] | None = None
) -> list[Loop]:
    """The loops that `name` means, in tree order; `who` starts the message of an error.

    Of several that end in it, those that `meant` holds for, if there are any.
    """
    exact = named(nest.tree, name)
    if exact is not None:
        return [exact]
    everything = list(loops(nest.tree))
    found = [loop for loop in everything if loop.name.endswith("." + name)]
    computing = [loop for loop in found if not is_packing(loop.name)]
    found = computing or found
    found = (meant and list(filter(meant, found))) or found
    if not found:
        raise ScheduleError(f"{who}: there is no loop {name}{suggest(name, everything)}")
    origin = origins(nest)
    if len({origin(loop.name) for loop in found}) > 1:
        listed = ", ".join(loop.name for loop in found)
        raise ScheduleError(f"{who}: {name} may mean {listed}; write the full name of one")
    return found


def find_loop(
    nest: Nest, name: str, who: str, meant: Callable[[Loop], object] | None = None
) -> Loop:
    """The one loop that `name` means (see `find_loops`); of distributed copies, the original."""
    found, origin = find_loops(nest, name, who, meant), origins(nest)
    return next((loop for loop in found if loop.name == origin(loop.name)), found[0])


def suggest(name: str, everything: list[Loop]) -> str:
    """The end of a message about an unknown loop: a near miss, and all loops."""
    names = [loop.name for loop in everything]
    short = {index_of(full) for full in names}
    near = difflib.get_close_matches(name, [*names, *sorted(short)], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{hint} (loops: {', '.join(names)})" if names else "; the nest has no loops"


def suggest_from(name: str, known: list[str]) -> str:
    """The end of a message about any other unknown name."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{hint} (there {_are(known)})" if known else "; there is none"


def _are(known: list[str]) -> str:
    return f"is {known[0]}" if len(known) == 1 else f"are {', '.join(known)}"


def where(nest: Nest, loop: Loop) -> str:
    """` (mm.py:14)`: where the first statement under a loop was written, if that is known."""
    loc = next((nest.stmts[stmt].loc for stmt in leaves(loop)), None)
    return f" ({loc})" if loc else ""


def fresh(
    nest: Nest,
    name: str,
    who: str,
    *,
    replaced: tuple[str, ...] = (),
    advice: str = "other names with into=(outer, inner)",
) -> str:
    """`name` if no other loop has it."""
    if name not in replaced and named(nest.tree, name) is not None:
        raise ScheduleError(f"{who}: there is already a loop {name}; choose {advice}")
    return name


def unlike(name: str, taken: Collection[str]) -> str:
    """`name`, with underscores behind it where it is taken."""
    while name in taken:
        name += "_"
    return name


def prefix(name: str) -> str:
    """What comes before the last component, with its dot."""
    return name[: len(name) - len(index_of(name))]
