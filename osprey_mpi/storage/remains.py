"""Tell what is missing of a run's results: what its lives have left, by run.json and status.json, and is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from osprey_mpi.storage.reading import segment_name, segments_of
from osprey_mpi.storage.status import RunStatus


def note_remains(folder: Path, lives: list[dict[str, Any]], status: RunStatus | None) -> None:
    """Note in the records of earlier lives what they have left, where they could not do so themselves."""
    for life in lives:
        life["segments"] = sorted({*_left_by(life, status), *names_of(folder, life["life"])})
        if status is not None and status.life == life["life"]:
            life.setdefault("n_evaluations", status.n_evaluations)


def names_of(folder: Path, life: int) -> list[str]:
    """Return the names of a life's segments that are there."""
    return [path.name for number, _, path in segments_of(folder / "results") if number == life]


def gone_notes(folder: Path, facts: Mapping[str, Any], status: RunStatus | None) -> Iterator[str]:
    """Yield a sentence for each segment that is gone."""
    there = {path.name for _, _, path in segments_of(folder / "results")}
    for life in facts.get("lives", []):
        for name in _left_by(life, status):
            if name not in there:
                yield f"{folder / 'results' / name} is gone, and with it what life {life['life']} had written to it"


def missing_notes(facts: Mapping[str, Any], status: RunStatus | None, n_evaluations: int) -> Iterator[str]:
    """Yield how many evaluations are missing, of which it is known that they were on disk."""
    known = [life.get("n_evaluations") or 0 for life in facts.get("lives", [])]
    most = max([*known, 0 if status is None else status.n_evaluations], default=0)
    if n_evaluations < most:
        yield f"{most - n_evaluations} of {most} evaluations that were on disk are missing"


def _left_by(life: Mapping[str, Any], status: RunStatus | None) -> list[str]:
    """Return the names of the segments that a life has left, as far as that is known."""
    names = life.get("segments")
    if names is not None:
        return list(names)
    # A life makes its segment before its first status; one that was killed before that has left none.
    is_known = life.get("exit_code") is not None or (status is not None and status.life == life["life"])
    return [segment_name(life["life"], 1)] if is_known else []
