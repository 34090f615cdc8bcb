"""Write results to stdout, and only results; see to it that stdout and the other streams are there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from osprey_mpi.console import Unfailing
from osprey_mpi.errors import OutputError


def write_json(value: Any, indent: int | None = 2) -> None:
    """Write one strict JSON value, on one line without `indent`; NaN and infinities become null."""
    from osprey_mpi.storage.status import plain

    write_text([json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False), "\n"])


def write_text(parts: Iterable[str]) -> None:
    """Write text in UTF-8, whatever the locale of the batch job says, and line ends as they are.

    Raises what write_bytes raises.
    """
    write_bytes(part.encode("utf-8") for part in parts)


def write_bytes(parts: Iterable[bytes]) -> None:
    """Write bytes to stdout.

    Raises OutputError if stdout cannot take them, BrokenPipeError if nobody reads it any more, as `head` does; where
    no verb says otherwise that ends the program quietly.
    """
    if sys.__stdout__ is None:  # Python found it closed; what stands in for it is /dev/null
        raise OutputError("the output cannot be written to stdout: it is closed")
    try:
        sys.stdout.flush()
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python's last flush would fail once more, and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"the output cannot be written to stdout: {error.strerror} (errno {error.errno})") from error


def open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: a file opened later would get its number and be taken for it.

    What users' code prints to a stderr without a reader is lost, and fails no evaluation.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))
    sys.stderr = cast(TextIO, Unfailing(sys.stderr))


def keep_stdout() -> None:
    """Keep stdout for results: `sys.stdout` still leads there, descriptor 1 to stderr from now on.

    A program that user code starts, and its C code, write to descriptor 1. For good: what stands in their buffers, or
    comes from threads that are left behind, is written when this process ends, after the result.
    """
    sys.stdout.flush()
    kept = os.dup(1)  # children do not inherit it
    os.dup2(2, 1)
    sys.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
