"""Is a buffer of a loop still in one piece?

Where an iteration's statements can be put apart without changing their order (the last iteration
of some of them after all others), isl makes several pieces of a loop, and a buffer that lives in
an iteration would be several. What one piece writes, another does not find. Such a loop is held
together (`joints`).
"""

from __future__ import annotations

from collections import Counter

from . import ir


def torn(body: ir.Stmt) -> list[str]:
    """The buffers that are allocated at several places."""
    places = Counter(buffer.name for buffer in ir.allocated(body))
    return [name for name, count in places.items() if count > 1]
