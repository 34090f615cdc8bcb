"""Name the limits of the operating system that a run meets: they are no bugs of ours and no mistakes in a config."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from osprey_mpi.errors import EnvironmentFault

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
    """Raise EnvironmentFault with a sentence where the block meets a limit of the system; all else passes."""
    try:
        yield
    except (OSError, MemoryError) as error:
        number, path = (error.errno, error.filename) if isinstance(error, OSError) else (errno.ENOMEM, None)
        if number not in _REMEDIES:
            raise
        where = "" if path is None else f" at {path}"
        raise EnvironmentFault(
            f"this machine does not give what the run needs: {os.strerror(number)} (errno {number}){where}; "
            f"{_REMEDIES[number]} and try again"
        ) from error
