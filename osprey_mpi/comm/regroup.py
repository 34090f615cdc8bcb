"""Make a new world of the ranks that are left when one is lost that the others cannot do without.

    every survivor --Join(epoch)--> the lowest rank that is not known to be lost
    that rank, once all have joined or the time is up --Roster(epoch, members)--> every member

MPI tells each rank of every loss, sooner or later, so all come to agree on the lowest. When it is lost in the middle of
this they join the next; a roster's epoch is higher than all that its members have seen, and their messages carry it,
so that nothing of an earlier world is taken for one of this. The lowest is waited for as long as MPI says that it
lives; another that does not join in time (it is stopped) is left out. Once it goes on it may take itself for the root
of all that is left: it finds the run's folder held by the others, or with a life that it has no part in, and leaves. A
root that has ended the run meanwhile answers a join with its last word.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any, NoReturn

from osprey_mpi.comm.failures import PATIENCE_S, RunIsOver
from osprey_mpi.comm.mail import IDLE_S, Mail, Tag
from osprey_mpi.comm.startup import World, vanish


def regroup(world: World, limit_s: float) -> World:
    """Return the world of the survivors. Collective over them; its root waits `limit_s` for the others to join.

    Raises RunIsOver when the root has ended the run.
    """
    assert world.mail is not None
    mail, failures = world.mail, world.mail.failures
    joined: dict[int, int] = {}  # who wants to go on with this rank as root, and the newest epoch it has seen
    asked, deadline, n_lost = -1, time.monotonic() + limit_s, -1
    while True:
        failures.look()
        alive = [rank for rank in world.members if rank not in failures.lost]
        if len(failures.lost) != n_lost:
            n_lost, deadline = len(failures.lost), time.monotonic() + limit_s
        if world.rank == alive[0]:
            is_late = time.monotonic() > deadline
            joined.update(_joins(mail, alive[1:]))
            others = [rank for rank in alive[1:] if rank in joined]
            if is_late or len(others) == len(alive) - 1:
                return _lead(world, others, joined)
        else:
            if asked != alive[0]:
                asked = alive[0]
                mail.post(asked, world.epoch, Tag.JOIN)
            if made := _answer(world, mail, asked):
                return made
            if time.monotonic() > deadline + PATIENCE_S:
                leave(world, f"rank {asked} has said nothing for {limit_s + PATIENCE_S:g} s")
        time.sleep(IDLE_S)


def _lead(world: World, others: list[int], joined: dict[int, int]) -> World:
    assert world.mail is not None
    epoch = 1 + max([world.epoch, *(joined[rank] for rank in others)])
    made = replace(world, epoch=epoch, members=(world.rank, *others))
    for rank in others:
        world.mail.post(rank, (epoch, made.members), Tag.ROSTER)
    return made


def _joins(mail: Mail, ranks: list[int]) -> dict[int, int]:
    words = {rank: mail.receive(rank, Tag.JOIN) for rank in ranks}
    return {rank: word[0] for rank, word in words.items() if word is not None}


def _answer(world: World, mail: Mail, root: int) -> World | None:
    """Return the world that a root has made, None if it has not said so yet. Raises RunIsOver."""
    last = mail.receive(root, Tag.RESULT)
    if last is not None:
        result, lost = last[0]
        mail.failures.lost |= lost
        raise RunIsOver(result)
    word: Any = mail.receive(root, Tag.ROSTER)
    if word is None:
        return None
    epoch, members = word[0]
    return replace(world, epoch=epoch, members=members) if epoch > world.epoch and world.rank in members else None


def leave(world: World, why: str) -> NoReturn:
    """End this rank, which the others have left out: by a signal, which the launcher takes for one more loss."""
    sys.stderr.write(f"osprey: rank {world.rank} was left out of the run and ends: {why}\n")
    sys.stderr.flush()
    vanish()
