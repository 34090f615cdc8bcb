"""The command line: one file a verb. Each verb imports what it needs when it runs, so that `--help` is quick.

Only `run` and `resume` need MPI. stdout carries the result and nothing else. This module imports next to nothing: a
signal that comes before `main` ends the process.
"""

from __future__ import annotations

import signal
import sys

from osprey_mpi.console import say
from osprey_mpi.held import hold, let_in

TYPE_CHECKING = False  # of `typing`, which takes longer to import than all of the above
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import typer

    from osprey_mpi.errors import OspreyError


_ONCE = {"-h", "--help", "--version"}  # what ends with words and no run


def build_app() -> typer.Typer:
    """Return the command line with all its verbs."""
    import typer

    from osprey_mpi.cli.doctor import doctor_command
    from osprey_mpi.cli.export import export_command
    from osprey_mpi.cli.launch import launch_command
    from osprey_mpi.cli.report import report_command
    from osprey_mpi.cli.resume import resume_command
    from osprey_mpi.cli.run import run_command
    from osprey_mpi.cli.schema import schema_command
    from osprey_mpi.cli.status import status_command
    from osprey_mpi.cli.validate import validate_command
    from osprey_mpi.cli.version import version_option

    app = typer.Typer(
        name="osprey",
        help="Minimise expensive functions on many MPI ranks without a barrier. --debug shows tracebacks.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(version_option)
    for name, command in (
        ("validate", validate_command),
        ("run", run_command),
        ("resume", resume_command),
        ("launch", launch_command),
        ("status", status_command),
        ("report", report_command),
        ("export", export_command),
        ("doctor", doctor_command),
        ("schema", schema_command),
    ):
        app.command(name)(command)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb and exit with its code; an error of ours is one message on stderr.

    --debug, before or after the verb, shows the traceback as well.
    """
    hold()
    arguments = list(sys.argv[1:] if argv is None else argv)
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    is_debug = "--debug" in ours
    arguments = [argument for argument in ours if argument != "--debug"] + arguments[len(ours) :]
    try:
        if arguments[:1] not in (["run"], ["resume"]) or "--dry-run" in ours:
            let_in()  # the others let them in when they can save and stop
        sys.exit(_carry_out(arguments, is_debug=is_debug, is_once=not _ONCE.isdisjoint(ours)))
    except KeyboardInterrupt:
        say("osprey: interrupted")
        sys.exit(128 + signal.SIGINT)


def _carry_out(arguments: list[str], *, is_debug: bool, is_once: bool) -> int:
    """Run one verb and return its exit code. Raises KeyboardInterrupt."""
    import time

    from osprey_mpi.cli.output import open_standard_streams
    from osprey_mpi.comm.launcher import SPEAK_S, detect
    from osprey_mpi.drivers.limits import limits_named
    from osprey_mpi.errors import OspreyError

    open_standard_streams()
    if is_once and detect().rank > 0:
        return 0  # rank 0 says the same
    import typer

    click_exception: Any = typer.BadParameter.__mro__[2]  # by a public name: newer versions have a click of their own
    try:
        with limits_named():
            code: int = build_app()(args=arguments, prog_name="osprey", standalone_mode=False)
        return code
    except OspreyError as error:
        if is_debug:
            raise
        if not error.is_said:
            _complain(error)
        return int(error.exit_code)
    except click_exception as error:
        if detect().rank > 0:
            time.sleep(SPEAK_S)  # rank 0 says the same
        else:
            error.show()
        return int(error.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _complain(error: OspreyError) -> None:
    from osprey_mpi.errors import ConfigError

    is_list = isinstance(error, ConfigError) and len(error.problems) > 1  # which has a line for each
    lines = str(error).splitlines() if is_list else [str(error)]
    say("\n".join(f"osprey: {line}" for line in lines))
