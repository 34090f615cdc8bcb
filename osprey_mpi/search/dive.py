"""Dive from one point: a gradient by finite differences, a quasi-Newton direction, several step lengths at once.

Rules. A dive is a sequence of rounds; a round is complete when all its points were told, in any order. After a gradient
comes a line search; a better point is a hit, and the next gradient is taken there. Without one finer steps are tried,
then it is a miss: the first moves to the best probe of the gradient and turns to central differences, the second
forgets the curvature and shortens the first step, the third ends the dive, unless this is the best point of the flock:
then it hovers in place with the inverse Hessian as covariance until that stops paying.
All lengths are shares of the parameters' ranges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.curvature import Dense, curvature_for
from osprey_mpi.search.hoverspot import HoverSpot
from osprey_mpi.search.rounds import Indices, Round, Stage
from osprey_mpi.search.states import named, part_of

Floats = NDArray[np.float64]

# Difference lengths: near the square root (forward) and cube root (central) of the rounding of costs; coarse ones
# where costs are float32 numbers.
FORWARD, CENTRAL = 1e-8, 1e-6
COARSE_FORWARD, COARSE_CENTRAL = 1e-3, 5e-3
COARSE_STEPS = (1.0, 0.4, 0.12, 2.5)
FINE_STEPS = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)
# One call of a batched objective takes them all.
BATCH_STEPS = (1.0, *np.geomspace(4.0, 1e-6, 45).tolist())
FIRST_STEP = 0.05
LONGEST_STEP = 0.5  # times sqrt(d)
# Two evaluations of one point that differ by more than this share: noise, not the order of a parallel sum.
NOISE = 1e-9
# A dive behind the flock's best must close this share of the gap within so many rounds.
GAIN, PATIENCE, FIRST_PATIENCE = 0.05, 20, 60
# A dive that gains less than this share of its cost in ten steps has arrived.
ARRIVED, ARRIVAL_STEPS = 1e-12, 10


class Dive:
    """Run one dive from `x` (d,); `cost` NaN: still to be evaluated.

    The first dive of a flock evaluates its start twice whatever its cost: costs that differ are noise, and no slope.
    seed, key: the random stream for hovering.
    """

    def __init__(self, x: Floats, cost: float, *, is_first: bool, is_batched: bool, seed: int, key: int) -> None:
        self.x, self.cost = x.copy(), cost
        self._is_batched, self._seed, self._key = is_batched, seed, key
        self.is_over, self.is_noisy, self._flock_best = False, False, math.inf
        self._curvature = curvature_for(x.size)
        self._gradient, self._direction = np.zeros(x.size), np.zeros(x.size)
        self._previous: tuple[Floats, Floats] | None = None  # where the last gradient was taken, and that gradient
        self._probe: tuple[Floats, float] | None = None  # the best point that a difference needed
        self._spot: HoverSpot | None = None
        self._inverse: Floats | None = None  # kept for hovering when the curvature is forgotten
        self._first_step, self._n_misses, self._is_central, self._gain = FIRST_STEP, 0, False, 0.0
        self._costs: deque[float] = deque(maxlen=FIRST_PATIENCE if is_first else PATIENCE)
        self.round = Round(0, Stage.START, 2 if is_first else 1)
        if not is_first and math.isfinite(cost):
            self._begin(Stage.GRADIENT)

    @property
    def d(self) -> int:
        """Count the dimensions."""
        return self.x.size

    def points(self, rows: Indices) -> Floats:
        """Give the positions (n, d) of some points of the present round."""
        points = np.repeat(self.x[None, :], rows.size, axis=0)
        if self.round.stage is Stage.GRADIENT:
            columns = rows % self.d
            points[np.arange(rows.size), columns] = self._probes(rows < self.d)[np.arange(rows.size), columns]
        elif self.round.stage is Stage.HOVER:
            assert self._spot is not None
            points = self._spot.points(rows)
        elif self.round.stage is not Stage.START:
            points = np.clip(points + np.array(self._steps())[rows, None] * self._direction, 0.0, 1.0)
        return points

    def _steps(self) -> tuple[float, ...]:
        if self._is_batched:
            return BATCH_STEPS
        return COARSE_STEPS if self.round.stage is Stage.COARSE else FINE_STEPS

    def _lengths(self) -> tuple[float, float]:
        # A double is a float32 number by chance once in 5e8 times.
        if self.cost == float(np.float32(self.cost)):
            return COARSE_FORWARD, COARSE_CENTRAL
        return FORWARD, CENTRAL

    def _probes(self, is_up: NDArray[np.bool_]) -> Floats:
        """Give the coordinates (n, d) to probe: up, or down for the second half of central differences."""
        forward, central = self._lengths()
        h = central if self._is_central else forward
        up = np.minimum(self.x + h, 1.0) if self._is_central else np.where(self.x + h > 1.0, self.x - h, self.x + h)
        return np.where(is_up[:, None], up, np.maximum(self.x - h, 0.0))

    def _begin(self, stage: Stage) -> None:
        if stage is Stage.GRADIENT:
            n = 2 * self.d if self._is_central else self.d
        elif stage is Stage.HOVER:
            assert self._spot is not None
            n = self._spot.population
        else:
            n = len(BATCH_STEPS if self._is_batched else COARSE_STEPS if stage is Stage.COARSE else FINE_STEPS)
        self.round = Round(self.round.number + 1, stage, n)

    def advance(self, flock_best: float) -> None:
        """Go on after a complete round; flock_best: the lowest cost that anybody in the flock has seen."""
        self._flock_best = flock_best
        steps = {Stage.START: self._started, Stage.GRADIENT: self._differentiated, Stage.HOVER: self._hovered}
        steps.get(self.round.stage, self._searched)()

    def _started(self) -> None:
        costs = self.round.costs
        self.is_noisy = bool(np.isfinite(costs).all() and np.ptp(costs) > NOISE * abs(costs[0]))
        self.cost = float(costs[0])
        self.is_over = self.is_noisy or not math.isfinite(self.cost)
        if not self.is_over:
            self._begin(Stage.GRADIENT)

    def _differentiated(self) -> None:
        costs, d = self.round.costs, self.d
        self._keep_best_probe()
        up = self._probes(np.ones(1, dtype=bool))[0]
        if self._is_central:
            down = self._probes(np.zeros(1, dtype=bool))[0]
            gradient = (costs[:d] - costs[d:]) / (up - down)
        else:
            gradient = (costs - self.cost) / (up - self.x)
        gradient = np.where(np.isfinite(gradient), gradient, 0.0)
        if self._previous is not None:
            self._curvature.learn(self.x - self._previous[0], gradient - self._previous[1])
        self._previous, self._gradient = (self.x.copy(), gradient), gradient
        self._aim()

    def _keep_best_probe(self) -> None:
        costs = np.where(np.isnan(self.round.costs), np.inf, self.round.costs)
        best = int(costs.argmin())
        better = costs[best] < self.cost
        self._probe = (self.points(np.array([best]))[0], float(costs[best])) if better else None

    def _aim(self) -> None:
        """Choose a direction and search along it; coordinates that a wall holds stay."""
        g = self._gradient
        free = ~(((self.x <= 0.0) & (g > 0.0)) | ((self.x >= 1.0) & (g < 0.0)))
        g = np.where(free, g, 0.0)
        length = float(np.linalg.norm(g))
        if length == 0.0:
            self._missed()
            return
        p = np.where(free, -self._curvature.times(g), 0.0)
        if self._curvature.n_pairs == 0 or not p @ g < 0.0:
            p = -g * (self._first_step / length)
        longest = LONGEST_STEP * math.sqrt(self.d)
        self._direction = p * min(1.0, longest / float(np.linalg.norm(p)))
        self._begin(Stage.COARSE)

    def _searched(self) -> None:
        costs = np.where(np.isnan(self.round.costs), np.inf, self.round.costs)
        best = int(costs.argmin())
        if costs[best] < self.cost:
            x = self.points(np.array([best]))[0]
            self._gain = self.cost - float(costs[best])
            self.x, self.cost, self._n_misses = x, float(costs[best]), 0
            self.is_over = self._gives_up()
            if not self.is_over:
                self._begin(Stage.GRADIENT)
        elif self.round.stage is Stage.COARSE and not self._is_batched:
            self._begin(Stage.FINE)
        else:
            self._missed()

    def _gives_up(self) -> bool:
        costs, goal = self._costs, self._flock_best
        is_hopeless = len(costs) == costs.maxlen and self.cost - goal > (1.0 - GAIN) * (costs[0] - goal) > 0.0
        has_arrived = len(costs) >= ARRIVAL_STEPS and costs[-ARRIVAL_STEPS] - self.cost <= ARRIVED * abs(self.cost)
        costs.append(self.cost)
        return is_hopeless or has_arrived

    def _missed(self) -> None:
        self._n_misses += 1
        if self._n_misses == 1 and not self._is_central:
            self._is_central = True
            if self._probe is not None:
                self.x, self.cost = self._probe
                self._previous = None  # a difference apart: no curvature in that
            self._begin(Stage.GRADIENT)
        elif self._n_misses <= 2 and np.any(self._gradient):
            self._n_misses = 2
            if isinstance(self._curvature, Dense) and self._curvature.n_pairs:
                self._inverse = self._curvature.inverse
            self._curvature.forget()
            self._first_step *= 0.1
            self._aim()
        elif self.cost <= self._flock_best and self._inverse is not None and self._gain > 0.0:
            sigma = math.sqrt(2.0 * self._gain / self.d)
            self._spot = HoverSpot(self.x, sigma, self._inverse, self._seed, self._key)
            self._begin(Stage.HOVER)
        else:
            self.is_over = True

    def _hovered(self) -> None:
        assert self._spot is not None
        costs = np.where(np.isnan(self.round.costs), np.inf, self.round.costs)
        best = int(costs.argmin())
        if costs[best] < self.cost:
            self.x, self.cost = self._spot.points(np.array([best]))[0], float(costs[best])
        self._spot.learn(costs)
        if self._spot.is_over:
            self.is_over = True
        else:
            self._begin(Stage.HOVER)

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs, flat."""
        flags = [self._is_central, self.is_over, self.is_noisy]
        numbers = [self.cost, self._first_step, self._gain, self._n_misses, *flags]
        state = {
            "x": self.x,
            "numbers": np.array(numbers, dtype=np.float64),
            "gradient": self._gradient,
            "direction": self._direction,
            "costs": np.array(self._costs, dtype=np.float64),
            "patience": np.array(self._costs.maxlen, dtype=np.int64),
        }
        if self._previous is not None:
            state |= {"previous_x": self._previous[0], "previous_gradient": self._previous[1]}
        if self._probe is not None:
            state |= {"probe_x": self._probe[0], "probe_cost": np.array(self._probe[1])}
        if self._inverse is not None:
            state["inverse"] = self._inverse
        parts: dict[str, Any] = {"curvature": self._curvature, "round": self.round, "spot": self._spot}
        for name, part in parts.items():
            if part is not None:
                state |= named(name, part.state())
        return state

    @classmethod
    def load(cls, state: Mapping[str, NDArray[Any]], *, is_batched: bool, seed: int, key: int) -> Dive:
        """Continue from `state`."""
        made = cls(state["x"], math.nan, is_first=False, is_batched=is_batched, seed=seed, key=key)
        numbers = [float(number) for number in state["numbers"]]
        made.cost, made._first_step, made._gain, made._n_misses = *numbers[:3], int(numbers[3])
        made._is_central, made.is_over, made.is_noisy = (bool(number) for number in numbers[4:])
        made._gradient, made._direction = state["gradient"], state["direction"]
        made._costs = deque(state["costs"].tolist(), maxlen=int(state["patience"]))
        if "previous_x" in state:
            made._previous = (state["previous_x"], state["previous_gradient"])
        if "probe_x" in state:
            made._probe = (state["probe_x"], float(state["probe_cost"]))
        made._inverse = state.get("inverse")
        made._curvature.load(part_of(state, "curvature"))
        made.round = Round.load(part_of(state, "round"))
        spot = part_of(state, "spot")
        made._spot = HoverSpot.load(spot, seed, key) if spot else None
        return made
