"""Append evaluations to the segment of one life and one epoch: nobody else ever writes this file."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import BLOCK, RECORD, RowReason
from osprey_mpi.search.columns import Column
from osprey_mpi.storage.files import storage_error, sync_folder, write_atomic
from osprey_mpi.storage.journal import LIBVER, JournaledFile, journal_path
from osprey_mpi.storage.owner import HEAD_BYTES, Owner
from osprey_mpi.storage.schema import (
    FORMAT,
    FORMAT_VERSION,
    MAX_REASON_BYTES,
    REASON,
    STEP,
    chunk_rows,
    columns_to_json,
)


class Segment:
    """Create the segment `path` and append to it, each append one durable transaction.

    run_unix_s: when the run first started, which tells it from others. Raises StorageError if the file exists already
    (an epoch has one writer) or cannot be created.
    """

    def __init__(
        self, path: Path, columns: Sequence[Column], life: int, epoch: int, run_unix_s: float = 0.0
    ) -> None:  # fmt: skip
        self.path = path
        self.n_columns = len(columns)
        if path.exists():
            raise storage_error(path, FileExistsError(17, os.strerror(17)), "created")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            journal_path(path).write_bytes(b"")
            sync_folder(path.parent)
        except OSError as error:
            raise storage_error(path, error) from error
        owner = Owner(run_unix_s, life, epoch)
        write_atomic(path, _empty_image(columns, owner))
        self._file = JournaledFile(path, owner.mark)

    def append(
        self,
        records: NDArray[Any],
        values: NDArray[np.float64],
        blocks: NDArray[Any] | None = None,
        reasons: Sequence[RowReason] = (),
    ) -> None:
        """Append rows and return once they are on disk.

        records: (n,) RECORD; values: (n, n_columns); blocks: (k,) BLOCK, ids that were done without a row;
        reasons: of rows, and of evaluations without a row, that did not end well.
        Raises StorageError, the segment being as it was before: the same append can be repeated later.
        """
        assert values.shape == (len(records), self.n_columns), "one value row for each record"
        blocks = np.empty(0, BLOCK) if blocks is None else blocks
        if not (len(records) or len(blocks) or reasons):
            return
        rows, text = _pack_reasons(reasons)

        def change(file: Any) -> None:
            step = file.attrs["step"]
            _, n_records, n_blocks, n_reasons, n_text = (int(n) for n in step)
            _extend(file["records"], n_records, records)
            _extend(file["values"], n_records, values)
            _extend(file["blocks"], n_blocks, blocks)
            placed = rows.copy()
            placed["start"] += n_text
            _extend(file["reasons"], n_reasons, placed)
            _extend(file["text"], n_text, text)
            step += np.array([1, len(records), len(blocks), len(rows), len(text)])
            file.attrs.modify("step", step)

        self._file.update(change)

    def close(self) -> None:
        """Leave a plain HDF5 file; not needed for safety, and nothing to do after a failure."""
        self._file.finish()


def _extend(dataset: Any, n: int, rows: NDArray[Any]) -> None:
    if len(rows):
        dataset.resize(n + len(rows), axis=0)
        dataset[n:] = rows


def _pack_reasons(reasons: Sequence[RowReason]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return rows of REASON with `start` from 0, and the text they point to; equal texts are stored once."""
    if not reasons:
        return np.empty(0, REASON), np.empty(0, np.uint8)
    places: dict[str, tuple[int, int]] = {}
    parts: list[bytes] = []
    n_text = 0
    rows = np.zeros(len(reasons), REASON)
    for row, (id, attempt, status, text) in zip(rows, reasons, strict=True):
        if text not in places:
            data = _shortened(text)
            places[text] = (n_text, len(data))
            parts.append(data)
            n_text += len(data)
        row["id"], row["attempt"], row["status"] = id, attempt, status
        row["start"], row["n_bytes"] = places[text]
    return rows, np.frombuffer(b"".join(parts), np.uint8)


def _shortened(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_REASON_BYTES:
        return data
    half = MAX_REASON_BYTES // 2 - 32  # both ends matter: what was called first, and the error itself
    cut = f" ... ({len(data) - 2 * half} bytes left out) ... ".encode()
    return data[:half] + cut + data[-half:]


def _empty_image(columns: Sequence[Column], owner: Owner) -> bytes:
    """Return a segment without rows; its structure never changes afterwards."""
    buffer = io.BytesIO()
    # Of this version on, HDF5 keeps checksums of its own structure too: a flipped bit there is noticed, not believed.
    with h5py.File(buffer, "w", libver=("v110", LIBVER[1]), userblock_size=HEAD_BYTES) as file:
        file.attrs["format"], file.attrs["format_version"] = FORMAT, FORMAT_VERSION
        file.attrs["life"], file.attrs["epoch"] = owner.life, owner.epoch
        file.attrs["step"] = np.zeros(len(STEP), np.int64)
        file.attrs["step_meaning"] = ", ".join(STEP)
        file["columns"] = columns_to_json(columns)  # a dataset: thousands of parameters do not fit an attribute
        for name, dtype in (("records", RECORD), ("blocks", BLOCK), ("reasons", REASON), ("text", np.dtype("u1"))):
            rows = chunk_rows(dtype.itemsize)
            file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(rows,), fletcher32=True)
        width = len(columns)
        chunks = (chunk_rows(8 * width), width)
        file.create_dataset("values", (0, width), "<f8", maxshape=(None, width), chunks=chunks, fletcher32=True)
    head = owner.pack()
    return head + buffer.getvalue()[len(head) :]
