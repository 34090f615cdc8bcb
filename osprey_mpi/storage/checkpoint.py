"""Keep the last few states of the search, each whole and verified by its own checksum.

A checkpoint is an HDF5 file after a user block of 512 bytes, which holds JSON: the format and the SHA-256 of all that
follows. HDF5 tools open it as it is.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from osprey_mpi.storage.files import (
    discard,
    parse_json,
    read_regular,
    replace,
    storage_error,
    sync_folder,
    temporary,
    write_synced,
)
from osprey_mpi.storage.journal import LIBVER

FORMAT_VERSION = 1
_MAGIC = "osprey-mpi checkpoint"
_USER_BLOCK = 512  # the smallest that HDF5 allows

Groups = dict[str, dict[str, NDArray[Any]]]
Meta = dict[str, int | float | str]


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, newest first: checkpoint.h5, checkpoint-1.h5, ..."""
    older = sorted(
        (path for path in folder.glob("checkpoint-*.h5") if path.stem.removeprefix("checkpoint-").isdigit()),
        key=lambda path: int(path.stem.removeprefix("checkpoint-")),
    )
    newest = folder / "checkpoint.h5"
    return [newest, *older] if newest.exists() else older


def write_checkpoint(
    folder: Path, groups: Mapping[str, Mapping[str, NDArray[Any]]], meta: Mapping[str, int | float | str], keep: int = 3
) -> Path:
    """Write checkpoint.h5 and keep the `keep` newest files; the older ones stay readable at every moment.

    Raises StorageError and leaves all of them as they were if it cannot be written.
    """
    path = folder / "checkpoint.h5"
    new = temporary(path)
    data = _image(groups, meta)
    try:
        write_synced(new, data)
        existing = checkpoint_paths(folder)
        for number in range(len(existing) - 1, -1, -1):  # a kill between two renames leaves a gap in the numbers only
            existing[number].replace(folder / f"checkpoint-{number + 1}.h5")
        replace(new, path)
        for old in checkpoint_paths(folder)[max(keep, 1) :]:
            old.unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        discard(new)
        raise storage_error(path, error) from error
    return path


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Hold a state of the search, as it was read from `path`."""

    groups: Groups
    meta: Meta
    path: Path


def load_checkpoint(
    folder: Path, objection: Callable[[Checkpoint], str] = lambda checkpoint: ""
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that verifies, None where none does, and why each newer one was skipped.

    objection: says why a whole one is not for this run; '' if it is.
    """
    notes: list[str] = []
    for path in checkpoint_paths(folder):
        loaded = _verified(path)
        if isinstance(loaded, Checkpoint) and (reason := objection(loaded)):
            loaded = f"{path} is skipped: {reason}"
        if isinstance(loaded, Checkpoint):
            return loaded, notes
        notes.append(loaded)
    return None, notes


def _verified(path: Path) -> Checkpoint | str:
    """Return a checkpoint, or the sentence that says why it is none."""
    try:
        return Checkpoint(*_load(read_regular(path)), path)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        return f"{path} is skipped: {error}"


def _image(groups: Mapping[str, Mapping[str, NDArray[Any]]], meta: Mapping[str, int | float | str]) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=LIBVER, userblock_size=_USER_BLOCK) as file:
        # Python's JSON keeps every int and float exactly, NaN and infinities too; NumPy scalars become Python's.
        file["meta"] = json.dumps(dict(meta), default=lambda value: value.item())
        root = file.create_group("groups")
        for name, arrays in groups.items():
            assert "/" not in name, "a group name is one level"
            group = root.create_group(name)
            for key, array in arrays.items():
                group[key] = array
    data = bytearray(buffer.getvalue())
    digest = hashlib.sha256(memoryview(data)[_USER_BLOCK:]).hexdigest()
    head = json.dumps({"format": _MAGIC, "format_version": FORMAT_VERSION, "sha256": digest}).encode()
    data[: len(head)] = head
    return bytes(data)


def _load(data: bytes) -> tuple[Groups, Meta]:
    try:
        head = parse_json(data[:_USER_BLOCK].rstrip(b"\0"))
        magic, version, digest = head["format"], head["format_version"], head["sha256"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("its first 512 bytes are damaged") from None
    if magic != _MAGIC:
        raise ValueError("it is not a checkpoint of osprey-mpi")
    if version != FORMAT_VERSION:
        raise ValueError(f"its format is {version}, this version reads {FORMAT_VERSION}")
    if hashlib.sha256(memoryview(data)[_USER_BLOCK:]).hexdigest() != digest:
        raise ValueError("its checksum fails: it is torn or damaged")
    with h5py.File(io.BytesIO(data), "r") as file:
        meta: Meta = parse_json(file["meta"][()])
        groups: Groups = {
            name: {key: np.asarray(dataset[()]) for key, dataset in group.items()}
            for name, group in file["groups"].items()
        }
    return groups, meta
