"""End a run together: wait for all ranks that are left, give all of them its result."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from osprey_mpi.comm.mail import IDLE_S, Tag
from osprey_mpi.comm.startup import World, break_off
from osprey_mpi.comm.watch import Watch
from osprey_mpi.errors import ExitCode, RunLost
from osprey_mpi.words import ranks_named

ORPHAN_S = 60.0  # that the root has to stop the run once the launcher is gone
ORPHAN_LOOK_S = 1.0


def tell_code(world: World, ranks: Iterable[int], exit_code: int, limit_s: float) -> None:
    """Tell ranks that have no state machine how the run ended."""
    _tell(world, ranks, exit_code, Tag.CODE, limit_s)


def await_code(world: World, is_orphan: Callable[[], bool]) -> int:
    """Wait asleep for tell_code, as long as the run takes. Raises RunLost when the root is lost, or the launcher is.

    Without the launcher the root stops the run, and says so here; if it does not, it is gone as well.
    """
    assert world.mail is not None
    orphan_since = float("inf")
    while (code := world.mail.receive(world.root, Tag.CODE)) is None:
        _see_root(world)
        orphan_since = min(orphan_since, time.monotonic()) if is_orphan() else float("inf")
        if time.monotonic() - orphan_since > ORPHAN_S:
            raise RunLost(f"the launcher is gone, and rank {world.root} has said nothing for {ORPHAN_S:g} s")
        time.sleep(IDLE_S)
    return int(code[0])


class OrphanWatch(Watch):
    """End this process with exit code 75 once its launcher has been gone for ORPHAN_S within a block.

    For the ranks of a group: in user code, or in a collective that a lost rank will not enter, they see neither
    messages nor signals, and nobody else would end them. say: gets the reason, in a thread.
    """

    def __init__(self, is_orphan: Callable[[], bool], say: Callable[[str], None]) -> None:
        super().__init__()
        self._is_orphan, self._say = is_orphan, say

    def watch(self) -> None:
        """Look for the launcher, then give the run its time to stop."""
        while not self._is_orphan():
            if self.is_over(ORPHAN_LOOK_S):
                return
        if self.is_over(ORPHAN_S):
            return
        with contextlib.suppress(Exception):  # of a terminal that went with the launcher
            self._say(f"this rank ends: the launcher is gone, and its group has worked on for {ORPHAN_S:g} s")
        os._exit(ExitCode.STOPPED)


def _tell(world: World, ranks: Iterable[int], value: Any, tag: Tag, limit_s: float) -> None:
    """Send to ranks that may be gone or stopped: who has not taken it within the limit does without."""
    if world.mail is None:
        return
    for rank in ranks:
        world.mail.post(rank, value, tag)
    world.mail.flush(limit_s)


def _see_root(world: World) -> None:
    """Raise RunLost when the root has failed."""
    assert world.failures is not None
    world.failures.look()
    if world.root in world.failures.lost:
        lost = RunLost(f"rank {world.root} is lost: `osprey resume` goes on with what is on disk")
        lost.is_said = world.rank > min(set(world.members) - world.failures.lost)
        raise lost


@dataclass(frozen=True, slots=True)
class Assembly:
    """Hold who did not come to the end, and what the others held there; on the root alone, empty elsewhere."""

    held: Sequence[bytes] = ()
    missing: frozenset[int] = frozenset()


def assemble(world: World, limit_s: float, held: Sequence[bytes]) -> Assembly:
    """Hand what this rank holds to the root, which waits for all of them, but no longer than `limit_s`.

    Collective over the world. held: encoded deltas that nobody has called durable, such as of a rank that stood still
    until the others were done. Who has lost its leader in the last moment wants to regroup: that is an end, too.
    """
    if world.mail is None:
        return Assembly(held)
    mail = world.mail
    if not world.is_root:
        mail.post(world.root, (world.epoch, held), Tag.END)
        return Assembly()
    all_held, missing = list(held), set(world.members[1:])
    deadline = time.monotonic() + limit_s
    while missing:
        mail.failures.look()
        missing -= mail.failures.lost
        for rank in sorted(missing):
            word = mail.receive(rank, Tag.END) or mail.receive(rank, Tag.JOIN)
            if word is not None:
                all_held += word[0][1]
                missing.discard(rank)
        if time.monotonic() > deadline:
            break
        time.sleep(IDLE_S if missing else 0.0)
    return Assembly(all_held, frozenset(missing))


def break_off_without(world: World, missing: Set[int], superiors: Mapping[int, int], exit_code: int) -> None:
    """End the launch if ranks are missing, whom MPI would wait for, and name them: all that is to be kept is on disk.

    superiors: rank -> the rank without which it cannot come.
    """
    if missing:
        break_off(world, absence(missing, superiors), exit_code)


def absence(missing: Set[int], superiors: Mapping[int, int]) -> str:
    """Say who did not come to the end; of a lost leader's workers only that they wait for it."""
    waiting = {rank for rank in missing if superiors.get(rank) in missing}
    wait = f", for which {ranks_named(waiting)} wait{'s' * (len(waiting) == 1)}" if waiting else ""
    return f"no answer from {ranks_named(missing - waiting)}{wait} at the end; everything is on disk, ending all"


def share(world: World, value: Any, limit_s: float) -> Any:
    """Return the root's value, anything that pickles, on every rank; learn who is lost. The last word of a run.

    The root has waited at most `limit_s` in `assemble`, and writes to each rank that is left. Raises RunLost when it is
    lost, or says nothing for longer than that.
    """
    if world.mail is None:
        return value
    mail = world.mail
    if world.is_root:
        _tell(world, world.members[1:], (value, mail.failures.lost), Tag.RESULT, limit_s)
        return value
    deadline = time.monotonic() + 2.0 * limit_s
    while (word := mail.receive(world.root, Tag.RESULT)) is None:
        _see_root(world)
        if time.monotonic() > deadline:
            raise RunLost(f"rank {world.root} has said nothing for {2.0 * limit_s:g} s at the end")
        time.sleep(IDLE_S)
    value, lost = word[0]
    mail.failures.lost |= lost
    return value
