"""Who is told why an evaluation failed: the rank's log with its parameters, the user once for each kind."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.comm.channel import NoChannel
from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.budget import BudgetRule
from osprey_mpi.continuity.events import Append, Evaluated
from osprey_mpi.continuity.messages import Order
from osprey_mpi.continuity.records import BLOCK, RECORD, RowReason, Status, reasons_of
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.drivers.desk import Desk
from osprey_mpi.drivers.loop import Loop
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.search.space import Space
from osprey_mpi.storage.folder import RunFolder

CONFIG = {
    "name": "reasons",
    "objective": {"python": "model:loss"},
    "parameters": {"x": {"type": "real", "low": 0, "high": 1, "size": 200}},
    "budget": {"evaluations": 9},
}
SPACE = Space(config_from_mapping(CONFIG).parameters)


def records_of(*status: Status) -> Any:
    """Return a record for each status, ids from 0."""
    records = np.zeros(len(status), RECORD)
    records["id"], records["status"] = np.arange(len(status)), status
    return records


def test_the_user_is_told_once_of_each_kind_and_not_of_what_was_ended_on_purpose(tmp_path: Path) -> None:
    warnings: list[str] = []
    config = config_from_mapping(CONFIG)
    settings = RootSettings(BudgetRule(9), SPACE.n_columns)
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(1, ["h"])
        desk = Desk(
            folder, config, SPACE, Root(0, (0,), settings, 0.0), logging.getLogger("reasons"), n_ranks=1, n_workers=1,
            n_flocks=1, fault_tolerance="none", wall_before_s=0.0, on_status=lambda status: None,
            on_result=lambda result: None, on_warning=warnings.append,
        )  # fmt: skip
        records = records_of(Status.FAILED, Status.STOPPED, Status.CANCELLED, Status.FAILED, Status.TIMEOUT)
        reasons = {
            0: "KeyError: 'gone'\n  line 3", 1: "stopped early at step 2 with 1.0", 2: "cut off",
            3: "KeyError: 'gone'\n  line 4", 4: "ended by the time limit of 1 s", 7: "KeyError: 'gone'",
        }  # fmt: skip
        why = [RowReason(2, 1, Status.LOST, "rank 3 was lost"), *reasons_of(reasons, records)]
        assert desk.append(Append(1, records, np.zeros((5, 200)), np.empty(0, BLOCK), why)).error == ""
    lost = "evaluation 2: rank 3 was lost"  # whatever became of the same evaluation later
    failed = ["evaluation 0: KeyError: 'gone'\n  line 3", "evaluation 4: ended by the time limit of 1 s"]
    assert warnings == [lost, *failed]


def test_the_log_has_id_rank_and_parameters_cut_to_500_characters(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("reasons")
    described: list[int] = []

    def describe(row: Any) -> Mapping[str, Any]:
        described.append(len(row))
        return SPACE.parameters(row)

    records = records_of(Status.OK, Status.FAILED, Status.STOPPED)
    values = np.full((3, 200), 0.5) + np.arange(3)[:, None] / 8
    reasons = {1: "KeyError: 'gone'\n  line 3", 2: "stopped early", 9: "killed by SIGSEGV"}
    event = Evaluated(
        Order(0, 10, 0, 10, 0), generation=0, row_start=0, row_stop=10, records=records, values=values,
        positions=values, costs=np.zeros(10), violations=np.zeros(10), elapsed_s=1.0, reasons=reasons,
    )  # fmt: skip
    with caplog.at_level(logging.INFO), Signals(launched=False) as signals:
        Loop(3, {}, NoChannel(), signals, log, describe=describe)._note_reasons(event)
    failed, stopped, rowless = caplog.records
    head, _, rest = failed.getMessage().partition(", parameters ")
    assert head == "evaluation 1 on rank 3" and described == [200, 200], "only rows with a reason"
    shown, reason = rest[:500], rest[500:]
    assert shown.startswith("{'x': [0.625, 0.625, ") and shown.endswith("...")
    assert reason == ": KeyError: 'gone'\n  line 3"
    assert [r.levelno for r in caplog.records] == [logging.WARNING, logging.INFO, logging.WARNING]
    assert rowless.getMessage() == "evaluation 9 on rank 3: killed by SIGSEGV"
    assert "{'x': [0.75" in stopped.getMessage()
