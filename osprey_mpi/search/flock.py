"""Couple the ospreys of one flock: decide what each evaluates next, and learn from what comes back.

Rules. `ask` never waits: start points first, then whose turn it is, hover or dive. `tell` takes a whole block, once, in
any order. Everything follows from the seed and the sequence of calls; no clock, no budget, no speed of a worker.
Nothing here grows with the number of evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.errors import ConfigError
from osprey_mpi.search import ranking, streams
from osprey_mpi.search.credit import Credit, Party
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.divers import Divers, Ticket
from osprey_mpi.search.hover import Hunt
from osprey_mpi.search.osprey import hover, n_survivors
from osprey_mpi.search.ranking import Best, Results
from osprey_mpi.search.rounds import Round, Stage
from osprey_mpi.search.space import Space
from osprey_mpi.search.states import State, named, part_of

Floats = NDArray[np.float64]


class Settings(Protocol):
    """Read `config.swarm.search`."""

    @property
    def sigma(self) -> float: ...
    @property
    def population(self) -> int | None: ...
    @property
    def dives(self) -> str | bool: ...
    @property
    def restarts(self) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Say what to evaluate: `n` explicit rows, or with `positions` None the block of `n` hovered points."""

    n: int
    positions: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    party: Party
    ticket: Ticket
    positions: Floats


class Flock:
    """Search with one shared distribution and some dives.

    batch: points per call of the objective; start: start points by parameter, see `Space.start_positions`. Raises
    ConfigError if dives are demanded where there are no slopes.
    """

    def __init__(
        self,
        space: Space,
        search: Settings,
        seed: int,
        flock: int = 0,
        batch: int = 1,
        start: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._space, self._seed, self._batch = space, seed, batch
        self._hunt = Hunt(space, search.sigma, search.population, search.restarts, seed, flock, batch)
        self._divers = Divers(space.n_dims, seed, flock, batch, _dives(space, search))
        self._credit = Credit(space.n_dims)
        self._start_positions = space.start_positions(start)
        self._starts = Round(0, Stage.START, len(self._start_positions))
        self._open: dict[int, _Open] = {}
        self._best: Best | None = None
        self._adopted: Best | None = None
        self._is_adopted_new = False
        if len(self._start_positions) and flock == 0:
            self._hunt.start_at(self._start_positions[0])

    @property
    def distribution(self) -> Distribution:
        """Give the newest shared distribution."""
        return self._hunt.distribution

    @property
    def generation(self) -> int:
        """Give the number of the newest distribution; it never falls."""
        return self._hunt.generation

    @property
    def best(self) -> Best | None:
        """Give the best evaluation that this flock was told of."""
        return self._best

    @property
    def has_dives(self) -> bool:
        """Tell whether it dives: where there are slopes that are no noise."""
        return self._divers.is_on

    def set_parallelism(self, n_in_flight: int) -> None:
        """Fit the search to the evaluations in flight, points not blocks; not in a run that must repeat exactly."""
        self._hunt.set_parallelism(n_in_flight)

    def ask(self, first: int, n: int) -> Proposal:
        """Propose up to `n` points for the ids from `first` on; always something."""
        assert n > 0 and first not in self._open
        if self._starts.n_open:
            rows = self._starts.take(n)
            return self._explicit(first, Party.START, Ticket(0, 0, rows), self._start_positions[rows])
        self._credit.review(self._divers.n_ended > 0, self._batch)
        is_turn = self._hunt.is_over or self._credit.prefers_dive()
        if self._divers.can_start(is_turn):
            self._start_dive()
        if is_turn and self._divers.has_points:
            return self._explicit(first, Party.DIVE, *self._divers.take(n))
        self._credit.charge(Party.HOVER, max(n, self._batch))
        return Proposal(n, None)

    def _explicit(self, first: int, party: Party, ticket: Ticket, positions: Floats) -> Proposal:
        self._open[first] = _Open(party, ticket, positions)
        self._credit.charge(party, max(len(positions), self._batch))
        return Proposal(len(positions), positions)

    def _start_dive(self) -> None:
        """Start the next dive once something is known: the first where the first generation was best."""
        if self._is_adopted_new and self._adopted is not None:
            self._is_adopted_new = False
            self._divers.start(self._adopted, self._hunt.mean, is_adopted=True)
            return
        elite = self._elite
        if elite is not None and self._credit.n_told >= self._hunt.population and math.isfinite(elite.cost):
            self._divers.start(elite, self._hunt.mean, is_adopted=False)

    @property
    def _elite(self) -> Best | None:
        if self._best is None or self._adopted is None:
            return self._best or self._adopted
        return self._adopted if self._best.is_beaten_by(self._adopted.cost, self._adopted.violation) else self._best

    def tell(
        self,
        first: int,
        costs: Floats,
        generation: int,
        latent: Floats | None = None,
        positions: Floats | None = None,
        steer: bool = True,
        violations: Floats | None = None,
        scale: float = 1.0,
    ) -> None:
        """Take the results of the block that begins at `first`, once, when it is complete.

        costs: (n,), NaN where an evaluation failed; generation: the distribution it was really drawn from, -1 for
        explicit points; latent: (n, n_dims), drawn again if None; scale: the factor of a scaled distribution;
        positions: (n, n_dims), computed again if None, which needs a remembered generation; violations: (n,) >= 0;
        steer: False for stale results, which may improve the best and nothing else (a dive takes its points all the
        same: what a place costs does not age).
        """
        results = Results.of(costs, violations)
        if generation < 0:
            block = self._open.pop(first, None)
            if block is not None:
                self._tell_explicit(block, results)
            elif positions is not None:  # from before a restart of the leader: a fact
                self._improve(Party.START, results, positions)
            return
        n = costs.size
        if latent is None:
            latent = streams.latent(self._seed, first, n, self._space)
        latent = self._as_scaled(latent, scale)
        self._credit.close(Party.HOVER, max(n, self._batch))
        self._improve_hovered(results, positions, latent, generation)
        if not steer:
            return
        major, minor = results.major, results.minor
        k = n_survivors(n, self._space.n_dims)
        if k < n:
            rows = ranking.order(major, minor)[:k]
            latent, major, minor = latent[rows], major[rows], minor[rows]
        self._hunt.tell(latent, major, minor, generation, n)

    def tell_survivors(
        self,
        n: int,
        costs: Floats,
        latent: Floats,
        generation: int,
        steer: bool = True,
        violations: Floats | None = None,
        scale: float = 1.0,
    ) -> None:
        """Take the s best of a hovered block of `n` points: costs (s,), latent (s, n_dims), see `osprey.n_survivors`.

        The other arguments are those of `tell`.
        """
        latent = self._as_scaled(latent, scale)
        results = Results.of(costs, violations)
        self._credit.close(Party.HOVER, max(n, self._batch))
        self._improve_hovered(results, None, latent, generation)
        if steer:
            self._hunt.tell(latent, results.major, results.minor, generation, n)

    def _as_scaled(self, latent: Floats, scale: float) -> Floats:
        """Express latent numbers in terms of the unscaled distribution; a choice has no scale."""
        if scale == 1.0:
            return latent
        scaled = latent.copy()
        scaled[:, : self._space.n_numeric] *= scale
        return scaled

    def _tell_explicit(self, block: _Open, results: Results) -> None:
        costs = results.costs
        assert costs.size == len(block.positions), "an explicit block is told whole"
        self._credit.close(block.party, max(costs.size, self._batch))
        self._improve(block.party, results, block.positions)
        if block.party is Party.START:
            self._starts.tell(block.ticket.rows, costs)
        else:
            elite = self._elite
            self._divers.tell(block.ticket, costs, elite.cost if elite is not None else math.inf)

    def _improve_hovered(
        self, results: Results, positions: Floats | None, latent: Floats, generation: int
    ) -> None:
        if self._place_of_better(results) is None:
            return
        if positions is None:
            birth = self._hunt.birth(generation)
            if birth is None:
                return
            positions = hover(birth.distribution, latent, self._space)
        self._improve(Party.HOVER, results, positions)

    def _place_of_better(self, results: Results) -> int | None:
        """Find the best of some results; None if there is none, or the flock knows a better one."""
        if results.costs.size == 0:
            return None
        i = results.first()
        cost, violation = float(results.costs[i]), float(results.major[i])
        if math.isnan(cost) and math.isinf(violation):
            return None
        return i if self._best is None or self._best.is_beaten_by(cost, violation) else None

    def _improve(self, party: Party, results: Results, positions: Floats) -> None:
        """Take the best of some points (n, n_dims) if it is better than the flock's."""
        if (i := self._place_of_better(results)) is None:
            return
        position = np.array(positions[i], dtype=np.float64)
        self._best = Best(float(results.costs[i]), float(results.major[i]), position)
        self._credit.record(party)

    def adopt(self, best: Best) -> None:
        """Take a better point of another flock as the start of the next dive and descent; it steers nothing now."""
        elite = self._elite
        if elite is None or elite.is_beaten_by(best.cost, best.violation):
            self._adopted, self._is_adopted_new = best, True
            self._hunt.adopt(best.position)

    def forget(self, first: int, n: int) -> None:
        """Give up a block that will never be told; the points of a dive are asked again."""
        block = self._open.pop(first, None)
        if block is None:
            self._credit.refund(Party.HOVER, max(n, self._batch))
            return
        self._credit.refund(block.party, max(len(block.positions), self._batch))
        if block.party is Party.START:
            self._starts.put_back(block.ticket.rows)
        else:
            self._divers.put_back(block.ticket)

    def snapshot(self) -> State:
        """Give the whole state as flat arrays; open blocks count as never asked."""
        state = named("hunt", self._hunt.state()) | named("divers", self._divers.state())
        state |= named("credit", self._credit.state()) | named("starts", self._starts.state())
        state["start_positions"] = self._start_positions
        state["is_adopted_new"] = np.array(self._is_adopted_new, dtype=np.uint8)
        for name, best in (("best", self._best), ("adopted", self._adopted)):
            if best is not None:
                state[f"{name}.numbers"] = np.array([best.cost, best.violation])
                state[f"{name}.position"] = best.position
        return {key: np.array(array) for key, array in state.items()}

    @classmethod
    def restore(
        cls,
        snapshot: Mapping[str, NDArray[Any]],
        space: Space,
        search: Settings,
        seed: int,
        flock: int = 0,
        batch: int = 1,
    ) -> Flock:
        """Continue from `snapshot`, bit for bit."""
        state = {key: np.array(array) for key, array in snapshot.items()}
        made = cls(space, search, seed, flock, batch)
        made._hunt.load(part_of(state, "hunt"))
        made._divers.load(part_of(state, "divers"))
        made._credit.load(part_of(state, "credit"))
        made._start_positions = state["start_positions"]
        made._starts = Round.load(part_of(state, "starts"))
        made._is_adopted_new = bool(state["is_adopted_new"])
        made._best, made._adopted = (_best_of(part_of(state, name)) for name in ("best", "adopted"))
        return made

    def check(self) -> None:
        """Assert the invariants."""
        distribution = self.distribution
        assert distribution.generation == self.generation
        assert np.isfinite(distribution.mean).all() and np.isfinite(distribution.factor).all()
        assert 0.0 < distribution.sigma < math.inf
        assert distribution.probabilities.size == sum(self._space.n_choices)
        assert (distribution.probabilities >= 0.0).all()
        assert all(block.positions.shape[1] == self._space.n_dims for block in self._open.values())
        assert self._divers.is_on or not self._divers.has_points
        if self._best is not None:
            assert (self._best.position[: self._space.n_numeric] >= 0.0).all()
            assert (self._best.position[: self._space.n_numeric] <= 1.0).all()


def _best_of(state: State) -> Best | None:
    if not state:
        return None
    return Best(float(state["numbers"][0]), float(state["numbers"][1]), state["position"])


def _dives(space: Space, search: Settings) -> bool:
    has_slopes = space.is_continuous and not space.constraints and space.n_dims > 0
    if search.dives is True and not has_slopes:
        raise ConfigError(
            "swarm.search.dives is true, but dives need parameters that are all real without steps, and no constraints"
        )
    return bool(search.dives) and has_slopes
