"""Write results to stdout, and only results."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable
from typing import Any

from osprey_mpi.errors import StorageError


def write_json(value: Any, indent: int | None = 2) -> None:
    """Write one strict JSON value, on one line without `indent`; NaN and infinities become null."""
    from osprey_mpi.storage.status import plain

    write_text([json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False), "\n"])


def others_to_stderr() -> contextlib.redirect_stdout[Any]:
    """Leave stdout to `write_text` within the block: an objective in the rank itself may print, too."""
    return contextlib.redirect_stdout(sys.stderr)


def write_text(parts: Iterable[str]) -> None:
    """Write text in UTF-8, whatever the locale of the batch job says, and line ends as they are.

    Raises StorageError if stdout cannot take it; that nobody reads it any more (`head`) ends the program quietly.
    """
    stdout = sys.__stdout__
    if stdout is None:
        raise StorageError("the output cannot be written: stdout was closed when the program started")
    try:
        stdout.flush()
        for part in parts:
            stdout.buffer.write(part.encode("utf-8"))
        stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"the output cannot be written to stdout: {error.strerror} (errno {error.errno})") from error
