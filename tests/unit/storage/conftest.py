"""Rows and segments that storage tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.continuity.records import RECORD, Status
from osprey_mpi.search.columns import Column, Kind

MAPPING: dict[str, Any] = {
    "name": "stored",
    "seed": 7,
    "objective": {"python": "model:loss"},
    "parameters": {
        "x": {"type": "real", "low": 0, "high": 1, "size": 2},
        "n": {"type": "integer", "low": 1, "high": 9},
        "opt": {"type": "categorical", "choices": ["adam", "ß"]},
        "degree": {"type": "integer", "low": 2, "high": 5, "when": {"opt": "ß"}},
        "c": {"type": "fixed", "value": 3},
    },
    "budget": {"evaluations": 100},
}


@pytest.fixture
def config() -> Config:
    return config_from_mapping(MAPPING)


@pytest.fixture
def columns() -> tuple[Column, ...]:
    """The value columns of two real parameters."""
    return (Column("x", None, Kind.REAL), Column("y", None, Kind.REAL))


Rows = tuple[NDArray[Any], NDArray[np.float64]]


@pytest.fixture
def rows() -> Callable[..., Rows]:
    """Make rows whose values follow from their ids, so that any mix-up shows."""

    def make(ids: Sequence[int] | NDArray[Any], attempt: int = 0, status: Status = Status.OK, width: int = 2) -> Rows:
        records = np.zeros(len(ids), RECORD)
        records["id"], records["attempt"], records["status"] = ids, attempt, status
        records["cost"] = np.asarray(ids, float) * 10 + attempt
        records["t_start_s"], records["t_end_s"] = ids, np.asarray(ids, float) + 0.5
        values = np.asarray(ids, float)[:, None] + np.arange(width) / 8 + attempt / 1024
        return records, values

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "life-0001-epoch-0001.h5"
