"""End a run together: wait for all ranks that are left, give all of them its result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from osprey_mpi.comm.startup import World, break_off, broadcast
from osprey_mpi.errors import RunLost

CODE_TAG, END_TAG, RESULT_TAG = 9, 10, 11  # beside the roles of continuity.messages
IDLE_S = 0.005  # between looks of a rank that only waits: well under 1 % of a core


def tell_code(world: World, ranks: Iterable[int], exit_code: int) -> None:
    """Tell ranks that have no state machine how the run ended."""
    for rank in ranks:
        assert world.comm is not None
        world.comm.send(exit_code, dest=rank, tag=CODE_TAG)


def await_code(world: World) -> int:
    """Wait asleep for tell_code."""
    assert world.comm is not None
    while not world.comm.iprobe(source=0, tag=CODE_TAG):
        time.sleep(IDLE_S)
    return int(world.comm.recv(source=0, tag=CODE_TAG))


def assemble(world: World, limit_s: float, exit_code: int) -> None:
    """Wait for all ranks before the last collectives, which no rank could leave without the others.

    Collective over the world. Rank 0 waits `limit_s`; then it names who did not come and ends the launch: all that is
    to be kept is on disk by now.
    """
    if world.comm is None:
        return
    assert world.failures is not None
    nothing = bytearray()
    if world.rank > 0:
        with _outliving_all_but_root(world):
            world.comm.Send(nothing, dest=0, tag=END_TAG)
        return
    missing = set(range(1, world.n_ranks))
    deadline = time.monotonic() + limit_s
    while missing:
        world.failures.look()
        missing -= world.failures.lost
        for rank in [rank for rank in missing if _has_come(world, rank)]:
            world.comm.Recv(nothing, source=rank, tag=END_TAG)
            missing.discard(rank)
        if missing and time.monotonic() > deadline:
            names = ", ".join(str(rank) for rank in sorted(missing))
            break_off(world, f"no answer from rank {names} at the end; everything is on disk, ending all", exit_code)
        time.sleep(IDLE_S if missing else 0.0)


def _has_come(world: World, rank: int) -> bool:
    """Tell whether a rank's word of the end is there; not of one that has failed, which the next look will see."""
    from mpi4py import MPI

    assert world.comm is not None and world.failures is not None
    try:
        return world.comm.Iprobe(source=rank, tag=END_TAG)
    except MPI.Exception as error:
        if not world.failures.is_one(error):
            raise
        return False


def part(world: World, value: Any) -> Any:
    """Return rank 0's value, anything that pickles, on every rank; learn who is lost. The last word of a run.

    Where MPI does not outlive failures it is a broadcast; else rank 0 writes to each that is left. Raises RunLost when
    rank 0 is lost.
    """
    if world.comm is None or not world.is_tolerant:
        return broadcast(world, value)
    from mpi4py import MPI

    assert world.failures is not None
    if world.rank == 0:
        last = (value, world.failures.lost)
        for rank in set(range(1, world.n_ranks)) - world.failures.lost:
            with contextlib.suppress(MPI.Exception):  # it has failed just now
                world.comm.isend(last, dest=rank, tag=RESULT_TAG).wait()
        return value
    with _outliving_all_but_root(world):
        while not world.comm.iprobe(source=0, tag=RESULT_TAG):
            time.sleep(IDLE_S)
        value, world.failures.lost = world.comm.recv(source=0, tag=RESULT_TAG)
    return value


@contextlib.contextmanager
def _outliving_all_but_root(world: World) -> Iterator[None]:
    """Raise RunLost for an error of talking to rank 0 that says it has failed."""
    from mpi4py import MPI

    assert world.failures is not None
    try:
        yield
    except MPI.Exception as error:
        if not world.failures.is_one(error):
            raise
        world.failures.look()
        lost = RunLost("rank 0 is lost: `osprey resume` goes on with what is on disk")
        lost.is_said = world.rank > min(set(range(world.n_ranks)) - world.failures.lost)
        raise lost from error
