"""Do things together: what all ranks of a world call alike.

The world of the launch uses MPI's collectives. One that was made after a loss (`regroup`) uses messages from rank to
rank: a collective with a lost rank in its communicator cannot be relied on, and shrinking the communicator under
further losses failed in 2 of 20 trials, while messages between survivors always worked.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from osprey_mpi.comm.failures import MembersLost, heard, post
from osprey_mpi.comm.startup import World

TALK_TAG = 4096  # plus the epoch: above all other tags
IDLE_S = 0.002
LIMIT_S = 120.0  # for one rank's part, which may be to import the objective


def broadcast(world: World, value: Any) -> Any:
    """Return the root's value, anything that pickles, on every rank. Collective over the world."""
    if world.comm is None:
        return value
    if world.epoch == 0:
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
    if world.epoch == 0:
        return world.comm.gather(value, root=world.root)
    if world.is_root:
        return [value, *(_receive(world, rank) for rank in world.members[1:])]
    _send(world, world.root, value)
    return None


def spread(world: World, value: Any) -> list[Any]:
    """Return everybody's value in the order of the members, on every rank. Collective over the world."""
    if world.comm is None:
        return [value]
    if world.epoch == 0:
        return world.comm.allgather(value)
    everybody: list[Any] = broadcast(world, gather(world, value))
    return everybody


def scatter(world: World, values: list[Any] | None) -> Any:
    """Return this rank's part of the root's list, which is in the order of the members. Collective over the world."""
    if world.comm is None:
        assert values is not None
        return values[0]
    if world.epoch == 0:
        return world.comm.scatter(values, root=world.root)
    if not world.is_root:
        return _receive(world, world.root)
    assert values is not None
    for rank, value in zip(world.members[1:], values[1:], strict=True):
        _send(world, rank, value)
    return values[0]


def local_place(world: World) -> tuple[int, int]:
    """Return (local rank, ranks on this node). Collective over the world."""
    hosts = spread(world, socket.gethostname())
    here = [rank for rank, host in zip(world.members, hosts, strict=True) if host == socket.gethostname()]
    return here.index(world.rank), len(here)


def _send(world: World, rank: int, value: Any) -> None:
    assert world.comm is not None and world.failures is not None
    post(world.comm, world.failures, rank, value, TALK_TAG + world.epoch)


def _receive(world: World, source: int) -> Any:
    """Wait for what a member sends. Raises MembersLost when any member is lost meanwhile, or says nothing too long."""
    assert world.comm is not None and world.failures is not None
    deadline = time.monotonic() + LIMIT_S
    while (word := heard(world.comm, world.failures, source, TALK_TAG + world.epoch)) is None:
        world.failures.look()
        if lost := world.failures.lost.intersection(world.members):
            raise MembersLost(sorted(lost))
        if time.monotonic() > deadline:
            raise MembersLost([source])
        time.sleep(IDLE_S)
    return word[0]
