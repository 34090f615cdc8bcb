"""Hold one child process of a rank: its pipes, its output, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from osprey_mpi.evaluate.board import Board
from osprey_mpi.evaluate.environment import clean_environment
from osprey_mpi.evaluate.frames import FrameReader, Kind
from osprey_mpi.evaluate.printed import Printed

PUMP_BYTES = 1 << 18  # of output taken per look: a chatty objective must not keep the rank's loop
GRACE_S = 1.0  # between SIGTERM and SIGKILL
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_OURS = (f'  File "{Path(__file__).parent}', '  File "<frozen runpy>"', "Extension modules:")


class ChildProcess:
    """Start `python -m osprey_mpi.evaluate.child` in a session of its own.

    subprocess uses vfork and exec here, which touches none of the memory that MPI has registered; so a child may be
    started after MPI_Init when one before it has crashed. printed: takes its standard output and standard error.
    """

    def __init__(self, board: Board, folder: Path, printed: Printed) -> None:
        self.board, self._printed = board, printed
        printed.forget()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:  # a start that fails leaves nothing open
            ours.callback(board.close)
            control_read, self._control = _pipe(theirs, ours)
            self._results, results_write = _pipe(ours, theirs)
            self._output, output_write = _pipe(ours, theirs)
            environment = clean_environment(os.environ)
            python_path = environment.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_PACKAGE_ROOT, python_path]))
            passed = (control_read, results_write, board.fd)
            numbers = [*passed, board.capacity, board.values[0].shape[1], os.getpid()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "osprey_mpi.evaluate.child", *map(str, numbers), python_path],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
            ours.pop_all()
        for fd in (self._control, self._results, self._output):
            os.set_blocking(fd, False)
        self.pid = self._process.pid
        self.started_s = time.monotonic()
        self.is_ready = False
        self._reader = FrameReader()
        self._kill_at_s: float | None = None
        self._printing = (-1, 0)  # the row (serial, row) that the output kept for reasons may be of

    def filenos(self) -> list[int]:
        """Return the descriptors that become readable when the child has said something or is gone."""
        return [self._results, self._output]

    def send(self, data: bytes) -> None:
        """Send frames. They are few and small, so a full pipe means a child that has long stopped to listen."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._control, data)

    def receive(self) -> Iterator[tuple[Kind, bytes]]:
        """Yield the frames that have come."""
        while data := _read(self._results):
            yield from self._reader.feed(data)

    def pump(self, is_end: bool = False) -> None:
        """Take what the objective has printed; keep for reasons what was not before the row that it is in now."""
        taken = b""
        while len(taken) < PUMP_BYTES and (data := _read(self._output)):
            taken += data
        if taken or is_end:
            running = self.board.running()
            if (running.serial, running.row) != self._printing:
                self._printed.forget()
                self._printing = running.serial, running.row
            self._printed.add(taken)

    def has_ended(self) -> bool:
        """Return whether the child is dead; it stays unreaped, so that its group's number stays its own."""
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self.kill()
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self) -> None:
        """Send SIGTERM to all that the child started, and SIGKILL a while later."""
        self._signal(signal.SIGTERM)
        self._kill_at_s = time.monotonic() + GRACE_S

    def hang_up(self) -> None:
        """Close the pipe to the child: it ends by itself when it is idle, and so does one that runs a command."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        # A command's child ends its program first, which takes its own grace.
        self._kill_at_s = time.monotonic() + 2 * GRACE_S

    def kill(self) -> None:
        """Send SIGKILL to the child, to all that it started and to the program that it runs."""
        self._signal(signal.SIGKILL)
        program = self.board.group()
        if program > 0:
            _signal_group(program, signal.SIGKILL)

    def bury(self) -> int:
        """Reap a child that has ended, end what it left behind, release everything; return subprocess's code."""
        self.pump(is_end=True)
        self._printed.end()
        self.kill()
        code = self._process.wait()
        self.board.close()
        for fd in (self._control, self._results, self._output):
            if fd >= 0:
                os.close(fd)
        return code

    def _signal(self, number: signal.Signals) -> None:
        _signal_group(self.pid, number)


def user_part(trace: str) -> str:
    """Return what faulthandler wrote of a crash as a part of a reason, without our own frames; '' for nothing."""
    lines = [line for line in trace.splitlines() if line.strip() and not line.startswith(_OURS)]
    return "".join(f"\n{line}" for line in lines)


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Make a pipe; each stack closes its end."""
    read_end, write_end = os.pipe()
    reading.callback(os.close, read_end)
    writing.callback(os.close, write_end)
    return read_end, write_end


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""
