"""Launch a run, wait for it, look what became of it, launch it again.

    started --launcher ends--> looked at --Relaunch--> waiting --> started (resume)
                                         --End-------> over

A signal to the supervisor is passed on to the ranks as SIGUSR1: launchers hand that one on as it is, and the ranks save
and stop; SIGINT and SIGTERM they would follow with SIGKILL a moment later. A second signal ends the launch at once, so
does the first while there is no run yet to save; a third one kills the launcher, whose ranks are ended then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from osprey_mpi.errors import EnvironmentFault, ExitCode, UsageError
from osprey_mpi.held import STOP
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.lock import read_holder
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.status import State
from osprey_mpi.supervise.leftovers import MARK, end_marked
from osprey_mpi.supervise.lines import Launcher
from osprey_mpi.supervise.restart import NOT_BEGUN, End, Ended, RestartPolicy
from osprey_mpi.supervise.slurm import Allocation
from osprey_mpi.words import counted

LOOK_S = 0.05
WATCH_S = 1.0
# A launcher ends within moments of its ranks, unless one of them cannot.
OVER_S = 30.0
# Ranks outlive a launcher that was killed by moments; one that holds the folder longer is ended.
LET_GO_S = 5.0
# A launcher that was ended before the run began ends its ranks in moments, unless it is still starting them.
END_S = 5.0
# A lock of a host that is gone: some network file systems give it free only when the host's lease has run out.
LEASE_S = 120.0
# What the first, the second and every further signal becomes for the launcher.
PASSED_ON = (signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Say what to launch. first: the verb and its arguments for the first launch; resume: for all others."""

    folder: Path
    first: tuple[str, ...]
    resume: tuple[str, ...]
    n_ranks: int | None


class Supervisor:
    """Keep one run going. say: gets a sentence for every launch. allocation: the Slurm job that the launches are in."""

    def __init__(
        self, spec: LaunchSpec, launcher: Launcher, policy: RestartPolicy, say: Callable[[str], None],
        allocation: Allocation | None = None,
    ) -> None:  # fmt: skip
        self._spec, self._launcher, self._policy, self._say = spec, launcher, policy, say
        self._allocation = allocation
        self._process: subprocess.Popen[bytes] | None = None
        self._marks: list[str] = []  # of our launches, the newest last
        # A run in the folder that is to be replaced is not ours.
        self._replaced = None if spec.first == spec.resume else RunFolder.began(spec.folder)
        self._before = _launch_of(spec.folder)
        self._n_asked, self._asked_s = 0, float("inf")

    def run(self, environ: Mapping[str, str]) -> tuple[int, bytes]:
        """Launch until the run is over; return its exit code and what the last launch wrote to stdout."""
        before = {number: signal.signal(number, self._on_signal) for number in STOP}
        try:
            arguments = self._spec.first
            while True:
                code, output = self._launch(arguments, environ)
                ended = self._look(code)
                decision = self._policy.after(ended, is_asked=self._n_asked > 0)
                if isinstance(decision, End):
                    if decision.text:
                        self._say(decision.text)
                    return decision.code, output
                if self._has_run():
                    arguments = self._spec.resume
                self._say(_lost(ended, self._policy.n, decision.wait_s))
                self._pause(decision.wait_s)
                if self._n_asked:
                    if not self._has_run():
                        self._say(NOT_BEGUN)
                    return ExitCode.STOPPED, output
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _launch(self, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, bytes]:
        n_ranks = self._spec.n_ranks
        hosts = None if self._allocation is None else self._allocation.left(call=self._policy.n > 0)
        line = self._launcher.line(n_ranks, [sys.executable, "-m", "osprey_mpi", *arguments], hosts)
        environment = self._launcher.environment(environ, n_ranks, len(os.sched_getaffinity(0)), hosts)
        self._marks.append(uuid.uuid4().hex)
        environment[MARK] = self._marks[-1]
        # A file, because the end of a pipe would not come before that of everything that the launcher leaves behind.
        # A session of its own: the terminal's Ctrl-C would reach the launcher as SIGINT, and end the ranks.
        with tempfile.TemporaryFile() as output:
            self._process = subprocess.Popen(line, env=environment, stdout=output, start_new_session=True)
            if self._n_asked:
                self._pass_on()
            code, self._process = self._wait(self._process), None
            output.seek(0)
            return code, output.read()

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the launcher's end, but not for one that does not come when the run is over."""
        over_since = float("inf")
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(WATCH_S)
            is_over = self._has_run() and not RunFolder.peek(self._spec.folder).observe()[1].is_active
            over_since = min(over_since, time.monotonic()) if is_over else float("inf")
            if time.monotonic() - over_since > OVER_S:
                self._say(f"the run has let its folder go {OVER_S:g} s ago, but the launcher does not end: ending it")
                process.kill()
            if time.monotonic() - self._asked_s > END_S and not self._has_run():
                process.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._n_asked += 1
        if self._n_asked == 1:
            self._asked_s = time.monotonic()
            what = "the run saves and stops" if self._has_run() else "ending the launch, whose run has not begun"
            self._say(f"{signal.Signals(number).name.removeprefix('SIG')}: {what}")
        self._pass_on()

    def _pass_on(self) -> None:
        if self._process is not None:
            n = self._n_asked if self._has_run() else self._n_asked + 1
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(PASSED_ON[min(n, len(PASSED_ON)) - 1])

    def _pause(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and not self._n_asked:
            time.sleep(LOOK_S)

    def _has_run(self) -> bool:
        return RunFolder.began(self._spec.folder) not in (None, self._replaced)

    def _look(self, code: int) -> Ended:
        """Look at the run's files once nobody of this launch is left. Raises EnvironmentFault if it is not ours now."""
        if not self._has_run():
            end_marked(self._marks[-1])
            return Ended(code, None, 0)
        folder = RunFolder.peek(self._spec.folder)
        wait_until_free(folder, LET_GO_S)
        if n_left := end_marked(self._marks[-1], LET_GO_S):
            self._say(f"{counted(n_left, 'process', 'processes')} outlived the launcher and had to be ended")
        if _launch_of(folder.path) not in {"", self._before, *self._marks}:
            raise EnvironmentFault(f"{folder.holder()} has taken {folder.path} over: leaving it to that launch")
        is_elsewhere = folder.last_holder.get("host") != socket.gethostname()
        if not wait_until_free(folder, LEASE_S if is_elsewhere else LET_GO_S):
            raise EnvironmentFault(
                f"{folder.path} is still in use by {folder.holder()} long after the launcher ended with {code}: "
                f"go on with `osprey launch --resume {folder.path}` when that process is gone"
            )
        status, state = folder.observe()
        n_evaluations = read_run(folder.path).n_evaluations
        if status is None:
            return Ended(code, state, n_evaluations)
        return Ended(code, state, n_evaluations, status.reason, status.exit_code)


def wait_until_free(folder: RunFolder, limit_s: float) -> bool:
    """Wait until no process has a folder; return whether that is so."""
    deadline = time.monotonic() + limit_s
    while folder.is_held():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _launch_of(folder: Path) -> str:
    """Return the mark of the launch that took a folder last, '' where there is none."""
    return str(read_holder(folder / ".lock").get("launch", ""))


def evaluations_done(folder: Path, environ: Mapping[str, str]) -> int:
    """Return how many evaluations a run has on disk. Raises UsageError if the folder holds none, or it is in use.

    In a job that was requeued the host that had the folder may be gone: its lock is waited for.
    """
    run = RunFolder.peek(folder)
    if not wait_until_free(run, LEASE_S if environ.get("SLURM_RESTART_COUNT", "0") != "0" else 0.0):
        raise UsageError(f"{run.path} is in use by {run.holder()}")
    return read_run(run.path).n_evaluations


def _lost(ended: Ended, n: int, wait_s: float) -> str:
    how = {State.STOPPED: f"stopped ({ended.reason})"}.get(ended.state or State.INTERRUPTED, "was lost")
    when = "at once" if wait_s == 0.0 else f"in {wait_s:g} s"
    next_step = "starting again" if ended.state is None else "resuming"
    done = counted(ended.n_evaluations, "evaluation")
    return f"launch {n} {how}, the launcher ended with {ended.code}; {done} on disk; {next_step} {when}"


def default_ranks(environ: Mapping[str, str]) -> int | None:
    """Return how many ranks to start unless told: in a Slurm allocation the launcher knows, else one per core."""
    return None if "SLURM_JOB_ID" in environ else len(os.sched_getaffinity(0))


def spec_of(
    config: Path | None, resume: Path | None, out: Path | None, n_ranks: int | None, *,
    overrides: Sequence[str], options: Sequence[str], overwrite: bool,
) -> LaunchSpec:  # fmt: skip
    """Return what to launch. Raises UsageError or ConfigError before anything is started."""
    if (config is None) == (resume is None):
        raise UsageError("give either CONFIG, to start a run, or --resume DIR, to go on with one")
    from osprey_mpi.config import load_config, with_overrides
    from osprey_mpi.config.changing import allowed_changes

    sets = [word for override in overrides for word in ("--set", override)]
    if resume is not None:
        for name, given in (("--out", out is not None), ("--overwrite", overwrite)):
            if given:
                raise UsageError(f"{name} does not go with --resume: the run has its folder")
        run = RunFolder.peek(resume)
        if overrides:
            allowed_changes(run.config(), with_overrides(run.config(), overrides), run.path)
        # Again in each launch: the first may be lost before the run has taken them over, and twice is as good as once.
        again = ("resume", str(run.path), *sets, *options)
        return LaunchSpec(run.path, again, again, n_ranks)
    assert config is not None
    folder = (out or load_config(config, tuple(overrides)).output_dir).absolute()
    RunFolder.refuse_used(folder, overwrite)
    first = ("run", str(config), "--out", str(folder), *sets, *(["--overwrite"] if overwrite else []), *options)
    return LaunchSpec(folder, first, ("resume", str(folder), *options), n_ranks)
