"""Write results to stdout, and only results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from osprey_mpi.errors import StorageError


def write_json(value: Any, indent: int | None = 2) -> None:
    """Write one strict JSON value, on one line without `indent`; NaN and infinities become null."""
    from osprey_mpi.storage.status import plain

    write_text([json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False), "\n"])


def write_text(parts: Iterable[str]) -> None:
    """Write text in UTF-8, whatever the locale of the batch job says, and line ends as they are.

    Raises StorageError if stdout cannot take it; that nobody reads it any more (`head`) ends the program quietly.
    """
    try:
        sys.stdout.flush()
        for part in parts:
            sys.stdout.buffer.write(part.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"the output cannot be written to stdout: {error.strerror} (errno {error.errno})") from error
