"""Choose how often to save, so that saving and repeating what was lost cost least together.

The interval is the square root of twice the cost of one checkpoint times the mean time between failures: Young, "A
first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9), 1974.
"""

from __future__ import annotations

import math

DAY_S = 86_400.0
UNMEASURED_S = 10.0  # the first checkpoint tells what one costs
LEAST_S = 1.0
MOST_SHARE = 0.01  # of the time may go into checkpoints, however often a run fails
HORIZON = 5  # checkpoints: their cost follows what is saved, and the file system's mood


class Interval:
    """Give the time between two checkpoints: `fixed_s`, or where that is None the one that suits their cost."""

    def __init__(self, fixed_s: float | None, failures_per_day: float) -> None:
        self._fixed_s, self._between_failures_s = fixed_s, DAY_S / failures_per_day
        self.cost_s = 0.0
        self._n = 0

    def learn(self, cost_s: float) -> None:
        """Take in for how long a checkpoint kept the root."""
        self._n += 1
        self.cost_s += (cost_s - self.cost_s) / min(self._n, HORIZON)

    @property
    def seconds(self) -> float:
        """Give the time between two checkpoints, in seconds."""
        if self._fixed_s is not None:
            return self._fixed_s
        if self._n == 0:
            return UNMEASURED_S
        young_s = math.sqrt(2.0 * self.cost_s * self._between_failures_s)
        return max(young_s, self.cost_s / MOST_SHARE, LEAST_S)
