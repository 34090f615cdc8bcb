"""osprey launch: start a run on many ranks, and start it again when a launch is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osprey_mpi.cli.options import Format, Overrides, TextFormat, folder_name
from osprey_mpi.errors import ExitCode, StorageError, UsageError
from osprey_mpi.supervise.lines import Kind

ConfigOrNone = Annotated[Path | None, typer.Argument(metavar="[CONFIG]", show_default=False, help="YAML file.")]
Ranks = Annotated[
    int | None, typer.Option("-n", "--ranks", metavar="N", min=1, help="Ranks [default: the allocation, or cores].")
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="DIR", help="Go on with the run in DIR instead.", parser=folder_name),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder of the run [default: runs/NAME].", parser=folder_name),
]
Launcher = Annotated[
    Kind | None, typer.Option("--launcher", help="What starts the ranks [default: mpirun, else srun].")
]
Arguments = Annotated[
    str, typer.Option("--launcher-args", metavar="'ARGS'", help="More arguments for it, as in '--hostfile hosts'.")
]


def launch_command(
    config: ConfigOrNone = None,
    n_ranks: Ranks = None,
    resume: Resume = None,
    out: Out = None,
    overrides: Overrides = None,
    launcher: Launcher = None,
    launcher_arguments: Arguments = "",
    most: Annotated[int, typer.Option("--max-launches", metavar="N", min=1, help="Launches in all.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a former run in the folder.")] = False,
    format: Format = TextFormat.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Run CONFIG on N ranks, and resume it within seconds whenever ranks, launcher or nodes are lost.

    Needs no MPI itself: it starts `mpirun` or `srun`, and judges by the run's files. INT or TERM saves and stops.
    """
    import contextlib
    import os

    from osprey_mpi.cli.output import write_bytes
    from osprey_mpi.drivers.limits import has_current_folder
    from osprey_mpi.supervise.lines import find_launcher
    from osprey_mpi.supervise.restart import RestartPolicy
    from osprey_mpi.supervise.slurm import Allocation
    from osprey_mpi.supervise.supervisor import Supervisor, default_ranks, evaluations_done, spec_of

    if not has_current_folder():
        raise UsageError("the current folder has been removed, and no launcher starts without one: change to another")
    default = 1 if launcher is Kind.NONE else default_ranks(os.environ)
    spec = spec_of(
        config, resume, out, n_ranks or default, overrides=tuple(overrides or ()),
        options=("--format", str(format), *(["-q"] if quiet else [])), overwrite=overwrite,
    )  # fmt: skip
    found = find_launcher(launcher, split_arguments(launcher_arguments), spec.n_ranks)
    policy = RestartPolicy(most, evaluations_done(spec.folder, os.environ) if resume is not None else 0)

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # a run goes on without its terminal
            os.write(2, f"osprey launch: {text}\n".encode())  # whole, also from a handler of signals

    is_in_job = "SLURM_JOB_ID" in os.environ and found.kind is not Kind.NONE
    allocation = Allocation(os.environ, n_ranks, say) if is_in_job else None
    code, output = Supervisor(spec, found, policy, say, allocation).run(os.environ)
    try:
        write_bytes([output])
    except BrokenPipeError:
        say(f"nobody reads stdout any more; `osprey report {spec.folder}` shows the result")
    except StorageError as error:
        say(f"{error}; `osprey report {spec.folder}` shows the result")
        code = code or ExitCode.ENVIRONMENT
    raise typer.Exit(code)


def split_arguments(text: str) -> list[str]:
    """Split as a shell does. Raises UsageError for a quote without its end."""
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--launcher-args is {text!r}, which a shell could not split: {error}") from None
