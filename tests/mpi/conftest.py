"""Give every test here a folder for one problem, and keep pytest-mpi to the tests that are marked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from problem import Problem

_HERE = Path(__file__).parent
_REASON = "need --with-mpi option to run"


@pytest.fixture
def case(tmp_path: Path) -> Problem:
    """Return a folder for one problem."""
    return Problem(tmp_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Undo what pytest-mpi decides from the name of this folder, which it takes for its mark."""
    for item in items:
        if _HERE not in item.path.parents or item.get_closest_marker("mpi") is not None:
            continue
        item.own_markers = [mark for mark in item.own_markers if mark.kwargs.get("reason") != _REASON]
        if config.getoption("--only-mpi", False):
            item.add_marker(pytest.mark.skip(reason="starts launches of its own"))
