"""Name what the operating system does not give: that is no bug of ours and no mistake in a config."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osprey_mpi.errors import EnvironmentFault, UsageError

_REMEDIES = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "this machine has no more open files to give",
    errno.EAGAIN: "raise the limit on processes (ulimit -u)",
    errno.ENOMEM: "raise the limit on memory (ulimit -v, or that of the job), or start fewer ranks",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room: the quota is used up",
}


@contextmanager
def limits_named() -> Iterator[None]:
    """Raise EnvironmentFault with a sentence where the block meets a limit of the system; all else passes.

    Raises UsageError where it needs the current folder, and that has been removed.
    """
    try:
        yield
    except (OSError, MemoryError) as error:
        number, path = (error.errno, error.filename) if isinstance(error, OSError) else (errno.ENOMEM, None)
        if number == errno.ENOENT and path is None and not has_current_folder():
            raise UsageError(
                "the current folder has been removed: change to another one, or give absolute names of all files and "
                "folders, --out too"
            ) from error
        if number not in _REMEDIES:
            raise
        where = "" if path is None else f" at {path}"
        raise EnvironmentFault(
            f"this machine does not give what the run needs: {os.strerror(number)} (errno {number}){where}; "
            f"{_REMEDIES[number]} and try again"
        ) from error


def has_current_folder() -> bool:
    """Tell whether the current folder is there: it may be removed under a process."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True
