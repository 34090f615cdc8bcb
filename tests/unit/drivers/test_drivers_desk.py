"""The desk on a bad disk: what fits is kept and written once, trouble is said once, and the result is always given."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import h5py
import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.events import Append, Conclude, Concluded, WriteCheckpoint, WriteStatus
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import BLOCK, PIECE, RECORD, Status, reasons_of
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.drivers import desk as module
from osprey_mpi.drivers.desk import Desk
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.errors import StorageError
from osprey_mpi.report import tables
from osprey_mpi.report.load import load
from osprey_mpi.report.render import head, report_json, status_lines
from osprey_mpi.search.space import Space
from osprey_mpi.storage.checkpoint import load_checkpoint
from osprey_mpi.storage.files import storage_error
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.owner import Owner, owner_of
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import State, read_status

CONFIG = config_from_mapping(
    {
        "name": "desk",
        "objective": {"builtin": "sphere"},
        "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
        "budget": {"evaluations": 1000},
    }
)
SPACE = Space(CONFIG.parameters)


class Office:
    """Hold a desk, and a disk under it that takes so many more rows; None: all."""

    def __init__(self, folder: RunFolder) -> None:
        settings = RootSettings(BudgetRule(1000), SPACE.n_columns)
        self.root = Root(0, (0,), settings, 0.0)
        self.results: list[RunResult] = []
        self.warnings: list[str] = []
        self.desk = Desk(
            folder, CONFIG, SPACE, self.root, logging.getLogger("desk"), n_ranks=1, n_workers=1, n_flocks=1,
            fault_tolerance="none", wall_before_s=0.0, on_status=lambda status: None, on_result=self.results.append,
            on_warning=self.warnings.append,
        )  # fmt: skip
        self.folder = folder
        self.room: int | None = None
        self.n_tries = 0
        self.error = errno.ENOSPC
        write = self.desk.segment.append

        def append(records: Any, *rest: Any) -> None:
            self.n_tries += 1
            if self.room is not None and (len(records) > self.room or self.room == 0):
                raise full(self.desk.segment.path, self.error)
            self.room = None if self.room is None else self.room - len(records)
            write(records, *rest)

        self.desk.segment.append = append  # type: ignore[method-assign]  # a disk of this test

    def ids(self) -> list[int]:
        return list(read_segment(self.desk.segment.path).records["id"])

    def reasons(self) -> dict[int, str]:
        data = read_segment(self.desk.segment.path)
        return {int(row["id"]): data.reason(row) for row in data.reasons}


def full(path: Path, number: int) -> StorageError:
    cause = OSError(number, os.strerror(number))
    error = storage_error(path, cause)
    error.__cause__ = cause
    return error


@pytest.fixture
def office(tmp_path: Path) -> Any:
    with RunFolder.create(tmp_path / "run", CONFIG) as folder:
        folder.begin_life(1, ["h"])
        yield Office(folder)


def append_of(n: int, serial: int = 1, reasons: dict[int, str] | None = None) -> Append:
    """Return rows 0 to n - 1, and 1000 to 1009 done without a row."""
    records = np.zeros(n, RECORD)
    records["id"], records["status"] = np.arange(n), Status.STOPPED
    blocks, why = np.array([(1000, 10)], BLOCK), reasons_of(reasons or {}, records)
    return Append(serial, records, np.full((n, 1), 0.5), blocks, why)


def delta(id: int, cost: float = 1.0, status: Status = Status.OK) -> Delta:
    """Return what a rank holds that evaluated `id`; one that came to nothing has no piece."""
    pieces, records = np.zeros(int(status == Status.OK), PIECE), np.zeros(1, RECORD)
    pieces["first"], pieces["n"], pieces["row_stop"] = id, 1, 1
    records["id"], records["cost"], records["status"] = id, cost, status
    best: Any = {"cost": cost, "best_id": id, "position": np.array([0.25])} if len(pieces) else {}
    return Delta(1, 1, 0, 0, pieces=pieces, records=records, values=np.full((1, 1), 0.25), **best)


def ended(office: Office, *held: Delta) -> int:
    """End a run that has done evaluations 0 and 1, of costs 5 and 4, and lost 2 once; return its exit code."""
    known = [delta(0, 5.0), delta(1, 4.0), delta(2, status=Status.LOST)]
    for one in known:
        office.root.tally.enter(one.pieces, one.records, one.values)
    joined = [np.concatenate(arrays) for arrays in zip(*((one.records, one.values) for one in known), strict=True)]
    office.desk.append(Append(1, *joined, np.empty(0, BLOCK), []))
    office.root.reason = Reason.TARGET
    office.desk.conclude(Conclude(0))
    office.desk.write_status(WriteStatus("done", "target", 0))
    return office.desk.part(held)


def test_a_better_point_that_a_rank_hands_over_at_the_end_is_in_all_that_the_run_leaves(office: Office) -> None:
    """It is of an evaluation that another has done, too: it counts once, and the result is given once."""
    assert ended(office, delta(1, 0.5), delta(0, 9.0), delta(2, status=Status.CANCELLED)) == 0
    with h5py.File(office.folder.path / "results.h5") as file:
        found = {name: file["evaluations"][name][()].tolist() for name in ("evaluation", "cost", "status")}
    assert found == {"evaluation": [0, 1, 2], "cost": [5.0, 0.5, 1.0], "status": [Status.OK, Status.OK, Status.LOST]}
    status = read_status(office.folder.path)
    assert status is not None and status.best is not None and status.state == "done"
    assert (status.best.cost, status.best.id, status.n_evaluations, status.counts["ok"]) == (0.5, 1, 2, 2)
    assert [(result.cost, result.n_evaluations, result.exit_code) for result in office.results] == [(0.5, 2, 0)]
    assert not office.warnings


def test_what_is_handed_over_at_the_end_and_no_news_changes_no_file(office: Office) -> None:
    before: dict[Path, bytes] = {}
    office.desk._on_result = lambda result: before.update(contents(office.folder.path))
    ended(office)
    office.desk._on_result = lambda result: None
    assert office.desk.part([delta(1, 4.0), delta(0, 9.0), delta(2, status=Status.CANCELLED)]) == 0
    assert before and contents(office.folder.path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_usable_result_may_come_at_the_end(office: Office) -> None:
    office.root.reason = Reason.TARGET
    assert office.desk.conclude(Conclude(3)) == Concluded(3)
    assert office.desk.part([delta(7)]) == office.folder.run["lives"][0]["exit_code"] == 0
    status = read_status(office.folder.path)
    assert status is not None and (status.state, status.exit_code, status.n_evaluations) == ("done", 0, 1)
    assert [(result.cost, result.exit_code) for result in office.results] == [(1.0, 0)]


def test_what_was_done_again_counts_by_how_it_ended_now(office: Office) -> None:
    office.root.tally.enter(delta(0).pieces, delta(0, status=Status.FAILED).records, np.zeros((1, 1)))
    office.root.redo = Redo(np.array([0]), np.zeros((1, 1)), 1, np.array([Status.FAILED]))
    office.root.reason = Reason.WALLTIME
    again = delta(0, 0.5)
    again.records["attempt"] = 1
    office.desk.conclude(Conclude(75))
    assert office.desk.part([again]) == 75
    status = read_status(office.folder.path)
    assert status is not None and status.best is not None and status.best.cost == 0.5
    assert (status.n_evaluations, status.counts["ok"], status.counts["failed"]) == (1, 1, 0)


def test_what_is_handed_over_and_cannot_be_written_is_said_and_has_a_code(office: Office) -> None:
    office.room = 3
    assert ended(office, delta(5, 0.5)) == office.folder.run["lives"][0]["exit_code"] == 4
    (warning,) = office.warnings
    assert warning.startswith("what ranks held at the end is not on disk: ") and "errno 28" in warning
    assert [(result.cost, result.n_evaluations) for result in office.results] == [(4.0, 2)], "what is on disk"
    status = read_status(office.folder.path)
    assert status is not None and (status.exit_code, status.n_evaluations) == (4, 2)


def test_what_fits_is_kept_and_nothing_is_written_twice(office: Office) -> None:
    reasons = {3: "three", 40: "forty", 99: "ninety-nine", 1005: "no row"}
    office.room = 70
    error = office.desk.append(append_of(100, 1, reasons)).error
    assert "No space left on device (errno 28)" in error and "make room" in error
    assert office.ids() == list(range(68)), "50, then 12 and 6: the room is met to a sixteenth of all rows"
    assert office.reasons() == {3: "three", 40: "forty"}
    assert office.desk.status(WriteStatus("running")).n_evaluations == 0, "nothing counts before all of it is durable"
    ended = office.desk.status(WriteStatus("stopped"))
    assert (ended.n_evaluations, ended.counts["stopped"]) == (68, 68), "what a resume will find"
    assert len(read_segment(office.desk.segment.path).blocks) == 0
    office.room = 0
    assert office.desk.append(append_of(100, 2, reasons)).error and office.ids() == list(range(68))
    office.room = None
    assert office.desk.append(append_of(120, 3, reasons)).error == ""
    assert office.ids() == list(range(120)) and office.reasons() == reasons
    assert read_segment(office.desk.segment.path).blocks.tolist() == [(1000, 10)]
    assert office.desk.status(WriteStatus("stopped")).n_evaluations == 0, "the root's count again, which is 0 here"
    assert office.desk.append(append_of(2, 4)).error == "", "the next rows are new ones"
    assert office.ids() == [*range(120), 0, 1]


def test_a_full_disk_is_tried_a_few_times_and_a_broken_one_once(office: Office) -> None:
    office.room = 0
    assert office.desk.append(append_of(10_000)).error and office.n_tries == 5
    office.n_tries, office.error = 0, errno.EIO
    assert "the file server failed" in office.desk.append(append_of(10_000)).error and office.n_tries == 1


@pytest.mark.parametrize("n", [0, 1])
def test_a_part_without_halves_is_tried_once(office: Office, n: int) -> None:
    office.room = 0
    assert office.desk.append(append_of(n)).error and office.n_tries == 1


def test_a_file_that_cannot_be_written_is_told_of_once_until_it_can(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    checkpoint = WriteCheckpoint({}, {"n_evaluations": 0})
    for _ in range(2):
        with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
            patch.setattr(module, "write_checkpoint", refuse)
            patch.setattr(office.folder, "write_status", refuse)
            for _ in range(3):
                office.desk.write_checkpoint(checkpoint)
                office.desk.write_status(WriteStatus("running"))
        with caplog.at_level(logging.INFO):
            for _ in range(2):
                office.desk.write_checkpoint(checkpoint)
                office.desk.write_status(WriteStatus("running"))
    healed = ["checkpoint.h5 can be written again", "status.json can be written again"]
    assert [record.getMessage() for record in caplog.records] == 2 * ["no space left", "no space left", *healed]
    assert office.warnings == 4 * ["no space left"], "of the checkpoint and of the status"
    assert read_status(office.folder.path) is not None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StorageError("no space left"), "no space left"),
        (OSError("bad file"), "OSError: bad file"),
        (TypeError("no dtype"), "TypeError: no dtype"),
        (MemoryError("8 TB"), "MemoryError: 8 TB"),
    ],
)
def test_the_result_is_given_whatever_happens_to_the_files(
    office: Office, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "write_results", fail)
    stale = office.folder.path / "results.h5"
    for code, end in ((75, 75), (3, 3), (0, 4)):
        stale.touch()  # as an export leaves it while the run goes on
        assert office.desk.conclude(Conclude(code)) == Concluded(end)
        assert not stale.exists(), "it would look like the whole"
        assert office.folder.run["lives"][0]["exit_code"] == office.desk.part([]) == end
    assert [result.exit_code for result in office.results] == [75, 3, 4]
    assert office.warnings == 3 * [f"results.h5 was not written: {text}"]


def test_a_results_file_that_cannot_be_written_says_how_to_get_it(office: Office) -> None:
    (office.folder.path / "results.h5").mkdir()
    assert office.desk.conclude(Conclude(0)) == Concluded(4)
    (warning,) = office.warnings
    assert "results.h5 was not written" in warning and "a folder has its name: move that away" in warning
    assert warning.endswith(f"`osprey export {office.folder.path} --format hdf5`")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StorageError("no space for stdout"), 4, "the result was not printed: no space for stdout"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 0, "nobody reads stdout any more; `osprey report"),
    ],
)
def test_the_files_are_finished_where_the_result_cannot_be_given(
    office: Office, error: Exception, code: int, text: str
) -> None:
    def fail(result: RunResult) -> None:
        raise error

    office.desk.append(append_of(3))
    office.desk._on_result = fail
    office.desk.conclude(Conclude(0))
    office.desk.write_status(WriteStatus("done", "", 0))
    status = read_status(office.folder.path)
    assert status is not None and office.desk.part([]) == office.folder.run["lives"][0]["exit_code"] == code
    assert read_status(office.folder.path) == dataclasses.replace(
        status, exit_code=code, updated_unix_s=ANY, wall_s=ANY
    )
    assert (office.folder.path / "results.h5").is_file()
    (warning,) = office.warnings
    assert warning.startswith(text)


def test_each_file_is_finished_though_another_one_cannot_be(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("torn")

    tasks: list[int] = []
    monkeypatch.setattr(office.desk.segment, "close", fail)
    monkeypatch.setattr(office.folder, "end_life", lambda code, *_: tasks.append(code))
    office.desk.conclude(Conclude(0))
    assert tasks == [0] and (office.folder.path / "results.h5").is_file()
    assert [text.partition(";")[0] for text in office.warnings] == ["the segment was not closed: RuntimeError: torn"]


def test_the_idle_share_is_that_of_the_report(office: Office) -> None:
    """One rank starts at 2 s, evaluates for 1 s, waits for 1 s, and evaluates for 2 s."""
    assert office.desk.status(WriteStatus("running")).idle_share is None
    records = np.zeros(2, RECORD)
    records["id"], records["t_start_s"], records["t_end_s"] = (0, 1), (2.0, 4.0), (3.0, 6.0)
    office.desk.append(Append(1, records, np.zeros((2, 1)), np.empty(0, BLOCK), [], elapsed_s=3.0))
    status = office.desk.status(WriteStatus("running"))
    assert status.idle_share == 0.25
    office.desk.write_status(WriteStatus("done"))
    run = load(office.folder.path)
    assert tables.by(run.rows, "rank").rows == [(0, 2, 1.5, status.idle_share)]
    assert "ranks: 1 in 1 flock, 25.0% idle" in head(run) and report_json(run)["idle_share"] == 0.25
    lines = status_lines("desk", run.path, run.status, run.state, 0.0)
    assert "ranks: 1 in 1 flock, 25.0% idle" in lines
    later = dataclasses.replace(status, life=2)
    assert "ranks: 1 in 1 flock, 25.0% idle in life 2" in status_lines("desk", run.path, later, run.state, 0.0)


def test_without_a_row_for_each_evaluation_the_idle_share_is_that_of_the_whole_life(office: Office) -> None:
    records = np.zeros(1, RECORD)
    records["t_end_s"] = 1.0
    office.desk._began -= 1000.0
    office.desk.append(Append(1, records, np.zeros((1, 1)), np.array([(1, 9)], BLOCK), [], elapsed_s=250.0))
    assert office.desk.status(WriteStatus("running")).idle_share == pytest.approx(0.75, abs=0.01)


def test_of_a_run_whose_folder_is_removed_the_result_is_left(office: Office) -> None:
    office.desk.append(append_of(3))
    shutil.rmtree(office.folder.path)
    assert office.desk.append(append_of(3)).error
    assert office.desk.conclude(Conclude(75)) == Concluded(4), "there is nothing to go on with"
    office.desk.write_status(WriteStatus("stopped", "", 4))
    assert office.desk.part([delta(9)]) == 4
    (warning,) = office.warnings
    assert warning == f"{office.folder.path} was removed while the run went on: this result is all that is left of it"
    assert [result.exit_code for result in office.results] == [4] and not office.folder.path.exists()


@pytest.mark.parametrize("what", ["results", "results/life-0001-epoch-0001.h5", "results/life-0001-epoch-0000.h5"])
def test_of_results_that_are_removed_the_result_is_left(tmp_path: Path, what: str) -> None:
    """Its own segment, and one that was there when it began."""
    with RunFolder.create(tmp_path / "run", CONFIG) as folder:
        folder.begin_life(1, ["h"])
        Segment(folder.segment_path(0), SPACE.columns, 1, 0)
        office = Office(folder)
        office.desk.append(append_of(3))
        gone = folder.path / what
        if gone.is_dir():
            shutil.rmtree(gone)
        else:
            gone.unlink()
        assert office.desk.conclude(Conclude(75)) == Concluded(4), "there is nothing whole to go on with"
        office.desk.write_status(WriteStatus("stopped", "", 4))
        assert office.desk.part([]) == 4
    assert office.warnings == [f"{gone} was removed while the run went on: this result is all that is left of it"]
    assert [result.exit_code for result in office.results] == [4] and not gone.exists()
    status, state = RunFolder.peek(folder.path).observe()
    assert status is not None and (status.exit_code, state) == (4, State.STOPPED)


def test_a_segment_that_was_gone_before_is_not_removed_now(office: Office) -> None:
    office.folder.close()
    office.desk.segment.path.unlink()
    with RunFolder.open(office.folder.path) as folder:
        folder.begin_life(1, ["h"])
        again = Office(folder)
        assert again.desk.conclude(Conclude(75)) == Concluded(75) and again.warnings == []


def test_the_end_of_a_run_is_in_run_json_with_what_it_leaves(office: Office) -> None:
    office.root.detail = "evaluations"
    office.desk.conclude(Conclude(3))
    (life,) = office.folder.run["lives"]
    assert (life["exit_code"], life["reason"], life["n_evaluations"]) == (3, "evaluations", 0)
    assert life["segments"] == ["life-0001-epoch-0001.h5"]


def test_all_that_is_written_names_its_run(office: Office) -> None:
    office.desk.write_checkpoint(WriteCheckpoint({}, {}))
    began = office.folder.started_unix_s
    checkpoint, _ = load_checkpoint(office.folder.path)
    assert checkpoint is not None and checkpoint.meta["run_unix_s"] == began
    assert owner_of(office.desk.segment.path.read_bytes()) == Owner(began, 1, 1)


def test_a_run_that_another_launch_has_taken_over_is_left_to_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not called durable, its search is no checkpoint, and the files of the other stay."""
    office.desk.append(append_of(4))
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with RunFolder.open(office.folder.path) as other:
        (other.path / "results.h5").write_bytes(b"of the other")
        before = {path: path.read_bytes() for path in other.path.rglob("*") if path.is_file()}
        assert "(life 2) has taken" in office.desk.append(append_of(8, 2)).error
        office.desk.write_checkpoint(WriteCheckpoint({}, {}))
        office.desk.write_status(WriteStatus("stopped", 75, "trouble"))
        assert office.desk.conclude(Conclude(75)) == Concluded(4)
        assert office.desk.part([delta(9)]) == 4
        assert {path: path.read_bytes() for path in other.path.rglob("*") if path.is_file()} == before
