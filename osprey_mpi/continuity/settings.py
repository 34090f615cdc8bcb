"""Hold what a leader needs of the config."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from osprey_mpi.continuity.health import PATIENCE_S


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Say how one leader works.

    batch: points per call. exact: work in rounds, so that the run repeats. leave_s: wait for the workers' farewells.
    penalty: the cost of a failed evaluation; None: it ranks last. speed_exponent: see `steering`.
    n_evaluations: about how many the flock will do in all; None if that is open. has_others: there are other flocks.
    """

    n_columns: int
    n_dims: int
    _: KW_ONLY  # many of them are seconds or counts: a swap of two would pass for right
    batch: int = 1
    exact: bool = False
    cycle_s: float = 1.0
    stale_window: int = 3
    suspect_after_s: float = 5.0
    lost_after_s: float = 30.0
    leave_s: float = 5.0  # less than the root waits for the leader
    penalty: float | None = None
    speed_exponent: float = 0.0
    n_evaluations: int | None = None
    has_others: bool = False
    patience_s: float = PATIENCE_S
