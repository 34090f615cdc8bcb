"""osprey status: say where a run is, without a lock and without changing a byte."""

from __future__ import annotations

from osprey_mpi.cli.options import Folder, Format, TextFormat


def status_command(folder: Folder, format: Format = TextFormat.TEXT) -> None:
    """Show where a run is; works while it runs.

    A run that was killed is shown as interrupted.
    """
    import time

    from osprey_mpi.cli.output import write_json, write_text
    from osprey_mpi.report.load import Run
    from osprey_mpi.report.render import status_lines
    from osprey_mpi.report.settings import unlike_file
    from osprey_mpi.storage.folder import RunFolder
    from osprey_mpi.storage.remains import gone_notes
    from osprey_mpi.storage.rows import read_run

    run = RunFolder.peek(folder)
    status, state = run.observe()
    facts = run.run
    if state.is_active:  # its rows may be many, and it goes on
        notes = list(gone_notes(run.path, facts, status))
    else:
        loaded = Run(run.path, facts, status, state, read_run(run.path))
        status, notes = loaded.standing, list(loaded.rows.notes)
    name = facts["name"]
    if format is TextFormat.TEXT:
        write_text(f"{line}\n" for line in status_lines(name, run.path, status, state, time.time(), notes))
        return
    mapping = {} if status is None else status.to_mapping()
    unlike = unlike_file(run.path, facts)
    facts = {"name": name, "path": str(run.path), **mapping, "state": str(state)}
    write_json({**facts, "unlike_config_yaml": unlike, "notes": notes})
