"""Watch in a thread, within a block, for what the rank itself would not see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def overdue(limit_s: float, act: Callable[[], object]) -> Iterator[None]:
    """Call `act`, once and in a thread, if the block takes longer than `limit_s`."""
    timer = threading.Timer(limit_s, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Watch:
    """Run `watch` in a thread of its own within a block; it returns when `is_over` says that the block has ended."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def watch(self) -> None:
        """Look again and again."""
        raise NotImplementedError

    def is_over(self, wait_s: float) -> bool:
        """Wait, but not beyond the end of the block; return whether it has ended."""
        return self._over.wait(wait_s)
