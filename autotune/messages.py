"""What tuner and measuring server say to each other: pickles with their length before them."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial's end: `seconds` is the least time of a run, None if the candidate was dropped."""

    seconds: float | None
    reason: str = ""


def send(stream: IO[bytes], message: Any) -> None:
    """Writes one message."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Reads one message; EOFError when the other side has gone."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))
