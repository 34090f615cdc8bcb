"""The example configs of this part: they load, their objectives import, and one point of each has a cost."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from osprey_mpi.config import load_config
from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate import Outcome, Task, make_evaluator
from osprey_mpi.search.space import Space

CONFIGS = Path(__file__).parents[3] / "configs"
HOST = SimpleNamespace(
    xp=np, chunk_bytes=1 << 18, to_host=np.asarray, free=lambda: None, is_out_of_memory=lambda error: False
)


@pytest.mark.parametrize(
    ("name", "point", "low", "high"),
    [
        ("quickstart", {"x": [1.0] * 10}, 0.0, 0.0),
        ("digits_svm", {"kernel": "rbf", "C": 10.0, "gamma": 1e-3}, 0.01, 0.03),
        ("cartpole", {"weights": [0.1, 0.5, 0.5, 0.5]}, 0.0, 0.0),
        ("external_program", {"stiffness": 4.0, "damping": 0.3}, 1e-5, 1e-3),
    ],
)
def test_an_example_gives_the_cost_that_its_comments_promise(tmp_path, name, point, low, high):
    config = load_config(CONFIGS / f"{name}.yaml")
    space = Space(config.parameters, config.constraints)
    evaluator = make_evaluator(
        config, space, rank=0, clock=time.monotonic, record_all=True, device=HOST, scratch_root=tmp_path / "scratch"
    )  # fmt: skip
    try:
        evaluator.start()
        evaluator.check()
        evaluator.submit(Task(0, 1, 0, 1, -1, 0, space.encode(space.row(point)[None]), None))
        end_s, items = time.monotonic() + 30, []
        while not items and time.monotonic() < end_s:
            items = evaluator.poll()
            time.sleep(0.002)
    finally:
        evaluator.close()
    (outcome,) = items
    assert isinstance(outcome, Outcome)
    assert outcome.records["status"].tolist() == [Status.OK], outcome.reasons
    assert low <= outcome.costs[0] <= high
