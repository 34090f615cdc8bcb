"""Ranks and launchers that go away: the books stay right, and nothing is left running."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
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
    """Its ids are done by the others; at the end it is named, and nobody waits for it."""
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


@pytest.mark.slow
def test_a_rank_that_is_back_may_be_given_what_it_is_at(case: Problem) -> None:
    """It is given up while its child process evaluates; back again it gets the evaluation that it had."""
    slow = "import time\ndef f(p):\n    time.sleep(5)\n    return p['x'] ** 2"
    case.write(slow, BASE.replace("8}", "4}") + IMPATIENT)
    with case.start(2) as running:
        case.wait_until(running, lambda status: status["state"] == "running")
        stopped = next(pid for pid in running.ranks() if pid != case.status()["pid"])
        time.sleep(1.0)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(stopped, signal.SIGCONT)
        done = running.wait(40)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 4), done.stderr
    assert "is lost" in done.stderr and case.columns("status")["id"].tolist() == [0, 1, 2, 3]


SLEEPY = """\
import os, signal, sys
from pathlib import Path
from osprey_mpi.drivers.loop import Loop
note = Loop._note_reasons
def fall_asleep(loop, event):
    note(loop, event)
    if loop.rank == 2 and not Path("asleep").exists():
        event.costs[:] = event.records["cost"] = -100.0
        Path("asleep").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
Loop._note_reasons = fall_asleep
from osprey_mpi.cli import main
sys.exit(main())
"""


def test_what_a_rank_holds_that_wakes_up_at_the_end_is_in_the_result(case: Problem) -> None:
    """It stands still with the best point in its hand, is taken for lost, and goes on when the files are made."""
    patient = IMPATIENT.replace("lost_after: 2.0", "lost_after: 4.0")
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 100") + patient)
    (case.folder / "sleepy.py").write_text(SLEEPY)
    with Launch(3, [sys.executable, "sleepy.py", *case.argv()[1:]], cwd=case.folder) as running:
        case.wait_until(running, lambda status: status["state"] == "done")
        assert case.status()["best"]["cost"] >= 1.0 and (case.out / "results.h5").exists()
        os.kill(int((case.folder / "asleep").read_text()), signal.SIGCONT)
        done = running.wait(30)
    assert "rank 2 is lost: silent" in done.stderr and "no answer" not in done.stderr, done
    assert (done.json()["best"]["cost"], done.json()["n_evaluations"], done.rc) == (-100.0, 100, 0), done
    status, columns = case.status(), case.columns("cost", "status")
    assert (status["best"]["cost"], status["n_evaluations"], status["counts"]["ok"]) == (-100.0, 100, 100)
    assert columns["id"].tolist() == list(range(100)) and not columns["status"].any()
    assert columns["cost"].min() == -100.0 and columns["cost"][status["best"]["id"]] == -100.0


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
    assert case.status()["counts"]["lost"] == n_lost


@tolerant
def test_with_ulfm_workers_may_go_one_after_the_other(case: Problem) -> None:
    with tolerating(case, 5, evaluations=2000) as running:  # status.json is a second old: time for three losses
        for n_before in (5, 300, 600):
            case.wait_until(running, lambda status, n=n_before: status["n_evaluations"] > n)
            os.kill(a_worker(running, case), signal.SIGKILL)
        done = running.wait(60)
    assert (done.json()["n_evaluations"], case.status()["exit_code"], done.rc) == (2000, 0, 0), done
    assert done.stderr.count("is lost: its process has ended") == 3


FLOCKS = "swarm: {flock_size: 3}\n"  # 9 ranks: rank 0 is the root, ranks 1 and 5 lead


@tolerant
@pytest.mark.parametrize(
    ("n", "config", "waves"),
    [
        pytest.param(4, "", [[0]], id="rank 0, which leads and evaluates, too"),
        pytest.param(4, "", [[0, 1, 2]], id="all but one"),
        pytest.param(9, FLOCKS, [[0]], id="the root"),
        pytest.param(9, FLOCKS, [[5]], id="a leader"),
        pytest.param(9, FLOCKS, [[0, 1]], id="the root and a leader"),
        pytest.param(9, FLOCKS, [[0], [1], [2], [5]], id="one after the other"),
    ],
)
def test_with_ulfm_the_others_go_on_without_whoever_is_lost(
    case: Problem, n: int, config: str, waves: list[list[int]]
) -> None:
    """In the same launch, with code 0: the budget is exact, nothing that was shown is lost, the best gets no worse."""
    shown = {"n_evaluations": 0, "best": {"cost": float("inf")}}
    with tolerating(case, n, config, evaluations=1200) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 20 and status["best"])
        pids = {rank: rank_of(running, rank) for rank in range(n)}
        for wave in waves:
            shown = case.status()
            for rank in wave:
                os.kill(pids[rank], signal.SIGKILL)
            time.sleep(0.3)
        done = running.wait(90)
        assert running.is_gone()
    assert (done.json()["n_evaluations"], case.status()["exit_code"], done.rc) == (1200, 0, 0), done
    assert "Traceback" not in done.stderr and "the launch go" in done.stderr, done
    columns = case.columns("status", "cost")
    assert columns["id"].tolist() == list(range(1200)) and not columns["status"].any()
    assert done.json()["best"]["cost"] == columns["cost"].min() <= shown["best"]["cost"]
    assert done.json()["n_lives"] > 1


@tolerant
def test_with_ulfm_what_the_others_evaluate_goes_on(case: Problem) -> None:
    """Of four evaluations under way when rank 0 is lost only its own begins again."""
    source = """
        import time
        def f(p, context):
            with open("calls", "a") as calls:
                calls.write(f"{context.id}\\n")
            time.sleep(3)
            return p["x"] ** 2
    """
    case.write(textwrap.dedent(source).replace('"calls"', repr(str(case.folder / "calls"))), BASE)

    def calls() -> list[int]:
        path = case.folder / "calls"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    with Launch(4, case.argv(), cwd=case.folder, launcher=("--with-ft", "ulfm")) as running:
        deadline = time.monotonic() + 30
        while len(calls()) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(rank_of(running, 0), signal.SIGKILL)
        done = running.wait(60)
    assert (done.json()["n_evaluations"], done.rc) == (8, 0), done
    again = [id for id in set(calls()) if calls().count(id) > 1]
    assert len(calls()) == 9 and sorted(set(calls())) == list(range(8)) and len(again) == 1
    columns = case.columns("rank")
    assert columns["id"].tolist() == list(range(8)) and 0 not in columns["rank"]


MUTE = """\
import sys
from osprey_mpi.comm import heartbeat
heartbeat.Heart.address = property(lambda self: None, lambda self, address: None)
from osprey_mpi.cli import main
sys.exit(main())
"""


@tolerant
def test_with_ulfm_a_rank_that_was_left_out_opens_no_other_life(case: Problem) -> None:
    """Rank 2 is stopped while the others regroup, and goes on when they are done: it says so and ends.

    Where no heartbeats get through: else it would be ended, or hear of it.
    """
    case.write(SLOW, BASE.replace("evaluations: 8", "evaluations: 300") + IMPATIENT)
    (case.folder / "mute.py").write_text(MUTE)
    argv = [sys.executable, case.folder / "mute.py", *case.argv()[1:]]
    with Launch(3, argv, cwd=case.folder, launcher=("--with-ft", "ulfm")) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 20)
        pids = {rank: rank_of(running, rank) for rank in range(3)}
        os.kill(pids[2], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        deadline = time.monotonic() + 90
        while case.status()["state"] != "done" and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1.0)
        os.kill(pids[2], signal.SIGCONT)
        done = running.wait(30)
    assert (len(done.stdout.splitlines()), done.json()["n_evaluations"], done.rc) == (1, 300, 0), done
    assert "rank 2 was left out of the run and ends: the others have gone on with it" in done.stderr
    assert (case.status()["life"], case.columns("status")["id"].tolist()) == (2, list(range(300)))


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
    assert state in (("stopped",) if IS_OPEN_MPI else ("stopped", "interrupted")), case.log(0)


HASTY = """\
import sys
from osprey_mpi.comm import ending
ending.ORPHAN_S = 2.0
from osprey_mpi.cli import main
sys.exit(main())
"""
LONG = """\
import time
def f(p, context):
    context.comm.allreduce(1)
    if context.id > 5:
        time.sleep(300.0 if context.comm.rank == BUSY else 0.0)
    context.comm.allreduce(1)
    return p['x']
"""


@pytest.mark.parametrize("busy", [0, 1])
def test_a_launcher_that_is_killed_leaves_no_rank_of_a_group(busy: int, case: Problem) -> None:
    """One is in user code, which sees neither messages nor signals, the other waits for it in a collective."""
    case.write(LONG.replace("BUSY", str(busy)), BASE.replace('"case:f"', '"case:f", ranks: 2'))
    (case.folder / "hasty.py").write_text(HASTY)
    argv = [sys.executable, case.folder / "hasty.py", *case.argv()[1:]]
    with Launch(4, argv, cwd=case.folder) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 5)
        os.kill(running.pid, signal.SIGKILL)
        running.process.wait()
        assert running.is_gone(20.0)
    if IS_OPEN_MPI:  # MPICH ends the ranks itself
        said = "this rank ends: the launcher is gone, and its group has worked on for 2 s"
        assert said in case.log(1 + busy)
