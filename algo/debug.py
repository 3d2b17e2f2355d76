"""`DIPTYCH_DEBUG`: 0 is silent, 1 says what is chosen, up to 5, which prints every IR."""

from __future__ import annotations

import os
import sys

from .errors import EnvironmentValueError

LEVELS = ("0", "1", "2", "3", "4", "5")


def level() -> int:
    """The debug level of this process."""
    text = os.environ.get("DIPTYCH_DEBUG", "").strip() or "0"
    if text not in LEVELS:
        raise EnvironmentValueError(f"DIPTYCH_DEBUG is {text!r}; expected a number from 0 to 5")
    return int(text)


def say(at: int, message: str) -> None:
    """Prints to stderr when the debug level is `at` or higher."""
    if level() >= at:
        print(f"diptych: {message}", file=sys.stderr)
