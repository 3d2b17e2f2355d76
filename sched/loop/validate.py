"""The check over a whole schedule, whatever made it: dependences, concurrent loops, value flow."""

from __future__ import annotations

from .carried import check_dependence, check_marks, check_order
from .dependences import dependences
from .flow import check_flow
from .nest import Nest


def validate(nest: Nest, who: str = "schedule") -> None:
    """Raises `ScheduleError` unless the nest computes what its kernel says."""
    for dep in dependences(nest.kernel.stages):
        check_dependence(nest, dep, who)
    _check_storage(nest, who)


def check_change(before: Nest, after: Nest, who: str) -> None:
    """Raises unless `after`, which runs the same statements in another order, is still right."""
    check_order(before, after, who)
    _check_storage(after, who)


def _check_storage(nest: Nest, who: str) -> None:
    check_marks(nest, who)
    check_flow(nest, (b.tensor for b in nest.buffers.values() if b.pinned), who)
