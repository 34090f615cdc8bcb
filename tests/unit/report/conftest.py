"""A small run on disk whose every figure can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.records import RECORD, Status, reasons_of
from osprey_mpi.search.space import Space
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.segment import Segment

MAPPING = {
    "name": "reported",
    "objective": {"python": "model:loss"},
    "parameters": {
        "x": {"type": "real", "low": 0, "high": 1, "size": 2},
        "n": {"type": "integer", "low": 1, "high": 9},
        "opt": {"type": "categorical", "choices": ["adam", 'a "quoted", ß']},
        "on": {"type": "categorical", "choices": [True, False]},
        "degree": {"type": "integer", "low": 2, "high": 5, "when": {"opt": "adam"}},
    },
    "budget": {"evaluations": 6},
}
N = np.nan
#        id  cost  start end  rank flock attempt status
ROWS = [
    (0, 5.0, 0.0, 2.0, 1, 0, 0, Status.OK),
    (1, 4.0, 0.0, 1.0, 2, 0, 0, Status.OK),
    (2, N, 1.0, 3.0, 2, 0, 0, Status.FAILED),
    (3, N, 2.0, 4.0, 1, 0, 0, Status.TIMEOUT),
    (4, N, 3.0, 4.0, 2, 0, 0, Status.LOST),
    (5, 9.0, 3.0, 4.0, 3, 1, 0, Status.STOPPED),
    (6, N, 3.0, 4.0, 3, 1, 0, Status.CANCELLED),
]
SECOND_LIFE = [(4, 1.0, 100.0, 102.0, 1, 0, 1, Status.OK)]
REASONS = {
    2: "ValueError: ß is bad\n  File \"user.py\", line 7, in f",
    3: "over the time limit of 2 s",
    4: "its worker was lost",
    5: "stopped early at step 3 with 9.0",
    6: "cut off because the run stopped",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    config = config_from_mapping(MAPPING)
    space = Space(config.parameters)
    folder = RunFolder.create(tmp_path / "run", config)
    for life, rows in ((1, ROWS), (2, SECOND_LIFE)):
        if life == 2:
            folder.close()
            folder = RunFolder.open(tmp_path / "run")
        folder.begin_life(4, ["h"], "MPI x")
        records = np.zeros(len(rows), RECORD)
        names = ("id", "cost", "t_start_s", "t_end_s", "rank", "flock", "attempt", "status")
        for record, row in zip(records, rows, strict=True):
            for name, value in zip(names, row, strict=True):
                record[name] = value
        ids = records["id"].astype(float)
        odd = ids % 2
        values = np.stack((ids / 8, ids / 16, ids + 1, odd, odd, np.where(odd == 1, N, 2 + ids % 3)), axis=1)
        segment = Segment(folder.segment_path(1), space.columns, folder.life, 1)
        segment.append(records, values, None, reasons_of(REASONS if life == 1 else {}, records))
        if life == 2:
            folder.end_life(0)
    folder.close()
    return tmp_path / "run"
