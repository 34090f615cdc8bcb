"""osprey run: start a new run, alone or under mpirun or srun."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from osprey_mpi.cli.options import ConfigFile, Format, Overrides, TextFormat, folder_name

if TYPE_CHECKING:
    from osprey_mpi.config import Config
    from osprey_mpi.drivers.outcome import RunResult
    from osprey_mpi.drivers.request import Request

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def run_command(
    config: ConfigFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the run [default: runs/NAME].", parser=folder_name),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, write nothing.")] = False,
    overrides: Overrides = None,
    format: Format = TextFormat.TEXT,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a former run in the folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Minimise what CONFIG describes.

    Start it alone, or on many ranks: mpirun -n 8 osprey run CONFIG. Exit codes: 0 done, 2 wrong config or usage, 3 no
    usable result, 4 MPI or environment, 75 stopped and resumable.
    """
    from osprey_mpi.drivers.hosts import limit_threads

    limit_threads()  # before anything imports NumPy, whose BLAS looks once
    from osprey_mpi.config import load_config
    from osprey_mpi.drivers.request import Request

    def load() -> Config:
        return load_config(config, tuple(overrides or ()))

    if dry_run:
        from osprey_mpi.cli.output import keep_stdout
        from osprey_mpi.drivers.dry_run import dry_run as tell

        keep_stdout()
        tell(load, out, lambda facts: print_facts(facts, format))
        return
    request = Request(load=load, out=out, overwrite=overwrite, quiet=quiet)
    raise typer.Exit(run_and_print(request, format))


def print_facts(facts: dict[str, Any], format: TextFormat) -> None:
    """Write what a run would be to stdout."""
    from osprey_mpi.cli.output import write_json, write_text

    if format is TextFormat.JSON:
        write_json(facts, indent=None)
        return
    where = "" if facts["n_ranks"] == 1 else " on one rank"  # the calls of several ranks follow their speed
    write_text(f"{line}\n" for name, value in facts.items() for line in _lines(name, value, where))


def _lines(name: str, value: Any, where: str) -> list[str]:
    """Write one fact: a mapping and a list of names on one line, points and sentences on a line each."""
    from osprey_mpi.report.render import cell

    if isinstance(value, dict):
        return [f"{name}: " + ", ".join(f"{key} {cell(item)}" for key, item in value.items())]
    if name == "first_points":
        points = (", ".join(f"{key} = {cell(item)}" for key, item in point.items()) for point in value)
        return [f"first point {i}{where}: {point}" for i, point in enumerate(points, 1)]
    if name in ("warnings", "advice"):
        return [f"{name.removesuffix('s')}: {sentence}" for sentence in value]
    return [f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"]


def run_and_print(request: Request, format: TextFormat) -> int:
    """Run; write the result to stdout, and to stderr what an objective prints in the rank itself."""
    from osprey_mpi.cli.output import keep_stdout, write_text
    from osprey_mpi.drivers.lives import run_session

    keep_stdout()
    stdout = sys.stdout

    def show(result: RunResult) -> None:
        with redirect_stdout(stdout):
            write_text([result.to_json() if format is TextFormat.JSON else result.to_text(), "\n"])

    with redirect_stdout(sys.stderr):
        return run_session(replace(request, on_result=show)).exit_code
