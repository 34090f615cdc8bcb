"""Objectives that need several ranks: one result per point, and an exception on any rank fails it on all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.evaluate import Task
from osprey_mpi.evaluate.context import Context, Silent
from osprey_mpi.evaluate.group import GroupEvaluator, Member
from osprey_mpi.evaluate.jobs import Jobs
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.search.space import Space

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
pytestmark = pytest.mark.launch

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
from osprey_mpi.config import config_from_mapping
from osprey_mpi.evaluate import Task, make_evaluator
from osprey_mpi.evaluate.group import Member, follow
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.search.space import Space

folder = Path(sys.argv[1])
comm = MPI.COMM_WORLD
config = config_from_mapping({
    "name": "t", "seed": 3, "objective": json.loads(sys.argv[2]), "budget": {"evaluations": 1},
    "parameters": {"x": {"type": "real", "low": 0, "high": 1}}}, base_dir=folder)
space = Space(config.parameters, config.constraints)
if comm.rank > 0:
    before_s = time.process_time()
    member = Member(config, Schema(space.layouts), comm.rank, folder, comm, None)
    member.load()
    follow(member)
    busy_s = time.process_time() - before_s
else:
    e = make_evaluator(config, space, rank=0, clock=time.monotonic, record_all=True, device=None,
                       scratch_root=folder, comm=comm)
    e.start()
    e.check()
    time.sleep(0.5)
    e.submit(Task(7, 5, 0, 5, -1, 0, np.array([[0.0], [0.25], [0.5], [0.75], [1.0]]), None))
    outcomes, progress = [], []
    while not e.idle:
        for item in e.poll():
            (outcomes if hasattr(item, "records") else progress).append(item)
    e.close()
    busy_s = 0.0
busy_s = comm.reduce(busy_s, MPI.MAX)
if comm.rank == 0:
    print(json.dumps({
        "costs": [c for o in outcomes for c in o.costs.tolist()],
        "status": [s for o in outcomes for s in o.records["status"].tolist()],
        "reasons": {k: v for o in outcomes for k, v in o.reasons.items()},
        "progress": [[p.id, p.step, p.value] for p in progress], "busy_s": busy_s}))
"""


def launch(folder: Path, source: str, n: int, **objective: object) -> dict:
    (folder / "user.py").write_text(source)
    (folder / "script.py").write_text(SCRIPT)
    environment = {
        **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip
    done = subprocess.run(
        [str(MPIRUN), "-n", str(n), sys.executable, str(folder / "script.py"), str(folder),
         json.dumps({"python": "user:f", "ranks": n, **objective})],
        capture_output=True, text=True, timeout=60, env=environment, cwd=folder.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
def test_a_group_works_on_each_point_together_and_fails_together(tmp_path):
    source = """
def f(p, context):
    comm = context.comm
    total = comm.allreduce(p["x"] * (comm.rank + 1))
    if comm.rank == 0:
        context.report(1, total)
    context.agree(not (comm.rank == 2 and p["x"] == 0.5))
    total = comm.allreduce(total) / comm.size
    if p["x"] == 0.75 and comm.rank == 1:
        raise ValueError("only here")
    if p["x"] == 1.0 and comm.rank == 0:
        return None
    return total if comm.rank == 0 else "ignored"
"""
    got = launch(tmp_path, source, 3)
    assert got["costs"][:2] == [0.0, 1.5] and got["status"] == [0, 0, 1, 1, 1]
    assert "rank 2 of the group did not agree to go on" in got["reasons"]["9"]
    assert got["reasons"]["10"].startswith("ValueError: only here\non rank 1 of the group's 3\n")
    assert got["reasons"]["11"] == "the returned cost is NoneType, but one real number is needed"
    assert got["progress"][:2] == [[7, 1, 0.0], [8, 1, 1.5]]
    assert got["busy_s"] < 0.4, "followers wait asleep"


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
def test_a_rank_that_failed_and_waits_for_its_group_says_so(tmp_path):
    source = """
import time
def f(p, context):
    if p["x"] == 0.5:
        if context.comm.rank == 1:
            raise ValueError("too big")
        time.sleep(6)
    return p["x"]
"""
    got = launch(tmp_path, source, 2)
    assert got["status"] == [0, 0, 1, 0, 0] and got["reasons"]["9"].startswith("ValueError: too big\n")
    said = "osprey: rank 1 failed and has waited 5 s for the others of its group (`context.agree` tells them): "
    assert got["stderr"].count(said + "ValueError: too big") == 1


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
def test_a_group_takes_batches(tmp_path):
    source = """
def f(p, context):
    return context.comm.allreduce(p["x"].sum()) + p["x"]
"""
    got = launch(tmp_path, source, 2, batch=3)
    assert got["costs"] == [1.5, 1.75, 2.0, 4.25, 4.5] and got["status"] == [0] * 5


@pytest.mark.parametrize("batch", [1, 3])
def test_points_that_break_the_configs_constraints_are_not_evaluated(tmp_path: Path, batch: int) -> None:
    seen: list[float] = []

    def f(parameters: dict[str, Any]) -> Any:
        seen.extend(np.atleast_1d(parameters["x"]).tolist())
        return parameters["x"] * 2

    config = config_from_mapping({
        "name": "t", "seed": 3, "objective": {"python": "user:f", "batch": batch}, "budget": {"evaluations": 1},
        "parameters": {"x": {"type": "real", "low": 0, "high": 1}}, "constraints": ["x <= 0.5"],
    }, base_dir=tmp_path)  # fmt: skip
    space = Space(config.parameters, config.constraints)
    member = Member(config, Schema(space.layouts), 0, tmp_path, None, f)
    jobs = Jobs(space, config.seed, lambda: 0.0, batch)
    evaluator = GroupEvaluator(member, jobs, lambda: 0.0, batch, 0)
    evaluator.check()
    evaluator.submit(Task(7, 4, 0, 4, -1, 0, np.array([[0.75], [0.25], [0.5], [1.0]]), None))
    outcomes: list[Any] = []
    while not evaluator.idle:
        outcomes += evaluator.poll()
    assert seen == [0.25, 0.5] and not any(outcome.reasons for outcome in outcomes)
    np.testing.assert_array_equal(np.concatenate([o.costs for o in outcomes]), [np.nan, 0.5, 1.0, np.nan])
    assert np.concatenate([o.violations for o in outcomes]).tolist() == [0.25, 0.0, 0.0, 0.5]
    assert np.concatenate([o.records["status"] for o in outcomes]).tolist() == [0, 0, 0, 0]


def test_agree_in_a_group_of_one(tmp_path):
    context = Context(0, 1, tmp_path, "name", Silent())
    context.agree(True)
    with pytest.raises(RuntimeError, match="rank 0 of the group did not agree"):
        context.agree(False)
