"""Carry a run from request to result, through as many lives as the launch has: one, and one more after each loss.

    open the run on the root -> be one life (session.py) -> end together, share the result
                  ^                    |
                  |              MembersLost: a rank is gone that others report to
                  +---- regroup <------+

The ranks that are left go on as `osprey resume` would: from the newest checkpoint, with the rows on disk. What is on no
disk yet, and a living rank still holds, is handed to the new root first, and what a rank is evaluating goes on: only
what the lost ranks alone knew is done again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from osprey_mpi.comm import ending, startup, tree
from osprey_mpi.comm.collectives import allgather, broadcast
from osprey_mpi.comm.failures import PATIENCE_S, MembersLost, RunIsOver
from osprey_mpi.comm.launcher import detect
from osprey_mpi.comm.regroup import leave, regroup
from osprey_mpi.comm.startup import World
from osprey_mpi.config import Config
from osprey_mpi.continuity.rescue import deltas_in
from osprey_mpi.drivers.agree import launched, on_root
from osprey_mpi.drivers.hosts import limit_threads
from osprey_mpi.drivers.limits import limits_named
from osprey_mpi.drivers.opening import Opened, open_run
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.past import Past
from osprey_mpi.drivers.request import Request
from osprey_mpi.drivers.session import Session
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.errors import FolderInUse, OspreyError
from osprey_mpi.words import counted, ranks_named

# The lock of a lost root's folder: some network file systems give it free only when its host's lease has run out.
LOCK_WAIT_S = 120.0
LAST_WORD_S = 120.0  # that the root has for it at least: it may be making results.h5 again
JOIN_S = 30.0  # that the survivors have to join the new root: it may be ending child processes, or writing


@dataclass(frozen=True, slots=True)
class Charter:
    """Hold what the root tells all ranks at the start. replaces: when a run began whose place this one takes."""

    config_json: str
    out: str
    life: int
    replaces: float | None


def run_session(request: Request) -> RunResult:
    """Run a request to its end and return its result, the same on every rank. Collective over the launch.

    Raises OspreyError, the same on every rank, when it cannot start.
    """
    limit_threads()
    # From the first moment on: a signal that came while MPI started or the objective was imported stops the run, too.
    with Signals(launched=detect().n_ranks > 1) as signals, launched(keep=request.keep_mpi) as world:
        past = Past()
        try:
            while True:
                try:
                    with limits_named():
                        return _live(world, request, signals, past)
                except MembersLost:
                    before = world
                    world, past.held = regroup(world, max(past.limit_s, JOIN_S), past.held)
                    if 2 * world.n_ranks > before.n_ranks:  # of two parts that do not hear each other one at most
                        past.gone |= set(before.members) - set(world.members)
                    request = _going_on(request, past)
                except OspreyError:
                    raise
                except Exception:
                    startup.die(world)
                    raise
        except RunIsOver as over:
            result: RunResult = over.result
            return result
        finally:
            past.close()


def _going_on(request: Request, past: Past) -> Request:
    """Return what the ranks that are left are to do: what was asked for, or to go on with what has begun of it."""
    from osprey_mpi.storage.folder import RunFolder

    if past.out is None or RunFolder.began(past.out) in (None, past.replaces):
        return replace(request, lock_wait_s=LOCK_WAIT_S)
    if request.retry and past.has_begun:
        past.warnings.append("what --retry had left is not done again now: resume with it once more")
    return replace(
        request, load=None, resume=past.out, overwrite=False, retry=() if past.has_begun else request.retry,
        lock_wait_s=LOCK_WAIT_S,
    )  # fmt: skip


def _live(world: World, request: Request, signals: Signals, past: Past) -> RunResult:
    """Go through one life of the run. Raises MembersLost when the ranks that are left must regroup."""
    opened = on_root(world, lambda: _open(world, request, past))
    try:
        charter = broadcast(world, None if opened is None else _charter(opened))
        past.out, past.newest_life, past.replaces = Path(charter.out), charter.life, charter.replaces
        config = Config.from_json(charter.config_json)
        _meet(world, config, request)
        _hand_over(world, opened, past)
        session = Session(world, request, config, Path(charter.out), opened, signals, past)
        code = session.run()
        ending.break_off_without(world, session.missing, session.superiors, code)
        mine = None if session.result is None else replace(session.result, exit_code=code)
        result: RunResult = ending.share(world, mine, max(config.continuity.lost_after_s, LAST_WORD_S))
        if world.is_whole and world.has_collectives:
            tree.free(past.communicators)
        return result
    finally:
        if opened is not None:
            opened.close()


def _meet(world: World, config: Config, request: Request) -> None:
    """Let the ranks watch over each other. Collective over the world.

    A function that runs in the rank itself may hold the interpreter for as long as it takes.
    """
    if world.heart is None:
        return
    objective = config.objective
    is_apart = request.function is None and (objective.kind != "python" or objective.runs_in == "process")
    addresses = allgather(world, world.heart.address)
    limit_s = config.continuity.lost_after_s if is_apart else PATIENCE_S
    world.heart.meet(dict(zip(world.members, addresses, strict=True)), limit_s)


def _open(world: World, request: Request, past: Past) -> Opened:
    if request.resume is not None and past.newest_life > 0:
        from osprey_mpi.storage.folder import RunFolder
        from osprey_mpi.storage.lock import take_from

        if world.heart is not None:
            take_from(request.resume / ".lock", world.heart.processes(past.gone))
        _refuse_left_out(world, past, RunFolder.peek(request.resume).life)
    try:
        opened = open_run(request)
    except FolderInUse as error:
        if world.epoch > 0:
            leave(world, str(error))
        raise
    _refuse_left_out(world, past, opened.life - 1)
    return opened


def _refuse_left_out(world: World, past: Past, newest_life: int) -> None:
    if 0 < past.newest_life < newest_life:
        leave(world, "the others have gone on with it")


def _charter(opened: Opened) -> Charter:
    return Charter(opened.config.to_json(), str(opened.path), opened.life, opened.replaces)


def _hand_over(world: World, opened: Opened | None, past: Past) -> None:
    """Put on disk what the root was handed by those that joined it. Collective over the world."""
    if world.epoch == 0:
        return

    def rescue() -> None:
        assert opened is not None
        opened.rescue(deltas_in(past.held))

    on_root(world, rescue)
    past.held = []  # it is on disk
    if opened is not None:
        opened.warnings += [_loss(world, opened.config), *past.warnings]
    past.warnings = []


def _loss(world: World, config: Config) -> str:
    assert world.comm is not None
    gone = set(range(world.comm.size)) - set(world.members)
    verb, left = "is" if len(gone) == 1 else "are", counted(world.n_ranks, "rank")
    again = "; this run does not repeat exactly" if config.swarm.deterministic else ""
    return f"{ranks_named(gone)} {verb} lost: the other {left} of the launch go on{again}"
