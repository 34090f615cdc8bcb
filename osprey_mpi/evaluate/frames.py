"""Pack and unpack the frames that a rank and its child process exchange over pipes.

A frame is one byte of kind, three of padding, the length of its payload (uint32) and the payload; all
little-endian. Values and costs do not travel in frames: they lie on the board (see board.py).

To the child:
    CHUNK  serial (int64), slot (int64), number of rows (int64)
    STOP   id (int64): tell this evaluation to stop early, if it is the one that runs
From the child:
    READY  UTF-8 JSON: {"error": null or a sentence}
    DONE   serial (int64), rows done so far (int64)
    REASON id (int64), UTF-8 text: why this evaluation is not OK
    REPORT id (int64), step (int64), value (float64)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum


class Kind(IntEnum):
    """Name the kinds of frames."""

    CHUNK = 1
    STOP = 2
    READY = 3
    DONE = 4
    REASON = 5
    REPORT = 6


CHUNK = struct.Struct("<qqq")
STOP = struct.Struct("<q")
DONE = struct.Struct("<qq")
REASON_ID = struct.Struct("<q")
REPORT = struct.Struct("<qqd")
_HEAD = struct.Struct("<B3xI")


def pack_frame(kind: Kind, payload: bytes) -> bytes:
    """Return one frame as bytes."""
    return _HEAD.pack(kind, len(payload)) + payload


class FrameReader:
    """Cut a stream of bytes, given piece by piece, into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Take the next piece of the stream and yield (kind, payload) of every frame that is whole."""
        self._pending += data
        while len(self._pending) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._pending)
            stop = _HEAD.size + length
            if len(self._pending) < stop:
                return
            payload = bytes(self._pending[_HEAD.size : stop])
            del self._pending[:stop]
            yield Kind(kind), payload
