"""The object cache on disk: what was compiled once is loaded by every later process.

An entry is one file, published by an atomic rename and checked by a digest when it is read. The
least recently used entries go when the cache outgrows its limit. A cache that cannot be used is
no error: the compiler compiles.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import struct
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from ..algo.contents import contents
from ..algo.errors import Error
from ..algo.started import STARTED

_MAGIC = b"DIPTYCH1"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
DEFAULT_LIMIT = 512 << 20
_UNFINISHED = ".new-"
_PATIENCE = 3600 * 10**9  # nanoseconds after which nobody is writing a file any more


class CacheSizeError(Error, ValueError):
    """DIPTYCH_CACHE_SIZE is not a number of bytes."""


class ObjectCache:
    """Entries under `folder`, at most about `limit` bytes; a limit of 0 keeps nothing.

    What is wrong with the folder or its files is said once, in a warning.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._warned = False
        self._room = 0  # bytes that may be written before the folder is looked through again

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """What was put under `key`: its facts and its object code."""
        path = self._path(key)
        try:
            raw = contents(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._warn(f"{path} cannot be read ({error.strerror}) and is ignored")
            return None
        entry = _decode(key, raw)
        if entry is None:
            self._warn(f"{path} is damaged and ignored; it is compiled again")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now: it is evicted last
        return entry

    def put(self, key: str, facts: dict[str, Any], code: bytes) -> None:
        """Publishes an entry, whole or not at all."""
        raw = _encode(key, facts, code)
        if len(raw) > self.limit:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=_UNFINISHED)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(raw)
                os.replace(name, self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
            self._room -= len(raw)
            if self._room < 0:
                self._evict()
        except OSError as error:
            taken = isinstance(error, FileExistsError)  # by what is no folder
            reason = os.strerror(errno.ENOTDIR) if taken else error.strerror
            self._warn(f"{self.folder} cannot be written ({reason}); what is compiled is not kept")

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"object cache: {message}", RuntimeWarning, stacklevel=3)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.o"

    def _evict(self) -> None:
        """Removes the entries that were used longest ago while there are too many bytes, and what
        writers that were killed have left."""
        found, long_ago = [], time.time_ns() - _PATIENCE
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    stat = entry.stat()
                    if entry.name.endswith(".o"):
                        found.append((stat.st_mtime_ns, stat.st_size, entry.path))
                    elif entry.name.startswith(_UNFINISHED) and stat.st_mtime_ns < long_ago:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in found)
        if total > self.limit:
            for _, size, path in sorted(found):
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= size
                if total <= self.limit * 9 // 10:
                    break
        # Other processes fill the same folder, so nobody takes all the room that there is.
        self._room = (self.limit - total) // 4


def _encode(key: str, facts: dict[str, Any], code: bytes) -> bytes:
    head = json.dumps(facts).encode()
    body = struct.pack("<I", len(head)) + head + code
    return _MAGIC + _digest(key, body) + body


def _decode(key: str, raw: bytes) -> tuple[dict[str, Any], bytes] | None:
    start = len(_MAGIC) + 32
    body = raw[start:]
    if raw[: len(_MAGIC)] != _MAGIC or _digest(key, body) != raw[len(_MAGIC) : start]:
        return None
    (size,) = struct.unpack_from("<I", body)
    return json.loads(body[4 : 4 + size]), body[4 + size :]


def _digest(key: str, body: bytes) -> bytes:
    """Of the name too: an entry under another one, such as a backup mixed up, is damaged."""
    return hashlib.sha256(key.encode() + body).digest()


def default_cache() -> ObjectCache:
    """The cache that the environment names: DIPTYCH_CACHE_DIR and DIPTYCH_CACHE_SIZE."""
    text = os.environ.get("DIPTYCH_CACHE_SIZE", "")
    return _cache_at(os.environ.get("DIPTYCH_CACHE_DIR") or _user_folder(), text)


@cache
def _cache_at(folder: str | None, size: str) -> ObjectCache:
    limit = parse_size(size) if size else DEFAULT_LIMIT
    if folder is None:
        warnings.warn(
            "object cache: this user has no home directory, so what is compiled is not kept; "
            "DIPTYCH_CACHE_DIR may name a folder",
            RuntimeWarning,
            stacklevel=3,
        )
        return ObjectCache(Path(os.devnull), 0)
    return ObjectCache(Path(folder).absolute(), limit)  # the working directory may change


def _user_folder() -> str | None:
    """The user's own: in a folder of everybody, others could put code there. None without one."""
    if sys.platform != "darwin" and (folder := os.environ.get("XDG_CACHE_HOME")):
        return str(Path(folder) / "diptych")
    try:
        caches = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    except RuntimeError:  # as in containers that run under a number without a name
        return None
    return str(caches / "diptych")


def parse_size(text: str) -> int:
    """Bytes: a number, or one with K, M or G (also KiB, MB ...), powers of 1024."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)(?:I?B)?\s*", text.upper())
    if found is None:
        raise CacheSizeError(
            f"DIPTYCH_CACHE_SIZE is {text!r}; expected bytes, as in 500000000, 512MiB or 2G"
        )
    return int(float(found[1]) * _UNITS[found[2]])


@cache
def compiler() -> str:
    """A digest of the compiler itself: what another version made is not used."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digest = hashlib.sha256()
    for part in ("algo", "sched", "lower", "codegen"):
        for folder, folders, files in os.walk(os.path.join(root, part)):
            folders.sort()
            for name in sorted(files):
                if not name.endswith(".py"):
                    continue
                path = os.path.join(folder, name)  # strings: paths as objects take twice as long
                with open(path, "rb", buffering=0) as file:
                    digest.update(path[len(root) :].encode())
                    digest.update(file.readall())
                    if os.fstat(file.fileno()).st_mtime_ns > STARTED:
                        digest.update(os.urandom(16))  # what runs here may be what it was before
    return digest.hexdigest()
