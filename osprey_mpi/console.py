"""Say things on stderr, whose reader may be gone (`| head`, a killed launcher): that costs the words, never the run."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any, TextIO


class Unfailing:
    """Be a text stream whose writes do not fail; all else is as the stream has it.

    One that lost its reader for good leads to /dev/null from then on, for what writes to its descriptor, too.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what the stream takes."""
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Pass on what the stream still holds."""
        self._attempt(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, act: Any, *arguments: str) -> None:
        try:
            act(*arguments)
        except UnicodeError:
            raise  # a ValueError, but the writer's fault
        except (OSError, ValueError) as error:  # ValueError: it is closed
            if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO):
                self._give_up()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def say(text: str) -> None:
    """Write lines to stderr, at once."""
    stream = Unfailing(sys.stderr)
    stream.write(f"{text}\n")
    stream.flush()
