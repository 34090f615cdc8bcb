"""Give user code an environment in which it can start MPI programs of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What mpirun (Open MPI 4 and 5, PRRTE, MPICH's Hydra, Intel MPI) and srun put into a rank's environment. A program
# that finds them takes itself for a rank of our job: mpirun refuses to nest, a lone mpi4py waits for our launcher.
_LAUNCHER = re.compile(r"(OMPI|PMIX|PMI|PRTE|ORTE|HYDI|HYDRA|MPIEXEC|PALS|ALPS|I_MPI_HYDRA)_|MPI_LOCAL(NRANKS|RANKID)$")

# The user's own settings under the same prefixes, which nested programs need just as much.
_USERS = re.compile(
    r"OMPI_ALLOW_RUN_AS_ROOT|OMPI_MCA_(btl|pml|mtl|osc|coll|io|fs|fcoll|fbtl|op|opal|smsc|shmem|topo|accelerator)(_|$)"
    r"|PRTE_MCA_(rmaps|hwloc|plm_ssh|plm_rsh|prte_if|oob)"
)

# Of a Slurm step only what informs and steers nothing stays: with SLURM_JOB_ID set, a nested mpirun would
# start its ranks with srun all over the allocation, on cores that our own ranks use.
_SLURM_KEPT = frozenset(
    {
        "SLURM_CLUSTER_NAME",
        "SLURM_CPUS_ON_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_JOB_ACCOUNT",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_NAME",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_USER",
        "SLURM_SUBMIT_DIR",
        "SLURM_SUBMIT_HOST",
        "SLURM_TMPDIR",
    }
)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables by which launchers tell a rank who it is."""
    return {name: value for name, value in environment.items() if not _is_launchers(name)}


def _is_launchers(name: str) -> bool:
    if name.startswith(("SLURM_", "SLURMD_")):
        return name not in _SLURM_KEPT
    return _LAUNCHER.match(name) is not None and _USERS.match(name) is None
