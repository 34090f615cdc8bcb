"""Make a new world of the ranks that are left when one is lost that the others cannot do without.

The rules are those of `continuity/succession.py`; here its words are posted and looked for. `Failures` tells of every
loss, and messages carry the epoch of their world, so that nothing of an earlier one is taken for one of this. A rank
that was stopped and left out is ended by the others of its host, or leaves when it hears of it. Where it does not, it
may take itself, once it goes on, for the root of all that is left: it finds the run's folder held by the others, or
with a life that it has no part in, and leaves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from osprey_mpi.comm.failures import PATIENCE_S, RunIsOver
from osprey_mpi.comm.mail import IDLE_S, Tag
from osprey_mpi.comm.startup import World, left_out
from osprey_mpi.continuity.events import PeerLost, Tick
from osprey_mpi.continuity.succession import (
    Accept,
    Action,
    Event,
    Join,
    LastWord,
    Leave,
    PostJoin,
    PostRoster,
    Roster,
    Succession,
    TakeUp,
    Word,
)

_TAGS = {Word.JOIN: Tag.JOIN, Word.ROSTER: Tag.ROSTER, Word.LAST: Tag.RESULT}


def regroup(world: World, limit_s: float, held: Sequence[bytes] = ()) -> tuple[World, list[bytes]]:
    """Return the world of the survivors, and what this rank holds now. Collective over them.

    Its root waits `limit_s` for the others to join. held: what this rank holds and asks to put on disk; each hands it
    to the one that it joins, who may be the only one left to do so. Raises RunIsOver when the root has ended the run.
    """
    assert world.mail is not None
    lost = world.mail.failures.lost
    succession = Succession(
        world.rank, world.members, world.epoch, time.monotonic(), limit_s=limit_s, patience_s=PATIENCE_S, lost=lost
    )
    all_held = list(held)
    while True:
        for event in _events(world, succession, all_held):
            for action in succession.handle(event, time.monotonic()):
                if made := _do(world, action, held):
                    return made, list(dict.fromkeys(all_held))
        time.sleep(IDLE_S)


def _events(world: World, succession: Succession, held: list[bytes]) -> Iterator[Event]:
    """Yield what has happened since the last look: losses, then words, then that time has passed.

    held: gets what those hold that join.
    """
    assert world.mail is not None
    yield from (PeerLost(rank) for rank in world.mail.failures.look())
    for source, kind in succession.awaited():
        word: Any = world.mail.receive(source, _TAGS[kind])
        match kind, word:
            case _, None:
                continue
            case Word.JOIN, [[epoch, handed]]:
                held += handed
                yield Join(source, epoch)
            case Word.ROSTER, [[epoch, members]]:
                yield Roster(source, epoch, members)
            case Word.LAST, [[result, lost]]:
                world.mail.failures.lost |= lost
                yield LastWord(source, result)
    yield Tick()


def _do(world: World, action: Action, held: Sequence[bytes]) -> World | None:
    """Carry out an action; return the new world if that is what it is. Raises RunIsOver."""
    assert world.mail is not None
    match action:
        case PostJoin(rank, epoch):
            world.mail.post(rank, (epoch, held), Tag.JOIN)
        case PostRoster(rank, epoch, members):
            world.mail.post(rank, (epoch, members), Tag.ROSTER)
        case TakeUp(epoch, members):
            if members[0] == world.rank and world.heart is not None:
                world.heart.condemn(set(world.members) - set(members))
            return replace(world, epoch=epoch, members=members)
        case Accept(result):
            raise RunIsOver(result)
        case Leave(why):
            leave(world, why)
    return None


def leave(world: World, why: str) -> NoReturn:
    """End this rank, which the others have left out."""
    left_out(world.rank, why)
