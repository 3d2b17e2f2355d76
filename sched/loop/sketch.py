"""Sketches: a few choices a loop nest, which stand for primitives.

A sketch is what the analytic model chooses once and the tuner changes at random;
`sketch_build.py` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Choice:
    """How one nest runs.

    `merge` makes one loop of neighbouring indices that walk through memory as one; it is called by
    their names with `_` between them, in the other choices too. `vector` is the index that runs in
    lanes, `vectors` how many registers wide its inner loop is (0: the whole loop is one vector
    loop, which lowering cuts). `tile` gives further indices whose blocks are unrolled inside, for
    reuse in registers. `blocks` splits indices for the caches, outermost first, and `pack` names
    tensors copied into panels there (`sketch_contract.py`).
    `outer` is the index whose loop comes first and runs in parallel, in blocks of `chunk`
    iterations (0: no blocks); if it belongs to the reduction, each block has a result of its own.
    `join` computes the nest inside a loop of its consumer, a
    (consumer, index) pair: inside a block, where the index has blocks. None leaves it where it is;
    with `slides` the values of earlier iterations of a block of its `outer` are kept there, or, if
    it has a tile, those of a block in registers.
    `beside` names nests before it that run in the same loops, all of them (`sketch_beside.py`).
    Along `turned` runs memory where it does not along `vector` (`sketch_turn.py`); `stream` stores
    the result past the caches; a temporary with a `layout` has its dimensions in that order.
    `solved` are indices that others determine: their loops, of one iteration, go innermost.
    `words` takes a product of matrices of bytes by words (`sketch_words.py`), in blocks of the tile
    by `vectors`; threads have `chunk` columns each.
    """

    vector: str | None = None
    vectors: int = 0
    merge: tuple[str, ...] = ()
    tile: tuple[tuple[str, int], ...] = ()
    blocks: tuple[tuple[str, int], ...] = ()
    pack: tuple[str, ...] = ()
    outer: str | None = None
    chunk: int = 0
    join: tuple[str, str] | None = None
    slides: bool = False
    beside: tuple[str, ...] = ()
    turned: str | None = None
    stream: bool = False
    layout: tuple[int, ...] = ()
    solved: tuple[str, ...] = ()
    words: bool = False


@dataclass(frozen=True, slots=True)
class Sketch:
    """Choices by the name of the nest (the tensor it computes)."""

    choices: Mapping[str, Choice] = field(default_factory=dict)
