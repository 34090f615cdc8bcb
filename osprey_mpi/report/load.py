"""Read a run folder for a report: nothing is locked and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from osprey_mpi.continuity.records import Status
from osprey_mpi.search.columns import Choice, choice_table
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.rows import Rows, read_run
from osprey_mpi.storage.status import Best, RunStatus, State
from osprey_mpi.storage.variables import parameters_of


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Hold all of a run that reports show. facts: run.json. status: None if the run never wrote one."""

    path: Path
    facts: Mapping[str, Any]
    status: RunStatus | None
    state: State
    rows: Rows

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        return int(self.facts["config"]["config"]["seed"])

    @property
    def violations(self) -> tuple[int | None, int | None]:
        """Return how many evaluations violate constraints, and how many were not called for it; None: not known."""
        return known_violations(self.facts, self.rows)

    @property
    def best(self) -> dict[str, Any] | None:
        """Return the best result: id, cost, violation, rank, t_end_s and its parameters by name; None without one."""
        index = self.rows.best_index
        if index is None:
            return None
        record = self.rows.records[index]
        return {
            "id": int(record["id"]),
            "cost": float(record["cost"]),
            "violation": float(record["violation"]),
            "rank": int(record["rank"]),
            "t_end_s": float(record["t_end_s"]),
            "parameters": {name: column[0] for name, column in typed(self.rows, index, index + 1).items()},
        }

    @property
    def standing(self) -> RunStatus | None:
        """Return the last status with what is on disk of a run that nobody writes any more.

        The rows tell more than the last status: all that was written, and of what was lost or cancelled only what was
        not done again, as `report` and `export` have it.
        """
        best, index = self.best, self.rows.best_index
        if self.status is None:
            return None
        n_infeasible, n_not_called = self.violations
        status = replace(
            self.status, n_evaluations=self.rows.n_evaluations, counts=self.rows.counts, n_infeasible=n_infeasible,
            n_not_called=n_not_called,
        )  # fmt: skip
        if best is None or index is None or self.rows.records["status"][index] != Status.OK:
            return status
        active = {name: value for name, value in best["parameters"].items() if is_active(value)}
        return replace(status, best=Best(best["cost"], best["violation"], active, best["id"]))


def load(path: Path) -> Run:
    """Read the run in `path`. Raises UsageError if it is none."""
    folder = RunFolder.peek(path)
    status, state = folder.observe()
    return Run(folder.path, folder.run, status, state, read_run(folder.path))


def known_violations(facts: Mapping[str, Any], rows: Rows) -> tuple[int | None, int | None]:
    """Return what `Violations.known` does for the run of a run.json."""
    config = facts["config"]["config"]
    is_builtin = config["objective"]["builtin"] is not None
    return rows.violations.known(has_constraints=bool(config["constraints"]), is_builtin=is_builtin)


def typed(rows: Rows, start: int = 0, stop: int | None = None) -> dict[str, list[Any]]:
    """Return the values of rows [start, stop) by parameter, as the types that the objective got; inactive ones None."""
    values = rows.values[start:stop]
    result: dict[str, list[Any]] = {}
    for parameter in parameters_of(rows.columns):
        part = values[:, parameter.start : parameter.stop]
        choices = parameter.choices
        if choices is not None and parameter.is_array:
            choices = tuple(choice_table(choices).tolist())  # an array has one type for all of them
        columns = [_typed_column(column, parameter.kind == "integer", choices) for column in part.T]
        result[parameter.name] = (
            [list(items) for items in zip(*columns, strict=True)] if parameter.is_array else columns[0]
        )
    return result


def is_active(value: Any) -> bool:
    """Tell whether a parameter was there in an evaluation."""
    return value is not None and not (isinstance(value, list) and all(item is None for item in value))


def _typed_column(column: Any, is_integer: bool, choices: tuple[Choice, ...] | None) -> list[Any]:
    inactive = np.isnan(column)
    if choices is None and not is_integer:
        items: list[Any] = column.tolist()
    else:
        codes = np.where(inactive, 0, column).astype(np.int64).tolist()
        items = codes if choices is None else [choices[code] for code in codes]
    if inactive.any():
        for index in np.flatnonzero(inactive).tolist():
            items[index] = None
    return items
