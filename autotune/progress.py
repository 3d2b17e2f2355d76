"""The progress bar of a tuning run, on a terminal; plain lines where there is none."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Shows time spent, trials, failures, and the best against the default."""

    def __init__(self, budget: float, stream: TextIO | None = None) -> None:
        self.budget, self.stream = budget, stream or sys.stderr
        self.start = time.monotonic()
        self.live = self.stream.isatty()
        self._said = ""

    def update(self, trials: int, failed: int, best: float, default: float) -> None:
        """Redraws the bar; without a terminal, says only improvements."""
        spent = time.monotonic() - self.start
        part = min(1.0, spent / self.budget) if self.budget else 1.0
        gain = f"best {_time(best)}, {default / best:.2f} x the default"
        if self.live:
            bar = ("#" * round(24 * part)).ljust(24, ".")
            line = f"\r[{bar}] {spent:5.1f} s  {trials} trials, {failed} failed  {gain}"
            self.stream.write(line.ljust(len(self._said)))
            self._said = line
        elif gain != self._said:
            self.stream.write(f"{spent:6.1f} s  {trials} trials, {failed} failed  {gain}\n")
            self._said = gain
        self.stream.flush()

    def close(self) -> None:
        """Ends the bar's line."""
        if self.live and self._said:
            self.stream.write("\n")


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
