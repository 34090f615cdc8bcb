"""Ranks and launchers that go away: the books stay right, and nothing is left running."""

from __future__ import annotations

import os
import signal

import pytest
from launch import IS_OPEN_MPI, Launch
from problem import BASE, Problem

pytestmark = pytest.mark.launch

SLOW = "import time\ndef f(p):\n    time.sleep(0.02)\n    return (p['x'] - 0.3) ** 2 + p['n']"
IMPATIENT = "continuity: {cycle: 0.2, suspect_after: 1.0, lost_after: 2.0}\n"


def a_worker(running: Launch, case: Problem) -> int:
    """Return the process of a rank that is not rank 0, once the run is under way."""
    case.wait_until(running, lambda status: status["n_evaluations"] > 5)
    return next(pid for pid in running.ranks() if pid != case.status()["pid"])


def test_a_rank_that_hangs_costs_its_evaluation_not_the_run(case: Problem) -> None:
    """R4: its ids are done by the others; at the end it is named, and nobody waits for it."""
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 300") + IMPATIENT)
    with case.start(3) as running:
        os.kill(a_worker(running, case), signal.SIGSTOP)
        done = running.wait(30)
        assert running.is_gone()
    assert done.json()["n_evaluations"] == 300, done.stderr
    assert (case.status()["state"], case.status()["exit_code"], case.status()["counts"]["ok"]) == ("done", 0, 300)
    assert "is lost" in done.stderr and "no answer from rank" in done.stderr
    assert case.columns("status")["id"].tolist() == list(range(300))
    assert not case.columns("status")["status"].any()
    assert done.rc == 0, done


def test_a_rank_that_is_killed_ends_the_launch_resumable(case: Problem) -> None:
    """Without fault tolerance the launcher ends all ranks; a resume goes on with what is on disk."""
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 4000"))
    with case.start(3) as running:
        os.kill(a_worker(running, case), signal.SIGKILL)
        seen = case.status()["n_evaluations"]
        assert running.wait(20).rc != 0
        assert running.is_gone()
    shown = case.shown()
    assert shown["state"] in ("stopped", "interrupted") and shown["n_evaluations"] >= seen
    more = case.resume(2, "--max-evaluations", shown["n_evaluations"] + 10)
    assert (more.rc, more.json()["n_evaluations"]) == (0, shown["n_evaluations"] + 10), more.stderr


def test_a_launcher_that_is_killed_leaves_no_orphans(case: Problem) -> None:
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 4000"))
    with case.start(3) as running:
        a_worker(running, case)
        os.kill(running.pid, signal.SIGKILL)
        running.process.wait()
        assert running.is_gone(20.0)
    state = case.shown()["state"]
    assert state == "stopped" if IS_OPEN_MPI else state in ("stopped", "interrupted")
