"""Limits of the operating system end in one sentence, not in a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from osprey_mpi.comm.startup import World
from osprey_mpi.drivers.agree import everywhere, on_root
from osprey_mpi.drivers.limits import limits_named
from osprey_mpi.drivers.logs import close_log, open_log
from osprey_mpi.errors import EnvironmentFault, ExitCode

ALONE = World(None, 0, (0,), "none", "none", owns_mpi=False)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EMFILE, "?"), "Too many open files (errno 24); raise the limit on open files (ulimit -n)"),
        (OSError(errno.EFBIG, "?", "/a b"), "File too large (errno 27) at /a b; raise the limit on the size of files"),
        (OSError(errno.EAGAIN, "?"), "raise the limit on processes (ulimit -u)"),
        (MemoryError(), "Cannot allocate memory (errno 12); raise the limit on memory"),
    ],
)
def test_a_limit_is_a_fault_of_the_environment(error: Exception, text: str) -> None:
    def meet() -> None:
        raise error

    for agree in (everywhere, on_root):
        with pytest.raises(EnvironmentFault) as caught:
            agree(ALONE, meet)
        assert text in str(caught.value) and caught.value.is_agreed


def test_what_is_no_limit_passes() -> None:
    with pytest.raises(FileNotFoundError), limits_named():
        Path("no such file").read_bytes()


@pytest.mark.parametrize("limit", ["n 12", "f 4"])
def test_a_run_under_a_limit(tmp_path: Path, limit: str) -> None:
    (tmp_path / "case.py").write_text("def f(p):\n    return p['x']")
    (tmp_path / "case.yaml").write_text(
        "name: c\nobjective: {python: 'case:f'}\nparameters: {x: {type: real, low: 0, high: 1}}\n"
        "budget: {evaluations: 3}\n"
    )
    command = ["bash", "-c", f"ulimit -{limit}; exec {sys.executable} -m osprey_mpi run case.yaml --out out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (ExitCode.ENVIRONMENT, "", 1), done
    assert done.stderr.startswith("osprey: this machine does not give what the run needs: ")
    assert f"ulimit -{limit[0]}" in done.stderr and not (tmp_path / "out").exists()


def test_a_log_on_a_full_disk_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(Path("/dev/full"), 0, 1)
    log.info("more")
    close_log(log)
    text = f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
    assert capsys.readouterr().err == f"osprey: /dev/full is not whole: {text}\n"
