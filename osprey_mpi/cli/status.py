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
    from osprey_mpi.report.load import known_violations
    from osprey_mpi.report.render import status_lines
    from osprey_mpi.report.settings import unlike_file
    from osprey_mpi.storage.folder import RunFolder
    from osprey_mpi.storage.rows import read_run

    run = RunFolder.peek(folder)
    status, state = run.observe()
    facts = run.run
    name = facts["name"]
    # Once nobody writes any more the rows tell more than the last status: all that is on disk, and of what was lost or
    # cancelled only what was not done again, as `report` and `export` do.
    if status is not None and not state.is_active:
        rows = read_run(run.path)
        n_infeasible, n_not_called = known_violations(run.run, rows)
        status = dataclasses.replace(
            status, n_evaluations=rows.n_evaluations, counts=rows.counts, n_infeasible=n_infeasible,
            n_not_called=n_not_called,
        )  # fmt: skip
    if format is TextFormat.TEXT:
        write_text(f"{line}\n" for line in status_lines(name, run.path, status, state, time.time()))
        return
    mapping = {} if status is None else status.to_mapping()
    unlike = unlike_file(run.path, facts)
    write_json({"name": name, "path": str(run.path), **mapping, "state": str(state), "unlike_config_yaml": unlike})
