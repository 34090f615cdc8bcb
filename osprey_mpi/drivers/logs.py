"""Give every rank its own log file; attempts follow each other in it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from osprey_mpi.console import Unfailing, say

# By handler, the thread of its run: several calls of minimize() may be at work in one process.
_THREADS: dict[logging.Handler, int] = {}


class LogFile(logging.FileHandler):
    """Write to a file; where that fails the run goes on, and stderr says so once."""

    is_whole = True

    def handleError(self, record: logging.LogRecord) -> None:  # logging calls it so
        """Say what is wrong, the first time."""
        if self.is_whole:
            self.is_whole = False
            say(f"osprey: {self.baseFilename} is not whole: {sys.exc_info()[1]}")


def open_log(path: Path, rank: int, life: int) -> logging.Logger:
    """Return the logger of this rank, appending to `path`; where that cannot be written it goes to stderr."""
    log = logging.getLogger(f"osprey_mpi.rank{rank}")
    log.setLevel(logging.INFO)
    log.propagate = False
    close_log(log)
    handler: logging.Handler
    try:
        handler = LogFile(path, encoding="utf-8")
    except OSError:
        handler = logging.StreamHandler(cast(TextIO, Unfailing(sys.stderr)))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _THREADS[handler] = threading.get_ident()
    handler.addFilter(lambda record: _is_for(handler, record))
    log.addHandler(handler)
    log.info("life %d begins: rank %d on %s, pid %d", life, rank, socket.gethostname(), os.getpid())
    return log


@contextmanager
def usage_logged(log: logging.Logger) -> Iterator[None]:
    """Log what this process used meanwhile, without its child processes: CPU time, and the most memory so far."""
    began_s, cpu_began_s = time.monotonic(), time.process_time()
    yield
    elapsed_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_began_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    log.info("used %.3f s of CPU in %.3f s, at most %.0f MiB", cpu_s, elapsed_s, peak_mib)


def _is_for(handler: logging.Handler, record: logging.LogRecord) -> bool:
    """Tell whether a record is not of the thread of another run."""
    return record.thread == _THREADS.get(handler) or record.thread not in list(_THREADS.values())


def close_log(log: logging.Logger) -> None:
    """Close the log's files, but for those of runs in other threads."""
    for handler in list(log.handlers):
        if _THREADS.get(handler, threading.get_ident()) != threading.get_ident():
            continue
        _THREADS.pop(handler, None)
        log.removeHandler(handler)
        with contextlib.suppress(OSError):  # of a full disk, which LogFile has told of
            handler.close()
