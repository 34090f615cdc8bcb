"""osprey report: show what a run has found."""

from __future__ import annotations

import sys

from osprey_mpi.cli.options import Folder, Format, TextFormat


def report_command(folder: Folder, format: Format = TextFormat.TEXT) -> None:
    """Show the best parameters, convergence, counts, ranks, times, failures and lives of a run."""
    from osprey_mpi.cli.output import write_json, write_text
    from osprey_mpi.report.load import load
    from osprey_mpi.report.render import report_json, write_report

    run = load(folder)
    if format is TextFormat.JSON:
        write_json(report_json(run))
    elif sys.stdout.isatty():
        write_report(run, sys.stdout)
    else:
        import io

        text = io.StringIO()
        write_report(run, text)
        write_text([text.getvalue()])
