"""Give the workers of a flock their orders, and the search what comes back of them.

    ids of the root --> pool --search.ask--> Order --> worker
    worker --Delta--> order book --block complete--> search.tell

Rules
-----
* A block teaches the search once, when all of it is back. If its order is more than `stale_window` health cycles old it
  teaches nothing, it only may become the best point.
* What comes back of an order that was taken back meanwhile is a fact, not a vote, and is not ordered again.
* Exact mode works in rounds: a batch per worker, all told in id order at the end of the round, sizes fixed.
* What a lost worker had open goes back to the pool; a dive asks for its points again, a repetition is repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import numpy as np

from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Delta, Lease, Order, Steer
from osprey_mpi.continuity.orders import OpenOrder, OrderBook, Pace, order_s, parts
from osprey_mpi.continuity.settings import LeaderSettings
from osprey_mpi.continuity.steering import Steering
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.osprey import n_survivors

# The pool holds what the flock evaluates in this time: longer than a round trip to a root that is writing, so that
# nobody waits; short, because ids in the pool of a slow flock are missing elsewhere when the budget ends.
POOLED_S = 0.1

# Beside other flocks it holds so much that it could do without the root for a while; not much of what is left to do,
# because then a flock that is slower than others would have it while those have nothing.
AWAY_S = 5.0
AWAY_SHARE = 1 / 16

# Beside other flocks its rows, but a new best, wait so long for company on their way to the root, which hears of every
# flock: a fifth of the time between two appends of the root.
HOLD_S = 0.2

# A worker gets at least this many orders out of a budget: with a few hundred evaluations that take no time, the search
# would otherwise have half of them out before it learns from the first.
FEWEST_ORDERS = 32

# Points per call that are few: a GPU wants hundreds. A round of the exact mode holds one block of them, and carries it
# over where the budget cuts it.
SMALL_BATCH = 64


class Dispatch:
    """Hold the ids of a flock, its order book, and what is known of its workers' speed."""

    def __init__(self, workers: Collection[int], search: Flock, settings: LeaderSettings, carry: Carry) -> None:
        self.search, self.settings, self.carry = search, settings, carry
        self.pool = IdRanges()
        self.redo: deque[Order] = deque()  # orders to do finished evaluations again; the search did not ask for them
        self.book = OrderBook()
        self.paces = {worker: Pace() for worker in workers}
        self.living = dict(self.paces)  # without those that are lost: what is to come is reckoned by these
        self.steering = Steering(workers, 0.0 if settings.exact else settings.speed_exponent)
        self.cycle = 0
        self._n_wanted = 0
        self._n_left = -1
        self._per_s = 0.0  # evaluations of the flock, as of the last lease
        self._dry = False  # the root has no more ids

    @property
    def hold_s(self) -> float:
        """Return for how long rows may wait before they go up: not once the root waits for the last ones."""
        return HOLD_S if self.settings.has_others and not self._dry else 0.0

    # ids

    @property
    def n_ids(self) -> int:
        """Return how many evaluations wait for a worker."""
        return self.pool.n + len(self.redo)

    def add(self, lease: Lease) -> None:
        """Take in ids of the root."""
        self._dry = len(lease.ranges) == 0
        self._n_wanted, self._n_left = 0, lease.n_left
        self._per_s = self._rate()
        if not len(lease.positions):
            for start, stop in lease.ranges.tolist():
                self.pool.add(start, stop)
            return
        for (id, _), position in zip(lease.ranges.tolist(), lease.positions, strict=True):
            self.redo.append(Order(id, 1, 0, 1, self.cycle, lease.attempt, position[None, :]))

    def want(self) -> int:
        """Return how many ids to ask the root for now, 0 for none; seldom, so that most orders cost it no message."""
        if self.settings.exact:
            enough = len(self.living) * self._most_rows()
            amount = (2 if self.settings.batch > SMALL_BATCH else 1) * enough - self.n_ids
        else:
            enough, amount = self._ahead()
        if self._n_wanted or self._dry or self.n_ids >= enough:
            return 0
        self._n_wanted = amount
        return amount

    def _ahead(self) -> tuple[int, int]:
        """Return how many ids should be in the pool, and how many to ask for when there are less."""
        n_workers, n_out = len(self.living), self.book.n_rows_out
        if not self._per_s:
            self._per_s = self._rate()
        if self.settings.batch > 1:
            enough = 2 * n_workers * self.settings.batch
        elif not self._per_s:  # nobody knows yet how long an evaluation takes: one for each worker, and one to be ready
            enough = max(1, n_workers - n_out)
            return enough, enough
        else:
            enough = 1 + int(min(POOLED_S * self._per_s, 2 * (n_workers + n_out)))
        reserve = self._reserve()
        return max(enough, reserve), max(4 * enough, 2 * reserve)

    def _reserve(self) -> int:
        """Return how many ids to hold for a time in which the root says nothing."""
        if not self.settings.has_others:
            return 0
        n = AWAY_S * self._per_s
        return int(n if self._n_left < 0 else min(n, AWAY_SHARE * self._n_left))

    def _rate(self) -> float:
        """Return how many evaluations the flock does in a second; 0 when nobody has done one yet."""
        rates = [1.0 / max(pace.mean_s, 1e-9) for pace in self.living.values() if pace.n_seen]
        return len(self.living) * sum(rates) / len(rates) if rates else 0.0

    def _most_rows(self) -> int:
        """Return the largest order: more than a few populations out at once would come back stale.

        A small batch spares calls and may be cut for that; a large one is there for a device that needs it whole.
        """
        batch = self.settings.batch
        if self.settings.exact or batch > SMALL_BATCH:
            return batch
        n_workers = max(len(self.living), 1)
        fresh = max(6 * self.settings.n_dims // n_workers, 8)
        if self.settings.n_evaluations is not None:
            fresh = min(fresh, max(self.settings.n_evaluations // (FEWEST_ORDERS * n_workers), 1))
        return min(fresh, 256 if batch == 1 else batch)

    def _n_rows(self, worker: int) -> int:
        most = self._most_rows()
        if self.settings.exact or self.settings.batch > 1:
            return most
        return self.paces[worker].n_rows(most, order_s(self.settings.n_dims, self.search.has_dives))

    def slowest_s(self) -> float:
        """Return how long the slowest worker takes for an order."""
        return max((pace.mean_s * self._n_rows(worker) for worker, pace in self.living.items()), default=0.0)

    # orders

    def slack_s(self) -> float:
        """Return for how long every worker has work, as good as sure."""
        slacks = (pace.sure_s(sum(self.book.rows_at(worker))) for worker, pace in self.living.items())
        return min(slacks, default=0.0)

    def can_begin_round(self) -> bool:
        """Tell whether in exact mode a round may begin: with all ids that it needs, or with the last ones."""
        enough = len(self.living) * self._most_rows()
        return not self.book.open and (self._dry or self.n_ids >= enough)

    def orders_for(self, worker: int) -> list[Steer | Order]:
        """Return what to send to a worker: orders as long as it has room for one."""
        n_rows = self._n_rows(worker)
        messages: list[Steer | Order] = []
        given = 0
        while self._has_room(worker, n_rows, given):
            order = self._next_order(n_rows)
            if order is None:
                break
            given += order.row_stop - order.row_start
            entry = OpenOrder.of(order, worker)
            if order.row_start > 0:
                self.carry.fill(entry)
            self.book.add(entry)
            steer = None if entry.explicit else self.steering.update(worker, self.search.distribution, self.living)
            messages += [order] if steer is None else [steer, order]
        return messages

    def _has_room(self, worker: int, n_rows: int, given: int) -> bool:
        """Tell whether a worker should get one more order, after `given` rows just now.

        It has one in progress, and behind it the rows of one or two whole orders: the last order of a dive's round may
        be short. In exact mode a round is one order; where batches are large, a dive's few points do not fill it.
        """
        if not self.settings.exact:
            rows = self.book.rows_at(worker)
            return not rows or sum(rows[1:]) < self.paces[worker].n_behind(n_rows) * n_rows
        return given == 0 or (n_rows > SMALL_BATCH and 2 * given < n_rows <= self.pool.n)

    def _next_order(self, n_rows: int) -> Order | None:
        if self.redo:
            return self.redo.popleft()
        exact = self.settings.exact
        resumed = self.carry.resume(self.pool, self.search, self.cycle) if exact else None
        if resumed is not None:
            return resumed
        start, stop = self.pool.first_run()
        n = min(n_rows, stop - start)
        if n <= 0:
            return None
        # The last ids below the budget may be less than a block: it is asked for as a whole, and carried over. Not
        # where one of several workers is left: a resumed run has several again.
        asked = n_rows if exact and len(self.paces) == 1 and self.pool.n == n else n
        self.carry.before_ask(self.search, cut=n < asked)
        proposal = self.search.ask(start, asked)
        n = min(n, proposal.n)
        self.pool.remove(start, start + n)
        positions = np.empty((0, 0)) if proposal.positions is None else proposal.positions
        return Order(start, proposal.n, 0, n, self.cycle, 0, positions)

    def take_back(self, worker: int) -> list[OpenOrder]:
        """Take back the unfinished orders of a lost worker; return them, first the one that it was at."""
        self.living.pop(worker, None)
        self.steering.forget(worker)
        taken = [entry for entry in self.book.of(worker) if not entry.finished]  # a finished one waits for its round
        for entry in taken:
            order = entry.order
            self.book.close(order.first)
            if order.attempt > 0:
                self.redo.append(order)
                continue
            if not entry.is_foreign:
                self.search.forget(order.first, order.n)
            self.pool.add(order.first + entry.rows_back, order.first + order.row_stop)
        self.cycle += 1  # orders of these ids from now on are told from the old ones by their cycle
        return taken

    def take_in(self, worker: int) -> None:
        """Reckon with a worker again that was lost and is back."""
        self.living[worker] = self.paces[worker]

    def adopt(self, worker: int, order: Order) -> None:
        """Enter an order that a worker is at since before this leader led: its results count, and teach nothing."""
        entry = OpenOrder.of(order, worker)
        entry.is_foreign = True
        self.book.add(entry)

    # results

    def enter(self, source: int, delta: Delta) -> bool:
        """Take in what a worker did; return whether that ended a round of the exact mode."""
        for piece, part in parts(delta):
            entry = self.book.open.get(piece.first)
            if entry is None or entry.worker != source or not entry.follows(piece):
                self.pool.remove(piece.first + piece.row_start, piece.first + piece.row_stop)
                continue
            self.paces[source].learn(piece.row_stop - piece.row_start, piece.elapsed_s)
            self.book.take(entry, piece, part)
            if entry.finished and not self.settings.exact:
                self._tell(self.book.close(piece.first))
        return self.end_round()

    def end_round(self) -> bool:
        """Tell the search of a round of the exact mode once all of it is back."""
        if not self.settings.exact or not self.book.open:
            return False
        if not all(entry.finished for entry in self.book.open.values()):
            return False
        for first in sorted(self.book.open):
            entry = self.book.close(first)
            if entry.complete or not self.carry.keep(entry):
                self._tell(entry)
        return True

    def _tell(self, entry: OpenOrder) -> None:
        """Let the search learn from a block that is back."""
        order, search = entry.order, self.search
        if order.attempt > 0 or entry.is_foreign:
            return  # a fact: done again, its point is known already; or drawn from what this search never was
        if order.row_start > 0:
            self.carry.complete()
        if self.settings.penalty is not None:
            entry.costs[np.isnan(entry.costs) & ~(entry.violations > 0.0)] = self.settings.penalty
        steer = self.settings.exact or self.cycle - order.cycle <= self.settings.stale_window
        scale = self.steering.scale(entry.worker, entry.generation)
        if not entry.explicit and not entry.is_whole:
            costs, violations, latent = entry.survivors(self.settings.n_dims)
            best = np.lexsort((costs, violations))[: n_survivors(order.n, self.settings.n_dims)]
            search.tell_survivors(
                order.n, costs[best], latent[best], entry.generation,
                steer=steer, violations=violations[best], scale=scale,
            )  # fmt: skip
            return
        search.tell(
            order.first, entry.costs, entry.generation, violations=entry.violations, steer=steer, scale=scale,
            positions=order.positions if entry.explicit else None,
        )  # fmt: skip

    def check(self) -> None:
        """Assert the invariants: no id is both free and ordered."""
        self.book.check()
        for entry in self.book.open.values():
            order = entry.order
            assert not list(self.pool.overlap(order.first + entry.rows_back, order.first + order.row_stop))
