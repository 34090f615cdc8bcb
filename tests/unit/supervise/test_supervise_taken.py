"""Whose run it is after a launch: a host that was cut off may come back, and a lock may be held by one that is gone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from osprey_mpi.config import load_config
from osprey_mpi.errors import EnvironmentFault, UsageError
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.status import RunStatus, State, write_status
from osprey_mpi.supervise import supervisor
from osprey_mpi.supervise.lines import Kind, Launcher
from osprey_mpi.supervise.restart import RestartPolicy
from osprey_mpi.supervise.supervisor import LaunchSpec, Supervisor, evaluations_done

CONFIG = """\
name: case
objective: {builtin: sphere}
parameters: {x: {type: real, low: -1, high: 1}}
budget: {evaluations: 8}
"""
ELSEWHERE = {"host": "elsewhere", "pid": 1, "life": 2, "launch": "another", "started_unix_s": 1.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run whose root was on another host a moment ago."""
    (tmp_path / "case.yaml").write_text(CONFIG)
    RunFolder.create(tmp_path / "run", load_config(tmp_path / "case.yaml")).close()
    write_status(tmp_path / "run", RunStatus(State.RUNNING, life=1, host="elsewhere", updated_unix_s=time.time()))
    (tmp_path / "run" / ".lock").write_text(json.dumps({**ELSEWHERE, "life": 1}))
    return tmp_path / "run"


def supervise(run: Path, script: str, said: list[str]) -> tuple[int, bytes]:
    """Resume the run twice at most, under a launcher that is this script."""
    mpirun = run.parent / "mpirun"
    mpirun.write_text(f"#!/bin/sh\n{script}\n")
    mpirun.chmod(0o755)
    again = ("resume", str(run))
    spec = LaunchSpec(run, again, again, 2)
    return Supervisor(spec, Launcher(Kind.MPICH, str(mpirun)), RestartPolicy(2), said.append).run(os.environ)


def test_a_run_whose_root_was_on_a_host_that_is_gone_goes_on(run: Path) -> None:
    """Its status is a moment old, but its lock is free: who wrote it could write no more."""
    assert evaluations_done(run, {}) == 0
    said: list[str] = []
    assert supervise(run, "exit 0", said)[0] == 75
    assert "launch 1 was lost" in said[0] and "launch 2 of at most 2" in said[1]


def test_a_run_that_is_over_by_run_json_alone_is_not_started_again(run: Path) -> None:
    """The disk took no status.json at the end."""
    with RunFolder.open(run) as folder:
        folder.begin_life(2)
        folder.end_life(0, "evaluations", 0)
    said: list[str] = []
    assert supervise(run, "echo the result", said) == (0, b"the result\n") and said == []


def test_a_run_that_another_launch_has_taken_is_left_to_it(run: Path) -> None:
    taken = json.dumps({**ELSEWHERE, "launch": "newer"})
    with pytest.raises(EnvironmentFault, match=r"process 1 on elsewhere \(life 2\) has taken .*/run over: leaving it"):
        supervise(run, f"echo '{taken}' > '{run}/.lock'", [])
    ours = f"""echo '{{"launch": "'$OSPREY_LAUNCH'"}}' > '{run}/.lock'"""
    assert supervise(run, ours, [])[0] == 75, "our own ranks, in any life"
    by_hand = f"""echo '{{"launch": ""}}' > '{run}/.lock'"""
    assert supervise(run, by_hand, [])[0] == 75, "a mark that did not travel says nothing"


def test_in_a_requeued_job_the_lock_of_the_lost_host_is_waited_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LEASE_S", 0.2)
    with RunFolder.open(run):
        for environ, least_s in (({}, 0.0), ({"SLURM_RESTART_COUNT": "0"}, 0.0), ({"SLURM_RESTART_COUNT": "1"}, 0.2)):
            began = time.monotonic()
            with pytest.raises(UsageError, match="in use by process"):
                evaluations_done(run, environ)
            assert least_s <= time.monotonic() - began < least_s + 2.0
    assert evaluations_done(run, {"SLURM_RESTART_COUNT": "1"}) == 0
