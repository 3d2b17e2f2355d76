"""What a file holds."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def contents(path: Path) -> bytes:
    """The bytes of a file. Raises `OSError`, also for a device or a pipe, which may never end, or
    give nothing until somebody writes."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Neither a file nor a link to one", str(path))
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)
