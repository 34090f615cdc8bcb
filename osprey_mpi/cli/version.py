"""osprey --version: print the version."""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(asked: bool) -> None:
    if asked:
        from osprey_mpi import __version__
        from osprey_mpi.cli.output import write_text

        write_text([f"osprey-mpi {__version__}\n"])
        raise typer.Exit


def version_option(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Minimise expensive functions on many MPI ranks without a barrier. --debug shows tracebacks."""
