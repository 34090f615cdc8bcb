"""Write files so that a kill, a power cut or a full disk leaves the old or the new content, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from osprey_mpi.errors import StorageError

LOCKED = frozenset({errno.EAGAIN, errno.ENOLCK, 524})  # 524: ENOTSUPP of the Linux kernel, seen on Lustre and GPFS
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LOCK_HINT = (
    "if no other program uses it, the filesystem does not support locks: set HDF5_USE_FILE_LOCKING=FALSE and try again"
)
RESUME = "`osprey resume` the run"
_HINTS = {
    errno.ENOSPC: "make room and {then}",
    errno.EDQUOT: "the quota is used up: make room and {then}",
    errno.EFBIG: "a limit on the size of files was met (ulimit -f): raise it and {then}",
    errno.EROFS: "the filesystem is read-only now: {then} once it can be written",
    errno.EIO: "the device or the file server failed: {then} once it works again",
    errno.EISDIR: "a folder has its name: move that away and {then}",
    errno.ENOENT: "it or its folder was removed by another program",
}


def free_bytes(path: Path) -> int | None:
    """Return the bytes that this user can still write beside `path`, or None if the filesystem does not say."""
    for folder in (path, *path.parents):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        return found.f_bavail * found.f_frsize
    return None


def room(path: Path) -> str:
    """Say how much can still be written beside `path`."""
    free = free_bytes(path)
    return "free space unknown" if free is None else f"{free} bytes free"


def storage_error(
    path: Path, error: BaseException, verb: str = "written", owner: str = "", then: str = RESUME
) -> StorageError:
    """Return the error that tells which file, why, how much room is left and what to do; `then` once that is mended."""
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error) or type(error).__name__
    parts = [f"{path} cannot be {verb}: {reason}" + (f" (errno {number})" if number else "")]
    if number in LOCKED:
        parts.append(f"it is held by {owner}" if owner else "another program may hold it")
        parts.append(LOCK_HINT)
    elif verb == "written":
        parts.append(room(path))
        parts.append(_HINTS.get(number or 0, "what was written before is safe: {then}").format(then=then))
    return StorageError("; ".join(parts))


def is_full(error: StorageError) -> bool:
    """Tell whether there was no room: less may fit."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`: a disk that fills up makes a short write before it makes an error."""
    view = memoryview(data)
    while view:
        n = os.pwrite(fd, view, offset)
        if n == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, offset = view[n:], offset + n


def read_regular(path: Path) -> bytes:
    """Read a file whole. Raises OSError, also for what is no regular file: a FIFO would be waited for without end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path.name} is not a regular file")
        return read_all(fd)
    finally:
        os.close(fd)


def parse_json(data: bytes | str) -> Any:
    """Return a JSON value. Raises ValueError, in words for a user."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON (line {error.lineno}, column {error.colno})") from None
    except UnicodeDecodeError:
        raise ValueError("it is no JSON: it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_all(fd: int) -> bytes:
    """Read a file from its first byte to its end."""
    size = os.fstat(fd).st_size
    parts: list[bytes] = []
    offset = 0
    while offset < size:
        part = os.pread(fd, size - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a rename is on disk only after this."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems cannot sync a folder and need not
            raise
    finally:
        os.close(fd)


def temporary(path: Path) -> Path:
    """Return the name beside `path` under which its next content is written."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def replace(new: Path, path: Path) -> None:
    """Give the finished and synced file `new` the name `path`, durably."""
    new.replace(path)
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Make the file `path` of `data`, on disk when this returns; its name is durable only after `replace`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(fd, data, 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes | memoryview) -> None:
    """Replace the content of `path` in one step; raise StorageError and keep the old content otherwise."""
    new = temporary(path)
    try:
        write_synced(new, data)
        replace(new, path)
    except OSError as error:
        discard(new)
        raise storage_error(path, error) from error


def discard(path: Path) -> None:
    """Delete what was begun, if it can be: a filesystem that is read-only now refuses even that."""
    with contextlib.suppress(OSError):
        path.unlink()


def remove_temporary(folder: Path) -> None:
    """Delete what writers that were killed left behind in `folder`; only the owner of the folder may call this."""
    for path in folder.glob(".*.tmp-*"):
        path.unlink(missing_ok=True)
