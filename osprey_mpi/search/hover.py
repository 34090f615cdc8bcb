"""Lead the shared hover of a flock: one distribution that learns from results in the order they arrive.

Rules. Whenever enough results are in, whatever generation they were drawn from, they drive one update; steps count as
drawn. A result that is too late, or belongs to an earlier descent, teaches nothing.
A descent that has ended is followed by another elsewhere: BIPOP (Hansen 2009), large populations or small ones,
whichever has used fewer evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search import ranking
from osprey_mpi.search.births import Birth, Births
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.evolution import Evolution
from osprey_mpi.search.osprey import batch_population, choose, fold, smallest_population
from osprey_mpi.search.samples import Samples
from osprey_mpi.search.space import Space
from osprey_mpi.search.states import named, part_of
from osprey_mpi.search.stopping import Stopping
from osprey_mpi.search.streams import Purpose, stream
from osprey_mpi.search.tables import Tables

Floats = NDArray[np.float64]

# Generations. Later results overshoot: they repeat steps that were already made. Where more than two populations (of
# at most 6 d) are in flight, one is the limit: 16 workers with batches of 64 reach 1e-3 on a 10-D sphere in 460 to 520
# blocks with 1, hardly in 3000 with 2, never with 8. Below that 1, 2 and 8 differ little, 2 being the best.
LATEST, LATEST_CROWDED = 2, 1
# How much of a table's probability the choice of a start point gets.
LEAN = 0.5


class Hunt:
    """Hold the distribution of a flock, the results waiting for the next update, and the plan of restarts."""

    def __init__(
        self, space: Space, sigma: float, population: int | None, restarts: bool, seed: int, flock: int, batch: int
    ) -> None:
        self._space, self._sigma0, self._restarts, self._seed, self._flock = space, sigma, restarts, seed, flock
        self._least = smallest_population(space.n_dims)
        self._is_pinned = population is not None or batch > 1
        self._n_in_flight = 1
        self._base = population or batch_population(batch, space.n_dims)
        self._continuous = space.n_levels == 0
        self.generation = -1
        self.is_over = False
        self._births, self._samples = Births(space.scales), Samples()
        self._n_descents, self._n_doublings, self._is_large = 0, 0, True
        self._n_used = {True: 0, False: 0}  # evaluations by regime
        self._n_this, self._n_limit = 0, 0
        self._ratio = 1.0
        self._adopted: Floats | None = None
        self._begin(self._first_position(), sigma)

    @property
    def population(self) -> int:
        """Give the number of results that drive one update."""
        return max(int(self._base * self._ratio + 0.5), 4)

    @property
    def _latest(self) -> int:
        """Give how many generations late a result may be and still teach."""
        return LATEST if self._n_in_flight <= 2 * self.population else LATEST_CROWDED

    @property
    def mean(self) -> Floats:
        """Give the middle of the distribution as a position."""
        position = np.empty(self._space.n_dims)
        position[: self._space.n_numeric] = fold(self._evolution.mean.copy())
        if self._space.n_categorical:
            position[self._space.n_numeric :] = self._tables.probabilities.argmax(axis=1)
        return position

    def start_at(self, position: Floats) -> None:
        """Begin the first descent at a start point."""
        self._begin(position, self._sigma0)

    def set_parallelism(self, n_in_flight: int) -> None:
        """Fit the population to the evaluations in flight: below half of them late steps mislead the step size."""
        self._n_in_flight = n_in_flight
        if not self._is_pinned:
            most = max(self._least, 6 * self._space.n_dims)
            self._base = min(max(self._least, n_in_flight // 2), most)

    def adopt(self, position: Floats) -> None:
        """Begin the next descent at a point from elsewhere."""
        self._adopted = position

    def birth(self, generation: int) -> Birth | None:
        """Find the distribution of a generation, None if it is no longer remembered."""
        return self._births.get(generation)

    @property
    def distribution(self) -> Distribution:
        """Give the newest distribution."""
        newest = self._births.get(self.generation)
        assert newest is not None
        return newest.distribution

    def tell(self, latent: Floats, major: Floats, minor: Floats, generation: int, n_drawn: int) -> None:
        """Take results: latent (n, n_dims), both keys (n,), out of `n_drawn` samples that were drawn."""
        if self.is_over or self.generation - generation > self._latest or self._births.get(generation) is None:
            return
        self._samples.add(latent, major, minor, generation, n_drawn)
        self._n_this += n_drawn
        self._n_used[self._is_large] += n_drawn
        if self._samples.n_drawn >= self.population:
            self._update()

    def _update(self) -> None:
        latent, major, minor, generations, complete = self._samples.take()
        if latent.shape[0] == 0:
            return
        rank = ranking.order(major, minor)
        latent, major, minor, generations = latent[rank], major[rank], minor[rank], generations[rank]
        n, population = self._space.n_numeric, self.population
        sigmas, step, core, codes = self._as_drawn(latent, generations)
        evolution = self._evolution
        if n:
            evolution.update(population, latent[:, :n], sigmas, core, step, complete)
            evolution.keep_margin(self._space.scales, population)
        if self._space.n_categorical:
            mu = min(max(population // 2, 1), latent.shape[0])
            weights = np.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
            self._tables.update(codes[:mu], weights / weights.sum())
        self._stopping.record(minor, major)
        spread = evolution.spread[self._continuous] if self._continuous.any() else None
        ended = self._stopping.is_over(population, self._space.n_dims, spread) or not evolution.is_sound
        if ended or (self._n_limit and self._n_this > self._n_limit):
            self._end()
        else:
            self._publish()

    def _as_drawn(self, latent: Floats, generations: NDArray[np.int64]) -> tuple[Floats, Floats, Floats, Floats]:
        """Give sigma (n,), step and core (n, n_numeric) and codes (n, n_categorical) that latent numbers stood for."""
        space = self._space
        z = np.ascontiguousarray(latent[:, : space.n_numeric])
        sigmas, step, core = np.empty(z.shape[0]), np.empty_like(z), np.empty_like(z)
        codes = np.empty((z.shape[0], space.n_categorical))
        for generation in range(int(generations.min()), int(generations.max()) + 1):
            rows = np.flatnonzero(generations == generation)
            if rows.size == 0:
                continue
            birth = self._births.get(generation)
            assert birth is not None, "a descent's results are dropped with its distributions"
            sigmas[rows] = birth.distribution.sigma
            step[rows], core[rows] = birth.steps(z[rows])
            if space.n_categorical:
                uniforms = latent[rows, space.n_numeric :]
                codes[rows] = choose(birth.distribution.probabilities, uniforms, space.n_choices)
        return sigmas, step, core, codes

    def _publish(self) -> None:
        self.generation += 1
        e = self._evolution
        distribution = Distribution(self.generation, e.mean, e.sigma, e.factor, self._tables.flat)
        self._births.add(Birth(distribution, e.widening, self._space.scales))

    def _begin(self, position: Floats, sigma: float) -> None:
        self._births.clear()
        self._samples.clear()
        self._evolution = Evolution(position[: self._space.n_numeric].copy(), sigma)
        self._tables = Tables(self._space.n_choices)
        if self._n_descents or self._is_start(position):
            self._tables.lean(position[self._space.n_numeric :], LEAN)
        self._stopping = Stopping()
        self._n_this = 0
        self._publish()

    def _is_start(self, position: Floats) -> bool:
        return not np.array_equal(position, self._space.middle())

    def _end(self) -> None:
        """Begin the next descent, or rest where restarts are off."""
        if not self._restarts:
            self.is_over = True
            return
        self._n_descents += 1
        random = stream(self._seed, self._number(), Purpose.RESTART)
        u = random.random(2)
        sigma = self._sigma0
        position = self._uniform(random)
        self._is_large = self._adopted is None and self._n_used[True] <= self._n_used[False]
        if self._is_large:
            self._n_doublings += 1
            self._ratio, self._n_limit = 2.0**self._n_doublings, 0
        else:
            sigma *= 10.0 ** (-2.0 * u[0])
            self._ratio = max(0.5 * 2.0**self._n_doublings, 1.0) ** (u[1] ** 2)
            self._n_limit = max(self._n_used[True] // 2, 10 * self.population)
        if self._adopted is not None:
            position, self._adopted = self._adopted, None
        self._begin(position, sigma)

    def _number(self) -> int:
        return (self._flock << 32) | self._n_descents

    def _uniform(self, random: np.random.Generator) -> Floats:
        position = random.random(self._space.n_dims)
        position[self._space.n_numeric :] = np.floor(position[self._space.n_numeric :] * self._space.n_choices)
        return position

    def _first_position(self) -> Floats:
        if self._flock == 0:
            return self._space.middle()
        return self._uniform(stream(self._seed, self._number(), Purpose.RESTART))

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs, flat."""
        counts = [self.generation, self.is_over, self._n_descents, self._n_doublings, self._is_large, self._n_this]
        counts += [self._n_used[True], self._n_used[False], self._n_limit, self._base, self._n_in_flight]
        state: dict[str, NDArray[Any]] = {"counts": np.array(counts, dtype=np.int64), "ratio": np.array(self._ratio)}
        if self._adopted is not None:
            state["adopted"] = self._adopted
        for name, part in self._parts():
            state |= named(name, part.state())
        return state

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        c = [int(number) for number in state["counts"]]
        self.generation, self.is_over, self._n_descents, self._n_doublings = c[0], bool(c[1]), c[2], c[3]
        self._is_large, self._n_this, self._n_used = bool(c[4]), c[5], {True: c[6], False: c[7]}
        self._n_limit, self._base, self._n_in_flight, self._ratio = c[8], c[9], c[10], float(state["ratio"])
        self._adopted = state.get("adopted")
        for name, part in self._parts():
            part.load(part_of(state, name))

    def _parts(self) -> list[tuple[str, Any]]:
        return [
            ("evolution", self._evolution),
            ("tables", self._tables),
            ("stopping", self._stopping),
            ("births", self._births),
            ("samples", self._samples),
        ]
