"""An objective whose import does not end: a signal ends the launch with a sentence, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from launch import Launch, osprey
from problem import BASE, Problem

pytestmark = pytest.mark.launch

ENDLESS = "open('importing', 'a').write('!')\nwhile True: pass"
SENTENCE = "osprey: stopped by signal {} while module case was being imported: nothing has begun, start it again\n"


def wait_for_imports(case: Problem, running: Launch, n: int) -> None:
    """Wait until so many processes are in the import."""
    deadline = time.monotonic() + 30.0
    while not (case.folder / "importing").exists() or (case.folder / "importing").stat().st_size < n:
        assert running.is_running and time.monotonic() < deadline, running.stderr
        time.sleep(0.02)


@pytest.mark.parametrize("isolation", ["process", "thread"])
@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_stops_an_endless_import(isolation: str, name: str, case: Problem) -> None:
    case.write(ENDLESS, BASE.replace('"case:f"', f'"case:f", isolation: {isolation}'))
    with case.start(1) as running:
        wait_for_imports(case, running, 1)
        os.kill(running.pid, signal.Signals[f"SIG{name}"])
        done = running.wait(10)
        assert (done.rc, done.stdout, done.stderr) == (75, "", SENTENCE.format(name))
        assert running.is_gone(1.0) and not case.out.exists()


def test_a_signal_to_the_launcher_stops_it_on_all_ranks(case: Problem) -> None:
    case.write(ENDLESS)
    with case.start(2) as running:
        wait_for_imports(case, running, 2)
        os.kill(running.pid, signal.SIGUSR1)
        done = running.wait(20)
        assert done.rc == 75 and done.stderr.count("osprey: ") == 1, done
        assert SENTENCE.format("USR1") in done.stderr and running.is_gone() and not case.out.exists()


def test_a_signal_to_one_rank_stops_all(case: Problem) -> None:
    """The others are in an import that never ends: they are not waited for."""
    case.write(ENDLESS)
    with case.start(2) as running:
        wait_for_imports(case, running, 2)
        os.kill(running.ranks()[1], signal.SIGUSR1)
        done = running.wait(30)
        assert done.rc != 0 and "stopped by signal USR1 while module case was being imported" in done.stderr, done
        assert "Traceback" not in done.stderr and running.is_gone() and not case.out.exists()


@pytest.mark.parametrize(
    ("code", "doing"),
    [
        (ENDLESS, "while module case was being imported"),
        ("def f(p):\n    open('importing', 'a').write('!')\n    while True: pass", "while evaluation 0 was tried"),
    ],
)
def test_a_signal_stops_a_trial(code: str, doing: str, case: Problem) -> None:
    case.write(code)
    with Launch(1, osprey("validate", "case.yaml", "--try"), cwd=case.folder) as running:
        wait_for_imports(case, running, 1)
        os.kill(running.pid, signal.SIGTERM)
        done = running.wait(10)
        assert (done.rc, done.stdout, done.stderr) == (75, "", f"osprey: stopped by signal TERM {doing}\n")
        assert running.is_gone(1.0)


NOTED = """\
from osprey_mpi.drivers import importing
importing.NOTE_S = 0.5
from osprey_mpi.cli import main
main(["run", "case.yaml", "--out", "out"])
"""


def test_an_import_that_takes_long_is_named_once(case: Problem) -> None:
    case.write("import time\ntime.sleep(2)\ndef f(p): return p['x']")
    (case.folder / "noted.py").write_text(NOTED)
    with Launch(1, [sys.executable, "noted.py"], cwd=case.folder) as running:
        done = running.wait(20)
    assert done.rc == 0
    assert done.stderr.splitlines()[0] == "osprey: importing case has taken 0.5 s; a signal (Ctrl-C) stops it"
    assert done.stderr.count("importing") == 1


PROGRAM = """\
import osprey_mpi
try:
    osprey_mpi.minimize("case:f", {"x": {"type": "real", "low": 0, "high": 1}}, budget={"evaluations": 5}, out="out")
except KeyboardInterrupt as stop:
    print(stop)
"""


def test_for_a_python_program_it_is_a_keyboard_interrupt(case: Problem) -> None:
    case.write(ENDLESS)
    (case.folder / "program.py").write_text(PROGRAM)
    with Launch(1, [sys.executable, "program.py"], cwd=case.folder) as running:
        wait_for_imports(case, running, 1)
        os.kill(running.pid, signal.SIGINT)
        done = running.wait(10)
    assert (done.rc, f"osprey: {done.stdout}", done.stderr) == (0, SENTENCE.format("INT"), "")
