"""Wake a rank's loop from a thread of its own."""

from __future__ import annotations

import contextlib
import os
import threading

# A thread that is in the user's code cannot be ended; held by the one that is, so that never two are in it.
USER_CODE = threading.Lock()


class Wake:
    """Hold a pipe whose reading end, `fileno`, is readable from `ring` to `silence`."""

    def __init__(self) -> None:
        self.fileno, self._write = os.pipe()
        os.set_blocking(self.fileno, False)
        os.set_blocking(self._write, False)
        self._is_closed, self._lock = False, threading.Lock()

    def ring(self) -> None:
        """Make it readable."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is readable already
            if not self._is_closed:
                os.write(self._write, b"!")

    def silence(self) -> None:
        """Take in all rings."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fileno, 65536)

    def close(self) -> None:
        """Give the descriptors back; a thread that still rings is not heard."""
        with self._lock:  # the numbers will be those of other files
            self._is_closed = True
            os.close(self.fileno)
            os.close(self._write)
