"""Read segments: all that is readable, and a note that names the file for all that is not."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import BLOCK, RECORD
from osprey_mpi.storage.journal import has_foreign_journal, journal_path, read_image
from osprey_mpi.storage.owner import owner_of
from osprey_mpi.storage.schema import FORMAT, FORMAT_VERSION, REASON, SegmentData, columns_from_json

_NAME = re.compile(r"life-(\d+)-epoch-(\d+)\.h5")
# What h5py raises on a damaged file, beside OSError: it depends on which byte is wrong.
_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


def segment_name(life: int, epoch: int) -> str:
    """Return the file name of a segment."""
    return f"life-{life:04d}-epoch-{epoch:04d}.h5"


def segments_of(folder: Path) -> list[tuple[int, int, Path]]:
    """Return (life, epoch, path) of every segment in a results folder, oldest first."""
    found = [(match, path) for path in folder.glob("*.h5") if (match := _NAME.fullmatch(path.name))]
    return sorted((int(match[1]), int(match[2]), path) for match, path in found)


def read_segments(folder: Path, run_unix_s: float = 0.0) -> Iterator[SegmentData]:
    """Yield the segments in a results folder, oldest first, one in memory at a time. run_unix_s: see `read_segment`."""
    for life, epoch, path in segments_of(folder):
        yield read_segment(path, life, epoch, run_unix_s)


def read_segment(path: Path, life: int = 0, epoch: int = 0, run_unix_s: float = 0.0) -> SegmentData:
    """Read one segment at its last step; never raises for a damaged or missing file, whose notes say so.

    run_unix_s: when the run first started; what says that it is of another one is left out. 0: take all.
    """
    try:
        image = read_image(path)
        owner = owner_of(image)
        if owner is not None and run_unix_s and owner.run_unix_s not in (0.0, run_unix_s):
            raise OSError("it is of another run")
        with h5py.File(io.BytesIO(image), "r") as file:
            data = _read(file, path)
        if has_foreign_journal(path, image):
            note = f"{journal_path(path)} is left out: it belongs to another segment"
            return replace(data, notes=(*data.notes, note))
        return data
    except _DAMAGE as error:
        note = f"{path} cannot be read, its evaluations are left out: {_sentence(error)}"
        return SegmentData(path, life, epoch, notes=(note,))


def _read(file: Any, path: Path) -> SegmentData:
    if file.attrs.get("format") != FORMAT:
        raise OSError("it is not a segment of a run")
    version = int(file.attrs["format_version"])
    if version > FORMAT_VERSION:
        raise OSError(f"its format is {version}, this version reads up to {FORMAT_VERSION}: update osprey-mpi")
    n_bytes = file.id.get_filesize()  # a row has a byte at least: a count above that is damaged
    step, n_records, n_blocks, n_reasons, n_text = (min(max(int(n), 0), n_bytes) for n in file.attrs["step"])
    columns = columns_from_json(file["columns"][()].decode())
    if file["values"].shape[1:] != (len(columns),):
        raise OSError("its values do not fit its columns")
    notes: list[str] = []
    if file["records"].shape[0] > n_records:  # both change in one transaction
        notes.append(f"{path} is damaged: it has {file['records'].shape[0]} evaluations, but counts {n_records}")
    records, records_ok = _read_rows(file["records"], n_records, RECORD)
    values, values_ok = _read_rows(file["values"], n_records, np.dtype("<f8"))
    blocks, blocks_ok = _read_rows(file["blocks"], n_blocks, BLOCK)
    reasons, reasons_ok = _read_rows(file["reasons"], n_reasons, REASON)
    text, text_ok = _read_rows(file["text"], n_text, np.dtype("u1"))
    reasons_ok &= _all_within(text_ok, reasons)
    both = records_ok & values_ok  # a cost without its point, or a point without its cost, is of no use
    for name, ok in (("evaluations", both), ("blocks", blocks_ok), ("reasons", reasons_ok)):
        if not ok.all():
            n_bad = int((~ok).sum())
            notes.append(f"{path} is damaged: {n_bad} of {ok.size} {name} fail their checksum and are left out")
    return SegmentData(
        path,
        int(file.attrs["life"]),
        int(file.attrs["epoch"]),
        step,
        columns,
        records[both],
        values[both],
        blocks[blocks_ok],
        reasons[reasons_ok],
        text.tobytes(),
        tuple(notes),
    )


def _read_rows(dataset: Any, n: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the first n rows and which of them could be read; a chunk whose checksum fails costs its rows only."""
    rows = np.zeros((n, *dataset.shape[1:]), dtype)
    ok = np.ones(n, bool)
    stored = min(n, dataset.shape[0])
    ok[stored:] = False
    if not stored:
        return rows, ok
    try:
        rows[:stored] = dataset[:stored]
        return rows, ok
    except OSError:
        pass
    step = dataset.chunks[0]
    for start in range(0, stored, step):
        stop = min(start + step, stored)
        try:
            rows[start:stop] = dataset[start:stop]
        except OSError:
            ok[start:stop] = False
    return rows, ok


def _all_within(ok: NDArray[np.bool_], rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows point to text that could be read whole."""
    n_bad = np.concatenate(([0], np.cumsum(~ok)))
    start = np.clip(rows["start"], 0, ok.size)
    stop = np.clip(start + rows["n_bytes"], 0, ok.size)
    return np.asarray(n_bad[start] == n_bad[stop])


def _sentence(error: BaseException) -> str:
    text = str(error).splitlines()
    return text[0] if text else type(error).__name__
