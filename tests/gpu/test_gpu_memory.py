"""A GPU whose memory runs out, is shared by ranks, or is cut into pieces; and which GPU is which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config.parameters import RealParameter
from osprey_mpi.device import Backend
from osprey_mpi.device.inventory import read_in_child
from osprey_mpi.evaluate.task import Task

sys.path.insert(0, str(Path(__file__).parent))
from test_gpu_arrays import evaluator, outcome_of

BOX = {"x": RealParameter(low=0, high=1, size=4)}
ROOT = Path(__file__).parents[2]


def points(n: int) -> Any:
    return np.random.default_rng(0).random((n, 4))


@pytest.fixture
def limited(gpu: Backend) -> Any:
    """Leave 256 MiB of the pool to the test."""
    pool = gpu.xp.get_default_memory_pool()
    pool.set_limit(size=256 << 20)
    yield pool
    pool.set_limit(size=gpu.limit_bytes)


def test_every_third_call_takes_too_much(gpu: Backend, limited: Any) -> None:
    calls: list[int] = []

    def objective(parameters: dict[str, Any]) -> Any:
        calls.append(1)
        n_bytes = 1 << (40 if len(calls) % 5 in (3, 4) else 20)  # call 3 and its second try with half the batch
        room = gpu.xp.zeros(n_bytes, dtype=gpu.xp.uint8)
        return parameters["x"].sum(axis=1) + room[0]

    made = evaluator(BOX, gpu, batch=100, function=objective)
    n_failed = []
    for k in range(9):
        outcome = outcome_of(made, Task(100 * k, 100, 0, 100, -1, 0, points(100), None))
        n_failed.append(int(np.isnan(outcome.costs).sum()))
        assert all("out of memory" in reason.lower() for reason in outcome.reasons.values())
        assert limited.used_bytes() < 1 << 20
    assert n_failed[:2] == [0, 0] and 0 < n_failed[2] <= 100 and sum(n == 0 for n in n_failed) >= 6


def test_half_the_batch_fits(gpu: Backend, limited: Any) -> None:
    def objective(parameters: dict[str, Any]) -> Any:
        work = gpu.xp.zeros((parameters["x"].shape[0], 400 << 10), dtype=gpu.xp.uint8)  # 1000 points: 400 MB
        return parameters["x"].sum(axis=1) + work[:, 0]

    outcome = outcome_of(
        evaluator(BOX, gpu, batch=1000, function=objective), Task(0, 1000, 0, 1000, -1, 0, points(1000), None)
    )
    assert outcome.reasons == {} and np.isfinite(outcome.costs).all()


def test_a_pool_in_pieces_is_given_back_and_tried_again(gpu: Backend, limited: Any) -> None:
    sizes = iter([120, 90, 200, 60, 240] * 4)

    def objective(parameters: dict[str, Any]) -> Any:
        room = gpu.xp.zeros(next(sizes) << 20, dtype=gpu.xp.uint8)  # freed blocks of other sizes fill the limit
        return parameters["x"].sum(axis=1) + room[0]

    made = evaluator(BOX, gpu, batch=10, function=objective)
    for k in range(8):
        assert outcome_of(made, Task(10 * k, 10, 0, 10, -1, 0, points(10), None)).reasons == {}


RANK = """
import sys
from osprey_mpi.device import select
backend = select("cuda", int(sys.argv[1]), 4, 0.8)
xp = backend.xp
for _ in range(20):
    room = xp.zeros(int(backend.limit_bytes * 0.9), dtype=xp.uint8)
    assert int(room[-1]) == 0
    del room
    backend.free()
try:
    xp.zeros(int(backend.limit_bytes * 1.2), dtype=xp.uint8)
except Exception as error:
    assert backend.is_out_of_memory(error), repr(error)
    print(backend.index, backend.limit_bytes)
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def test_four_ranks_share_a_gpu(gpu: Backend) -> None:
    ranks = [run(RANK, str(rank), CUDA_VISIBLE_DEVICES="0", SLURM_GPUS_PER_TASK="") for rank in range(4)]
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4, [error for _, error in outputs]
    total_bytes = gpu.xp.cuda.runtime.memGetInfo()[1]
    limits = [int(output.split()[1]) for output, _ in outputs]
    assert {output.split()[0] for output, _ in outputs} == {"0"} and sum(limits) <= 0.8 * total_bytes


IDENTITY = """
import json, cupy
p = [cupy.cuda.runtime.getDeviceProperties(i)["uuid"].hex() for i in range(cupy.cuda.runtime.getDeviceCount())]
print(json.dumps(p))
"""


def test_nvml_and_cuda_agree_on_who_is_who(gpu: Backend) -> None:
    found = read_in_child()
    if not found.gpus or found.gpus[0].uuid is None or found.gpus[0].mig_mode:
        pytest.skip(f"NVML names no whole GPU here: {found.error or found.gpus[0].unknown}")
    seen = json.loads(run(IDENTITY).communicate(timeout=60)[0])
    by_nvml = {gpu.uuid.removeprefix("GPU-").replace("-", "") for gpu in found.gpus if gpu.uuid}
    assert seen and set(seen) <= by_nvml
    uuid = next(g.uuid for g in found.gpus if g.uuid and g.uuid.removeprefix("GPU-").replace("-", "") == seen[-1])
    alone = json.loads(run(IDENTITY, CUDA_VISIBLE_DEVICES=uuid[:16]).communicate(timeout=60)[0])
    assert alone == [seen[-1]]
    for gpu_facts in found.gpus:
        assert gpu_facts.memory_total_bytes is None or gpu_facts.memory_total_bytes > 1 << 30
