"""How a rank knows what becomes of the others when one is lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from osprey_mpi.comm.launcher import fault_tolerance
from osprey_mpi.processes import is_running, launcher_words, started_at


@pytest.mark.parametrize(
    ("line", "environ", "mode"),
    [
        ("mpirun -n 4 osprey run c.yaml", {}, "none"),
        ("mpirun --enable-recovery -n 4 osprey run c.yaml", {}, "heartbeats"),
        ("orterun -enable-recovery -np 4 osprey run c.yaml", {}, "heartbeats"),
        ("prterun --continuous -n 4 osprey run c.yaml", {}, "heartbeats"),
        ("prterun --runtime-options recoverable,error-nonzero-status=0 -n 4 osprey run c.yaml", {}, "heartbeats"),
        ("mpirun --runtime-options error-nonzero-status=0 -n 4 osprey run c.yaml", {}, "none"),
        ("", {"OSPREY_FAULT_TOLERANCE": "heartbeats"}, "heartbeats"),
        ("", {"OSPREY_FAULT_TOLERANCE": "none"}, "none"),
        ("mpirun --with-ft ulfm --enable-recovery -n 4 osprey", {"OMPI_MCA_mpi_ft_enable": "1"}, "ulfm"),
    ],
)
def test_fault_tolerance_is_what_the_launcher_was_told(line: str, environ: dict[str, str], mode: str) -> None:
    assert fault_tolerance("Open MPI v5.0.11", environ, line.split()) == mode
    assert fault_tolerance("MPICH Version: 5.0.2", environ, line.split()) == "none"


def test_the_launcher_is_found_above_a_shell() -> None:
    """`exec -a` gives a program the name of another one."""
    python = sys.executable
    ask = f"{python} -c 'import os; from osprey_mpi.processes import launcher_words as w; print(w(os.getppid()))'; true"
    inner = f"exec -a /opt/bin/prterun {python} -c 'import subprocess, sys; subprocess.run(sys.argv[-1], shell=True)' "
    done = subprocess.run(
        ["bash", "-c", f'{inner} --enable-recovery -n 2 "$0"', ask], capture_output=True, text=True, check=True
    )
    assert "'/opt/bin/prterun'" in done.stdout and "'--enable-recovery', '-n', '2'" in done.stdout
    assert launcher_words(1) == []


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    mine = started_at(os.getpid())
    assert mine > 0 and is_running(os.getpid(), mine) and not is_running(os.getpid(), mine - 1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    since = started_at(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid, since) and started_at(child.pid) == -1, "it has ended, and nobody has taken notice"
    child.wait()
    assert not is_running(child.pid, since) and is_running(child.pid, -1)
