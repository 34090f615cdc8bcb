"""Give every rank its own log file; attempts follow each other in it."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path


def open_log(path: Path, rank: int, life: int) -> logging.Logger:
    """Return the logger of this rank, appending to `path`; where that cannot be written it goes to stderr."""
    log = logging.getLogger(f"osprey_mpi.rank{rank}")
    log.setLevel(logging.INFO)
    log.propagate = False
    close_log(log)
    handler: logging.Handler
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError:
        handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.info("life %d begins: rank %d on %s, pid %d", life, rank, socket.gethostname(), os.getpid())
    return log


def close_log(log: logging.Logger) -> None:
    """Close the log's files."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
