"""The check over a whole schedule, whatever made it: dependences, concurrent loops, value flow."""

from __future__ import annotations

from .carried import check_dependence, check_marks
from .dependences import dependences
from .flow import check_flow
from .nest import Nest


def validate(nest: Nest, who: str = "schedule") -> None:
    """Raises `ScheduleError` unless the nest computes what its kernel says."""
    for dep in dependences(nest.kernel.stages):
        check_dependence(nest, dep, who)
    check_marks(nest, who)
    check_flow(nest, (b.tensor for b in nest.buffers.values() if b.pinned), who)
