"""`DIPTYCH_DEBUG`: 0 is silent, 1 says what is chosen, up to 5, which prints every IR."""

from __future__ import annotations

import os
import sys


def level() -> int:
    """The debug level of this process."""
    text = os.environ.get("DIPTYCH_DEBUG", "0")
    return int(text) if text.isdigit() else 0


def say(at: int, message: str) -> None:
    """Prints to stderr when the debug level is `at` or higher."""
    if level() >= at:
        print(f"diptych: {message}", file=sys.stderr)
