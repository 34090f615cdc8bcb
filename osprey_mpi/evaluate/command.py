"""Run an external program for one evaluation and read its cost; this code runs in the child process.

Each evaluation has a scratch folder of its own, which is the program's current folder. Its output goes into
`stdout.txt` and `stderr.txt` there: nothing is held in memory, and a kept folder tells the whole story. The program
leads a process group of its own, so that its end, a time limit or the end of our rank ends all that it started.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, TypedDict

from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate.board import Board
from osprey_mpi.evaluate.context import Context
from osprey_mpi.evaluate.objective import HEAD_LIMIT, Failure, Reply, without_scratch
from osprey_mpi.evaluate.placeholders import fill_arguments, fill_text
from osprey_mpi.waiting import readable
from osprey_mpi.words import visible

STDOUT, STDERR = "stdout.txt", "stderr.txt"
GRACE_S = 1.0  # between SIGTERM and SIGKILL: enough to remove lock files, too short to hold up the flock
LOOK_S = 1.0  # the longest sleep; the end of the program and the rank's word both end it at once
TAIL_BYTES = 1000  # of a program's output in a reason
LAST_LINE_BYTES = 4096
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Specification(TypedDict):
    """Describe the command as the rank sends it. Paths are absolute; `pattern` has one group."""

    argv: list[str]
    names: list[str]
    template: list[tuple[str, str]]
    pattern: str | None
    file: str | None
    time_limit_s: float | None
    keep_scratch: str


class Command:
    """Evaluate points by running a program."""

    def __init__(self, specification: Specification, control: int, board: Board) -> None:
        self._spec = specification
        self._control = control
        self._board = board
        self._pattern = (
            None if specification["pattern"] is None else re.compile(specification["pattern"].encode(), re.MULTILINE)
        )
        self._running: subprocess.Popen[bytes] | None = None
        self._wake, write_end = os.pipe()
        for fd in (self._wake, write_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def evaluate(self, parameters: dict[str, Any], context: Context) -> Reply:
        """Run the program at one point; whatever goes wrong becomes a Reply."""
        try:
            cost = self._evaluate(parameters, context)
            reply = Reply(Status.OK, cost, 0.0)
        except Failure as failure:
            reply = Reply(failure.status, math.nan, 0.0, failure.reason)
        except Exception as error:  # a program that cannot start, a format that does not fit, a template in Latin-1
            reply = Reply(Status.FAILED, math.nan, 0.0, f"{type(error).__name__}: {error}")
        reason = without_scratch(visible(reply.reason), context)
        keep = self._spec["keep_scratch"]
        kept = keep == "always" or (keep == "failed" and reply.status is not Status.OK)
        kept = kept and context.scratch.is_dir()  # the program may have removed it
        where = f"kept scratch folder {context.keep_scratch()}\n" if kept else ""
        if reply.status is Status.OK:
            return reply
        head, _, rest = reason.partition("\n")
        reason = f"{head}\n{where}{rest}".rstrip()
        return Reply(reply.status, reply.cost, reply.violation, reason)

    def _evaluate(self, parameters: dict[str, Any], context: Context) -> float:
        spec, scratch = self._spec, context.scratch
        values = {**parameters, "id": context.id, "seed": context.seed, "scratch": str(scratch)}
        for source, target in spec["template"]:
            path = scratch / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill_text(read_template(Path(source)), values, spec["names"]), encoding="utf-8")
        code = self._run(fill_arguments(spec["argv"], values, spec["names"]), context)
        if code != 0:
            last = _last_line(scratch / STDERR) if (scratch / STDERR).is_file() else None
            head = ending(code) + (f"; {last}" if last else "")
            raise Failure(f"{head[:HEAD_LIMIT]}{_shown(scratch / STDERR, 'stderr')}")
        return self._result(scratch)

    def _run(self, argv: list[str], context: Context) -> int:
        """Run the program to its end and return its exit code (minus the signal that killed it)."""
        scratch, limit_s = context.scratch, self._spec["time_limit_s"]
        with (scratch / STDOUT).open("wb") as out, (scratch / STDERR).open("wb") as err:
            process = subprocess.Popen(
                argv, cwd=scratch, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        self._running = process
        self._board.set_group(process.pid)
        try:
            if not self._wait(process.pid, math.inf if limit_s is None else time.monotonic() + limit_s, context):
                shown = _shown(scratch / STDOUT, "stdout") + _shown(scratch / STDERR, "stderr")
                raise Failure(f"ended by the time limit of {limit_s:g} s{shown}", Status.TIMEOUT)
        finally:
            self.kill()
        return process.returncode

    def _wait(self, pid: int, deadline_s: float, context: Context) -> bool:
        """Sleep until the program has ended (True) or its time is up (False)."""
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            context.should_stop()  # takes what the rank sends; ends us and the program if the rank is gone
            if self._wake in readable([self._wake, self._control], min(left_s, LOOK_S)):
                os.read(self._wake, 4096)
        return True

    def kill(self) -> None:
        """End what still runs of the program's group, SIGTERM first if the program itself does."""
        process, self._running = self._running, None
        if process is None:
            return
        # Unreaped, the leader keeps the group's number from being given to others.
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            _signal_group(process.pid, signal.SIGTERM)
            end_s = time.monotonic() + GRACE_S
            while time.monotonic() < end_s:
                if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    break
                time.sleep(0.01)
        _signal_group(process.pid, signal.SIGKILL)
        self._board.set_group(0)
        process.wait()

    def _result(self, scratch: Path) -> float:
        file = self._spec["file"]
        path = scratch / (file or STDOUT)
        if not scratch.is_dir():
            raise Failure("the program removed its scratch folder, and its output with it")
        if not path.is_file():
            did = f"removed {STDOUT}, its output" if file is None else f"wrote no file {file!r}"
            raise Failure(f"the program {did}{_shown(scratch / STDOUT, 'stdout')}")
        text = _last_line(path) if self._pattern is None else _last_match(path, self._pattern)
        if text is None:
            sought = "is empty" if self._pattern is None else f"has no match of {self._spec['pattern']!r}"
            raise Failure(f"{path.name} {sought}{_shown(path, path.name)}")
        if not _FLOAT.fullmatch(text.strip()) or not math.isfinite(float(text)):
            raise Failure(f"the result is no finite number\nit is {text[:80]!r}{_shown(path, path.name)}")
        return float(text)


def read_template(source: Path) -> str:
    """Read a template file. Raises OSError or UnicodeDecodeError."""
    return source.read_text(encoding="utf-8")


def ending(code: int) -> str:
    """Write how a process ended, from subprocess's return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (often: out of memory)" if name == "SIGKILL" else "")


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody left in it but the zombie


def _last_match(path: Path, pattern: re.Pattern[bytes]) -> str | None:
    """Return the group of the last match in a file of any size."""
    if path.stat().st_size == 0:
        return None
    found: bytes | None = None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in pattern.finditer(data):
            found = match.group(1)
    return None if found is None else found.decode(errors="replace")


def _last_line(path: Path) -> str | None:
    """Return the last line that is not blank."""
    lines = [line.strip() for line in _tail(path, LAST_LINE_BYTES).splitlines() if line.strip()]
    return lines[-1] if lines else None


def _tail(path: Path, limit_bytes: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit_bytes))
        return file.read(limit_bytes).decode(errors="replace")


def _shown(path: Path, name: str) -> str:
    """Write the end of a file into a message, nothing if it is missing or empty."""
    text = _tail(path, TAIL_BYTES).strip() if path.is_file() else ""
    return f"\nend of {name}:\n{text}" if text else ""
