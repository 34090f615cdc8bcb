"""osprey export: give the evaluations of a run to other programs."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from osprey_mpi.cli.options import Folder
from osprey_mpi.errors import OutputError, StorageError, UsageError


class ExportFormat(StrEnum):
    """Tell what is written."""

    CSV = "csv"
    JSON = "json"
    HDF5 = "hdf5"


def export_command(
    folder: Folder,
    format: Annotated[
        ExportFormat, typer.Option("--format", help="hdf5 writes DIR/results.h5 anew.")
    ] = ExportFormat.CSV,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of stdout.")
    ] = None,
) -> None:
    """Export all evaluations of a run as CSV, JSON or HDF5; works while it runs."""
    from osprey_mpi.cli.output import write_text
    from osprey_mpi.report.export import csv_parts, json_parts
    from osprey_mpi.report.load import load

    if output is not None:
        check_output(output)
    run = load(folder)
    for note in run.rows.notes:
        typer.echo(f"osprey: {note}", err=True)
    if format is ExportFormat.HDF5:
        from osprey_mpi.storage.results import write_results

        path = run.path / "results.h5" if output is None else output.absolute()
        write_file(path, lambda: write_results(run.path, run.rows, path))
        write_text([f"{path}\n"])
        return
    parts = csv_parts(run) if format is ExportFormat.CSV else json_parts(run)
    if output is None:
        write_text(parts)
        return
    from osprey_mpi.storage.files import write_atomic

    path = output.absolute()
    write_file(path, lambda: write_atomic(path, "".join(parts).encode("utf-8")))


def write_file(path: Path, write: Callable[[], object]) -> None:
    """Write a file. Raises OutputError: what is missing then is the export alone, whatever the run is at."""
    from osprey_mpi.storage.files import storage_error

    try:
        write()
    except StorageError as error:
        cause = error.__cause__ or error
        raise OutputError(str(storage_error(path, cause, then="export again"))) from cause


def check_output(output: Path) -> None:
    """Refuse a file that cannot be made where it is wanted. Raises UsageError."""
    folder = output.absolute().parent
    if output.is_dir():
        raise UsageError(f"--output is {output}, which is a folder, but a file is needed")
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise UsageError(f"--output is {output}, but the folder {folder} {what}")
