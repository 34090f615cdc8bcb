"""Options of the whole test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes a test longer than a usual run has time for."""
    parser.addoption("--lives", type=int, default=5, help="lives of the run that is killed at random moments")
    parser.addoption("--cuts", type=int, default=1, help="how often nodes of a Slurm fall silent, of each kind")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with the argument `cut` a number for each."""
    if "cut" in metafunc.fixturenames:
        metafunc.parametrize("cut", range(metafunc.config.getoption("--cuts")))


@pytest.fixture
def n_lives(request: pytest.FixtureRequest) -> int:
    """Return how often the run that is killed at random moments is killed."""
    n = request.config.getoption("--lives")
    assert isinstance(n, int)
    return n
