"""The Python function: alone, under a launcher, and in a program that has MPI for itself."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from launch import Launch, launch
from problem import Problem

pytestmark = pytest.mark.launch

SCRIPT = """\
import json, os
import osprey_mpi

def f(parameters, context):
    return (parameters["x"] ** 2).sum() + parameters["n"]

if __name__ == "__main__":
    result = osprey_mpi.minimize(
        f, {"x": {"type": "real", "low": -1, "high": 1, "size": 2}, "n": {"type": "integer", "low": 1, "high": 5}},
        seed=3, budget={"evaluations": 200}, out="out",
    )
    assert result.parameters["x"].shape == (2,), result
    facts = [result.cost, result.n_evaluations, result.n_ranks, result.exit_code]
    os.write(1, (json.dumps(facts) + "\\n").encode())  # in one piece: launchers mix the pieces of all ranks
"""

OWNER = """\
from mpi4py import MPI
import osprey_mpi

comm = MPI.COMM_WORLD
seen = []
for round in range(2):
    result = osprey_mpi.minimize(
        lambda p: abs(p["x"] - 0.25), {"x": {"type": "real", "low": 0, "high": 1}},
        budget={"evaluations": 30}, out=f"out-{round}",
    )
    seen.append((result.n_evaluations, result.cost))
assert MPI.Is_initialized() and not MPI.Is_finalized()
total = comm.allreduce(comm.rank)
assert all(found == seen for found in comm.allgather(seen))
if comm.rank == 0:
    print(total, seen[0][0], seen[1][0])
"""

REFUSED = """\
import os
import osprey_mpi
from osprey_mpi.errors import OspreyError

try:
    wrong = {"x": {"type": "reel", "low": 0, "high": 1}}
    osprey_mpi.minimize(lambda p: 0.0, wrong, budget={"evaluations": 3}, out="out")
except OspreyError as error:
    os.write(1, b"refused %d\\n" % error.exit_code)
"""


@pytest.mark.parametrize("n", [1, 3])
def test_minimize(n: int, case: Problem) -> None:
    (case.folder / "script.py").write_text(SCRIPT)
    done = launch(n, [sys.executable, "script.py"], cwd=case.folder)
    assert done.rc == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == n and len(set(lines)) == 1, "every rank gets the same result"
    cost, n_evaluations, n_ranks, exit_code = json.loads(lines[0])
    assert (n_evaluations, n_ranks, exit_code) == (200, n, 0)
    assert 1.0 <= cost < 1.2
    assert case.status()["best"]["parameters"]["n"] == 1


@pytest.mark.parametrize("n", [1, 3])
def test_in_a_program_that_owns_mpi(n: int, case: Problem) -> None:
    """MPI is finalised by who started it, and twice in a row works."""
    (case.folder / "script.py").write_text(OWNER)
    done = launch(n, [sys.executable, "script.py"], cwd=case.folder)
    assert done.rc == 0, done.stderr
    assert done.stdout == f"{sum(range(n))} 30 30\n"


def test_refused_on_all_ranks(case: Problem) -> None:
    """The caller can catch it, on every rank."""
    (case.folder / "script.py").write_text(REFUSED)
    done = launch(3, [sys.executable, "script.py"], cwd=case.folder)
    assert (done.rc, done.stdout) == (0, "refused 2\n" * 3), done.stderr


STOPPED = """\
import os, signal, time
import osprey_mpi

calls = []

def f(p):
    calls.append(p)
    time.sleep(0.01)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return abs(p["x"] - 0.25)

X = {"x": {"type": "real", "low": 0, "high": 1}}
try:
    osprey_mpi.minimize(f, X, budget={"evaluations": 400}, out="out")
    print("not reached")
except KeyboardInterrupt as stop:
    print(stop)
result = osprey_mpi.minimize(f, X, budget={"evaluations": 60}, out="out", resume=True)
print(result.n_evaluations, result.reason, len(calls) <= 61)
again = osprey_mpi.minimize(f, X, budget={"evaluations": 9}, out="new", resume=True)
print(again.n_evaluations)
try:
    osprey_mpi.minimize(f, X | {"y": X["x"]}, budget={"evaluations": 90}, out="out", resume=True)
except osprey_mpi.errors.UsageError as error:
    print(error)
"""


def test_an_interrupt_is_one_and_the_run_goes_on(case: Problem) -> None:
    (case.folder / "program.py").write_text(STOPPED)
    done = launch(1, [sys.executable, "program.py"], cwd=case.folder)
    out = case.folder / "out"
    *lines, refused = done.stdout.splitlines()
    assert lines == [f"the run is saved in {out}", "60 evaluations True", "9"], done
    assert refused.startswith(f"{out} cannot be resumed with another config: parameters.y: absent -> {{")


STOPPED_TOGETHER = """\
import os, time
import osprey_mpi

try:
    osprey_mpi.minimize(
        lambda p: time.sleep(0.01) or p["x"] ** 2, {"x": {"type": "real", "low": 0, "high": 1}},
        budget={"evaluations": 20000}, out="out",
    )
except KeyboardInterrupt as stop:
    with open("caught", "a") as file:
        file.write(f"{stop}\\n")
"""


def test_an_interrupt_of_the_launcher_saves_the_run(case: Problem) -> None:
    """Open MPI's mpirun makes TERM of it, and KILL half a second later, when Python may not be done."""
    (case.folder / "program.py").write_text(STOPPED_TOGETHER)
    with Launch(2, [sys.executable, "program.py"], cwd=case.folder) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 20)
        os.kill(running.pid, signal.SIGINT)
        running.wait(20)
        assert running.is_gone()
    assert case.status()["state"] == "stopped"


def test_what_the_launcher_makes_of_an_interrupt_is_one(case: Problem) -> None:
    (case.folder / "program.py").write_text(STOPPED_TOGETHER)
    with Launch(2, [sys.executable, "program.py"], cwd=case.folder) as running:
        case.wait_until(running, lambda status: status["n_evaluations"] > 20)
        for pid in running.ranks():
            os.kill(pid, signal.SIGTERM)
        running.wait(20)
    assert (case.folder / "caught").read_text() == f"the run is saved in {case.out}\n" * 2
