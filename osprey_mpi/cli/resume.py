"""osprey resume: go on with a run, on any number of ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from osprey_mpi.cli.options import Changes, Folder, Format, TextFormat
from osprey_mpi.cli.run import Quiet, run_and_print


def resume_command(
    folder: Folder,
    overrides: Changes = None,
    max_evaluations: Annotated[
        int | None,
        typer.Option("--max-evaluations", metavar="N", help="Short for --set budget.evaluations=N, old ones included."),
    ] = None,
    retry: Annotated[
        str, typer.Option("--retry", metavar="STATUS,...", help="Do these again: failed, lost, timeout.")
    ] = "",
    format: Format = TextFormat.TEXT,
    quiet: Quiet = False,
) -> None:
    """Go on with the run in DIR, as it was configured but for what --set changes.

    Evaluations that had not ended are done again, those that are on disk are not.
    """
    from osprey_mpi.drivers.hosts import limit_threads

    limit_threads()  # before anything imports NumPy, whose BLAS looks once
    from osprey_mpi.drivers.request import Request

    request = Request(
        resume=folder,
        overrides=tuple(overrides or ()),
        max_evaluations=max_evaluations,
        retry=tuple(name.strip() for name in retry.split(",") if name.strip()),
        quiet=quiet,
    )
    raise typer.Exit(run_and_print(request, format))
