"""Let all ranks learn of an error that some ranks have, so that it is said once and everybody ends alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from osprey_mpi.comm import startup
from osprey_mpi.comm.collectives import broadcast, gather
from osprey_mpi.comm.startup import World
from osprey_mpi.comm.watch import overdue
from osprey_mpi.drivers.limits import limits_named
from osprey_mpi.errors import OspreyError, RunLost, StoppedEarly

T = TypeVar("T")

TOGETHER_S = 5.0  # that a signal takes to reach all ranks, and they to end child processes


@contextmanager
def launched(*, keep: bool = False) -> Iterator[World]:
    """Start MPI, and end it with the block, or with the program if `keep`. Collective over the launch.

    An error that all ranks know of leaves as it is; any other ends the whole launch here, because nobody may wait for
    a rank that is gone.
    """
    world = startup.start(keep=keep)
    try:
        yield world
    except RunLost:
        raise  # there is nobody left to end MPI with
    except OspreyError as error:
        if not error.is_agreed:
            _break_off(world, error)
        startup.finish(world)
        raise
    except Exception:
        startup.die(world)
        raise
    startup.finish(world)


def on_root(world: World, task: Callable[[], T]) -> T | None:
    """Do `task` on the root; its OspreyError is raised on all ranks, and the root tells the user.

    Collective over the world.
    """
    result: T | None = None
    error: OspreyError | None = None
    if world.is_root:
        try:
            with limits_named():
                result = task()
        except OspreyError as caught:
            error = caught
    error = broadcast(world, error)
    if error is not None:
        error.is_agreed, error.is_said = True, not world.is_root
        raise error
    return result


def everywhere(world: World, task: Callable[[], None]) -> None:
    """Do `task` on every rank; the error of the lowest rank that has one ends all. Collective over the world.

    It keeps its class, so that callers of `minimize` can tell a ConfigError from an EnvironmentFault. A signal may have
    come to some ranks only, and what the others are at may never end: they are not waited for long.
    """
    error: OspreyError | None = None
    try:
        with limits_named():
            task()
    except OspreyError as caught:
        error = caught
    stopped = error if isinstance(error, StoppedEarly) else None
    with nullcontext() if stopped is None else overdue(TOGETHER_S, lambda: _break_off(world, stopped)):
        all_errors = gather(world, error)

        def judge() -> None:
            assert all_errors is not None
            for rank, found in zip(world.members, all_errors, strict=True):
                if found is not None:
                    raise error or type(found)(f"rank {rank}: {found}")

        on_root(world, judge)


def _break_off(world: World, error: OspreyError) -> None:
    startup.break_off(world, f"rank {world.rank}: {error}", int(error.exit_code))
