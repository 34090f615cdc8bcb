"""osprey status: say where a run is, without a lock and without changing a byte."""

from __future__ import annotations

from osprey_mpi.cli.options import Folder, Format, TextFormat


def status_command(folder: Folder, format: Format = TextFormat.TEXT) -> None:
    """Show where a run is; works while it runs.

    A run that was killed is shown as interrupted.
    """
    import dataclasses
    import time

    from osprey_mpi.cli.output import write_json, write_text
    from osprey_mpi.report.render import status_lines
    from osprey_mpi.storage.folder import RunFolder
    from osprey_mpi.storage.rows import read_run
    from osprey_mpi.storage.status import State

    run = RunFolder.peek(folder)
    status, state = run.observe()
    name = run.run["name"]
    if status is not None and state is State.INTERRUPTED:  # the segments may be newer than the last status
        rows = read_run(run.path)
        status = dataclasses.replace(status, n_evaluations=rows.n_evaluations, counts=rows.counts)
    if format is TextFormat.TEXT:
        write_text(f"{line}\n" for line in status_lines(name, run.path, status, state, time.time()))
        return
    mapping = {} if status is None else status.to_mapping()
    write_json({"name": name, "path": str(run.path), **mapping, "state": str(state)})
