"""Make a new world of the ranks that are left when one is lost that the others cannot do without.

    every survivor --Join(epoch)--> the lowest rank that is not known to be lost
    that rank, once all have joined or the time is up --Roster(epoch, members)--> every member

MPI tells each rank of every loss, sooner or later, so all come to agree on the lowest. When it is lost in the middle of
this they join the next; a roster's epoch is higher than all that its members have seen, and their messages carry it,
so that nothing of an earlier world is taken for one of this. The lowest is waited for as long as MPI says that it
lives; another that does not join in time (it is stopped) is left out, and ends once it goes on: by a signal, which the
launcher takes for one more loss. A rank that nobody joins although others live has been left out itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any, NoReturn

from osprey_mpi.comm.failures import PATIENCE_S, heard, post
from osprey_mpi.comm.startup import World

JOIN_TAG, ROSTER_TAG = 12, 13
IDLE_S = 0.002


def regroup(world: World, limit_s: float) -> World:
    """Return the world of the survivors. Collective over them; its root waits `limit_s` for the others to join."""
    assert world.comm is not None and world.failures is not None
    joined: dict[int, int] = {}  # who wants to go on with this rank as root, and the newest epoch it has seen
    asked, deadline, n_lost = -1, time.monotonic() + limit_s, -1
    while True:
        world.failures.look()
        alive = [rank for rank in world.members if rank not in world.failures.lost]
        if len(world.failures.lost) != n_lost:
            n_lost, deadline = len(world.failures.lost), time.monotonic() + limit_s
        is_late = time.monotonic() > deadline
        if world.rank == alive[0]:
            joined.update(_joins(world, alive[1:]))
            others = [rank for rank in alive[1:] if rank in joined]
            if is_late and alive[1:] and not others:
                _leave(world, f"nobody has joined it for {limit_s:g} s")
            if is_late or len(others) == len(alive) - 1:
                return _lead(world, others, joined)
        else:
            if asked != alive[0]:
                asked = alive[0]
                post(world.comm, world.failures, asked, world.epoch, JOIN_TAG)
            roster = _word(world, asked, ROSTER_TAG)
            if roster is not None and roster[0] > world.epoch and world.rank in roster[1]:
                return replace(world, epoch=roster[0], members=roster[1])
            if time.monotonic() > deadline + PATIENCE_S:
                _leave(world, f"rank {asked} has said nothing for {limit_s + PATIENCE_S:g} s")
        time.sleep(IDLE_S)


def _lead(world: World, others: list[int], joined: dict[int, int]) -> World:
    epoch = 1 + max([world.epoch, *(joined[rank] for rank in others)])
    made = replace(world, epoch=epoch, members=(world.rank, *others))
    assert world.comm is not None and world.failures is not None
    for rank in others:
        post(world.comm, world.failures, rank, (epoch, made.members), ROSTER_TAG)
    return made


def _joins(world: World, ranks: list[int]) -> dict[int, int]:
    words = {rank: _word(world, rank, JOIN_TAG) for rank in ranks}
    return {rank: epoch for rank, epoch in words.items() if epoch is not None}


def _word(world: World, source: int, tag: int) -> Any:
    assert world.comm is not None and world.failures is not None
    word = heard(world.comm, world.failures, source, tag)
    return None if word is None else word[0]


def _leave(world: World, why: str) -> NoReturn:
    """End this rank, which the others have left out: by a signal, which the launcher takes for one more loss."""
    sys.stderr.write(f"osprey: rank {world.rank} was left out of the run and ends: {why}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # not reached
