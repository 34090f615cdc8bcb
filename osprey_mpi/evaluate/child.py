"""Run the user's objective in a process of its own: `python -m osprey_mpi.evaluate.child`, started by a rank.

Nothing of MPI, HDF5 or the config is imported here. Frames (frames.py) come and go over two pipes, points and costs
lie on the board (board.py). Standard output and standard error are one pipe that the rank drains into its log
(marked.py, printed.py).
The process ends when its rank does: at the end of the pipe, and by PR_SET_PDEATHSIG while user code runs.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate import frames
from osprey_mpi.evaluate.board import Board
from osprey_mpi.evaluate.context import Context, scratch_name
from osprey_mpi.evaluate.frames import FrameReader, Kind, pack_frame
from osprey_mpi.evaluate.loading import load_function, put_first
from osprey_mpi.evaluate.marked import Marked
from osprey_mpi.evaluate.objective import Objective, Reply
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.waiting import readable

FLUSH_S = 0.025  # the rank hears of finished rows at the latest this long after the first of them
PR_SET_PDEATHSIG = 1  # linux/prctl.h
REASON_LIMIT = 4000  # bytes: a few reasons fit into a pipe even if the rank is busy


class Child:
    """Evaluate chunks in order, one row (or one batch) at a time."""

    def __init__(self, control: int, results: int, board: Board) -> None:
        self._control = control
        self._results = results
        self._board = board
        self._reader = FrameReader()
        self._reading = threading.Lock()
        self._pid = os.getpid()
        self._chunks: deque[tuple[int, int, int]] = deque()
        self._stop_id = -1
        self._running_id = -1
        self._flushed_s = 0.0
        self._reasons = bytearray()
        order = json.loads(board.instructions)
        self._order = order
        self._schema = Schema.from_json(order["schema"])
        self._seed: int = order["seed"]
        self._batch: int = order["batch"]
        self._tries: int = 1 + order["retries"]
        self._scratch_root = Path(order["scratch_root"])
        self._rank: int = order["rank"]
        self._objective: Any = None

    def running_id(self) -> int:
        """Return the evaluation that runs, or ran last; of a batch its first; -1 before all of them."""
        return self._running_id

    def load(self) -> None:
        """Import the objective and tell the rank how that went."""
        error: str | None = None
        try:
            if self._order["command"] is None:
                folder = Path(self._order["folder"])
                function = load_function(self._order["python"], folder)
                label = f"objective.python ({self._order['python']})"
                self._objective = Objective(function, self._order["options"], label)
            else:
                from osprey_mpi.evaluate.command import Command

                self._objective = Command(self._order["command"], self._control, self._board)
        except ConfigError as problem:
            error = str(problem)
        self._send(pack_frame(Kind.READY, json.dumps({"error": error}).encode()))
        if error is not None:
            sys.exit(1)

    def run(self) -> None:
        """Evaluate until the rank closes its end of the pipe."""
        while self._chunks or self._receive(wait=True):
            while self._chunks:
                serial, slot, n = self._chunks.popleft()
                if self._batch > 1:
                    self._run_batch(serial, slot, n)
                else:
                    self._run_rows(serial, slot, n)
                self._receive(wait=False)

    def _run_rows(self, serial: int, slot: int, n: int) -> None:
        board = self._board
        ids = board.results[slot]["id"][:n].tolist()
        values = board.values[slot]
        for row, id in enumerate(ids):
            parameters = self._schema.parameters(values[row])
            for _ in range(self._tries):
                t_start_s = time.monotonic()
                board.set_running(serial, row, t_start_s)
                reply = self._evaluate(id, parameters)
                t_end_s = time.monotonic()
                if reply.status != Status.FAILED:
                    break
            board.set_result(slot, row, reply.cost, reply.violation, t_start_s, t_end_s, reply.status)
            board.set_running(serial, row + 1, 0.0)
            if reply.reason:
                self._note(id, reply.reason)
            # The next row will take about as long as this one: flush now if it would end past the limit. A reason goes
            # at once: the next row may take the process with it.
            if row + 1 == n or reply.reason or t_end_s + (t_end_s - t_start_s) - self._flushed_s >= FLUSH_S:
                self._flush(serial, row + 1, t_end_s)

    def _run_batch(self, serial: int, slot: int, n: int) -> None:
        board = self._board
        ids = board.results[slot]["id"][:n].tolist()
        parameters = self._schema.batch(board.values[slot][:n])
        self._running_id = ids[0]
        for _ in range(self._tries):
            t_start_s = time.monotonic()
            board.set_running(serial, 0, t_start_s)
            context = self._context(ids[0])
            replies = self._objective.evaluate_batch(parameters, n, context)
            context.close()
            t_end_s = time.monotonic()
            if any(reply.status != Status.FAILED for reply in replies):
                break
        for row, reply in enumerate(replies):
            board.set_result(slot, row, reply.cost, reply.violation, t_start_s, t_end_s, reply.status)
            if reply.reason:
                self._note(ids[row], reply.reason)
        board.set_running(serial, n, 0.0)
        self._flush(serial, n, t_end_s)

    def _evaluate(self, id: int, parameters: dict[str, Any]) -> Reply:
        objective = self._objective
        self._running_id, self._stop_id = id, -1
        if isinstance(objective, Objective) and not objective.takes_context:
            return objective.evaluate(parameters, None)
        context = self._context(id)
        reply: Reply = objective.evaluate(parameters, context)
        context.close()
        return reply

    def _context(self, id: int) -> Context:
        return Context(id, self._seed, self._scratch_root, scratch_name(id, self._rank), self)

    def report(self, id: int, step: int, value: float) -> None:
        """Send an intermediate value to the rank."""
        self._send(pack_frame(Kind.REPORT, frames.REPORT.pack(id, step, value)))

    def stopping(self, id: int) -> bool:
        """Look whether the rank has told this evaluation to stop; a forked process of it hears nothing."""
        if os.getpid() == self._pid:  # what a copy of us took from the pipe, we would never get
            self._receive(wait=False)
        return self._stop_id == id

    def _note(self, id: int, reason: str) -> None:
        text = reason.encode(errors="replace")[:REASON_LIMIT]
        self._reasons += pack_frame(Kind.REASON, frames.REASON_ID.pack(id) + text)

    def _flush(self, serial: int, n_done: int, now_s: float) -> None:
        self._flushed_s = now_s
        self._send(bytes(self._reasons) + pack_frame(Kind.DONE, frames.DONE.pack(serial, n_done)))
        self._reasons.clear()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._results, view) :]
        except BrokenPipeError:
            os._exit(0)  # the rank is gone: there is nobody left to tell

    def _receive(self, wait: bool) -> bool:
        """Take what the rank has sent; False at the end of the pipe."""
        with self._reading:  # threads of an objective may look at the same time, and one may outlive its evaluation
            return bool(self._chunks and wait) or self._taken(wait)  # one that did may have taken what we wait for

    def _taken(self, wait: bool) -> bool:
        if not readable([self._control], None if wait else 0.0):
            return True
        data = os.read(self._control, 65536)
        if not data:
            return False if wait else self._orphaned()
        for kind, payload in self._reader.feed(data):
            if kind is Kind.CHUNK:
                self._chunks.append(frames.CHUNK.unpack(payload))
            elif kind is Kind.STOP and frames.STOP.unpack(payload)[0] == self._running_id:
                self._stop_id = self._running_id
        return True

    def _orphaned(self) -> bool:
        if not isinstance(self._objective, Objective):
            self._objective.kill()
        os._exit(0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its rank dies, however long user code runs."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(0)


def main(arguments: list[str]) -> None:
    """Serve one rank. Arguments: control, results and board descriptors, capacity, columns, the rank's pid, path."""
    control, results, board_fd, capacity, n_columns, parent = map(int, arguments[:6])
    for fd in (control, results, board_fd):
        os.set_inheritable(fd, False)  # what user code starts must not keep the pipes open
    _restore_path(arguments[6])
    _restore_signals()
    board = Board(board_fd, capacity, n_columns)
    faulthandler.enable(board.trace_fd())
    child = Child(control, results, board)
    sys.stdout, sys.stderr = Marked(1, child.running_id), Marked(2, child.running_id)
    if child._order["command"] is None:
        die_with_parent(parent)  # a command's child lives on for a moment, to end the program that it runs
    child.load()
    child.run()
    os._exit(0)  # threads and exit handlers that an objective left behind must not keep us


def _restore_path(python_path: str) -> None:
    """Undo the PYTHONPATH that this module was found by, for us and for what user code starts."""
    package_root = os.environ.pop("PYTHONPATH", "").split(os.pathsep)[0]
    if python_path:
        os.environ["PYTHONPATH"] = python_path
    if package_root in sys.path and sys.path.count(package_root) > 1:
        sys.path.remove(package_root)
    elif package_root in sys.path:
        sys.path.remove(package_root)
        sys.path.append(package_root)
    put_first(Path.cwd())


def _restore_signals() -> None:
    """Undo what the rank ignores or blocks and an exec passes on, so that SIGTERM ends user code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


if __name__ == "__main__":
    main(sys.argv[1:])
