"""Start programs under the mpirun beside this Python, and end everything they started.

Output goes to files: a pipe would stay open as long as any grandchild holds it. Processes are found by a mark in their
environment, because launchers and objectives put theirs into sessions and process groups of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from osprey_mpi.evaluate.environment import clean_environment

BIN = Path(sys.executable).parent
MPIRUN = BIN / "mpirun"
IS_OPEN_MPI = (BIN / "ompi_info").exists()
_MARK = "OSPREY_TEST_LAUNCH"
_RANK_KEYS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
# What every launch gets: containers run as root on few cores, and Open MPI refuses both unasked.
_ALWAYS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Completed:
    """Hold what a launch gave: exit code, output, seconds from start to end."""

    rc: int
    stdout: str
    stderr: str
    seconds: float

    def json(self) -> dict[str, Any]:
        """Return the one JSON object that is all of stdout."""
        lines = self.stdout.splitlines()
        assert len(lines) == 1, (self.stdout, self.stderr)
        value = json.loads(lines[0])
        assert isinstance(value, dict)
        return value


class Launch:
    """Hold a launch that runs. Use it in a `with`: its end is the end of everything it started."""

    def __init__(
        self, n: int, argv: Sequence[object], *, cwd: Path, env: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Start `argv` on `n` ranks, without a launcher if n is 1. launcher: more arguments for it."""
        self.mark = uuid.uuid4().hex
        self._n = n
        self._files = [cwd / f".{self.mark}.{name}" for name in ("stdout", "stderr")]
        prefix = [str(MPIRUN), *launcher, "-n", str(n)] if n > 1 else []
        environment = {**clean_environment(os.environ), **_ALWAYS, **(env or {}), _MARK: self.mark}
        # A launcher that was killed leaves a folder named by its pid, and the next one with that pid does not start.
        self._scratch = tempfile.TemporaryDirectory(prefix="osprey-test-")
        environment["TMPDIR"] = self._scratch.name
        environment["PATH"] = os.pathsep.join([str(BIN), environment.get("PATH", os.defpath)])
        self._started = time.monotonic()
        with self._files[0].open("wb") as stdout, self._files[1].open("wb") as stderr:
            self.process = subprocess.Popen(
                [*prefix, *map(str, argv)], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True, preexec_fn=_hear,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Return the process id of the launcher, or of the lone process."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """Return what came to stdout so far."""
        return self._files[0].read_text("utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        """Return what came to stderr so far."""
        return self._files[1].read_text("utf-8", errors="replace")

    @property
    def is_running(self) -> bool:
        """Tell whether the launcher, or the lone process, still runs."""
        return self.process.poll() is None

    def processes(self) -> list[int]:
        """Return the ids of all living processes that this launch started."""
        return [pid for pid, _ in _marked(self.mark)]

    def ranks(self) -> list[int]:
        """Return the process ids of the ranks; of a lone process, its own."""
        ranks = [pid for pid, environment in _marked(self.mark) if any(key in environment for key in _RANK_KEYS)]
        return ranks or [self.pid] * (self._n == 1 and self.is_running)

    def is_gone(self, timeout_s: float = 10.0) -> bool:
        """Tell whether nothing of this launch lives, or will within a while: some launchers end before their ranks."""
        deadline = time.monotonic() + timeout_s
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def wait(self, timeout_s: float) -> Completed:
        """Wait for the end. Raises AssertionError with the output when it does not come in time."""
        try:
            rc = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {timeout_s} s\n{self.stdout[-4000:]}\n{self.stderr[-4000:]}") from None
        return Completed(rc, self.stdout, self.stderr, time.monotonic() - self._started)

    def kill(self) -> None:
        """End everything at once, ranks first: a launcher that goes first would make them stop by themselves."""
        for _ in range(20):
            pids = sorted(self.processes(), key=lambda pid: pid == self.pid)
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._scratch.cleanup()
        for file in self._files:
            file.unlink()


def launch(
    n: int,
    argv: Sequence[object],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    launcher: Sequence[str] = (),
) -> Completed:
    """Run `argv` on `n` ranks to its end; n = 1 means without a launcher. launcher: more arguments for it."""
    with Launch(n, argv, cwd=cwd, env=env, launcher=launcher) as running:
        return running.wait(timeout_s)


def osprey(*arguments: object) -> list[object]:
    """Return the argv of an osprey command."""
    return [BIN / "osprey", *arguments]


def _hear() -> None:
    """Undo what tests in the background have ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _marked(mark: str) -> list[tuple[int, set[str]]]:
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            entries = (folder / "environ").read_bytes().split(b"\0")
            # A zombie's environment is empty: what is found here runs.
            if wanted in entries:
                names = {entry.partition(b"=")[0].decode("utf-8", "replace") for entry in entries}
                found.append((int(folder.name), names))
    return found
