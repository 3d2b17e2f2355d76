"""The symbols that an object file asks others for, and which of them code may ask for.

Compiled kernels are complete: they may copy and clear memory by the C library, as LLVM decides,
and nothing else; the thread pool also uses POSIX threads. There is no foreign numeric code.
"""

from __future__ import annotations

import struct

from ..algo.errors import UnsupportedError

ALLOWED = frozenset({"memcpy", "memmove", "memset"})


def undefined_symbols(data: bytes) -> set[str]:
    """Names that a 64-bit little-endian ELF object refers to and does not define."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise UnsupportedError("undefined_symbols reads 64-bit little-endian ELF objects only")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * n) for n in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB; `link` is its string table
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + length, entry):  # the first symbol is none
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section == 0:
                end = data.index(b"\0", strings + name)
                found.add(data[strings + name : end].decode())
    return found
