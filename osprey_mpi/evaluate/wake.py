"""Wake a rank's loop from a thread of its own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


class UserCode:
    """Let one thread at a time be in the user's code: one that is cannot be ended, and never two are in it."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()

    @property
    def is_here(self) -> bool:
        """Tell whether this thread is the one in it."""
        return self._owner == threading.get_ident()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let others in while this thread waits for them within the block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


USER_CODE = UserCode()


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
