"""What is left of a Slurm allocation, and the launches on it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from osprey_mpi.supervise import slurm
from osprey_mpi.supervise.lines import Kind, Launcher
from osprey_mpi.supervise.slurm import Allocation, Hosts, dead_nodes, expand, tasks_per_node

JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NODELIST": "n[1-3]", "SLURM_NTASKS": "10",
    "SLURM_NPROCS": "10", "SLURM_NNODES": "3", "SLURM_JOB_NUM_NODES": "3", "SLURM_TASKS_PER_NODE": "4(x2),2",
    "SLURM_NTASKS_PER_NODE": "4", "HOME": "/root",
}  # fmt: skip
LEFT = Hosts({"n1": 4, "n3": 2})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],gpu1", ["n08", "n09", "n10", "n12", "gpu1"]),
        ("rack[1-2]n[1,3]-ib", ["rack1n1-ib", "rack1n3-ib", "rack2n1-ib", "rack2n3-ib"]),
        ("n[x-y]", ["n[x-y]"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert expand(text) == names


def test_tasks_per_node() -> None:
    assert tasks_per_node("16(x2),8") == [16, 16, 8]
    assert tasks_per_node("2") == [2]
    assert tasks_per_node("") == tasks_per_node("16(x2") == []


def test_states_in_which_a_node_runs_no_ranks() -> None:
    states = "n1 allocated\nn2 down*\nn3 mixed*\nn4 draining\nn5 down\nn6 unknown\nn7 failing\nn8 allocated\n"
    assert dead_nodes(states) == {"n2", "n3", "n5", "n6"}
    assert dead_nodes("") == set()


def test_ranks_go_with_their_nodes() -> None:
    whole = Hosts({"n1": 4, "n2": 4, "n3": 2})
    assert (whole.n_ranks, str(whole)) == (10, "n1:4,n2:4,n3:2")
    assert whole.on(["n1", "n3"], None) == LEFT
    assert whole.on(["n1", "n3"], 5) == Hosts({"n1": 2, "n3": 1}), "three of the five asked for"
    assert whole.on(["n3"], 1) == Hosts({"n3": 1}), "never less than one"
    assert whole.shared(1) == Hosts({"n1": 1})


def test_lines_and_environment_name_what_is_left_alone() -> None:
    lines = {
        Kind.OPEN_MPI: ["x", "-n", "6", "--host", "n1:4,n3:2", "osprey"],
        Kind.MPICH: ["x", "-n", "6", "-hosts", "n1:4,n3:2", "osprey"],
        Kind.SRUN: ["x", "-n", "6", "--nodes=2", "--nodelist=n1,n3", "--overlap", "--kill-on-bad-exit=1", "osprey"],
    }
    for kind, line in lines.items():
        assert Launcher(kind, "x").line(10, ["osprey"], LEFT) == line
    assert Launcher(Kind.MPICH, "x").environment(JOB, 10, 2, LEFT) == {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n3", "SLURM_NODELIST": "n1,n3", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "4,2", "SLURM_OVERLAP": "1", "HOME": "/root",
    }  # fmt: skip


def slurm_says(monkeypatch: pytest.MonkeyPatch, queue: str | None, states: str | None) -> list[list[str]]:
    """Answer for squeue and sinfo; return the list of what was asked."""
    asked: list[list[str]] = []

    def output(command: list[str], limit_s: float) -> str | None:
        asked.append(command)
        return queue if command[0] == "squeue" else states

    monkeypatch.setattr(slurm, "output", output)
    return asked


def calls_are_answered(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Be srun."""
    program = folder / "srun"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(slurm, "beside_python", lambda name: str(folder / name))


def test_slurm_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    allocation = Allocation(JOB, None, said.append)
    asked = slurm_says(monkeypatch, "n[1-3]\n", "n1 allocated\nn2 allocated\nn3 allocated\n")
    assert allocation.left(call=False) is None and not said
    assert asked[1] == ["sinfo", "-h", "-N", "-n", "n1,n2,n3", "-o", "%N %T"]
    slurm_says(monkeypatch, "n[1-3]\n", "n1 allocated\nn2 down*\nn3 allocated\n")
    assert allocation.left(call=False) == LEFT
    slurm_says(monkeypatch, "n[1,3]\n", "n1 allocated\nn3 allocated\n")
    assert allocation.left(call=False) == LEFT
    assert said == ["no answer from n2: the next launch is 6 ranks on n1,n3"] * 2
    slurm_says(monkeypatch, None, None)
    assert allocation.left(call=False) is None, "a Slurm that is silent says nothing of the nodes"


def test_nodes_that_do_not_answer_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slurm_says(monkeypatch, "n[1-3]\n", "n1 allocated\nn2 allocated\nn3 allocated\n")
    monkeypatch.setattr(slurm, "QUIET_S", 0.3)
    monkeypatch.setattr(slurm, "_END_S", 0.1)
    allocation = Allocation(JOB, None, lambda text: None)
    calls_are_answered(monkeypatch, tmp_path, "echo n3; echo n1; trap '' TERM; while :; do sleep 0.1; done")
    began = time.monotonic()
    assert allocation.left(call=True) == LEFT
    assert time.monotonic() - began < 10.0, "a step that waits for a lost node is ended"
    calls_are_answered(monkeypatch, tmp_path, "echo n1; echo n2; echo n3")
    assert allocation.left(call=True) is None
    calls_are_answered(monkeypatch, tmp_path, "exit 1")
    assert allocation.left(call=True) is None, "where nobody answers it is the call that failed"
