"""Who is named when ranks do not come to the end of a run."""

from __future__ import annotations

import pytest

from osprey_mpi.comm.ending import absence
from osprey_mpi.comm.tree import plan


@pytest.mark.parametrize(
    ("n_ranks", "flock_size", "ranks_each", "missing", "text"),
    [
        (4, 16, 1, {2}, "no answer from rank 2 at the end"),
        (4, 16, 1, {1, 2}, "no answer from ranks 1, 2 at the end"),
        (7, 2, 1, {4, 5, 6}, "no answer from rank 4, for which ranks 5, 6 wait at the end"),
        (7, 2, 1, {3, 4, 5, 6}, "no answer from ranks 3, 4, for which ranks 5, 6 wait at the end"),
        (5, 16, 2, {1, 2}, "no answer from rank 1, for which rank 2 waits at the end"),
    ],
)
def test_ranks_that_wait_for_a_lost_one_are_not_taken_for_lost(
    n_ranks: int, flock_size: int, ranks_each: int, missing: set[int], text: str
) -> None:
    said = absence(missing, plan(n_ranks, flock_size, ranks_each).superiors)
    assert said == f"{text}; everything is on disk, ending all"
