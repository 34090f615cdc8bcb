"""Hold what a leader needs of the config."""

from __future__ import annotations

from dataclasses import dataclass

from osprey_mpi.continuity.health import PATIENCE_S


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Hold what a leader needs of the config. Times in s; penalty NaN: a failed evaluation ranks last."""

    n_columns: int
    n_dims: int
    batch: int = 1
    exact: bool = False
    cycle_s: float = 1.0
    stale_window: int = 3
    suspect_after_s: float = 5.0
    lost_after_s: float = 30.0
    leave_s: float = 5.0
    penalty: float = float("nan")
    speed_exponent: float = 0.0
    patience_s: float = PATIENCE_S
