"""Make searches for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from protocol_helpers import N_DIMS

from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.space import Space


def _config(**search: Any) -> Config:
    parameters = {"x": {"type": "real", "low": 0, "high": 1, "size": N_DIMS}}
    mapping = {"name": "t", "objective": {"python": "a:b"}, "parameters": parameters, "budget": {"evaluations": 1}}
    return config_from_mapping({**mapping, "swarm": {"search": search}})


@pytest.fixture(scope="session")
def space() -> Space:
    """Return a box of two dimensions."""
    return Space(_config().parameters)


@pytest.fixture
def make_search(space: Space) -> Callable[..., Flock]:
    """Return a maker of searches on the box; by default they hover only."""

    def make(batch: int = 1, start: Any = (), dives: Any = False) -> Flock:
        return Flock(space, _config(dives=dives).swarm.search, 7, 0, batch, start)

    return make
