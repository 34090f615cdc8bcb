"""osprey export: give the evaluations of a run to other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from osprey_mpi.cli.options import Folder


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

    run = load(folder)
    for note in run.rows.notes:
        typer.echo(f"osprey: {note}", err=True)
    if format is ExportFormat.HDF5:
        from osprey_mpi.storage.results import write_results

        write_text([f"{write_results(run.path, run.rows, output)}\n"])
        return
    parts = csv_parts(run) if format is ExportFormat.CSV else json_parts(run)
    if output is None:
        write_text(parts)
        return
    from osprey_mpi.storage.files import write_atomic

    write_atomic(output.absolute(), "".join(parts).encode("utf-8"))
