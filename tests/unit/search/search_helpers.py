"""Drive a flock in one process: serially, with simulated asynchronous workers, and in batches."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config.parameters import CategoricalParameter, FixedParameter, IntegerParameter, RealParameter
from osprey_mpi.config.running import Search
from osprey_mpi.search import streams
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.osprey import hover, n_survivors, survivors
from osprey_mpi.search.space import Space

Floats = NDArray[np.float64]
Objective = Callable[[Mapping[str, Any]], float]


def real(low: float, high: float, **more: Any) -> RealParameter:
    return RealParameter(type="real", low=low, high=high, **more)


def integer(low: int, high: int, **more: Any) -> IntegerParameter:
    return IntegerParameter(type="integer", low=low, high=high, **more)


def category(*choices: Any, **more: Any) -> CategoricalParameter:
    return CategoricalParameter(type="categorical", choices=list(choices), **more)


def fixed(value: Any) -> FixedParameter:
    return FixedParameter(type="fixed", value=value)


def box(d: int, constraints: Sequence[str] = ()) -> Space:
    return Space({"x": real(-5, 5, size=d)}, constraints)


def rotation(d: int) -> Floats:
    matrix, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))
    return matrix


def shifted(d: int) -> Floats:
    return np.random.default_rng(7).uniform(-3.0, 3.0, d)


def sphere(d: int) -> Objective:
    optimum = shifted(d)
    return lambda p: float(((p["x"] - optimum) ** 2).sum())


def ellipsoid(d: int) -> Objective:
    optimum, turn, scale = shifted(d), rotation(d), 10.0 ** (6.0 * np.arange(d) / (d - 1))
    return lambda p: float((scale * (turn @ (p["x"] - optimum)) ** 2).sum())


def rosenbrock(p: Mapping[str, Any]) -> float:
    x = p["x"]
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


class Serial:
    """Evaluate one point at a time; `tells` keeps (id, cost, generation) for comparisons."""

    def __init__(self, space: Space, objective: Objective, flock: Flock, seed: int) -> None:
        self.space, self.objective, self.flock, self.seed = space, objective, flock, seed
        self.next_id = 0
        self.tells: list[tuple[int, float, int]] = []

    def step(self) -> None:
        proposal = self.flock.ask(self.next_id, 1)
        generation, positions = -1, proposal.positions
        if positions is None:
            generation = self.flock.generation
            latent = streams.latent(self.seed, self.next_id, 1, self.space)
            positions = hover(self.flock.distribution, latent, self.space)
        values = self.space.decode(positions)
        cost = self.objective(self.space.parameters(values[0]))
        violations = self.space.violation(values) if self.space.constraints else None
        self.flock.tell(self.next_id, np.array([cost]), generation, violations=violations)
        self.tells.append((self.next_id, cost, generation))
        self.next_id += 1

    def until(self, target: float, n_most: int) -> int | None:
        """Count the evaluations to a feasible cost of at most `target`; None if `n_most` are not enough."""
        while self.next_id < n_most:
            self.step()
            best = self.flock.best
            if best is not None and best.violation == 0.0 and best.cost <= target:
                self.flock.check()
                return self.next_id
        self.flock.check()
        return None


def serial(space: Space, objective: Objective, seed: int, flock: int = 1, **search: Any) -> Serial:
    return Serial(space, objective, Flock(space, Search(**search), seed, flock), seed)


def asynchronous(
    space: Space, objective: Objective, seed: int, n_workers: int, target: float, n_most: int, **search: Any
) -> int | None:
    """Count the evaluations to `target` with workers 1 to 4 times as fast and log-normal times (sigma 1/2)."""
    flock = Flock(space, Search(**search), seed, 1)
    flock.set_parallelism(n_workers)
    random = np.random.default_rng(seed)
    speeds = random.uniform(1.0, 4.0, n_workers)
    running: list[tuple[float, int, int, int, Floats]] = []

    def begin(worker: int, now_s: float, number: int) -> None:
        proposal = flock.ask(number, 1)
        generation, positions = -1, proposal.positions
        if positions is None:
            generation = flock.generation
            positions = hover(flock.distribution, streams.latent(seed, number, 1, space), space)
        end_s = now_s + random.lognormal(0.0, 0.5) / speeds[worker]
        heapq.heappush(running, (end_s, number, worker, generation, positions))

    for worker in range(n_workers):
        begin(worker, 0.0, worker)
    for n_told in range(1, n_most + 1):
        now_s, number, worker, generation, positions = heapq.heappop(running)
        cost = objective(space.parameters(space.decode(positions)[0]))
        flock.tell(number, np.array([cost]), generation)
        flock.check()
        assert flock.best is not None
        if flock.best.cost <= target:
            return n_told
        begin(worker, now_s, n_workers + n_told - 1)
    return None


def crowded(
    space: Space,
    costs_of: Callable[[Floats], Floats],
    seed: int,
    batch: int,
    n_workers: int,
    target: float,
    n_most: int,
) -> int | None:
    """Count the blocks to `target` with hovering workers of equal speed and log-normal times (sigma 1/2)."""
    flock = Flock(space, Search(dives=False), seed, 1, batch)
    flock.set_parallelism(n_workers * batch)
    random = np.random.default_rng(seed)
    running: list[tuple[float, int, Distribution]] = []
    for number in range(n_most):
        now_s = 0.0
        if number >= n_workers:
            now_s, told, distribution = heapq.heappop(running)
            latent = streams.latent(seed, told * batch, batch, space)
            costs = costs_of(space.decode(hover(distribution, latent, space)))
            kept = survivors(costs, np.zeros(batch), n_survivors(batch, space.n_dims))
            flock.tell_survivors(batch, costs[kept], latent[kept], distribution.generation)
            if flock.best is not None and flock.best.cost <= target:
                return number - n_workers + 1
        flock.ask(number * batch, batch)
        heapq.heappush(running, (now_s + random.lognormal(0.0, 0.5), number, flock.distribution))
    return None


def batched(
    space: Space,
    costs_of: Callable[[Floats], Floats],
    seed: int,
    batch: int,
    target: float,
    n_most: int,
    restores: bool = False,
    **search: Any,
) -> int | None:
    """Count the calls of `batch` points to `target`; restores: by way of a snapshot after each call."""
    flock = Flock(space, Search(**search), seed, 1, batch)
    for call in range(n_most):
        first = call * batch
        if restores:
            flock = Flock.restore(flock.snapshot(), space, Search(**search), seed, 1, batch)
        proposal = flock.ask(first, batch)
        if proposal.positions is not None:
            flock.tell(first, costs_of(space.decode(proposal.positions)), -1)
        else:
            latent = streams.latent(seed, first, batch, space)
            positions = hover(flock.distribution, latent, space)
            costs = costs_of(space.decode(positions))
            kept = survivors(costs, np.zeros(batch), n_survivors(batch, space.n_dims))
            flock.tell_survivors(batch, costs[kept], latent[kept], flock.generation)
        flock.check()
        if flock.best is not None and flock.best.cost <= target:
            return call + 1
    return None
