"""Say at the head of a segment whose it is, in bytes that HDF5 never writes: a torn or foreign file is told apart."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

HEAD_BYTES = 512  # the user block before the HDF5 file proper, the smallest that HDF5 allows

_HEAD = struct.Struct("<8sdII")  # magic, start of the run, life, epoch; a CRC-32 follows
_CRC = struct.Struct("<I")
_MAGIC = b"OSPSEGM1"


@dataclass(frozen=True, slots=True)
class Owner:
    """Name a segment. run_unix_s: when the run first started, which no two have the same."""

    run_unix_s: float
    life: int
    epoch: int

    def pack(self) -> bytes:
        """Return the first bytes of the segment."""
        head = _HEAD.pack(_MAGIC, self.run_unix_s, self.life, self.epoch)
        return head + _CRC.pack(zlib.crc32(head))

    @property
    def mark(self) -> int:
        """Return the number that the segment's journal bears; 0 stands for that of an older version, without one."""
        return zlib.crc32(self.pack()[: _HEAD.size]) or 1


def owner_of(data: bytes) -> Owner | None:
    """Return whose segment begins with `data`; None where an older version wrote it, or the head is damaged."""
    if len(data) < _HEAD.size + _CRC.size:
        return None
    magic, run_unix_s, life, epoch = _HEAD.unpack_from(data)
    owner = Owner(run_unix_s, life, epoch)
    return owner if magic == _MAGIC and owner.pack() == data[: _HEAD.size + _CRC.size] else None
