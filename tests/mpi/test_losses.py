"""Ranks and launchers that go away: the books stay right, and nothing is left running."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


tolerant = pytest.mark.skipif(not IS_OPEN_MPI, reason="only Open MPI outlives lost ranks")


def tolerating(case: Problem, n: int, config: str = "", evaluations: int = 600) -> Launch:
    """Start the slow case under a launcher that outlives lost ranks."""
    case.write(SLOW, BASE.replace("evaluations: 8", f"evaluations: {evaluations}") + config)
    return Launch(n, case.argv(), cwd=case.folder, launcher=("--with-ft", "ulfm"))


@tolerant
@pytest.mark.parametrize("n_lost", [1, 3])
def test_with_ulfm_lost_workers_cost_what_they_ran(case: Problem, n_lost: int) -> None:
    """The others do their work; what each was at is named as lost and done again; the end is exact, and has code 0."""
    with tolerating(case, 4) as running:
        a_worker(running, case)
        victims = [pid for pid in running.ranks() if pid != case.status()["pid"]][:n_lost]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        done = running.wait(60)
        assert running.is_gone()
    assert (done.json()["n_evaluations"], case.status()["exit_code"], done.rc) == (600, 0, 0), done
    assert done.stderr.count("is lost: its process has ended") == n_lost and "Traceback" not in done.stderr
    columns = case.columns("status")
    assert columns["id"].tolist() == list(range(600)) and not columns["status"].any()
    assert 0 <= case.status()["counts"]["lost"] <= n_lost


@tolerant
def test_with_ulfm_workers_may_go_one_after_the_other(case: Problem) -> None:
    with tolerating(case, 5, evaluations=2000) as running:  # status.json is a second old: time for three losses
        for n_before in (5, 300, 600):
            case.wait_until(running, lambda status, n=n_before: status["n_evaluations"] > n)
            os.kill(a_worker(running, case), signal.SIGKILL)
        done = running.wait(60)
    assert (done.json()["n_evaluations"], case.status()["exit_code"], done.rc) == (2000, 0, 0), done
    assert done.stderr.count("is lost: its process has ended") == 3


@tolerant
def test_with_ulfm_the_loss_of_rank_0_is_said_once_and_resumed(case: Problem) -> None:
    with tolerating(case, 4) as running:
        a_worker(running, case)
        os.kill(case.status()["pid"], signal.SIGKILL)
        done = running.wait(30)
        assert running.is_gone()
    assert done.stderr.count("rank 0 is lost: `osprey resume` goes on") == 1 and "Traceback" not in done.stderr, done
    assert case.shown()["state"] == "interrupted"
    more = case.resume(2)
    assert (more.rc, more.json()["n_evaluations"]) == (0, 600), more.stderr


@tolerant
def test_with_ulfm_the_loss_of_a_leader_stops_the_run(case: Problem) -> None:
    with tolerating(case, 7, "swarm: {flock_size: 2}\n") as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 5)
        os.kill(rank_of(running, 1), signal.SIGKILL)
        done = running.wait(40)
        assert running.is_gone()
    assert case.status()["exit_code"] == 75 and "the leader on rank 1 is lost" in case.status()["reason"], done
    more = case.resume(2)
    assert (more.rc, more.json()["n_evaluations"]) == (0, 600), more.stderr


def rank_of(running: Launch, rank: int) -> int:
    """Return the process of a world rank."""
    wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    return next(
        pid for pid in running.ranks() if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )


def test_a_launcher_that_is_killed_leaves_no_orphans(case: Problem) -> None:
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 4000"))
    with case.start(3) as running:
        a_worker(running, case)
        os.kill(running.pid, signal.SIGKILL)
        running.process.wait()
        assert running.is_gone(20.0)
    state = case.shown()["state"]
    assert state == "stopped" if IS_OPEN_MPI else state in ("stopped", "interrupted")
