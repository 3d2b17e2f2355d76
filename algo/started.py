"""When this process began to read the compiler's sources, which may be edited while it runs."""

import time

STARTED = time.time_ns()
"""Nanoseconds since the epoch."""
