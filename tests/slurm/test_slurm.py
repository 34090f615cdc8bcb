"""One `sbatch` gives the complete result, whatever becomes of nodes and however often the time is up.

Each job asks for three of the four nodes. What is checked: every evaluation of the budget is in results.h5, and once.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import pytest
from cluster import Cluster

from osprey_mpi.processes import environments

SCRIPT = Path(__file__).parents[2] / "jobs" / "slurm.sbatch"
SLOW = "import time\ndef f(p):\n    time.sleep({seconds})\n    return (p['x'] - 0.3) ** 2 + p['n']"
CONFIG = """\
name: case
seed: 5
objective: {{python: "case:f"}}
parameters:
  x: {{type: real, low: -1, high: 1}}
  n: {{type: integer, low: 1, high: 9}}
budget: {{evaluations: {n}}}
checkpoint: {{interval: 1}}
"""
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")

# Slurm declares a node down some 15 s after its last sign of life (slurm.conf in cluster.py), and may requeue the job.
SILENT_S = 120.0

pytestmark = [pytest.mark.launch, pytest.mark.slow]


class Job:
    """Hold one job: `jobs/slurm.sbatch` on an objective that sleeps."""

    def __init__(self, cluster: Cluster, folder: Path, n: int, seconds: float, *options: str, **values: str) -> None:
        self.cluster, self.folder, self.n = cluster, folder, n
        (folder / "case.py").write_text(SLOW.format(seconds=seconds))
        (folder / "case.yaml").write_text(CONFIG.format(n=n))
        cluster.wait_until_idle()
        # TMPDIR: process ids begin anew on each node, and launchers name folders by them.
        environment = {"VENV": sys.prefix, "RUNS": str(folder), "WATCH_S": "1", "TMPDIR": "/dev/shm", **values}
        self.log = folder / "job.out"
        sbatch = ["sbatch", "--parsable", "--nodes=3", "--ntasks-per-node=2", "-D", folder, "-o", self.log, *options]
        self.id = cluster.run(*sbatch, SCRIPT, "case.yaml", environment=environment).strip()
        self.out = folder / f"case-{self.id}"

    def status(self) -> dict[str, Any]:
        """Return status.json, {} before there is one."""
        path = self.out / "status.json"
        value = json.loads(path.read_text("utf-8")) if path.exists() else {}
        assert isinstance(value, dict)
        return value

    def facts(self) -> dict[str, str]:
        """Return what Slurm knows of the job."""
        words = self.cluster.run("scontrol", "show", "job", self.id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, n_evaluations: int, timeout_s: float = 40.0) -> None:
        """Wait until so many evaluations are on disk."""
        deadline = time.monotonic() + timeout_s
        while self.status().get("n_evaluations", 0) < n_evaluations:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.1)

    def wait(self, timeout_s: float) -> dict[str, str]:
        """Wait for the end of the job and return what Slurm knows of it."""
        deadline = time.monotonic() + timeout_s
        while (facts := self.facts())["JobState"] not in ENDED:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.3)
        return facts

    def told(self) -> str:
        """Return all that tells why a job is not where it should be."""
        output = self.log.read_text() if self.log.exists() else ""
        return f"{self.facts()}\n{self.status()}\n{output}\n{self.cluster.logs()}"

    def wait_for_the_last_process(self, timeout_s: float) -> None:
        """Wait until neither a rank of the job nor its `osprey launch` lives on any node."""
        deadline = time.monotonic() + timeout_s
        while left := [pid for pid, environment in environments() if self._is_ours(pid, environment)]:
            assert time.monotonic() < deadline, (left, self.told())
            time.sleep(0.1)

    def _is_ours(self, pid: int, environment: dict[str, str]) -> bool:
        if environment.get("RUNS") != str(self.folder):
            return False
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            return "osprey_mpi" in words or any(Path(word).name == "osprey" for word in words if word)
        return False

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the size and the time of the last change of each file of the run but the ranks' logs."""
        paths = (path for path in self.out.rglob("*") if path.is_file() and path.parent.name != "logs")
        facts = {path: path.stat() for path in paths}
        return {str(path): (fact.st_size, fact.st_mtime_ns) for path, fact in facts.items()}

    def assert_complete(self) -> None:
        """Assert that the result holds each evaluation of the budget once."""
        with h5py.File(self.out / "results.h5") as file:
            ids, status = file["evaluations/evaluation"][()], file["evaluations/status"][()]
        assert sorted(ids.tolist()) == list(range(self.n)) and not status.any()
        shown = self.status()
        assert (shown["state"], shown["exit_code"], shown["n_evaluations"]) == ("done", 0, self.n)


def test_a_job_runs_to_its_end(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 200, 0.02, LAUNCHER="openmpi")
    facts = job.wait(60)
    assert (facts["JobState"], facts["ExitCode"], facts["Restarts"]) == ("COMPLETED", "0:0", "0"), job.told()
    job.assert_complete()
    assert (job.status()["life"], job.status()["n_ranks"]) == (1, 6)


@pytest.mark.parametrize("launcher", ["openmpi", "srun"])
def test_a_lost_node_is_left_out(cluster: Cluster, tmp_path: Path, launcher: str) -> None:
    job = Job(cluster, tmp_path, 500, 0.05, LAUNCHER=launcher)
    job.wait_for(100)
    cluster.kill("n2")
    facts = job.wait(80)
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "0"), job.told()
    job.assert_complete()
    assert (job.status()["life"], job.status()["n_ranks"]) == (2, 4), "on what is left, without another allocation"
    assert "no answer from n2: the next launch is 4 ranks on n1,n3" in job.log.read_text()


def test_without_its_first_node_the_job_is_requeued(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 500, 0.05, LAUNCHER="openmpi")
    job.wait_for(100)
    cluster.kill("n1")
    facts = job.wait(100)
    assert (facts["JobState"], facts["Restarts"], facts["BatchHost"]) == ("COMPLETED", "1", "n2"), job.told()
    job.assert_complete()
    assert (job.status()["life"], job.status()["n_ranks"]) == (2, 6)


# n1 has the root and the batch script: off the network it goes on for a while, without knowing that it is alone.
@pytest.mark.parametrize(("kind", "node"), [("power", "n2"), ("network", "n2"), ("network", "n1")])
def test_a_node_falls_silent(cluster: Cluster, tmp_path: Path, kind: str, node: str, cut: int) -> None:
    """No connection is closed, as when a host or a switch loses its power. cut: seeds the moment."""
    job = Job(cluster, tmp_path, 500, 0.05, LAUNCHER="openmpi")
    job.wait_for(random.Random(cut).randrange(10, 300))
    if kind == "power":
        cluster.cut_power(node)
    else:
        cluster.set_link(node, "down")
    facts = job.wait(SILENT_S)
    job.assert_complete()
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", str(int(node == "n1"))), job.told()
    if kind == "power":
        return
    before = job.files()
    cluster.set_link(node, "up")
    job.wait_for_the_last_process(60.0)
    cluster.kill(node)  # Slurm looks seldom for a node that is down: the next test gets another
    assert job.files() == before, "who comes back writes nothing"


def test_the_time_limit_is_reached_twice(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, 1500, 0.2, "--time=1", "--signal=B:USR1@40", LAUNCHER="openmpi")
    facts = job.wait(200)  # 20 to 30 s of each minute are left before the signal, which is 500 to 700 evaluations
    assert facts["JobState"] == "COMPLETED" and int(facts["Restarts"]) >= 2, job.told()
    job.assert_complete()
    assert job.status()["life"] == int(facts["Restarts"]) + 1
