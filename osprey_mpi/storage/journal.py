"""Change an HDF5 file in whole transactions, so that a kill at any moment leaves it at the last one.

HDF5 rewrites chunks and B-tree nodes in place; a process killed between two of these writes leaves a file that may
not open, and a chunk that was half rewritten loses rows that were committed long ago (its checksum fails). Rules:

* HDF5 never touches the file. It sees an `Overlay` that keeps what it writes in memory, and is closed before a byte
  goes to disk: after any failure the overlay is dropped, and with it all state that HDF5 holds.
* The writes go to the journal beside the file first and are synced: this is the moment of the commit. Then they are
  applied to the file. Applying twice does no harm, so a reader applies a whole journal to its copy, always.
* The journal is overwritten only after the file itself is synced. A torn journal (its CRC fails) means that the
  transaction never was; the file is whole then.
* Room in the file is reserved before the commit, so a full disk is met while failing is still free.
* A journal bears the mark of its file: one that came with another file is not applied.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import h5py

from osprey_mpi.storage.files import read_all, read_regular, storage_error, write_all
from osprey_mpi.storage.owner import owner_of

LIBVER = ("earliest", "v110")  # readable by HDF5 1.10 and later, and by what a killed writer leaves

_HEADER = struct.Struct("<8sQQQII")  # magic, size of the file after, number of writes, bytes that follow, CRC-32, mark
_WRITE = struct.Struct("<QQ")  # offset, length
_MAGIC = b"OSPJRNL1"
_TRIES = 50  # a reader that meets a writer this often in a row, 2 ms apart, takes what it has and checks it


def journal_path(path: Path) -> Path:
    """Return the name of the journal of `path`."""
    return path.with_name(path.name + ".journal")


class Overlay(io.RawIOBase):
    """Stand in for a file: reads come from the file with the writes on top, writes stay in memory."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._position = 0
        self.size = os.fstat(fd).st_size
        self.writes: list[tuple[int, bytes]] = []

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        start = self._position
        n = os.preadv(self._fd, [view], start)
        for offset, data in self.writes:
            low, high = max(offset, start), min(offset + len(data), start + len(view))
            if low < high:
                view[low - start : high - start] = data[low - offset : high - offset]
                n = max(n, high - start)
        self._position += n
        return n

    def write(self, data: Any) -> int:
        kept = bytes(data)
        self.writes.append((self._position, kept))
        self._position += len(kept)
        self.size = max(self.size, self._position)
        return len(kept)

    def truncate(self, size: int | None = None) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class Sink(Overlay):
    """Write to the file until that fails; from then on in memory, because h5py crashes where a file object raises."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                write_all(self._fd, data, self._position)
            except OSError as error:
                self.error = error
            else:
                self._position += len(data)
                self.size = max(self.size, self._position)
                return len(data)
        return super().write(data)

    def finish(self) -> None:
        """Give the file its size and sync it. Raises OSError, that of the first write that failed."""
        if self.error is not None:
            raise self.error
        os.ftruncate(self._fd, self.size)
        os.fsync(self._fd)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Hold the writes that bring a file from one state to the next.

    size_bytes: of the file afterwards. mark: of the file, 0 for one without.
    """

    size_bytes: int
    writes: tuple[tuple[int, bytes], ...]
    mark: int = 0

    def is_of(self, image: bytes) -> bool:
        """Tell whether the file that begins with `image` may be the one that this was written for."""
        owner = owner_of(image)
        return owner is None or self.mark in (0, owner.mark)

    def pack(self) -> bytes:
        """Return the journal's content."""
        table = b"".join(_WRITE.pack(offset, len(data)) for offset, data in self.writes)
        body = b"".join((table, *(data for _, data in self.writes)))
        head = (_MAGIC, self.size_bytes, len(self.writes), len(body))
        crc = zlib.crc32(body, zlib.crc32(_HEADER.pack(*head, 0, self.mark)))
        return _HEADER.pack(*head, crc, self.mark) + body

    @staticmethod
    def unpack(raw: bytes) -> Transaction | None:
        """Return the transaction in a journal's content, or None if it is torn, empty or damaged."""
        if len(raw) < _HEADER.size:
            return None
        magic, size_bytes, n_writes, n_body, crc, mark = _HEADER.unpack_from(raw)
        body = memoryview(raw)[_HEADER.size : _HEADER.size + n_body]
        if magic != _MAGIC or len(body) != n_body or n_writes * _WRITE.size > n_body:
            return None
        if zlib.crc32(body, zlib.crc32(_HEADER.pack(magic, size_bytes, n_writes, n_body, 0, mark))) != crc:
            return None
        writes: list[tuple[int, bytes]] = []
        start = n_writes * _WRITE.size
        for index in range(n_writes):
            offset, length = _WRITE.unpack_from(body, index * _WRITE.size)
            writes.append((offset, bytes(body[start : start + length])))
            start += length
        return Transaction(size_bytes, tuple(writes), mark)


class _State(Enum):
    APPLIED = 0  # the journal is in the file, which may not be synced yet
    PENDING = 1  # the journal is committed and must be applied before anything else
    VOID = 2  # the journal holds a transaction that was reported as failed: it must go


class JournaledFile:
    """Change one HDF5 file that nobody else writes. mark: for its journal."""

    def __init__(self, path: Path, mark: int = 0) -> None:
        self.path = path
        self._mark = mark
        self._state = _State.PENDING

    def update(self, change: Callable[[Any], None]) -> None:
        """Carry out `change(h5py.File)` as one durable transaction; raise StorageError and change nothing otherwise."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                journal = os.open(journal_path(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    self._update(fd, journal, change)
                finally:
                    os.close(journal)
            finally:
                os.close(fd)
        except (OSError, RuntimeError, KeyError) as error:  # HDF5 raises the last two on a damaged file
            raise storage_error(self.path, error) from error

    def finish(self) -> None:
        """Apply and sync everything and delete the journal: the file is plain HDF5 from here on."""
        self.update(lambda file: None)
        journal_path(self.path).unlink(missing_ok=True)

    def _update(self, fd: int, journal: int, change: Callable[[Any], None]) -> None:
        self._settle(fd, journal)
        overlay = Overlay(fd)
        size_before = overlay.size
        with h5py.File(overlay, "r+", libver=LIBVER) as file:
            change(file)
        transaction = Transaction(overlay.size, tuple(overlay.writes), self._mark)
        if not transaction.writes:
            return
        try:
            _reserve(fd, size_before, transaction.size_bytes)
            self._state = _State.VOID
            write_all(journal, transaction.pack(), 0)
            os.fdatasync(journal)
        except OSError:
            self._undo(fd, journal, size_before)
            raise
        self._state = _State.PENDING
        try:
            apply(transaction, fd)
            self._state = _State.APPLIED
        except OSError:
            pass  # the rows are durable in the journal: nothing is lost, and the next update applies it or raises

    def _settle(self, fd: int, journal: int) -> None:
        """Bring the file to the last commit, durably, so that the journal may be overwritten."""
        if self._state is _State.VOID:
            os.ftruncate(journal, 0)
        elif self._state is _State.PENDING and (transaction := Transaction.unpack(read_all(journal))) is not None:
            apply(transaction, fd)
        self._state = _State.PENDING  # a failed fsync may have dropped what was applied: then it is applied again
        os.fdatasync(fd)
        self._state = _State.APPLIED

    def _undo(self, fd: int, journal: int, size_before: int) -> None:
        """Give back the room that a failed transaction took and drop its journal."""
        try:
            os.ftruncate(journal, 0)
            self._state = _State.APPLIED
            os.ftruncate(fd, size_before)
        except OSError:
            pass  # still VOID: the next update drops it first; bytes past HDF5's end of file do no harm


def apply(transaction: Transaction, fd: int) -> None:
    """Bring the file `fd` to the state after `transaction`."""
    for offset, data in transaction.writes:
        write_all(fd, data, offset)
    os.ftruncate(fd, transaction.size_bytes)


def _reserve(fd: int, size_before: int, size_after: int) -> None:
    if size_after <= size_before:
        return
    try:
        os.posix_fallocate(fd, size_before, size_after - size_before)
    except OSError as error:
        if error.errno not in (
            errno.EOPNOTSUPP,
            errno.EINVAL,
        ):  # where room cannot be reserved the journal keeps the rows
            raise


def read_image(path: Path) -> bytes:
    """Return the bytes of a file at its last transaction, also while another process writes it.

    Takes no lock. The file is copied between two looks at its journal; if the journal changed in between, again.
    """
    image = b""
    for attempt in range(_TRIES):
        before = _journal_of(path)
        transaction = Transaction.unpack(before)
        if transaction is None and before and attempt < _TRIES // 2:
            time.sleep(0.002)  # the journal is being written now; if it stays torn its writer was killed
            continue
        image = _patched(path, transaction)
        if _journal_of(path) == before:
            break
        time.sleep(0.002)
    return image


def has_foreign_journal(path: Path, image: bytes) -> bool:
    """Tell whether the journal beside a file was written for another one."""
    transaction = Transaction.unpack(_journal_of(path))
    return transaction is not None and not transaction.is_of(image)


def _patched(path: Path, transaction: Transaction | None) -> bytes:
    image = read_regular(path)
    if transaction is None or not transaction.is_of(image):
        return image
    patched = bytearray(image)
    patched.extend(bytes(max(0, transaction.size_bytes - len(patched))))
    for offset, data in transaction.writes:
        patched[offset : offset + len(data)] = data
    return bytes(patched[: transaction.size_bytes])


def _journal_of(path: Path) -> bytes:
    try:
        return read_regular(journal_path(path))
    except FileNotFoundError:
        return b""
