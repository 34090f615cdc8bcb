"""Ranks that are stopped, and ranks that are lost where MPI says nothing: the others notice by heartbeats and go on."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from launch import IS_OPEN_MPI, Completed, Launch
from problem import BASE, Problem
from test_losses import FLOCKS, IMPATIENT, SLOW, rank_of

pytestmark = [pytest.mark.launch, pytest.mark.skipif(not IS_OPEN_MPI, reason="only Open MPI outlives lost ranks")]

ULFM, RECOVERY = ("--with-ft", "ulfm"), ("--enable-recovery",)
# As if every rank had a host of its own: nobody sees another's process, and can end it.
APART = """\
import os, sys
from osprey_mpi.comm import heartbeat
heartbeat._host = lambda: os.environ["OMPI_COMM_WORLD_RANK"]
heartbeat._places = lambda: ("127.0.0.1",)
from osprey_mpi.cli import main
sys.exit(main())
"""


def starting(case: Problem, n: int, flags: tuple[str, ...], config: str = "", *, apart: bool = False) -> Launch:
    """Start 900 evaluations of 20 ms."""
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 900") + IMPATIENT + config)
    argv = case.argv()
    if apart:
        (case.folder / "apart.py").write_text(APART)
        argv = [sys.executable, case.folder / "apart.py", *argv[1:]]
    return Launch(n, argv, cwd=case.folder, launcher=flags)


def signal_to(case: Problem, running: Launch, n: int, ranks: list[int], number: signal.Signals) -> dict[int, int]:
    """Send a signal to ranks once the run is under way; return the processes of all."""
    case.wait_until(running, lambda status: status["n_evaluations"] > 20)
    pids = {rank: rank_of(running, rank) for rank in range(n)}
    for rank in ranks:
        os.kill(pids[rank], number)
    return pids


def assert_whole(case: Problem, done: Completed, n_lives: int) -> None:
    """Assert that the run is done, with each evaluation once, and nothing that a reader stumbles over."""
    assert (done.json()["n_evaluations"], done.rc) == (900, 0), done
    status, columns = case.shown(), case.columns("status")
    assert (status["state"], status["exit_code"], status["life"]) == ("done", 0, n_lives)
    assert columns["id"].tolist() == list(range(900)) and not columns["status"].any()


@pytest.mark.parametrize(
    ("n", "config", "lost", "n_lives"),
    [
        pytest.param(5, "", [3], 1, id="a worker"),
        pytest.param(5, "", [0], 2, id="rank 0, which leads and evaluates, too"),
        pytest.param(5, "", [0, 1, 2, 3], 2, id="all but one"),
        pytest.param(9, FLOCKS, [5], 2, id="a leader"),
        pytest.param(9, FLOCKS, [0, 1], 2, id="the root and a leader"),
    ],
)
def test_without_ulfm_the_others_go_on_by_heartbeats(
    case: Problem, n: int, config: str, lost: list[int], n_lives: int
) -> None:
    with starting(case, n, RECOVERY, config) as running:
        signal_to(case, running, n, lost, signal.SIGKILL)
        done = running.wait(60)
        assert running.is_gone()
    assert "Traceback" not in done.stderr and ("is lost" in done.stderr or "are lost" in done.stderr), done
    assert case.status()["fault_tolerance"] == "heartbeats"
    assert_whole(case, done, n_lives)


@pytest.mark.parametrize("lost", [[3], [0]], ids=["a worker", "the root"])
def test_without_ulfm_silence_tells_of_losses_on_other_hosts(case: Problem, lost: list[int]) -> None:
    with starting(case, 9, RECOVERY, FLOCKS, apart=True) as running:
        signal_to(case, running, 9, lost, signal.SIGKILL)
        done = running.wait(60)
        assert running.is_gone()
    assert_whole(case, done, 1 if lost == [3] else 2)


@pytest.mark.parametrize(
    ("flags", "n", "config", "stopped"),
    [
        pytest.param(ULFM, 4, "", [0], id="rank 0, which leads and evaluates, too"),
        pytest.param(ULFM, 9, FLOCKS, [0], id="the root"),
        pytest.param(ULFM, 9, FLOCKS, [5], id="a leader"),
        pytest.param(RECOVERY, 4, "", [0], id="rank 0 without ulfm"),
    ],
)
def test_who_is_stopped_is_lost_after_its_time_and_ended(
    case: Problem, flags: tuple[str, ...], n: int, config: str, stopped: list[int]
) -> None:
    """The run's folder is free for the next root, the launcher ends, and nothing is left of the stopped rank."""
    with starting(case, n, flags, config) as running:
        signal_to(case, running, n, stopped, signal.SIGSTOP)
        done = running.wait(60)
        assert running.is_gone()
    assert f"rank {stopped[0]} is lost: the other {n - 1} ranks of the launch go on" in done.stderr
    assert_whole(case, done, 2)


@pytest.mark.parametrize("stopped", [5, 0], ids=["a leader", "the root"])
def test_who_was_stopped_on_a_host_of_its_own_leaves_when_it_goes_on(case: Problem, stopped: int) -> None:
    """The stopped root holds the lock of the run's folder: that is taken from it."""
    with starting(case, 9, ULFM, FLOCKS, apart=True) as running:
        pids = signal_to(case, running, 9, [stopped], signal.SIGSTOP)
        case.wait_until(running, lambda status: status["life"] == 2 and status["n_evaluations"] > 300)
        os.kill(pids[stopped], signal.SIGCONT)
        done = running.wait(60)
        assert running.is_gone()
    why = "it was silent for more than 2 s"
    assert done.stderr.count(f"rank {stopped} was left out of the run and ends: {why}") == 1
    assert_whole(case, done, 2)


BROKEN = """\
import sys
from osprey_mpi.drivers.crew import Crew
ours, Crew._hang_bell = Crew._hang_bell, lambda self: ours(self) if self.rank else 1 / 0
from osprey_mpi.cli import main
sys.exit(main())
"""


def test_without_ulfm_an_error_of_our_own_on_the_root_ends_all(case: Problem) -> None:
    """The next root would only meet it again."""
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 4000"))
    (case.folder / "broken.py").write_text(BROKEN)
    argv = [sys.executable, case.folder / "broken.py", *case.argv()[1:]]
    with Launch(3, argv, cwd=case.folder, launcher=RECOVERY) as running:
        done = running.wait(30)
        assert running.is_gone()
    assert done.rc != 0 and not done.stdout and "[rank 0] ZeroDivisionError" in done.stderr


def test_a_stop_that_is_shorter_is_no_loss(case: Problem) -> None:
    with starting(case, 9, ULFM, FLOCKS) as running:
        pids = signal_to(case, running, 9, [0, 1, 5], signal.SIGSTOP)
        time.sleep(1.0)
        for rank in (0, 1, 5):
            os.kill(pids[rank], signal.SIGCONT)
        done = running.wait(60)
    assert "lost" not in done.stderr
    assert_whole(case, done, 1)


def test_all_stopped_together_blame_nobody(case: Problem) -> None:
    """As a batch system suspends a job."""
    with starting(case, 4, RECOVERY) as running:
        pids = signal_to(case, running, 4, [0, 1, 2, 3], signal.SIGSTOP)
        time.sleep(6.0)
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
        done = running.wait(60)
    assert "lost" not in done.stderr
    assert_whole(case, done, 1)
