"""Mark what an objective prints with the evaluation that prints it; this code runs in the child process."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from typing import ClassVar

_LINE_END = re.compile(r"(\r(?!\n)|\n)(?=[\s\S])")


class Marked(io.TextIOWrapper):
    """Write text to a descriptor, each line behind the evaluation that `running` names; below 0 there is none."""

    # Standard output and standard error are one pipe: whose line stands in it without an end, None if none does.
    open_line: ClassVar[int | None] = None

    def __init__(self, fd: int, running: Callable[[], int]) -> None:
        super().__init__(os.fdopen(fd, "wb", closefd=False), encoding="utf-8", errors="backslashreplace")
        self._running = running

    def write(self, text: str, /) -> int:
        """Write text at once: a crash may come next, and the rank may already hear that the evaluation is done."""
        if not text:
            return 0
        id = self._running()
        mark = f"evaluation {id}: " if id >= 0 else ""
        begin = "" if Marked.open_line == id else mark if Marked.open_line is None else f"\n{mark}"
        super().write(begin + _LINE_END.sub(rf"\1{mark}", text))
        self.flush()
        Marked.open_line = None if text[-1] in "\r\n" else id
        return len(text)
