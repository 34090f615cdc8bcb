"""Look at the processes of this host, as Linux shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (process id, environment as it was at its start) of what may be looked into; nothing without /proc.

    Processes of other users may not, and one that has ended has none.
    """
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            pairs = (entry.partition("=") for entry in entries if entry)
            yield int(folder.name), {name: value for name, _, value in pairs}
