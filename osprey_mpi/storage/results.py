"""Write results.h5: all lives of a run merged, in a form that xarray, pandas, netCDF and h5dump read without us.

`Segment`, `read_run` and `Rows` are here too: these four names are the results of a run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import Status
from osprey_mpi.search.columns import Column
from osprey_mpi.search.streams import evaluation_seeds
from osprey_mpi.storage.files import discard, replace, storage_error, temporary
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.journal import LIBVER, Sink
from osprey_mpi.storage.netcdf import texts, write_scale, write_variable
from osprey_mpi.storage.provenance import collect
from osprey_mpi.storage.rows import Rows, read_run
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.tables import write_blocks, write_devices, write_lives
from osprey_mpi.storage.variables import parameters_of, values_of

__all__ = ["Rows", "Segment", "read_run", "write_results"]

FORMAT_VERSION = 1
_DIMENSION = "evaluation"
_ATTRIBUTE_BYTES = 16_000  # HDF5 refuses attributes above 64 kB; larger texts become data sets
_FIELDS = ("cost", "violation", "rank", "flock", "attempt", "generation", "t_start_s", "t_end_s")
_LONG_NAMES = {
    "cost": "value of the objective",
    "violation": "how far the constraints are broken, 0 where they hold",
    "rank": "MPI rank that evaluated",
    "flock": "flock of that rank",
    "attempt": "number of earlier tries of the same evaluation",
    "generation": "generation of the distribution that the point was drawn from, -1 for explicit points",
    "t_start_s": "start, since the run first started",
    "t_end_s": "end, since the run first started",
}


def write_results(folder: Path, rows: Rows | None = None, output: Path | None = None) -> Path:
    """Merge all segments of the run in `folder` into results.h5 (or `output`) and return its path.

    The file is written whole under a temporary name. Raises StorageError and keeps the old file if that fails.
    """
    run = RunFolder.peek(folder)
    rows = read_run(run.path) if rows is None else rows
    path = run.path / "results.h5" if output is None else Path(output).absolute()
    new = temporary(path)
    try:
        with new.open("w+b", buffering=0) as raw:
            sink = Sink(raw.fileno())  # a Python file: HDF5 takes no lock on it
            with h5py.File(sink, "w", libver=LIBVER) as file:
                _write(file, rows, run)
            sink.finish()
        replace(new, path)
    except (OSError, RuntimeError) as error:
        discard(new)
        raise storage_error(path, error, then=f"`osprey export {run.path} --format hdf5`") from error
    return path


def _write(file: Any, rows: Rows, run: RunFolder) -> None:
    facts = run.run
    stored = facts["config"]  # as JSON: a file of another version's config can be merged too
    seed, yaml = int(stored["config"]["seed"]), str(stored["source_text"])
    _provenance(file, facts)
    file.attrs["seed"] = seed
    seeds = evaluation_seeds(seed, rows.records["id"])
    _evaluations(file.create_group("evaluations", track_order=True), rows.records, rows.values, rows.columns)
    write_variable(file["evaluations"], "seed", seeds, (_DIMENSION,), long_name="seed that the objective got")
    why = texts(rows.reasons.get(id, "") for id in rows.records["id"].tolist())
    write_variable(file["evaluations"], "reason", why, (_DIMENSION,), long_name="why the evaluation did not end well")
    _evaluations(file.create_group("attempts", track_order=True), rows.attempts, rows.attempt_values, rows.columns)
    write_blocks(file, rows.blocks)
    group = file.create_group("config")
    group["json"] = json.dumps(stored, ensure_ascii=False)
    group["yaml"] = yaml or json.dumps(stored["config"], ensure_ascii=False)  # JSON is YAML
    write_lives(file, facts.get("lives", []))
    write_devices(file, facts.get("lives", []))
    file["notes"] = "\n".join(rows.notes)


def _provenance(file: Any, facts: dict[str, Any]) -> None:
    this = collect()
    newest = facts["lives"][-1] if facts.get("lives") else {}
    attributes = {
        "Conventions": "CF-1.11",
        "title": facts["name"],
        "software": "osprey-mpi",
        "software_version": this["versions"]["osprey-mpi"],
        "format_version": FORMAT_VERSION,
        "started_unix_s": facts["started_unix_s"],
        "git": newest.get("git", ""),
        "mpi_library": newest.get("mpi_library", ""),
        "hosts": " ".join(newest.get("hosts", [])),
        "argv": " ".join(newest.get("argv", this["argv"])),
        "versions": " ".join(f"{name}={version}" for name, version in newest.get("versions", this["versions"]).items()),
        "slurm": " ".join(f"{key}={value}" for key, value in newest.get("slurm", {}).items()),
    }
    for name, value in attributes.items():
        if isinstance(value, str) and len(value.encode()) > _ATTRIBUTE_BYTES:
            file[f"provenance/{name}"] = value
        else:
            file.attrs[name] = value


def _evaluations(group: Any, records: NDArray[Any], values: NDArray[np.float64], columns: tuple[Column, ...]) -> None:
    """Write one variable a field and a parameter into `group`, along the dimension `evaluation`, which holds ids."""
    write_scale(group, _DIMENSION, records["id"].astype(np.int64), long_name="evaluation id")
    for field in _FIELDS:
        units = {"units": "s"} if field.endswith("_s") else {}
        write_variable(group, field, records[field], (_DIMENSION,), long_name=_LONG_NAMES[field], **units)
    status = write_variable(group, "status", records["status"], (_DIMENSION,), long_name="how the evaluation ended")
    status.attrs["flag_values"] = np.array([int(member) for member in Status], np.uint8)
    status.attrs["flag_meanings"] = " ".join(member.name.lower() for member in Status)
    for parameter in parameters_of(columns):
        data, fill = values_of(parameter, values)
        dims: tuple[str, ...] = (_DIMENSION,)
        if parameter.is_array:
            index = f"{parameter.name}_index"
            write_scale(group, index, np.arange(data.shape[1]), long_name=f"element of {parameter.name}")
            dims = (_DIMENSION, index)
        attributes = {"long_name": f"parameter {parameter.name}", "kind": parameter.description}
        variable = write_variable(group, parameter.name, data, dims, **attributes)
        if fill is not None:
            variable.attrs.create("_FillValue", fill, dtype=data.dtype)
