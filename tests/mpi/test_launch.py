"""`osprey launch`: a run goes on whatever is killed, and ends when it is asked to."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from launch import IS_OPEN_MPI, Launch, launch, osprey
from problem import BASE, Problem

pytestmark = pytest.mark.launch

SLOW = "import time\ndef f(p):\n    time.sleep(0.02)\n    return (p['x'] - 0.3) ** 2 + p['n']"
N = 600


def supervised(case: Problem, *arguments: object, n: int = 3) -> Launch:
    """Start `osprey launch` on the case."""
    case.write(SLOW, BASE.replace("evaluations: 8", f"evaluations: {N}"))
    argv = osprey("launch", case.folder / "case.yaml", "-n", n, "--out", case.out, "--format", "json", *arguments)
    return Launch(1, argv, cwd=case.folder)


def kill(running: Launch, case: Problem, who: str, seen: int) -> None:
    """End ranks or the launcher with SIGKILL once more than `seen` evaluations are on disk."""
    case.wait_until(running, lambda status: status["n_evaluations"] > seen and status["state"] == "running")
    root, ranks = case.status()["pid"], running.ranks()
    victims = {
        "root": [root],
        "worker": [pid for pid in ranks if pid != root][:1],
        "all ranks": ranks,
        "launcher": [pid for pid in running.processes() if command(pid) in ("mpirun", "prterun")][:1],
    }
    for pid in victims[who]:
        os.kill(pid, signal.SIGKILL)


def command(pid: int) -> str:
    """Return the name of a process's program."""
    return Path(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name


@pytest.mark.skipif(not IS_OPEN_MPI, reason="only Open MPI outlives lost ranks")
@pytest.mark.parametrize(("who", "n_lives"), [("worker", 1), ("root", 2)])
def test_a_lost_rank_needs_no_other_launch(case: Problem, who: str, n_lives: int) -> None:
    with supervised(case) as running:
        kill(running, case, who, 20)
        done = running.wait(60)
    assert (done.rc, done.json()["n_evaluations"], case.status()["life"]) == (0, N, n_lives), done.stderr
    assert "launch 1 " not in done.stderr


@pytest.mark.parametrize("who", ["launcher", "all ranks", *([] if IS_OPEN_MPI else ["root", "worker"])])
def test_a_launch_that_is_lost_is_followed_by_another(case: Problem, who: str) -> None:
    with supervised(case) as running:
        kill(running, case, who, 20)
        lost_at = time.monotonic()
        case.wait_until(running, lambda status: status["life"] == 2 and status["state"] == "running")
        recovery_s = time.monotonic() - lost_at
        kill(running, case, who, 200)
        done = running.wait(90)
        assert running.is_gone()
    assert done.rc == 0, done.stderr
    assert done.json()["n_evaluations"] == N, "one result on stdout, the last"
    status = case.columns("status")
    assert status["id"][status["status"] == 0].tolist() == list(range(N))
    assert case.status()["life"] == 3 and recovery_s < 30.0
    assert "launch 1 " in done.stderr and "launch 2 " in done.stderr and "resuming" in done.stderr


# Python runs a module named so first. Rank 1 of the first launch ends before anything of ours has begun in it.
DOOMED = """\
import os, pathlib, signal
lost = pathlib.Path(__file__).with_name("lost")
if os.environ.get("OMPI_COMM_WORLD_RANK") == "1" and not lost.exists():
    lost.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
ASLEEP = """\
import os, pathlib, time
if "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    pathlib.Path(__file__).with_name("asleep").touch()
    time.sleep(60)
"""


@pytest.mark.skipif(not IS_OPEN_MPI, reason="other launchers end all ranks then")
def test_a_rank_lost_while_mpi_starts_is_followed_by_another_launch(case: Problem) -> None:
    case.write(SLOW)
    (case.folder / "sitecustomize.py").write_text(DOOMED)
    path = os.pathsep.join([str(case.folder), os.environ.get("PYTHONPATH", "")])
    argv = osprey("launch", case.folder / "case.yaml", "-n", 3, "--out", case.out, "--format", "json")
    done = launch(1, argv, cwd=case.folder, env={"PYTHONPATH": path}, timeout_s=60)
    assert (done.rc, done.json()["n_evaluations"], done.json()["n_ranks"]) == (0, 8, 3), done.stderr
    assert "osprey: rank 1 ended before MPI had started on all ranks" in done.stderr
    assert "launch 1 was lost, the launcher ended with 75; 0 evaluations on disk; starting again" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_it_saves_and_stops(case: Problem, number: int) -> None:
    with supervised(case) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 20)
        os.kill(running.pid, number)
        done = running.wait(30)
        assert running.is_gone()
    shown = case.shown()
    assert (done.rc, shown["state"], shown["life"]) == (75, "stopped", 1), done.stderr
    more = launch(1, osprey("launch", "--resume", case.out, "-n", 2, "--format", "json"), cwd=case.folder, timeout_s=60)
    assert (more.rc, more.json()["n_evaluations"], more.json()["n_ranks"]) == (0, N, 2), more.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_before_the_run_began_it_ends_at_once(case: Problem, number: int) -> None:
    """MPI waits for rank 1, which sleeps: no rank hears a signal then."""
    (case.folder / "sitecustomize.py").write_text(ASLEEP)
    case.write(SLOW)
    path = os.pathsep.join([str(case.folder), os.environ.get("PYTHONPATH", "")])
    argv = osprey("launch", case.folder / "case.yaml", "-n", 2, "--out", case.out)
    with Launch(1, argv, cwd=case.folder, env={"PYTHONPATH": path}) as running:
        while not (case.folder / "asleep").exists():
            assert running.is_running
            time.sleep(0.05)
        asked_at = time.monotonic()
        os.kill(running.pid, number)
        done = running.wait(30)
        assert time.monotonic() - asked_at < 10.0
        assert running.is_gone()
    name = signal.Signals(number).name.removeprefix("SIG")
    first, last = [line for line in done.stderr.splitlines() if line.startswith("osprey launch: ")]
    assert first == f"osprey launch: {name}: ending the launch, whose run has not begun"
    assert last == "osprey launch: stopped before the run began: there is nothing to resume, start it again"
    assert (done.rc, case.out.exists()) == (75, False)


def test_what_is_refused_is_refused_once(case: Problem) -> None:
    with supervised(case, "--set", "budget.evaluations=-3") as running:
        done = running.wait(30)
    assert done.rc == 2 and done.stderr.count("evaluations") == 1 and not case.out.exists(), done.stderr
    case.write("raise RuntimeError('broken')")
    argv = osprey("launch", case.folder / "case.yaml", "-n", 2, "--out", case.out)
    done = launch(1, argv, cwd=case.folder, timeout_s=60)
    assert done.rc == 2 and done.stderr.count("broken") == 1 and not case.out.exists(), done.stderr
    assert "resuming" not in done.stderr
