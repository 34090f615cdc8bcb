"""What the standard streams may be: closed, a pipe that nobody reads, a full device."""

from __future__ import annotations

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
    assert done.returncode == 0, done
    assert bool(done.stdout) is (">&-" not in closed.replace("2>&-", "")), done
    assert bool(done.stderr) is ("2>&-" not in closed), done
    status = read_status(tmp_path / "out")
    assert status is not None and status.counts["ok"] == 3


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
