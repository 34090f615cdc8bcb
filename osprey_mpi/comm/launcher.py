"""Read what a launcher put into the environment, without MPI: how many ranks there should be, and which one this is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

OPEN_MPI, MPICH, SRUN = "Open MPI mpirun", "MPICH mpiexec", "Slurm srun"
# (name, variable with the number of ranks, variable with the rank). Slurm's last: it is set for every kind of step.
_LAUNCHERS = (
    (OPEN_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    (MPICH, "PMI_SIZE", "PMI_RANK"),
    (SRUN, "SLURM_NTASKS", "SLURM_PROCID"),
)
# By launcher: the variable with the number of ranks on this host, or of hosts.
_RANKS_HERE = {OPEN_MPI: "OMPI_COMM_WORLD_LOCAL_SIZE", MPICH: "MPI_LOCALNRANKS"}
_HOSTS = {SRUN: "SLURM_STEP_NUM_NODES"}
RECOVERY = "OSPREY_FAULT_TOLERANCE"  # "heartbeats": what the launcher was told, for ranks that cannot see it
SPEAK_S = 2.0  # that the launcher's rank 0 has to say why, before another rank's end makes the launcher end it


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe how this process was started. Alone: name is '' and n_ranks 1."""

    name: str
    n_ranks: int
    rank: int

    @property
    def expects_mpi(self) -> bool:
        """Tell whether a launcher started this process."""
        return bool(self.name)


def detect(environ: Mapping[str, str] | None = None) -> Launch:
    """Return the launcher that started this process; values that are not numbers are as if they were not there."""
    environ = os.environ if environ is None else environ
    for name, size_key, rank_key in _LAUNCHERS:
        try:
            n_ranks, rank = int(environ[size_key]), int(environ.get(rank_key, "0"))
        except (KeyError, ValueError):
            continue
        if n_ranks >= 1 and (n_ranks > 1 or name != SRUN):
            return Launch(name, n_ranks, rank)
    return Launch("", 1, 0)


def fault_tolerance(library: str, environ: Mapping[str, str] | None = None, words: Sequence[str] = ()) -> str:
    """Return what lets the others go on when a rank is lost.

    "ulfm": MPI itself (`mpirun --with-ft ulfm` sets the variable). "heartbeats": the launcher keeps the job, and MPI
    says nothing (`mpirun --enable-recovery`). Else "none".

    library: its name, as MPI gives it. words: the launcher's command line, where this host sees it.
    """
    environ = os.environ if environ is None else environ
    if not library.startswith("Open MPI"):
        return "none"
    if environ.get("OMPI_MCA_mpi_ft_enable", "").lower() in ("1", "true", "yes"):
        return "ulfm"
    return "heartbeats" if environ.get(RECOVERY) == "heartbeats" or _recovers(words) else "none"


def _recovers(words: Sequence[str]) -> bool:
    """Tell whether an Open MPI launcher was told to keep a job that has lost ranks."""
    options = {f"--{word.lstrip('-')}" for word in words if word.startswith("-")}
    runtime = [value for word, value in pairwise(words) if word.lstrip("-") == "runtime-options"]
    return bool({"--enable-recovery", "--continuous"} & options) or any(
        part in ("recoverable", "continuous") for value in runtime for part in value.split(",")
    )


def unstarted(launch: Launch, code: int) -> str:
    """Return the sentence for an MPI that does not start."""
    return (
        f"MPI did not start under {launch.name or 'the caller'} (error {code}); its own words, if any, are above; "
        "often an MCA parameter or a UCX_ variable names what this machine has not, or shared memory or $TMPDIR is full"
    )


def late(launch: Launch, limit_s: float, environ: Mapping[str, str] | None = None) -> str:
    """Return the sentence for an MPI that has not started in time, with the advice that fits the launcher."""
    environ = os.environ if environ is None else environ
    advice = "a rank may have ended, or hang, before it joined: start it again"
    if launch.name == SRUN:
        advice += "; name the interface of your MPI (`--mpi=pmix` for Open MPI, `--mpi=pmi2` for MPICH)"
    n_here = environ.get(_RANKS_HERE.get(launch.name, ""), str(launch.n_ranks))
    if n_here != str(launch.n_ranks) or environ.get(_HOSTS.get(launch.name, ""), "1") != "1":
        advice += (
            "; where nodes have several networks choose one (Open MPI: `OMPI_MCA_btl_tcp_if_include=eth0`, MPICH: "
            "`UCX_NET_DEVICES=eth0`)"
        )
    started_by = f"{launch.name or 'the caller'} ({launch.n_ranks} ranks)"
    return f"MPI did not start within {limit_s:.0f} s under {started_by}: {advice}"


def mismatch(launch: Launch, library: str) -> str:
    """Return the sentence for N lone processes: what was seen, why, and the fix."""
    if launch.name == SRUN:
        fix = (
            "start with `srun --mpi=pmix` for Open MPI or `srun --mpi=pmi2` for MPICH (`srun --mpi=list` shows what "
            "this site has), or with `mpirun`; to run as one process inside an allocation unset SLURM_NTASKS"
        )
    else:
        fix = "start with the mpirun of the same MPI library, the one beside this Python (`osprey doctor` shows both)"
    return (
        f"{launch.name} started {launch.n_ranks} processes, but MPI sees 1 ({library}): launcher and library do not "
        f"belong together, and {launch.n_ranks} lone runs would write one folder; {fix}"
    )
