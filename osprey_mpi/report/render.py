"""Turn a run into what a person reads: rich tables on a terminal, plain aligned text anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import IO, Any

from osprey_mpi.report import tables
from osprey_mpi.report.load import Run
from osprey_mpi.report.settings import changes, unlike_file
from osprey_mpi.report.tables import Table
from osprey_mpi.storage.status import RunStatus, State, not_called_lines
from osprey_mpi.words import counted

_SHOWN = 8  # elements of an array parameter; `export` and `--format json` give all
_SHOWN_PARAMETERS = 40
DISTINCT = ("best cost", "violation")  # columns of improvements: two that look the same would look like a mistake
INTERRUPTED = (
    "interrupted: it was killed or lost; the evaluations that ran then are lost, `osprey resume` runs them again"
)


def tables_of(run: Run) -> list[Table]:
    """Return all tables of a report, those without rows left out."""
    found = [
        best_table(run.best),
        tables.convergence(run.rows),
        tables.counts(run.rows),
        tables.by(run.rows, "flock"),
        tables.by(run.rows, "rank"),
        tables.times(run.rows),
        tables.failures(run.rows),
        tables.lives(run.facts, run.rows),
    ]
    return [table for table in found if table.rows]


def best_table(best: dict[str, Any] | None) -> Table:
    """Return the best result and its parameters."""
    if best is None:
        return Table("Best", ("what", "value"), [])
    body: list[tuple[Any, ...]] = [("cost", best["cost"]), ("evaluation", best["id"])]
    if best["violation"] > 0:
        body.append(("violation (no feasible point yet)", best["violation"]))
    parameters = list(best["parameters"].items())
    body += [(name, value) for name, value in parameters[:_SHOWN_PARAMETERS]]
    n_more = len(parameters) - _SHOWN_PARAMETERS
    return Table("Best", ("what", "value"), body, counted(n_more, "more parameter") if n_more > 0 else "")


def head(run: Run) -> list[str]:
    """Return the lines above the tables."""
    state = INTERRUPTED if run.state is State.INTERRUPTED else str(run.state)
    lines = [f"{run.facts['name']} in {run.path}", f"state: {state}"]
    if run.status is not None and run.status.reason:
        lines.append(f"reason: {run.status.reason}")
    lines += [f"evaluations: {run.rows.n_evaluations}", *not_called_lines(run.violations[1])]
    if run.status is not None:
        lines.append(ranks_line(run.status))
    if run.best is None:
        lines.append("no evaluation has given a usable result yet")
    return [*lines, *(f"note: {note}" for note in run.rows.notes)]


def report_json(run: Run) -> dict[str, Any]:
    """Return the report as JSON values."""
    n_infeasible, n_not_called = run.violations
    return {
        "name": run.facts["name"],
        "path": str(run.path),
        "state": str(run.state),
        "n_evaluations": run.rows.n_evaluations,
        "n_infeasible": n_infeasible,
        "n_not_called": n_not_called,
        "idle_share": None if run.status is None else run.status.idle_share,
        "counts": run.rows.counts,
        "best": run.best,
        "tables": {
            table.title.lower(): [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in tables_of(run)
            if table.title != "Best"
        },
        "changes": changes(run.facts),
        "unlike_config_yaml": unlike_file(run.path, run.facts),
        "notes": list(run.rows.notes),
    }


def write_report(run: Run, stream: IO[str]) -> None:
    """Write the report as text."""
    write_tables(head(run), tables_of(run), stream)


def write_tables(lines: Sequence[str], found: Sequence[Table], stream: IO[str]) -> None:
    """Write lines and tables: with rich where `stream` is a terminal, as plain text otherwise."""
    if stream.isatty():
        _write_rich(lines, found, stream)
        return
    stream.write("".join(f"{line}\n" for line in lines))
    for table in found:
        stream.write("\n" + plain_table(table))


def plain_table(table: Table) -> str:
    """Return a table as aligned text; numbers to the right."""
    texts = texts_of(table)
    widths = [max(len(name), *(len(row[i]) for row in texts)) for i, name in enumerate(table.columns)]
    right = _numeric(table)
    lines = [table.title]
    for row in [list(table.columns), *texts]:
        parts = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(row, widths, right, strict=True)]
        lines.append("  " + "  ".join(parts).rstrip())
    lines += [f"  {line}" for line in table.note.splitlines()]
    return "\n".join(lines) + "\n"


def texts_of(table: Table) -> list[list[str]]:
    """Return the rows as text: a column has the digits that tell its numbers apart, six at least."""
    columns = list(zip(*table.rows, strict=True))
    return [list(row) for row in zip(*map(_column, columns, table.columns), strict=True)]


def _column(values: tuple[Any, ...], name: str) -> list[str]:
    texts = [cell(value, name) for value in values]
    if name not in DISTINCT:
        return texts
    for digits in range(7, 18):
        if len(set(texts)) >= len(set(values)):
            break
        texts = [cell(value, name, digits) for value in values]
    return texts


def _write_rich(lines: Sequence[str], found: Sequence[Table], stream: IO[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for line in lines:
        console.print(Text(line))
    for table in found:
        drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for name, right in zip(table.columns, _numeric(table), strict=True):
            drawn.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in texts_of(table):
            drawn.add_row(*map(Text, row))
        console.print(drawn)
        if table.note:
            console.print(Text("  " + table.note.replace("\n", "\n  ")))


def _numeric(table: Table) -> list[bool]:
    return [
        all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in column)
        for column in zip(*table.rows, strict=True)
    ]


def cell(value: Any, column: str = "", digits: int = 6) -> str:
    """Return one value as text: six digits of a number, a dash for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if column == "started":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if column == "idle share":
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else str(value)
    if isinstance(value, list):
        shown = ", ".join(cell(item) for item in value[:_SHOWN])
        return f"[{shown}, ... {len(value)} in all]" if len(value) > _SHOWN else f"[{shown}]"
    return str(value)


def ranks_line(status: RunStatus) -> str:
    """Return the ranks of the newest life and which part of their time they had nothing to evaluate."""
    life = f" in life {status.life}" if status.life > 1 else ""
    idle = "" if status.idle_share is None else f", {status.idle_share:.1%} idle{life}"
    flocks = f" in {counted(status.n_flocks, 'flock')}" if status.n_flocks else ""
    return f"ranks: {status.n_ranks}{flocks}{idle}"


def status_lines(
    name: str, path: Any, status: RunStatus | None, state: State, now_unix_s: float, notes: Sequence[str] = ()
) -> list[str]:
    """Return what `status` prints as text."""
    lines = [f"{name} in {path}", f"state: {INTERRUPTED if state is State.INTERRUPTED else state}"]
    said = [f"note: {note}" for note in notes]
    if status is None:
        return [*lines, "no status has been written yet", *said]
    if status.reason:
        lines.append(f"reason: {status.reason}")
    if status.exit_code is not None:
        lines.append(f"exit code: {status.exit_code}")
    limit = status.budget.get("evaluations")
    lines.append(f"evaluations: {status.n_evaluations}" + (f" of {limit}" if limit is not None else ""))
    lines += [f"  {key}: {n}" for key, n in status.counts.items() if n]
    lines += not_called_lines(status.n_not_called)
    if status.best is not None:
        best = status.best
        lines.append(f"best cost: {cell(best.cost)} (evaluation {best.id}){best.remark}")
        lines += [f"  {key}: {cell(value)}" for key, value in list(status.best.parameters.items())[:_SHOWN_PARAMETERS]]
    lines.append(ranks_line(status))
    lines.append(f"life: {status.life}, epoch: {status.epoch}, running time: {status.wall_s:.1f} s")
    lines.append(f"host: {status.host}, process {status.pid}, fault tolerance: {status.fault_tolerance}")
    lines.append(f"written {max(0.0, now_unix_s - status.updated_unix_s):.1f} s ago")
    return lines + said
