"""osprey --version: print the version."""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(asked: bool) -> None:
    if asked:
        from osprey_mpi import __version__

        typer.echo(f"osprey-mpi {__version__}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Minimise expensive functions on many MPI ranks without a barrier. --debug shows tracebacks."""
