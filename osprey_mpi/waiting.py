"""Sleep until a file has something to read, whatever its number: select() takes those below 1024 alone."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(files: Iterable[int], wait_s: float | None = None) -> list[int]:
    """Return the descriptors that have something to read, or whose writer is gone, once there is one.

    wait_s: at most, to the next millisecond, 0 not at all; None: as long as it takes.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [file for file, _ in poll.poll(None if wait_s is None else math.ceil(1000.0 * wait_s))]
