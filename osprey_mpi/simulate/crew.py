"""Build the state machines of one rank for one life, as `drivers/crew.py` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from osprey_mpi.comm.tree import Flock, Tree
from osprey_mpi.config import Config
from osprey_mpi.continuity.budget import BudgetRule
from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.leader import Leader, LeaderSettings
from osprey_mpi.continuity.messages import Best, Order, Role
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.continuity.worker import Worker
from osprey_mpi.search.flock import Flock as Search
from osprey_mpi.search.space import Space
from osprey_mpi.simulate.cluster import VirtualDisk

Groups = Mapping[str, Mapping[str, Any]]
Orders = Mapping[int, Sequence[Order]]
Machines = dict[Role, Any]


@dataclass(frozen=True, slots=True)
class Times:
    """Hold the limits of a launch, in s; all are shorter than the real ones, in the same order."""

    cycle_s: float = 0.2
    suspect_after_s: float = 0.5
    lost_after_s: float = 2.0
    results_s: float = 0.1  # between appends
    checkpoint_s: float = 0.4
    patience_s: float = 6.0
    join_s: float = 1.5
    lock_wait_s: float = 3.0
    leave_s: float = 1.0  # of the root; a leader waits less


@dataclass(slots=True)
class Plan:
    """Hold what the ranks of a launch have in common."""

    config: Config
    seed: int
    times: Times = field(default_factory=Times)
    space: Space = field(init=False)

    def __post_init__(self) -> None:
        self.space = Space(self.config.parameters)


def is_exact(placed: Tree) -> bool:
    """Tell whether one rank alone evaluates."""
    return sum(len(flock.workers) for flock in placed.flocks) == 1


def build_root(plan: Plan, placed: Tree, disk: VirtualDisk, running: Orders, now: float) -> Root:
    """Return the root of a life that goes on from a disk, and from what the ranks are at."""
    times, space, best = plan.times, plan.space, disk.tally.best
    settings = RootSettings(
        BudgetRule(plan.config.budget.evaluations), space.n_columns, is_exact(placed),
        results_interval_s=times.results_s, checkpoint_interval_s=times.checkpoint_s, leave_s=times.leave_s,
        suspect_after_s=times.suspect_after_s, lost_after_s=times.lost_after_s,
    )  # fmt: skip
    known = None
    if best.id >= 0:
        known = Best(best.cost, best.violation, best.id, space.encode(best.values[None, :])[0])
    root = Root(
        placed.root, placed.leaders, settings, now, best=known,
        tally=Tally(IdRanges(disk.tally.done), dict(disk.tally.counts), disk.tally.best),
        snapshots={int(name.removeprefix("flock-")): dict(arrays) for name, arrays in disk.groups.items()},
    )  # fmt: skip
    for orders in running.values():
        for order in orders:
            root.leases.give(order.first + order.row_start, order.first + order.row_stop)
    return root


def build_leader(plan: Plan, placed: Tree, flock: Flock, groups: Groups, running: Orders, now: float) -> Leader:
    """Return the leader of a flock."""
    times, space = plan.times, plan.space
    settings = LeaderSettings(
        space.n_columns, space.n_dims, exact=is_exact(placed), cycle_s=times.cycle_s,
        suspect_after_s=times.suspect_after_s, lost_after_s=times.lost_after_s, patience_s=times.patience_s,
        leave_s=times.leave_s / 2, has_others=len(placed.flocks) > 1,
    )  # fmt: skip
    saved, carry = Carry.split(dict(groups.get(f"flock-{flock.number:04d}", {})))
    args = (space, plan.config.swarm.search, plan.seed, flock.number, 1)
    search = Search.restore(saved, *args) if saved else Search(*args)
    leader = Leader(
        flock.leader, flock.number, placed.root, flock.workers, search, settings, now, carry=carry,
        leaders=placed.leaders,
    )  # fmt: skip
    for worker in flock.workers:
        for order in running.get(worker, ()):
            leader.dispatch.adopt(worker, order)
    return leader


def build_worker(plan: Plan, rank: int, flock: Flock, given: Sequence[Order], rows_back: int) -> Worker:
    """Return a worker that goes on with what it was given."""
    return Worker(
        rank, flock.number, flock.leader, plan.space.n_columns, plan.space.n_dims, cycle_s=plan.times.cycle_s,
        patience_s=plan.times.patience_s, given=given, rows_back=rows_back,
    )  # fmt: skip
