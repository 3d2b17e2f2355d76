"""The check over a whole schedule, whatever made it: dependences, concurrent loops, value flow."""

from __future__ import annotations

from collections.abc import Iterable

from .blocks import check_shared, dividing
from .carried import check_dependence, check_marks, check_order
from .dependences import dependences
from .flow import check_flow
from .fold import check_folds
from .nest import Nest
from .repeated import check_repeated
from .storage import displaced


def validate(nest: Nest, who: str = "schedule") -> None:
    """Raises `ScheduleError` unless the nest computes what its kernel says."""
    for dep in dependences(nest.kernel):
        check_dependence(nest, dep, who)
    check_storage(nest, who)


def check_change(before: Nest, after: Nest, who: str) -> None:
    """Raises unless `after`, which runs the same statements in another order, is still right."""
    check_order(before, after, who)
    check_storage(after, who, before)


def check_storage(nest: Nest, who: str, before: Nest | None = None) -> None:
    """Raises unless loops that run at once may, and values are found where they are read.

    `before` is a nest that is right and of which this one was made: what is as it was there is
    right here.
    """
    changed = displaced(before, nest)
    check_marks(nest, who, changed)
    check_shared(nest, who)
    tensors = {nest.buffers[name].tensor for name in changed}
    held = [name for name, buffer in nest.buffers.items() if buffer.tensor in tensors]
    pinned = [name for name in held if nest.buffers[name].pinned]
    _check_values(nest, (*pinned, *dividing(nest, held)), who)
    check_folds(nest, who)
    check_repeated(nest, who, changed)


def check_blocks(nest: Nest, who: str) -> None:
    """Raises unless every block and thread of a GPU finds its values in its own buffers."""
    check_shared(nest, who)
    _check_values(nest, dividing(nest), who)


def _check_values(nest: Nest, buffers: Iterable[str], who: str) -> None:
    check_flow(nest, (nest.buffers[name].tensor for name in buffers), who)
