"""Export evaluations as CSV (RFC 4180) or strict JSON, in UTF-8."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from osprey_mpi.continuity.records import Status
from osprey_mpi.report.load import Run, is_active, typed
from osprey_mpi.search.streams import evaluation_seeds
from osprey_mpi.storage.status import plain

_FIELDS = ("id", "status", "cost", "violation", "rank", "flock", "attempt", "generation", "t_start_s", "t_end_s")
_PART = 10_000  # rows turned into Python objects at a time: a long history does not fill the memory
_LINE_BREAK = re.compile("\r\n|[\r\n]")
_NAMES = {int(status): status.name.lower() for status in Status}


def csv_parts(run: Run) -> Iterator[str]:
    """Yield the CSV: one line an evaluation, elements of array parameters as x[0], x[1], ...; inactive ones empty.

    Line breaks in text are written \\n, because many tools take each line for a row.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    names = [
        column.parameter if column.index is None else f"{column.parameter}[{column.index}]"
        for column in run.rows.columns
    ]
    writer.writerow([*_FIELDS, "seed", "reason", *names])
    for fields, parameters in _parts(run):
        flat: list[list[Any]] = []
        for values in parameters.values():
            is_array = bool(values) and isinstance(values[0], list)
            flat += [list(column) for column in zip(*values, strict=True)] if is_array else [values]
        writer.writerows(map(_csv_row, zip(*fields.values(), *flat, strict=True)))
        yield _taken(buffer)
    yield _taken(buffer)


def json_parts(run: Run) -> Iterator[str]:
    """Yield one JSON object: the run, its best result, its evaluations with typed parameters.

    NaN, and the reason of an evaluation that ended well, are null.
    """
    head = {
        "name": run.facts["name"],
        "state": str(run.state),
        "n_evaluations": run.rows.n_evaluations,
        "counts": run.rows.counts,
        "best": run.best,
        "done_without_row": [[int(first), int(first + n)] for first, n in run.rows.blocks.tolist()],
        "notes": list(run.rows.notes),
    }
    yield _json(head)[:-1] + ', "evaluations": ['
    separator = "\n"
    for fields, parameters in _parts(run):
        lines: list[str] = []
        for row in range(len(fields["id"])):
            item = {name: values[row] for name, values in fields.items()}
            item["parameters"] = {name: values[row] for name, values in parameters.items() if is_active(values[row])}
            lines.append(separator + _json(item))
            separator = ",\n"
        yield "".join(lines)
    yield "\n]}\n"


def _parts(run: Run) -> Iterator[tuple[dict[str, list[Any]], dict[str, list[Any]]]]:
    for start in range(0, len(run.rows.records), _PART):
        records = run.rows.records[start : start + _PART]
        fields: dict[str, list[Any]] = {name: records[name].tolist() for name in _FIELDS}
        fields["status"] = [_NAMES.get(status, str(status)) for status in fields["status"]]
        fields["seed"] = evaluation_seeds(run.seed, records["id"]).tolist()
        fields["reason"] = [run.rows.reasons.get(id) for id in fields["id"]]
        yield fields, typed(run.rows, start, start + _PART)


def _csv_row(row: tuple[Any, ...]) -> list[Any]:
    return [_csv_cell(value) for value in row]


def _csv_cell(value: Any) -> Any:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _LINE_BREAK.sub(r"\\n", value)
    return repr(value) if isinstance(value, float) else value


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
