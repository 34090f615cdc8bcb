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
from functools import cache
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
# Where a call has room, the gradients at these many steps are taken in the same call as the steps: half the calls.
LEAST_AHEAD, MOST_AHEAD = 6, 16
FIRST_STEP = 0.05
LONGEST_STEP = 0.5  # times sqrt(d)
# Two evaluations of one point that differ by more than this share: noise, not the order of a parallel sum.
NOISE = 1e-9
# A dive behind the flock's best must close this share of the gap within so many rounds.
GAIN, PATIENCE, FIRST_PATIENCE = 0.05, 20, 60
# A dive that gains less than this share of its cost in ten steps has arrived.
ARRIVED, ARRIVAL_STEPS = 1e-12, 10


@cache  # there are a dozen of them; a search along a line asks four times
def _steps_ahead(n: int) -> tuple[float, ...]:
    return (1.0, *np.geomspace(2.5, 1e-5, n - 1).tolist()) if n >= LEAST_AHEAD else ()


class Dive:
    """Run one dive from `x` (d,); `cost` NaN: still to be evaluated.

    The first dive of a flock evaluates its start twice whatever its cost: costs that differ are noise, and no slope.
    seed, key: the random stream for hovering.
    """

    def __init__(self, x: Floats, cost: float, *, is_first: bool, batch: int, seed: int, key: int) -> None:
        self.x, self.cost = x.copy(), cost
        self._batch, self._seed, self._key = batch, seed, key
        self.is_over, self.is_noisy, self._flock_best = False, False, math.inf
        self._curvature = curvature_for(x.size)
        self._gradient, self._direction = np.zeros(x.size), np.zeros(x.size)
        self._previous: tuple[Floats, Floats] | None = None  # where the last gradient was taken, and that gradient
        self._probe: tuple[Floats, float] | None = None  # the best point that a difference needed
        self._spot: HoverSpot | None = None
        self._inverse: Floats | None = None  # kept for hovering when the curvature is forgotten
        self._first_step, self._n_misses, self._is_central, self._gain = FIRST_STEP, 0, False, 0.0
        self._h = FORWARD
        self._costs: deque[float] = deque(maxlen=FIRST_PATIENCE if is_first else PATIENCE)
        self.round = Round(0, Stage.START, 2 if is_first else 1)
        if not is_first and math.isfinite(cost):
            self._begin(Stage.GRADIENT)

    @property
    def d(self) -> int:
        """Count the dimensions."""
        return self.x.size

    @property
    def _n_probes(self) -> int:
        return 2 * self.d if self._is_central else self.d

    def points(self, rows: Indices) -> Floats:
        """Give the positions (n, d) of some points of the present round.

        A line search lists its steps first; one that looks ahead goes on with the probes around each of them.
        """
        stage = self.round.stage
        if stage is Stage.START:
            return np.repeat(self.x[None, :], rows.size, axis=0)
        if stage is Stage.HOVER:
            assert self._spot is not None
            return self._spot.points(rows)
        if stage is Stage.GRADIENT:
            return self._probed(np.repeat(self.x[None, :], rows.size, axis=0), rows)
        steps = np.array(self._steps(stage))
        which = np.where(rows < steps.size, rows, (rows - steps.size) // self._n_probes)
        points = np.clip(self.x + steps[which, None] * self._direction, 0.0, 1.0)
        ahead = rows >= steps.size
        points[ahead] = self._probed(points[ahead], (rows[ahead] - steps.size) % self._n_probes)
        return points

    def _probed(self, points: Floats, probes: Indices) -> Floats:
        """Move each of `points` (n, d) by the probe (n,) of a gradient: coordinate by coordinate up, then down."""
        each, columns = np.arange(probes.size), probes % self.d
        at = points[each, columns]
        points[each, columns] = np.where(probes < self.d, self._up(at), np.maximum(at - self._h, 0.0))
        return points

    def _up(self, at: Floats) -> Floats:
        if self._is_central:
            return np.minimum(at + self._h, 1.0)
        return np.where(at + self._h > 1.0, at - self._h, at + self._h)

    def _steps(self, stage: Stage) -> tuple[float, ...]:
        if self._batch == 1:
            return COARSE_STEPS if stage is Stage.COARSE else FINE_STEPS
        return self._steps_ahead() or BATCH_STEPS

    def _steps_ahead(self) -> tuple[float, ...]:
        """Give the steps whose gradients fit into the same call; none if a call has no room for a few of them."""
        return _steps_ahead(min(self._batch // (1 + self._n_probes), MOST_AHEAD))

    def _difference(self) -> float:
        # A double is a float32 number by chance once in 5e8 times.
        if self.cost == float(np.float32(self.cost)):
            return COARSE_CENTRAL if self._is_central else COARSE_FORWARD
        return CENTRAL if self._is_central else FORWARD

    def _begin(self, stage: Stage) -> None:
        self._h = self._difference()
        if stage is Stage.GRADIENT:
            n = self._n_probes
        elif stage is Stage.HOVER:
            assert self._spot is not None
            n = self._spot.population
        else:
            n = len(self._steps(stage))
            n += n * self._n_probes if self._batch > 1 and self._steps_ahead() else 0
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
        self._take_slope(self.round.costs)

    def _take_slope(self, costs: Floats) -> None:
        """Learn from the costs (n_probes,) around `x`, and search along the new direction."""
        d = self.d
        best = int(np.where(np.isnan(costs), np.inf, costs).argmin())
        probe = self._probed(self.x[None, :].copy(), np.array([best]))[0]
        self._probe = (probe, float(costs[best])) if costs[best] < self.cost else None
        if self._is_central:
            gradient = (costs[:d] - costs[d:]) / (self._up(self.x) - np.maximum(self.x - self._h, 0.0))
        else:
            gradient = (costs - self.cost) / (self._up(self.x) - self.x)
        gradient = np.where(np.isfinite(gradient), gradient, 0.0)
        if self._previous is not None:
            self._curvature.learn(self.x - self._previous[0], gradient - self._previous[1])
        self._previous, self._gradient = (self.x.copy(), gradient), gradient
        self._aim()

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
        n_steps = len(self._steps(self.round.stage))
        costs = np.where(np.isnan(self.round.costs), np.inf, self.round.costs)[:n_steps]
        best = int(costs.argmin())
        if costs[best] < self.cost:
            x = self.points(np.array([best]))[0]
            self._gain = self.cost - float(costs[best])
            self.x, self.cost, self._n_misses = x, float(costs[best]), 0
            self.is_over = self._gives_up()
            if not self.is_over and self.round.costs.size > n_steps:
                first = n_steps + best * self._n_probes
                self._take_slope(self.round.costs[first : first + self._n_probes])
            elif not self.is_over:
                self._begin(Stage.GRADIENT)
        elif self.round.stage is Stage.COARSE and self._batch == 1:
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
        numbers = [self.cost, self._first_step, self._gain, self._h, self._n_misses, *flags]
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
    def load(cls, state: Mapping[str, NDArray[Any]], *, batch: int, seed: int, key: int) -> Dive:
        """Continue from `state`."""
        made = cls(state["x"], math.nan, is_first=False, batch=batch, seed=seed, key=key)
        numbers = [float(number) for number in state["numbers"]]
        made.cost, made._first_step, made._gain, made._h = numbers[:4]
        made._n_misses = int(numbers[4])
        made._is_central, made.is_over, made.is_noisy = (bool(number) for number in numbers[5:])
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
