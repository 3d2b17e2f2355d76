"""Arena offsets: nothing that lives at the same time overlaps, and little is wasted."""

from __future__ import annotations

from diptych.lower.arena import Block, assign
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCKS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 12), st.integers(0, 6)), max_size=14
).map(
    lambda rows: [
        Block(f"v{n}", size, first, first + length) for n, (size, first, length) in enumerate(rows)
    ]
)


@given(BLOCKS)
@settings(max_examples=150, derandomize=True)
def test_what_lives_together_is_apart(blocks: list[Block]) -> None:
    offsets, total = assign(blocks, 64)
    assert set(offsets) == {block.name for block in blocks}
    for a in blocks:
        assert offsets[a.name] % 64 == 0
        assert offsets[a.name] + a.size <= total
        for b in blocks:
            if a.name < b.name and a.first <= b.last and b.first <= a.last:
                apart = (
                    offsets[a.name] + max(a.size, 1) <= offsets[b.name]
                    or offsets[b.name] + max(b.size, 1) <= offsets[a.name]
                )
                assert apart


def test_space_is_used_again() -> None:
    chain = [Block(f"v{n}", 640, n, n + 1) for n in range(10)]
    assert assign(chain, 64)[1] == 2 * 640


def test_a_gap_of_the_right_size_is_taken_first() -> None:
    blocks = [Block("long", 640, 0, 9), Block("early", 320, 0, 3), Block("small", 64, 4, 9)]
    offsets, total = assign([*blocks, Block("late", 320, 4, 9)], 64)
    assert total == 640 + 320 + 64
    assert offsets["late"] == offsets["early"]


def test_an_empty_program_needs_nothing() -> None:
    assert assign([], 64) == ({}, 0)
