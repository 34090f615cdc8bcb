"""Runs that are killed, stopped or extended go on, on any ranks; no evaluation is lost or counted twice."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time

import numpy as np
import pytest
from launch import IS_OPEN_MPI, Launch, launch, osprey
from problem import Problem

pytestmark = pytest.mark.launch

SPHERE = """\
name: case
seed: 11
objective: {builtin: sphere, batch: 1}
parameters: {x: {type: real, low: -1, high: 1, size: 3}}
budget: {evaluations: 90}
"""
SLOW = "import time\ndef f(p):\n    time.sleep(0.02)\n    return (p['x'] - 0.3) ** 2 + p['n']"
JITTER = """\
import random, time
def f(p):
    time.sleep(random.random() * 0.02)
    return p["x"] ** 2 + p["n"] if p["x"] < 0.9 else None
"""
WAITS = """\
import pathlib, time
def f(p):
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    return p["x"] ** 2
"""


def test_ninety_at_once_equal_thirty_three_times(case: Problem) -> None:
    """A serial run is the same bit for bit wherever it was stopped; each resume raises the budget."""
    names = ("cost", "x", "status", "generation", "seed", "attempt")
    case.write("", SPHERE)
    assert case.run(1).rc == 0
    whole = case.columns(*names)
    assert case.run(1, "--overwrite", "--set", "budget.evaluations=30").json()["n_evaluations"] == 30
    often = ("--set", "checkpoint.interval=0.1", "--set", "output.results_interval=0.2", "--set", "continuity.cycle=2")
    for n_evaluations, how in (
        (60, ("--max-evaluations", 60)), (90, ("--set", "budget.evaluations=90", *often))
    ):  # fmt: skip
        done = case.resume(1, *how)
        assert (done.rc, done.json()["n_evaluations"]) == (0, n_evaluations), done.stderr
    parts = case.columns(*names)
    for name in ("id", *names):
        assert np.array_equal(whole[name], parts[name]), name
    assert case.log(0).count(" begins: rank 0") == 3
    refused = case.resume(1, "--max-evaluations", 50)
    assert refused.rc == 2 and "90" in refused.stderr


def test_deterministic_mode_twice_on_four_ranks(case: Problem) -> None:
    """Equal seeds give equal ids, parameters, costs and statuses, whatever the ranks' speeds."""
    case.write(JITTER)
    seen = []
    for _ in range(2):
        done = case.run(4, "--overwrite", "--set", "swarm.deterministic=true", "--set", "budget.evaluations=60")
        assert (done.rc, done.json()["n_evaluations"]) == (0, 60), done.stderr
        seen.append(case.columns("cost", "x", "n", "status", "generation"))
    assert len(np.unique(seen[0]["x"])) == 60
    for name in seen[0]:
        assert np.array_equal(seen[0][name], seen[1][name], equal_nan=True), name


@pytest.mark.slow
def test_kill_minus_nine_at_random_moments(case: Problem, n_lives: int) -> None:
    """Nothing that status showed is ever lost; the end is exact. `--lives 30` does more than a usual run."""
    case.write(SLOW)
    n = 60 * n_lives
    rng = random.Random(os.getpid())
    often = ("--set", "checkpoint.interval=0.3", "--set", "output.results_interval=0.1")
    first = ("--set", f"budget.evaluations={n}", *often)
    n_shown, best = 0, float("inf")
    for life, n_ranks in enumerate(itertools.islice(itertools.cycle((3, 1, 4, 2, 3)), n_lives)):
        argv = case.argv(*first) if life == 0 else osprey("resume", case.out, "--format", "json")
        with Launch(n_ranks, argv, cwd=case.folder) as running:
            if life == 0:  # before a first status there is nothing to go on from but an empty run
                case.wait_until(running, lambda status: status["n_evaluations"] > 0)
            else:
                case.wait_until(running, lambda status, life=life: status["life"] == life + 1)
            time.sleep(rng.uniform(0.0, 1.2))
            running.kill()
        shown = case.shown()
        assert shown["state"] in ("interrupted", "done"), shown
        assert shown["n_evaluations"] >= n_shown, (life, shown, n_shown)
        assert shown["best"]["cost"] <= best
        n_shown, best = shown["n_evaluations"], shown["best"]["cost"]
        assert sum(shown["counts"].values()) - shown["counts"]["cancelled"] - shown["counts"]["lost"] == n_shown
    done = case.resume(2)
    assert (done.rc, done.json()["n_evaluations"]) == (0, n), done.stderr
    assert done.json()["best"]["cost"] <= best
    columns = case.columns("cost", "status", "rank")
    assert columns["id"].tolist() == list(range(n))
    assert np.all(columns["status"] == 0) and columns["cost"].min() == done.json()["best"]["cost"]


def test_killed_before_its_first_row(case: Problem) -> None:
    """A run that was killed while it started can be resumed, and its folder is not held."""
    case.write("import time\ntime.sleep(1.0)\ndef f(p):\n    return p['x']")
    with case.start(1) as running:
        deadline = time.monotonic() + 20.0
        while not (case.out / "run.json").exists():
            assert time.monotonic() < deadline and running.is_running
            time.sleep(0.01)
        running.kill()
    done = case.resume(2)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 8), done.stderr


def test_retry_failed_after_the_function_was_mended(case: Problem) -> None:
    """Three of ten failed; only these are done again, and they count once. A folder in use is refused (K4)."""
    bad = "def f(p, context):\n    if context.id in (2, 5, 9):\n        raise KeyError('gone')\n    return p['x'] ** 2"
    case.write(bad)
    assert case.run(2, "--set", "budget.evaluations=10").json()["n_evaluations"] == 10
    counts = case.status()["counts"]
    assert (counts["ok"], counts["failed"]) == (7, 3)
    case.write(WAITS)
    with Launch(2, osprey("resume", case.out, "--retry", "failed", "--format", "json"), cwd=case.folder) as running:
        case.wait_until(running, lambda status: status["life"] == 2)
        for arguments in (("resume", case.out), ("run", case.folder / "case.yaml", "--out", case.out, "--overwrite")):
            refused = launch(1, osprey(*arguments), cwd=case.folder)
            assert refused.rc == 2 and "in use" in refused.stderr and "Traceback" not in refused.stderr, refused
        (case.folder / "go").touch()
        done = running.wait(30)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 10), done.stderr
    counts = case.status()["counts"]
    assert (counts["ok"], counts["failed"]) == (10, 0)
    final = case.columns("attempt", "status", "x", "n")
    assert final["id"].tolist() == list(range(10))
    assert final["id"][final["attempt"] > 0].tolist() == [2, 5, 9]
    former = case.columns("x", "n", group="attempts")
    assert former["id"].tolist() == [2, 5, 9]
    assert np.array_equal(former["x"], final["x"][former["id"]]), "the same points are done again"
    assert np.array_equal(former["n"], final["n"][former["id"]])
    used = case.run(1)
    assert used.rc == 2 and "osprey resume" in used.stderr
    again = case.run(1, "--overwrite", "--set", "budget.evaluations=2")
    assert (again.rc, again.json()["n_evaluations"]) == (0, 2)
    assert case.columns()["id"].tolist() == [0, 1]


@pytest.mark.parametrize("n", [1, 2])
def test_retry_timeout_after_the_limit_was_mended(case: Problem, n: int) -> None:
    """The limit was too short for three of ten; with another one they are done again, and it holds from then on."""
    case.write(
        "import time\ndef f(p, context):\n    time.sleep(0.8 if context.id in (2, 5, 9) else 0)\n    return p['x'] ** 2"
    )
    first = ("--set", "objective.time_limit=0.3", "--set", "budget.evaluations=10")
    assert case.run(n, *first).json()["n_evaluations"] == 10
    assert case.status()["counts"]["timeout"] == 3
    assert "#   --set objective.time_limit=0.3\n" in (case.out / "config.yaml").read_text()
    done = case.resume(n, "--retry", "timeout", "--set", "objective.time_limit=20")
    assert (done.rc, done.json()["n_evaluations"]) == (0, 10), done.stderr
    counts = case.status()["counts"]
    assert (counts["ok"], counts["timeout"]) == (10, 0)
    final = case.columns("attempt", "status")
    assert final["id"][final["attempt"] > 0].tolist() == [2, 5, 9]
    assert "osprey: from now on objective.time_limit: 0.3 -> 20.0\n" in done.stderr
    assert case.shown()["unlike_config_yaml"] == []
    argv = osprey("launch", "--resume", case.out, "-n", n, "--set", "budget.evaluations=13", "--format", "json")
    more = launch(1, argv, cwd=case.folder)
    assert (more.rc, more.json()["n_evaluations"]) == (0, 13), more.stderr
    told = json.loads(launch(1, osprey("report", case.out, "--format", "json"), cwd=case.folder).stdout)
    assert told["changes"] == ["life 2: objective.time_limit: 0.3 -> 20.0", "life 3: budget.evaluations: 10 -> 13"]
    refused = case.resume(n, "--set", "seed=9")
    assert refused.rc == 2 and refused.stderr.count("resumed with another config: seed: 5 -> 9; what may change") == 1


def test_walltime_stops_in_time_and_leaves_the_rest(case: Problem) -> None:
    case.write("import time\ndef f(p):\n    time.sleep(0.1)\n    return p['x']")
    done = case.run(2, "--set", "budget.evaluations=100000", "--set", "budget.walltime=2")
    result = done.json()
    assert done.rc == 75 and 2.0 <= result["wall_s"] < 4.0, (done.rc, result)
    assert 0 < result["n_evaluations"] <= 42
    status = case.status()
    assert (status["state"], status["exit_code"]) == ("stopped", 75)
    more = case.resume(1, "--max-evaluations", result["n_evaluations"] + 3)
    assert (more.rc, more.json()["n_evaluations"]) == (0, result["n_evaluations"] + 3), more.stderr


@pytest.mark.parametrize("n", [1, 3])
def test_signals_save_and_stop(n: int, case: Problem) -> None:
    """Whichever a batch system sends, to the launcher or to the process, the run is saved and can go on.

    A launcher that is told to end (TERM, INT) has an exit code of its own; it hands USR1 and USR2 on. USR2 ends MPICH's
    launcher itself, and with it all ranks, unasked.
    """
    case.write(SLOW)
    budget = ("--set", "budget.evaluations=4000", "--set", "output.results_interval=0.2")
    n_shown = 0
    names = ["TERM", "INT", "USR1", *(["USR2"] if n == 1 or IS_OPEN_MPI else []), *(["HUP"] if n == 1 else [])]
    for life, name in enumerate(names, start=1):
        argv = case.argv(*budget) if life == 1 else osprey("resume", case.out, "--format", "json")
        with Launch(n, argv, cwd=case.folder) as running:
            case.wait_until(running, lambda s, life=life, n=n_shown: s["life"] == life and s["n_evaluations"] > n + 5)
            seen = case.status()["n_evaluations"]
            os.kill(running.pid, signal.Signals[f"SIG{name}"])
            done = running.wait(20)
            assert running.is_gone()
        status = case.status()
        assert (status["state"], status["exit_code"]) == ("stopped", 75), (name, status, done)
        assert status["reason"].startswith("signal ") and status["n_evaluations"] >= seen
        assert "Traceback" not in done.stderr, done.stderr
        if n == 1 or name.startswith("USR"):
            assert done.rc == 75 and status["reason"] == f"signal {name}", (status, done)
            assert done.json()["n_evaluations"] == status["n_evaluations"]
            assert done.stderr.count(f"osprey: the run is saved: `osprey resume {case.out}` goes on\n") == 1
            assert done.stderr.count("case: stopped ") == 1, done.stderr
        n_shown = status["n_evaluations"]
    more = case.resume(4 - n, "--max-evaluations", n_shown + 2)
    assert (more.rc, more.json()["n_evaluations"]) == (0, n_shown + 2), more.stderr
    rows = case.columns("status")  # what was cut off and lies above the new budget has a row, and does not count
    assert rows["id"][rows["status"] != 4].tolist() == list(range(n_shown + 2))


def test_a_run_outlives_the_shell_that_started_it(case: Problem) -> None:
    """Nohup and a shell that exits: the new parent is no reason to stop."""
    case.write(SLOW)
    command = " ".join(map(str, case.argv("--set", "budget.evaluations=60")))
    with Launch(1, ["sh", "-c", f"nohup {command} > result.json 2> errors.txt & exit 0"], cwd=case.folder) as shell:
        assert shell.wait(10).rc == 0
        deadline = time.monotonic() + 20.0
        while not case.out.exists() and time.monotonic() < deadline:  # a process that just begins has no mark yet
            time.sleep(0.02)
        assert shell.is_gone(30.0)
    assert case.status()["state"] == "done", (case.folder / "errors.txt").read_text()
    assert case.status()["n_evaluations"] == 60
