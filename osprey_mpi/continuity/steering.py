"""Know which distributions the workers of a flock hold, and how far each of them strides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from osprey_mpi.continuity.messages import Steer
from osprey_mpi.continuity.orders import Pace
from osprey_mpi.search.distribution import Distribution

N_REMEMBERED = 64  # generations per worker; results of older ones are stale long since


def distribution_of(steer: Steer) -> Distribution:
    """Return the distribution in a Steer; one column is a diagonal (for one dimension both are the same)."""
    factor = steer.factor[:, 0] if steer.factor.shape[1] == 1 else steer.factor
    return Distribution(steer.generation, steer.mean, steer.sigma, factor, steer.probabilities)


class Steering:
    """Make the Steer messages. A worker's step is scaled by its speed; its results must be read with the same scale."""

    def __init__(self, workers: Iterable[int], speed_exponent: float) -> None:
        self._speed_exponent = speed_exponent
        self._scales: dict[int, dict[int, float]] = {worker: {} for worker in workers}

    def update(self, worker: int, distribution: Distribution, paces: Mapping[int, Pace]) -> Steer | None:
        """Return what the worker must be told before it hovers next; None when it holds the newest."""
        scales = self._scales[worker]
        if distribution.generation in scales:
            return None
        scale = scales[distribution.generation] = self._stride(worker, paces)
        if len(scales) > N_REMEMBERED:
            del scales[next(iter(scales))]
        factor = distribution.factor if distribution.factor.ndim == 2 else distribution.factor[:, None]
        return Steer(
            distribution.generation, distribution.sigma * scale, distribution.mean, factor, distribution.probabilities
        )

    def scale(self, worker: int, generation: int) -> float:
        """Return the factor by which the worker's steps of that generation were scaled."""
        return self._scales[worker].get(generation, 1.0)

    def forget(self, worker: int) -> None:
        """Forget what a lost worker holds: should it come back, it is told again."""
        self._scales[worker] = {}

    def _stride(self, worker: int, paces: Mapping[int, Pace]) -> float:
        """Return the factor of a worker's step: slow workers explore finer (speed^exponent, at most 1)."""
        mine = paces[worker].mean_s
        if self._speed_exponent == 0.0 or mine <= 0.0:
            return 1.0
        fastest = min(pace.mean_s for pace in paces.values() if pace.mean_s > 0.0)
        return float((fastest / mine) ** self._speed_exponent)
