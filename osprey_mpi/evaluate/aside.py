"""Let an evaluator that works within poll() do so in a thread, while the rank goes on listening to the others.

While the thread runs it alone uses the evaluator, so it needs no locks. What runs cannot be called back: after `cancel`
it is not heard, and the thread goes on with the next task once it returns.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable

from osprey_mpi.evaluate.task import Evaluator, Outcome, Progress, Task
from osprey_mpi.evaluate.wake import USER_CODE, Wake

JOIN_S = 1.0


class Aside:
    """Run `inner` in a thread. use_device: makes the device of the rank that thread's own."""

    responsive = True

    def __init__(self, inner: Evaluator, use_device: Callable[[], None]) -> None:
        self._inner, self._use_device = inner, use_device
        self.depth = inner.depth
        self._inbox: queue.SimpleQueue[tuple[int, Task] | None] = queue.SimpleQueue()
        self._outbox: deque[tuple[int, Outcome | Progress | BaseException]] = deque()
        self._thread: threading.Thread | None = None
        self._n_cancelled = 0  # what was begun under another number is not heard
        self._n_open = 0
        self._wake = Wake()

    @property
    def idle(self) -> bool:
        """Return whether nothing is queued, running or waiting to be polled."""
        return self._n_open == 0

    def start(self) -> None:
        """Do nothing: the thread starts with its first task."""

    def check(self) -> None:
        """Check what the inner evaluator checks; raises ConfigError."""
        self._inner.check()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="osprey evaluator", daemon=True)
            self._thread.start()
        self._n_open += 1
        self._inbox.put((self._n_cancelled, task))

    def _work(self) -> None:
        while (item := self._inbox.get()) is not None:
            number, task = item
            try:
                self._use_device()
                with USER_CODE:
                    self._evaluate(number, task)
            except BaseException as error:  # the rank's to judge: poll() raises it
                self._outbox.append((number, error))
            self._wake.ring()

    def _evaluate(self, number: int, task: Task) -> None:
        if number != self._n_cancelled:
            return
        self._inner.submit(task)
        while not self._inner.idle:
            for item in self._inner.poll():
                self._outbox.append((number, item))
                self._wake.ring()
            if number != self._n_cancelled:
                self._inner.cancel()

    def poll(self) -> list[Outcome | Progress]:
        """Return what is finished. Raises what the evaluation raised beyond what a failed evaluation may."""
        self._wake.silence()
        result: list[Outcome | Progress] = []
        while self._outbox:
            number, item = self._outbox.popleft()
            if number != self._n_cancelled:
                continue
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, Outcome) and item.row_stop >= item.task.row_stop:
                self._n_open -= 1
            result.append(item)
        return result

    def filenos(self) -> list[int]:
        """Return the descriptor that wakes the rank."""
        return [self._wake.fileno]

    def stop(self, id: int) -> None:
        """Do nothing: one point of a call cannot be stopped."""

    def cancel(self) -> None:
        """Drop every task; what runs is not heard any more."""
        self._n_cancelled += 1
        self._n_open = 0

    def close(self) -> None:
        """Leave the thread: it ends with its call, or with the process."""
        self.cancel()
        self._inbox.put(None)
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._thread is None or not self._thread.is_alive():
            self._inner.close()
        self._wake.close()
