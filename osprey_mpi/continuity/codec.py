"""Turn messages into bytes and back: a fixed header of 8-byte words per class, then the arrays, then the text.

    header   code, scalars (int64 or float64), then for each array its rows and columns and for each text its bytes
    body     arrays, little-endian, C order, each a multiple of 8 bytes long or the last one; then UTF-8 text

Nothing is pickled; a header that does not fit its bytes raises ValueError.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.messages import MESSAGES, Message


class _Layout:
    """Know the layout of one message class."""

    def __init__(self, code: int, kind: type[Message]) -> None:
        self.code = code
        self.build: Callable[..., Message] = kind
        self.scalars: list[str] = []
        self.arrays: list[tuple[str, np.dtype[Any], int, NDArray[Any]]] = []
        self.texts: list[str] = []
        order = []
        packing = "<q"
        for item in fields(kind):  # type: ignore[arg-type]  # every message is a dataclass
            if "dtype" in item.metadata:
                ndim = item.metadata["ndim"]
                empty = np.empty((0,) * ndim, item.metadata["dtype"])
                self.arrays.append((item.name, item.metadata["dtype"], ndim, empty))
            elif item.type == "str":
                self.texts.append(item.name)
            else:
                self.scalars.append(item.name)
                packing += "d" if item.type == "float" else "q"
            order.append(item.name)
        packing += "qq" * len(self.arrays) + "q" * len(self.texts)
        self.header = struct.Struct(packing)
        # The constructor takes the fields in the order of the header: scalars, arrays, texts.
        names = self.scalars + [a[0] for a in self.arrays] + self.texts
        self.permutation = None if names == order else tuple(names.index(name) for name in order)

    def encode(self, message: Message) -> bytes:
        words: list[Any] = [getattr(message, name) for name in self.scalars]
        body: list[bytes] = []
        for name, dtype, ndim, _ in self.arrays:
            value = getattr(message, name)
            words += (value.shape[0], value.shape[1] if ndim == 2 else 1)
            if value.size:
                body.append(np.ascontiguousarray(value, dtype).tobytes())
        for name in self.texts:
            text = getattr(message, name).encode()
            words.append(len(text))
            body.append(text)
        return b"".join((self.header.pack(self.code, *words), *body))

    def decode(self, data: bytes | bytearray | memoryview) -> Message:
        words = self.header.unpack_from(data)
        n_scalars = len(self.scalars)
        values: list[Any] = list(words[1 : 1 + n_scalars])
        at, word = self.header.size, 1 + n_scalars
        for _, dtype, ndim, empty in self.arrays:
            rows, columns = words[word], words[word + 1]
            word += 2
            if rows == 0:
                values.append(empty)
                continue
            if rows < 0 or columns < 1 or (ndim == 1 and columns != 1):
                raise ValueError(f"an array of {rows} x {columns} in a message")
            stop = at + rows * columns * dtype.itemsize
            if stop > len(data):
                raise ValueError(f"a message of {len(data)} bytes is cut off: it needs {stop}")
            view = np.frombuffer(data, dtype, rows * columns, at)
            values.append(view.reshape(rows, columns) if ndim == 2 else view)
            at = stop
        for _ in self.texts:
            stop = at + words[word]
            if not at <= stop <= len(data):
                raise ValueError(f"a text of {words[word]} bytes in a message of {len(data)}")
            values.append(bytes(data[at:stop]).decode())
            at = stop
            word += 1
        if at != len(data):
            raise ValueError(f"a message of {len(data)} bytes should have {at}")
        if self.permutation is not None:
            values = [values[i] for i in self.permutation]
        message: Message = self.build(*values)
        return message


_LAYOUTS = tuple(_Layout(code, kind) for code, kind in enumerate(MESSAGES))
_BY_KIND = dict(zip(MESSAGES, _LAYOUTS, strict=True))
_CODE = struct.Struct("<q")


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return _BY_KIND[type(message)].encode(message)


def decode(data: bytes | bytearray | memoryview) -> Message:
    """Return the message in `data`; its arrays are read-only views of `data`. Raises ValueError for anything else."""
    try:
        (code,) = _CODE.unpack_from(data)
        if not 0 <= code < len(_LAYOUTS):
            raise ValueError(f"unknown message code {code}")
        layout: _Layout = _LAYOUTS[code]
        return layout.decode(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"a message of {len(data)} bytes cannot be read: {error}") from error


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Pack named arrays into one array of bytes (the .npy format, never pickled)."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def unpack_arrays(packed: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return the named arrays of pack_arrays."""
    with np.load(io.BytesIO(packed.tobytes()), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
