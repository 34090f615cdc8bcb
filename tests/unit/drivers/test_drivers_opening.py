"""What is refused before a run begins or goes on: one sentence, and the exit code that tells whose fault it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from osprey_mpi.drivers.opening import open_run
from osprey_mpi.drivers.request import Request
from osprey_mpi.errors import UsageError


@pytest.mark.parametrize("n", [-1, 0, 2**53 + 1, 10**30])
def test_a_budget_that_float64_cannot_count_is_refused(tmp_path: Path, n: int) -> None:
    with pytest.raises(UsageError) as caught:
        open_run(Request(resume=tmp_path, max_evaluations=n))
    assert str(caught.value) == f"--max-evaluations is {n}, must be at least 1 and at most 9007199254740992"
