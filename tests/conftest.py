"""How tests are shared out over workers: a file at a time, random trials a chunk at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest

CHUNK = re.compile(r"\[chunk\d+\]$")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`: a chunk of trials is a unit of its own, whatever file it is in."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndChunk(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if CHUNK.search(nodeid) else str(super()._split_scope(nodeid))

    return ByFileAndChunk(config, log)
