"""What the standard streams may be: closed, a pipe that nobody reads, a full device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.storage.status import State, read_status


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_as_devnull(tmp_path: Path, closed: str) -> None:
    (tmp_path / "case.py").write_text("def f(p):\n    return p['x']")
    (tmp_path / "case.yaml").write_text(
        "name: c\nobjective: {python: 'case:f'}\nparameters: {x: {type: real, low: 0, high: 1}}\n"
        "budget: {evaluations: 3}\n"
    )
    command = f"{sys.executable} -m osprey_mpi run case.yaml --out out {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    is_lost = ">&-" in closed.replace("2>&-", "")  # the result, which is no success
    assert done.returncode == (4 if is_lost else 0), done
    assert bool(done.stdout) is not is_lost, done
    assert bool(done.stderr) is ("2>&-" not in closed), done
    assert ("the output cannot be written to stdout: it is closed; `osprey report" in done.stderr) is (closed == ">&-")
    status = read_status(tmp_path / "out")
    assert status is not None and status.counts["ok"] == 3


LOUD = """
import atexit, ctypes, os, subprocess, sys, threading
libc = ctypes.CDLL(None)
libc.puts(b"import")
def f(p):
    print("printed")
    os.system("echo system")
    os.write(1, b"written\\n")
    sys.__stdout__.write("underscored ")
    libc.printf(b"buffered ")
    subprocess.Popen(["sh", "-c", "sleep 0.1; echo late"])
    atexit.register(os.write, 1, b"exit\\n")
    return p["x"]
"""
SAID = ["import", "printed", "system", "written", "underscored", "buffered", "late", "exit"]


@pytest.mark.parametrize(
    "verb, where",
    [
        ("run", "isolation: thread"), ("run", "isolation: none, batch: 3"), ("run --dry-run", "isolation: thread"),
        ("validate", "isolation: thread"), ("validate --try", "isolation: thread"),
    ],
)  # fmt: skip
def test_stdout_holds_the_result_alone_whatever_writes_to_its_descriptor(tmp_path: Path, verb: str, where: str) -> None:
    """Programs and C code of an objective in the rank itself, in its buffers and at its end."""
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "loud.yaml").write_text(
        f"name: loud\nobjective: {{python: 'loud:f', {where}}}\nparameters: {{x: {{type: real, low: 0, high: 1}}}}\n"
        "budget: {evaluations: 3}\n"
    )
    command = [sys.executable, "-m", "osprey_mpi", *verb.split(), "loud.yaml", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)
    said = SAID if verb in ("run", "validate --try") else ["import"]
    assert [word for word in SAID if word in done.stderr] == said, done.stderr


def test_a_result_that_cannot_be_printed(tmp_path: Path, config_file: Path) -> None:
    """Nobody reading is no failure; a full device is one: what was to read the result has none."""
    command = [sys.executable, "-m", "osprey_mpi", "run", str(config_file), "-q", "--out"]
    options: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "check": False}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*command, "piped"], stdout=writer, **options)
    os.close(writer)
    hint = f"`osprey report {tmp_path / 'piped'}` shows the result\n"
    assert (done.returncode, done.stderr) == (0, f"osprey: nobody reads stdout any more; {hint}")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, "full"], stdout=full, **options)
    assert done.returncode == 4 and "cannot be written to stdout: No space left on device" in done.stderr
    for name, code in (("piped", 0), ("full", 4)):
        status = read_status(tmp_path / name)
        assert status is not None and (status.state, status.exit_code) == (State.DONE, code)
        assert (tmp_path / name / "results.h5").is_file()
