"""Give the tests here a Slurm of their own, or say why there is none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, lacking


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return four nodes, n1 to n4, of two cores each."""
    if reason := lacking():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="osprey-slurm-"))  # short: the path of a socket has at most 107 characters
    try:
        with Cluster(folder / "cluster", 4) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)
