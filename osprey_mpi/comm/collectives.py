"""Do things together: what all ranks of a world call alike.

Where MPI does not outlive lost ranks these are its collectives. Where it does they are messages from rank to rank: a
collective with a lost rank in its communicator cannot be relied on, nor can shrinking the communicator while more ranks
are lost; messages between survivors can.

There the root alone decides whether a further loss ends what is done together: it tells the members, who wait for its
word as long as MPI says that it lives. So all of them leave, or none.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from osprey_mpi.comm.failures import PATIENCE_S, MembersLost
from osprey_mpi.comm.mail import IDLE_S, Tag
from osprey_mpi.comm.startup import World


def broadcast(world: World, value: Any) -> Any:
    """Return the root's value, anything that pickles, on every rank. Collective over the world."""
    if world.comm is None:
        return value
    if world.has_collectives:
        return world.comm.bcast(value, root=world.root)
    if not world.is_root:
        return _receive(world, world.root)
    for rank in world.members[1:]:
        _send(world, rank, value)
    return value


def gather(world: World, value: Any) -> list[Any] | None:
    """Return everybody's value in the order of the members on the root, None elsewhere. Collective over the world."""
    if world.comm is None:
        return [value]
    if world.has_collectives:
        return world.comm.gather(value, root=world.root)
    if world.is_root:
        return [value, *(_collect(world, rank) for rank in world.members[1:])]
    _send(world, world.root, value)
    return None


def allgather(world: World, value: Any) -> list[Any]:
    """Return everybody's value in the order of the members, on every rank. Collective over the world."""
    if world.comm is None:
        return [value]
    if world.has_collectives:
        return world.comm.allgather(value)
    everybody: list[Any] = broadcast(world, gather(world, value))
    return everybody


def scatter(world: World, values: list[Any] | None) -> Any:
    """Return this rank's part of the root's list, which is in the order of the members. Collective over the world."""
    if world.comm is None:
        assert values is not None
        return values[0]
    if world.has_collectives:
        return world.comm.scatter(values, root=world.root)
    if not world.is_root:
        return _receive(world, world.root)
    assert values is not None
    for rank, value in zip(world.members[1:], values[1:], strict=True):
        _send(world, rank, value)
    return values[0]


def local_place(world: World) -> tuple[int, int]:
    """Return (local rank, ranks on this node). Collective over the world."""
    hosts = allgather(world, socket.gethostname())
    here = [rank for rank, host in zip(world.members, hosts, strict=True) if host == socket.gethostname()]
    return here.index(world.rank), len(here)


def _send(world: World, rank: int, value: Any) -> None:
    assert world.mail is not None
    world.mail.post(rank, value, Tag.TALK + world.epoch)


def _collect(world: World, source: int) -> Any:
    """Wait on the root for a member's part. Raises MembersLost, here and on all members, when any of them is lost."""
    try:
        return _wait(world, source, world.members)
    except MembersLost as lost:
        for rank in world.members[1:]:
            _send(world, rank, lost)
        raise


def _receive(world: World, source: int) -> Any:
    """Wait on a member for the root's word. Raises MembersLost when it says so, or is lost itself."""
    value = _wait(world, source, (source,))
    if isinstance(value, MembersLost):
        raise value
    return value


def _wait(world: World, source: int, needed: tuple[int, ...]) -> Any:
    assert world.mail is not None
    failures, deadline = world.mail.failures, time.monotonic() + PATIENCE_S
    while (word := world.mail.receive(source, Tag.TALK + world.epoch)) is None:
        failures.look()
        if lost := failures.lost.intersection(needed):
            raise MembersLost(sorted(lost))
        if time.monotonic() > deadline:
            raise MembersLost([source])
        time.sleep(IDLE_S)
    return word[0]
