"""Options of the whole test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes a test longer than a usual run has time for."""
    parser.addoption("--lives", type=int, default=5, help="lives of the run that is killed at random moments")


@pytest.fixture
def n_lives(request: pytest.FixtureRequest) -> int:
    """Return how often the run that is killed at random moments is killed."""
    n = request.config.getoption("--lives")
    assert isinstance(n, int)
    return n
