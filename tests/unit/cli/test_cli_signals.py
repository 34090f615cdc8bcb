"""A signal that comes while Python still imports: nothing of it is lost, and nobody sees a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Python runs a module named so first. The import of typer, the first that takes long, takes its time.
SLOW_IMPORT = """\
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            open("{seen}", "w").close()
            time.sleep(1.0)
sys.meta_path.insert(0, Slow())
"""


def interrupted(
    tmp_path: Path, number: int, *arguments: object, hangup: signal.Handlers = signal.SIG_DFL
) -> subprocess.CompletedProcess[str]:
    """Run the command line, and send it a signal while it imports."""
    seen = tmp_path / "importing"
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(seen=seen))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def dispose() -> None:  # tests in the background have them ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, hangup)

    process = subprocess.Popen(
        [sys.executable, "-m", "osprey_mpi", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        preexec_fn=dispose,
    )  # fmt: skip
    deadline = time.monotonic() + 30.0
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_run_that_is_asked_to_stop_while_python_imports_says_so(
    number: int, tmp_path: Path, config_file: Path
) -> None:
    done = interrupted(tmp_path, number, "run", config_file, "--out", "out", "--set", "budget.evaluations=100000000")
    name = signal.Signals(number).name.removeprefix("SIG")
    assert (done.returncode, done.stdout) == (75, ""), done
    assert done.stderr.startswith(f"osprey: stopped by signal {name} while ") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("nothing has begun, start it again\n") and not (tmp_path / "out").exists()


def test_under_nohup_a_terminal_may_be_closed(tmp_path: Path, config_file: Path) -> None:
    """From the first import to the end of the run: its ignored signal stays ignored."""
    arguments = "run", config_file, "--out", "out", "--format", "json"
    done = interrupted(tmp_path, signal.SIGHUP, *arguments, hangup=signal.SIG_IGN)
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (0, "evaluations"), done


@pytest.mark.parametrize("arguments", [("validate",), ("run", "--dry-run")])
def test_what_saves_nothing_ends_at_once(arguments: tuple[str, ...], tmp_path: Path, config_file: Path) -> None:
    done = interrupted(tmp_path, signal.SIGINT, *arguments, config_file)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "osprey: interrupted\n")
