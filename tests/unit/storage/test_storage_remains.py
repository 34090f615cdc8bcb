"""A segment that is gone is missed: by its name where a life has left it, and by what was counted."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.config import Config
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import RunStatus, State, write_status

STATUS = RunStatus(State.RUNNING, n_evaluations=5, updated_unix_s=1.0)


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Path:
    RunFolder.create(tmp_path / "run", config).close()
    return tmp_path / "run"


@pytest.fixture
def live(run: Path, columns: Any, rows: Any) -> Any:
    """Be one life of the run, that evaluates so many and ends, or is killed."""

    def be(life: int, ids: range, code: int | None = None, status: RunStatus | None = None) -> Path:
        with RunFolder.open(run) as folder:
            folder.life = life
            folder.begin_life(1)
            if ids or code is not None:
                Segment(folder.segment_path(1), columns, life, 1, folder.started_unix_s).append(*rows(ids))
            if status is not None:
                folder.write_status(dataclasses.replace(status, life=life))
            if code is not None:
                folder.end_life(code, "evaluations", ids.stop)
            return folder.segment_path(1)

    return be


def gone(path: Path, life: int) -> str:
    return f"{path} is gone, and with it what life {life} had written to it"


def test_a_segment_of_a_life_that_ended_is_missed(run: Path, live: Any) -> None:
    first, second = live(1, range(5), 75), live(2, range(5, 9), 0)
    assert read_run(run).notes == ()
    first.unlink()
    assert read_run(run).notes == (gone(first, 1), "5 of 9 evaluations that were on disk are missing")
    shutil.rmtree(second.parent)
    notes = (gone(first, 1), gone(second, 2), "9 of 9 evaluations that were on disk are missing")
    assert read_run(run).notes == notes


def test_of_a_life_that_was_killed_the_next_one_notes_what_is_there(run: Path, live: Any) -> None:
    first = live(1, range(5))
    first.with_name("life-0001-epoch-0000.h5").write_bytes(first.read_bytes())
    live(2, range(5, 9))
    (old, _) = RunFolder.peek(run).run["lives"]
    assert old["segments"] == ["life-0001-epoch-0000.h5", "life-0001-epoch-0001.h5"]
    first.unlink()
    assert read_run(run).notes == (gone(first, 1),)


def test_a_life_that_was_killed_before_it_wrote_is_no_false_alarm(run: Path, live: Any) -> None:
    live(1, range(0))
    assert read_run(run).notes == ()
    live(2, range(5), 0)
    assert read_run(run).notes == () and RunFolder.peek(run).run["lives"][0]["segments"] == []


def test_a_segment_that_went_before_the_next_life_stays_missed(run: Path, live: Any) -> None:
    """A life has its segment before its first status; that of the next one takes the place of this."""
    first = live(1, range(5), status=STATUS)
    first.unlink()
    notes = (gone(first, 1), "5 of 5 evaluations that were on disk are missing")
    assert read_run(run).notes == notes
    live(2, range(2), status=dataclasses.replace(STATUS, n_evaluations=2))
    assert read_run(run).notes == (gone(first, 1), "3 of 5 evaluations that were on disk are missing")
    live(3, range(2, 5), 0)
    assert read_run(run).notes == (gone(first, 1),), "by now they were done again"


def test_a_damaged_segment_is_missed_by_what_was_counted(run: Path, live: Any) -> None:
    first = live(1, range(5), status=STATUS)
    first.write_bytes(b"")
    note, missing = read_run(run).notes
    assert note.startswith(f"{first} cannot be read") and missing == "5 of 5 evaluations that were on disk are missing"


def test_a_run_of_an_older_version_tells_by_its_ends(run: Path, live: Any) -> None:
    first = live(1, range(5), 75)
    facts = RunFolder.peek(run).run
    for key in ("segments", "n_evaluations", "reason"):
        del facts["lives"][0][key]
    (run / "run.json").write_text(json.dumps(facts))
    assert read_run(run).notes == ()
    first.unlink()
    assert read_run(run).notes == (gone(first, 1),)
    write_status(run, STATUS)
    assert read_run(run).notes == (gone(first, 1), "5 of 5 evaluations that were on disk are missing")
