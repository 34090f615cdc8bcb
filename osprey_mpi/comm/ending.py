"""End a run together: wait for all ranks that are left, give all of them its result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from osprey_mpi.comm.startup import World, break_off
from osprey_mpi.errors import RunLost
from osprey_mpi.words import ranks_named

CODE_TAG, END_TAG, RESULT_TAG = 9, 10, 11  # beside the roles of continuity.messages
ORPHAN_S = 60.0  # that the root has to stop the run once the launcher is gone
IDLE_S = 0.005  # between looks of a rank that only waits: well under 1 % of a core

_untaken: list[Any] = []  # sends that nobody has taken yet: MPI may read their buffers as long as the process lives


def tell_code(world: World, ranks: Iterable[int], exit_code: int, limit_s: float) -> None:
    """Tell ranks that have no state machine how the run ended."""
    _tell(world, ranks, exit_code, CODE_TAG, limit_s)


def await_code(world: World, is_orphan: Callable[[], bool]) -> int:
    """Wait asleep for tell_code, as long as the run takes. Raises RunLost when the root is lost, or the launcher is.

    Without the launcher the root stops the run, and says so here; if it does not, it is gone as well.
    """
    orphan_since = float("inf")
    with _outliving_all_but_root(world):
        while (code := _heard(world, CODE_TAG)) is None:
            orphan_since = min(orphan_since, time.monotonic()) if is_orphan() else float("inf")
            if time.monotonic() - orphan_since > ORPHAN_S:
                raise RunLost(f"the launcher is gone, and rank {world.root} has said nothing for {ORPHAN_S:g} s")
            time.sleep(IDLE_S)
    return int(code[0])


def _heard(world: World, tag: int) -> tuple[Any] | None:
    """Return what the root has sent, None if that has not come."""
    assert world.comm is not None
    root = world.root
    return (world.comm.recv(source=root, tag=tag),) if world.comm.iprobe(source=root, tag=tag) else None


def _tell(world: World, ranks: Iterable[int], value: Any, tag: int, limit_s: float) -> None:
    """Send to ranks that may be gone or stopped: who has not taken it within the limit does without."""
    if world.comm is None:
        return
    from mpi4py import MPI

    assert world.failures is not None
    deadline = time.monotonic() + limit_s
    for rank in sorted(set(ranks) - world.failures.lost):
        try:
            request = world.comm.isend(value, dest=rank, tag=tag)
            while not request.test()[0]:
                if time.monotonic() > deadline:
                    _untaken.append(request)
                    break
                time.sleep(IDLE_S)
        except MPI.Exception as error:  # it has failed just now
            if not world.failures.is_one(error):
                raise


def assemble(world: World, limit_s: float, exit_code: int, superiors: Mapping[int, int]) -> None:
    """Wait for all ranks before the last collectives, which no rank could leave without the others.

    Collective over the world. The root waits `limit_s`; then it names who did not come and ends the launch: all that is
    to be kept is on disk by now. superiors: rank -> the rank without which it cannot come.
    """
    if world.comm is None:
        return
    assert world.failures is not None
    nothing = bytearray()
    if not world.is_root:
        with _outliving_all_but_root(world):
            world.comm.Send(nothing, dest=world.root, tag=END_TAG)
        return
    missing = set(world.members[1:])
    deadline = time.monotonic() + limit_s
    while missing:
        world.failures.look()
        missing -= world.failures.lost
        for rank in [rank for rank in missing if _has_come(world, rank)]:
            world.comm.Recv(nothing, source=rank, tag=END_TAG)
            missing.discard(rank)
        if missing and time.monotonic() > deadline:
            break_off(world, absence(missing, superiors), exit_code)
        time.sleep(IDLE_S if missing else 0.0)


def absence(missing: set[int], superiors: Mapping[int, int]) -> str:
    """Say who did not come to the end; of a lost leader's workers only that they wait for it."""
    waiting = {rank for rank in missing if superiors.get(rank) in missing}
    wait = f", for which {ranks_named(waiting)} wait{'s' * (len(waiting) == 1)}" if waiting else ""
    return f"no answer from {ranks_named(missing - waiting)}{wait} at the end; everything is on disk, ending all"


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


def share(world: World, value: Any, limit_s: float) -> Any:
    """Return the root's value, anything that pickles, on every rank; learn who is lost. The last word of a run.

    The root has waited at most `limit_s` in `assemble`, and writes to each rank that is left. Raises RunLost when it is
    lost, or says nothing for longer than that.
    """
    if world.comm is None:
        return value
    assert world.failures is not None
    if world.is_root:
        _tell(world, world.members[1:], (value, world.failures.lost), RESULT_TAG, limit_s)
        return value
    deadline = time.monotonic() + 2.0 * limit_s
    with _outliving_all_but_root(world):
        while (word := _heard(world, RESULT_TAG)) is None:
            if time.monotonic() > deadline:
                raise RunLost(f"rank {world.root} has said nothing for {2.0 * limit_s:g} s at the end")
            time.sleep(IDLE_S)
    value, lost = word[0]
    world.failures.lost |= lost
    return value


@contextlib.contextmanager
def _outliving_all_but_root(world: World) -> Iterator[None]:
    """Raise RunLost for an error of talking to the root that says it has failed."""
    from mpi4py import MPI

    assert world.failures is not None
    try:
        yield
    except MPI.Exception as error:
        if not world.failures.is_one(error):
            raise
        world.failures.look()
        lost = RunLost(f"rank {world.root} is lost: `osprey resume` goes on with what is on disk")
        lost.is_said = world.rank > min(set(world.members) - world.failures.lost)
        raise lost from error
