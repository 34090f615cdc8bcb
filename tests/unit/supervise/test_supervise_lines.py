"""Command lines and environments of launches, and what a launch leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osprey_mpi.cli.launch import split_arguments
from osprey_mpi.config import load_config
from osprey_mpi.errors import EnvironmentFault, UsageError
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.supervise import lines
from osprey_mpi.supervise.leftovers import MARK, end_marked, marked
from osprey_mpi.supervise.lines import Kind, Launcher, find_launcher, kind_of
from osprey_mpi.supervise.supervisor import default_ranks, spec_of

CONFIG = """\
name: case
objective: {builtin: sphere}
parameters: {x: {type: real, low: -1, high: 1}}
budget: {evaluations: 8}
"""


def test_lines_of_all_kinds() -> None:
    command = ["python", "-m", "osprey_mpi"]
    assert Launcher(Kind.NONE).line(1, command) == command
    assert Launcher(Kind.OPEN_MPI, "mpirun").line(4, command) == ["mpirun", "-n", "4", *command]
    assert Launcher(Kind.OPEN_MPI, "mpirun", tolerant=True).line(4, command) == [
        "mpirun", "-n", "4", "--with-ft", "ulfm", *command,
    ]  # fmt: skip
    assert Launcher(Kind.MPICH, "mpirun", ("-f", "hosts")).line(4, command) == [
        "mpirun", "-n", "4", "-f", "hosts", *command,
    ]  # fmt: skip
    assert Launcher(Kind.SRUN, "srun", ("--mpi=pmix",)).line(None, command) == [
        "srun", "--kill-on-bad-exit=1", "--mpi=pmix", *command,
    ]  # fmt: skip


def test_open_mpi_takes_root_and_more_ranks_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(Kind.OPEN_MPI, "mpirun")
    policy = "PRTE_MCA_rmaps_default_mapping_policy"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert launcher.environment({"A": "1"}, 2, 2) == {"A": "1"}
    assert launcher.environment({"A": "1"}, 3, 2) == {"A": "1", policy: ":oversubscribe"}
    assert launcher.environment({policy: "mine"}, 3, 2) == {policy: "mine"}, "the user's own value wins"
    assert policy not in launcher.environment({"SLURM_JOB_ID": "7"}, 3, 2), "the allocation says what fits"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert launcher.environment({}, 1, 2)["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert Launcher(Kind.MPICH, "mpirun").environment({}, 9, 2) == {}


def _program(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_a_launcher_is_known_by_its_own_words(tmp_path: Path) -> None:
    assert kind_of(str(_program(tmp_path, "a", "mpirun (Open MPI) 5.0.11"))) is Kind.OPEN_MPI
    assert kind_of(str(_program(tmp_path, "b", "HYDRA build details:"))) is Kind.MPICH
    assert kind_of(str(_program(tmp_path, "c", "hello"))) is None
    assert kind_of(str(tmp_path / "none")) is None


def test_the_launcher_of_the_wanted_kind_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines.sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="there is no mpirun, mpiexec or srun beside"):
        find_launcher(None, (), 4)
    srun = _program(tmp_path, "srun", "slurm")
    assert find_launcher(None, ("-w", "n1"), 4) == Launcher(Kind.SRUN, str(srun), ("-w", "n1"))
    mpiexec = _program(tmp_path, "mpiexec", "HYDRA build details:")
    assert find_launcher(None, (), 4) == Launcher(Kind.MPICH, str(mpiexec))
    assert find_launcher(Kind.SRUN, (), 4).path == str(srun)
    with pytest.raises(EnvironmentFault, match="there is no mpirun of openmpi beside"):
        find_launcher(Kind.OPEN_MPI, (), 4)
    assert find_launcher(None, (), 1) == Launcher(Kind.NONE)
    assert find_launcher(Kind.NONE, (), 1) == Launcher(Kind.NONE)
    for arguments, n_ranks in (((), 4), (("-w", "n1"), 1)):
        with pytest.raises(UsageError, match="--launcher none starts one process"):
            find_launcher(Kind.NONE, arguments, n_ranks)


def test_arguments_are_split_as_a_shell_does() -> None:
    assert split_arguments("--host 'a b' -x") == ["--host", "a b", "-x"]
    with pytest.raises(UsageError, match="--launcher-args is \"'\", which a shell could not split: No closing"):
        split_arguments("'")


def test_default_ranks() -> None:
    assert default_ranks({"SLURM_JOB_ID": "7"}) is None
    assert default_ranks({}) == len(os.sched_getaffinity(0))


def test_orders(tmp_path: Path) -> None:
    config, out = tmp_path / "case.yaml", tmp_path / "out"
    config.write_text(CONFIG)
    spec = spec_of(config, None, out, 3, overrides=("seed=2",), options=("-q",), overwrite=True)
    assert spec.first == ("run", str(config), "--out", str(out), "--set", "seed=2", "--overwrite", "-q")
    assert (spec.folder, spec.resume, spec.n_ranks) == (out, ("resume", str(out), "-q"), 3)
    with pytest.raises(UsageError, match="either CONFIG, to start a run, or --resume DIR"):
        spec_of(None, None, None, 3, overrides=(), options=(), overwrite=False)
    with pytest.raises(UsageError, match="--overwrite does not go with --resume: the run has its folder"):
        spec_of(None, out, None, 3, overrides=(), options=(), overwrite=True)
    with pytest.raises(UsageError, match="does not exist"):
        spec_of(None, out, None, 3, overrides=(), options=(), overwrite=False)


def test_what_is_set_on_a_resume_is_set_in_each_launch(tmp_path: Path) -> None:
    """The first may be lost before the run has taken it over. What must not change is refused before any."""
    config, out = tmp_path / "case.yaml", tmp_path / "out"
    config.write_text(CONFIG)
    RunFolder.create(out, load_config(config)).close()
    spec = spec_of(None, out, None, 3, overrides=("continuity.cycle=2",), options=("-q",), overwrite=False)
    assert spec.first == spec.resume == ("resume", str(out), "--set", "continuity.cycle=2", "-q")
    with pytest.raises(UsageError, match="cannot be resumed with another config: seed: 0 -> 7; what may change is "):
        spec_of(None, out, None, 3, overrides=("seed=7",), options=(), overwrite=False)


def test_what_carries_the_mark_is_ended_and_nothing_else() -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(sleeper, env={**os.environ, MARK: "this-one"}, start_new_session=True)
    other = subprocess.Popen(sleeper, env={**os.environ, MARK: "this-one-not"}, start_new_session=True)
    try:
        deadline = time.monotonic() + 10.0
        while marked("this-one") != [ours.pid] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert end_marked("this-one") == 1
        assert ours.wait(10) == -9 and other.poll() is None
        assert end_marked("this-one") == 0
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()
