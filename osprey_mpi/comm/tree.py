"""Place ranks in the two-level tree: rank 0 is the root, every flock has a leader and its workers.

    up to one flock      rank 0 is root, leader and worker; all others are its workers
    above                rank 0 is root only; the others are split evenly into flocks; the first of each leads it

A flock of size 16 is 17 ranks: a leader and 16 workers. Where an objective needs k ranks, a worker is a group of k.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from osprey_mpi.comm.channel import drain
from osprey_mpi.errors import ConfigError

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True, slots=True)
class Flock:
    """Name the ranks of one flock: workers evaluate, followers help the worker whose group they belong to."""

    number: int
    leader: int
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """Hold the roles of all ranks.

    members: all ranks, the root first. groups: worker rank -> ranks of its group, itself first; empty where a worker is
    one rank.
    """

    members: tuple[int, ...]
    flocks: tuple[Flock, ...]
    groups: dict[int, tuple[int, ...]]
    spare: tuple[int, ...]  # ranks that do not fill a group

    @property
    def root(self) -> int:
        """Return the rank at the top."""
        return self.members[0]

    @property
    def n_ranks(self) -> int:
        """Count all ranks."""
        return len(self.members)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Return the leaders' ranks."""
        return tuple(flock.leader for flock in self.flocks)

    def on(self, members: Sequence[int]) -> Tree:
        """Return the same tree with `members` (n_ranks,) in the places of the ranks from 0 on."""
        if tuple(members) == self.members:
            return self

        def named(ranks: Sequence[int]) -> tuple[int, ...]:
            return tuple(members[rank] for rank in ranks)

        flocks = tuple(Flock(f.number, members[f.leader], named(f.workers)) for f in self.flocks)
        groups = {members[head]: named(ranks) for head, ranks in self.groups.items()}
        return Tree(tuple(members), flocks, groups, named(self.spare))

    @property
    def superiors(self) -> dict[int, int]:
        """Map each rank to the one that lets it go at the end: a worker to its leader, a follower to its worker."""
        pairs = [(worker, flock.leader) for flock in self.flocks for worker in flock.workers]
        pairs += [(member, worker) for worker, group in self.groups.items() for member in group]
        return {rank: superior for rank, superior in pairs if rank != superior}

    def flock_of(self, rank: int) -> Flock | None:
        """Return the flock in which `rank` leads or works, or None."""
        return next((f for f in self.flocks if rank == f.leader or rank in f.workers), None)

    def worker_flock(self, rank: int) -> Flock | None:
        """Return the flock in which `rank` evaluates, or None."""
        return next((f for f in self.flocks if rank in f.workers), None)


def plan(n_ranks: int, flock_size: int, ranks_each: int = 1) -> Tree:
    """Place `n_ranks` ranks. Raises ConfigError when an objective needs more ranks than there are."""
    if ranks_each > n_ranks:
        raise ConfigError(
            f"objective.ranks is {ranks_each}, but the run has {n_ranks} rank{'s' if n_ranks > 1 else ''}: start at "
            f"least {ranks_each} ranks ({ranks_each + 1} keep the coordinator free)"
        )
    if n_ranks <= flock_size + 1 or n_ranks == ranks_each:
        # The coordinator evaluates as well, except beside groups: a group's call keeps all of its ranks in user code.
        first = 0 if ranks_each == 1 or n_ranks == ranks_each else 1
        workers, groups, spare = _groups(range(first, n_ranks), ranks_each)
        return Tree(tuple(range(n_ranks)), (Flock(0, 0, workers),), groups, spare)
    n_flocks = -(-(n_ranks - 1) // (flock_size * ranks_each + 1))
    base, extra = divmod(n_ranks - 1, n_flocks)
    flocks: list[Flock] = []
    all_groups: dict[int, tuple[int, ...]] = {}
    all_spare: list[int] = []
    at = 1
    for number in range(n_flocks):
        n_here = base + (1 if number < extra else 0)
        workers, groups, spare = _groups(range(at + 1, at + n_here), ranks_each)
        flocks.append(Flock(number, at, workers))
        all_groups |= groups
        all_spare += spare
        at += n_here
    return Tree(tuple(range(n_ranks)), tuple(flocks), all_groups, tuple(all_spare))


def _groups(ranks: range, ranks_each: int) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]], tuple[int, ...]]:
    members = list(ranks)
    if ranks_each == 1:
        return tuple(members), {}, ()
    n_groups = len(members) // ranks_each
    groups = [tuple(members[i * ranks_each : (i + 1) * ranks_each]) for i in range(n_groups)]
    return tuple(g[0] for g in groups), {g[0]: g for g in groups}, tuple(members[n_groups * ranks_each :])


@dataclass(frozen=True, slots=True)
class Communicators:
    """Hold the communicators of the tree; a rank that is no member holds None.

    flock: leader and workers of one flock. leaders: all leaders, and the root first when it leads no flock.
    group: the ranks of one worker whose objective needs several. The protocol uses none of them, but messages from rank
    to rank on `World.protocol`, which outlive the loss of ranks.
    """

    flock: MPI.Intracomm | None = None
    leaders: MPI.Intracomm | None = None
    group: MPI.Intracomm | None = None


def split(comm: MPI.Intracomm | None, tree: Tree, rank: int) -> Communicators:
    """Make the communicators. Collective over the world."""
    if comm is None:
        return Communicators()
    from mpi4py import MPI

    none = MPI.UNDEFINED
    flock = tree.flock_of(rank)
    flock_comm = comm.Split(none if flock is None else flock.number, rank)
    upper = rank == tree.root or rank in tree.leaders
    leaders_comm = comm.Split(0 if upper else none, rank)
    group = next((head for head, members in tree.groups.items() if rank in members), None)
    group_comm = comm.Split(none if group is None else group, rank)

    def held(made: MPI.Comm) -> MPI.Intracomm | None:
        return made if isinstance(made, MPI.Intracomm) and made != MPI.COMM_NULL else None

    return Communicators(held(flock_comm), held(leaders_comm), held(group_comm))


def free(communicators: Communicators) -> None:
    """Free them. Collective over each."""
    for comm in (communicators.flock, communicators.leaders, communicators.group):
        if comm is not None:
            drain(comm)
            with contextlib.suppress(Exception):  # what came in just now must not fail a run that is over
                comm.Free()
