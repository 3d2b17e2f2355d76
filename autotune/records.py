"""Records of measured candidates: one checksummed JSON line each, appended, safe to cut anywhere.

A record is keyed by the operator's fingerprint, its types, the target and the grammar version, so
that a file may hold many tunings; damaged lines are skipped and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GRAMMAR = 1  # rises when the text of primitives changes its meaning


@dataclass(frozen=True, slots=True)
class Record:
    """One measured candidate; `seconds` None means that it failed for `reason`."""

    key: str
    candidate: str
    seconds: float | None
    reason: str = ""


def key(fingerprint: str, types: str, target: str) -> str:
    """What makes two measurements comparable."""
    return f"{fingerprint} {types} {target} grammar {GRAMMAR}"


class Records:
    """An append-only file of records."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.damaged = 0

    def append(self, record: Record) -> None:
        """Adds one line; a reader never sees half of it as a record."""
        if self.path is None:
            return
        body = json.dumps(
            [record.key, record.candidate, record.seconds, record.reason], separators=(",", ":")
        )
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{_sum(body)} {body}\n")

    def __iter__(self) -> Iterator[Record]:
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            checksum, _, body = line.partition(" ")
            if checksum != _sum(body):
                self.damaged += 1
                continue
            yield Record(*json.loads(body))


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]
