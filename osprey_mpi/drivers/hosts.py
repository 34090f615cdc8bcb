"""Tell where the ranks are and what they have, and warn of what slows them down."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osprey_mpi.comm.launcher import OPEN_MPI, Launch
from osprey_mpi.storage.lock import LAUNCH
from osprey_mpi.words import counted

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Place:
    """Describe where one rank runs.

    cores: those that this process may use. n_threads: what a threaded BLAS would start, 0 when it is not limited.
    """

    rank: int
    host: str
    pid: int
    cores: frozenset[int]
    n_threads: int
    device: str


def here(rank: int, device: str) -> Place:
    """Return this rank's place."""
    limits = [int(os.environ[name]) for name in _THREADS if os.environ.get(name, "").isdigit()]
    cores = frozenset(os.sched_getaffinity(0))
    return Place(rank, socket.gethostname(), os.getpid(), cores, min(limits, default=0), device)


def limit_threads() -> None:
    """Keep each rank's BLAS to one thread unless the user says otherwise: the ranks are the parallelism.

    Must come before NumPy is imported in the processes it is to hold for (child processes inherit it).
    """
    if not any(name in os.environ for name in _THREADS):
        for name in _THREADS:
            os.environ[name] = "1"


def silence_notes(launch: Launch, environ: Mapping[str, str], folder: Path) -> list[str]:
    """Return what Open MPI's mpirun leaves nobody to say later: after INT or TERM it passes no output on.

    `osprey launch` sends it USR1 instead.
    """
    if launch.name != OPEN_MPI or LAUNCH in environ:
        return []
    return [f"Ctrl-C saves the run, though mpirun then shows no more of it: `osprey resume {folder}` goes on"]


def spare_notes(spare: Sequence[int], n_each: int, n_ranks: int) -> list[str]:
    """Return a sentence on ranks that fill no group of an objective's ranks, if there are any."""
    if not spare:
        return []
    several = len(spare) > 1
    ranks = f"rank{'s' if several else ''} {', '.join(map(str, spare))}"
    idle = f"{ranks} fill{'' if several else 's'} no group of {n_each} and will have nothing to do"
    return [f"{idle}: {n_ranks - len(spare)} or {n_ranks - len(spare) + n_each} ranks would all be used"]


def notes(places: Sequence[Place]) -> list[str]:
    """Return a sentence for each host whose ranks and threads exceed its cores, and for ranks pinned to one core."""
    result: list[str] = []
    for host, n_ranks in Counter(place.host for place in places).items():
        here_ = [place for place in places if place.host == host]
        n_cores = len(frozenset().union(*(place.cores for place in here_)))
        n_threads = sum(max(place.n_threads, 1) for place in here_)
        if n_threads > n_cores:
            crowd = f"{counted(n_ranks, 'rank')} with {counted(n_threads, 'thread')}"
            result.append(f"{host}: {crowd} on {counted(n_cores, 'core')}: they take turns")
        if n_ranks > 1 and all(len(place.cores) == 1 for place in here_) and (os.cpu_count() or 1) > 1:
            fix = "`mpirun --bind-to none` or `osprey launch --launcher-args '--bind-to none'`"
            result.append(f"{host}: each rank may use one core only; for threaded programs start with {fix}")
    return result
