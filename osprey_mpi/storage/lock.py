"""Hold a run folder for one run at a time.

The lock keeps a second run out where it works across hosts. Where it does not, or was given to another after a host was
cut off, the text in `.lock` is the fence: who finds there what another has written must write nothing more.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from osprey_mpi.errors import EnvironmentFault, FolderInUse, UsageError
from osprey_mpi.storage.files import LOCK_HINT, parse_json, read_regular, storage_error, write_all, write_atomic

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, 524)
LAUNCH = "OSPREY_LAUNCH"  # the environment variable by which `osprey launch` marks all that it starts
WAIT_S = 0.3  # `status` tries the lock for a few microseconds; who starts a run must not be refused for that


class FolderLock:
    """Own the file `.lock`, exclusively, until `release` or the end of the process."""

    def __init__(self, fd: int, path: Path, holder: Mapping[str, Any]) -> None:
        self._fd, self._path, self._holder = fd, path, holder
        # The lock belongs to the open file, which a forked child shares: it must not outlive its owner in a child.
        this = weakref.ref(self)

        def in_child() -> None:
            if (owner := this()) is not None:
                owner._close()

        os.register_at_fork(after_in_child=in_child)

    @classmethod
    def acquire(cls, path: Path, holder: Mapping[str, Any], wait_s: float = WAIT_S) -> Self:
        """Take the lock and write `holder` into it.

        Raises FolderInUse if another run has it, EnvironmentFault if the filesystem has no locks and the user has not
        said to go on without (HDF5_USE_FILE_LOCKING=FALSE, the switch that HDF5 users know).
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise storage_error(path, error) from error
        try:
            _take(fd, path, wait_s)
            data = json.dumps(dict(holder)).encode()
            os.ftruncate(fd, 0)
            write_all(fd, data, 0)
            os.fsync(fd)
        except OSError as error:
            os.close(fd)
            raise storage_error(path, error) from error
        except (UsageError, EnvironmentFault):
            os.close(fd)
            raise
        return cls(fd, path, json.loads(data))

    def successor(self) -> Mapping[str, Any]:
        """Return who has taken the folder since, empty if nobody has."""
        holder = read_holder(self._path)
        return {} if holder == self._holder else holder

    def release(self) -> None:
        """Give the folder free; the file stays and says who had it last."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # closing gives it free as well
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _take(fd: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _go_without(path, error)
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() > deadline:
            raise FolderInUse(f"{path.parent} is in use by {describe(read_holder(path))}")
        time.sleep(0.01)


def _go_without(path: Path, error: OSError) -> None:
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() not in ("FALSE", "0"):
        raise EnvironmentFault(f"{path} cannot be locked: {os.strerror(error.errno or 0)}; {LOCK_HINT}") from error
    holder = read_holder(path)
    if holder.get("pid") != os.getpid() and is_alive(holder):
        raise FolderInUse(f"{path.parent} is in use by {describe(holder)}") from error


def take_from(path: Path, holders: Collection[tuple[str, int]]) -> bool:
    """Take a lock from a process that is lost for good but keeps it, as one that is stopped; return whether one did.

    holders: hosts and process ids of such. Whoever locks the file now locks another one, and what it writes there keeps
    the former holder out.
    """
    holder = read_holder(path)
    if (holder.get("host"), holder.get("pid")) not in holders or not is_held(path):
        return False
    write_atomic(path, json.dumps(holder).encode())
    return True


def read_holder(path: Path) -> dict[str, Any]:
    """Return what the last holder wrote into the lock: host, pid, life, started_unix_s; empty if nothing."""
    try:
        holder = parse_json(read_regular(path))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) and isinstance(holder.get("life", 0), int) else {}


def describe(holder: Mapping[str, Any]) -> str:
    """Return who holds a folder, for a message."""
    if not holder:
        return "another process that has not said who it is"
    return f"process {holder.get('pid')} on {holder.get('host')} (life {holder.get('life')})"


def is_alive(holder: Mapping[str, Any]) -> bool:
    """Tell whether the holder is a process on this host that exists."""
    if holder.get("host") != socket.gethostname() or not isinstance(holder.get("pid"), int):
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists and is another user's
    return True


def is_held(path: Path) -> bool | None:
    """Tell whether a process has the lock; None if this filesystem cannot say."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EACCES) else None
    finally:
        os.close(fd)  # and with it the shared lock
    return False
