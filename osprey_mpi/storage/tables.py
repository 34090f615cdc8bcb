"""Write the groups of results.h5 that are not evaluations: lives, devices, blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.storage.netcdf import texts, write_scale, write_variable


def write_lives(file: Any, lives: Sequence[Mapping[str, Any]]) -> None:
    """Write `/lives`, one entry a life; one that was killed has the end NaN and the exit code -1."""
    group, dims = file.create_group("lives", track_order=True), ("life",)
    write_scale(group, "life", np.array([life["life"] for life in lives], np.int32), long_name="life of the run")
    write_variable(group, "n_ranks", np.array([life["n_ranks"] for life in lives], np.int32), dims)
    for name in ("started_unix_s", "ended_unix_s"):
        times = [np.nan if life.get(name) is None else life[name] for life in lives]
        write_variable(group, name, np.array(times, np.float64), dims, units="s", long_name="seconds since 1970 UTC")
    codes = [-1 if life.get("exit_code") is None else life["exit_code"] for life in lives]
    write_variable(group, "exit_code", np.array(codes, np.int32), dims)
    for name in ("host", "git", "mpi_library", "fault_tolerance"):
        write_variable(group, name, texts(str(life.get(name) or "") for life in lives), dims)
    for name in ("hosts", "argv"):
        write_variable(group, name, texts(" ".join(life.get(name) or ()) for life in lives), dims)
    for name in ("slurm", "versions"):
        write_variable(group, name, texts(json.dumps(life.get(name) or {}) for life in lives), dims, encoding="JSON")


def write_devices(file: Any, lives: Sequence[Mapping[str, Any]]) -> None:
    """Write `/devices`, the inventory of the newest life: all facts of a device as JSON beside the main ones."""
    devices: list[Mapping[str, Any]] = list(lives[-1].get("devices", [])) if lives else []
    group, dims = file.create_group("devices", track_order=True), ("device",)
    write_scale(group, "device", np.arange(len(devices)), long_name="number of the device")
    for name in ("host", "name", "uuid"):
        write_variable(group, name, texts(str(device.get(name) or "") for device in devices), dims)
    memory = [device.get("memory_bytes") for device in devices]
    known = np.array([-1 if n is None else n for n in memory], np.int64)  # unknown is never 0
    write_variable(group, "memory_bytes", known, dims, units="byte", long_name="memory, -1 where unknown")
    write_variable(group, "facts", texts(json.dumps(dict(device)) for device in devices), dims, encoding="JSON")


def write_blocks(file: Any, blocks: NDArray[Any]) -> None:
    """Write `/blocks`: ranges of ids that were evaluated and have no row, because only captures are recorded."""
    group, dims = file.create_group("blocks", track_order=True), ("block",)
    group.attrs["long_name"] = "evaluations [first, first + n) that are done and have no row of their own"
    write_scale(group, "block", np.arange(len(blocks)))
    write_variable(group, "first", blocks["first"], dims, long_name="first evaluation id")
    write_variable(group, "n", blocks["n"], dims, long_name="number of ids")
