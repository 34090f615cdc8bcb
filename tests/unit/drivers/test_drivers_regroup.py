"""What survivors of a loss carry over: rows that are on no disk yet, and evaluations that are under way."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.comm.channel import NoChannel
from osprey_mpi.comm.failures import MembersLost
from osprey_mpi.comm.startup import World
from osprey_mpi.comm.tree import plan
from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.events import PeerLost
from osprey_mpi.continuity.messages import Delta, Order, Role
from osprey_mpi.continuity.records import PIECE, RECORD, Status, reasons_of
from osprey_mpi.drivers import lives
from osprey_mpi.drivers.loop import Loop
from osprey_mpi.drivers.opening import Opened, open_run
from osprey_mpi.drivers.past import Kept, Past
from osprey_mpi.drivers.request import Request
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.search.space import Space
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.segment import Segment

CONFIG = config_from_mapping(
    {
        "name": "regrouped",
        "objective": {"builtin": "sphere"},
        "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
        "budget": {"evaluations": 20},
    }
)


def rows(*ids: int, cost: float = 5.0, status: Status = Status.OK, attempt: int = 0) -> Any:
    """Return a record for each id."""
    made = np.zeros(len(ids), RECORD)
    made["id"], made["cost"], made["status"], made["attempt"] = ids, cost, status, attempt
    return made


def delta(counter: int, *spans: tuple[int, int], records: Any = None) -> Delta:
    """Return a delta of whole blocks [start, stop), with a row for each id unless `records` says otherwise."""
    pieces = np.zeros(len(spans), PIECE)
    pieces["first"] = [start for start, _ in spans]
    pieces["n"] = pieces["row_stop"] = [stop - start for start, stop in spans]
    if records is None:
        records = rows(*(id for start, stop in spans for id in range(start, stop)))
    return Delta(1, counter, 0, 0, pieces=pieces, records=records, values=np.full((len(records), 1), 0.25))


@pytest.fixture
def reopened(tmp_path: Path) -> Any:
    """Open a run that has evaluations 0 to 3 on disk, and a lost attempt at 4."""
    with RunFolder.create(tmp_path / "run", CONFIG) as folder:
        records = np.concatenate([rows(0, 1, 2, 3, cost=9.0), rows(4, status=Status.LOST)])
        segment = Segment(folder.segment_path(1), Space(CONFIG.parameters).columns, 1, 1)
        segment.append(records, np.zeros((5, 1)), None, reasons_of({4: "rank 3 was lost"}, records))
    opened = open_run(Request(resume=tmp_path / "run"))
    yield opened
    opened.close()


def test_what_survivors_hold_is_put_on_disk_once(reopened: Opened) -> None:
    worker, other = delta(7, (4, 6)), delta(3, (8, 9), records=rows(8, cost=1.0))
    leader = delta(2, (4, 6), (6, 7))  # passed the worker's on
    on_disk = delta(1, (2, 4))
    reopened.rescue([worker, on_disk, other, leader])
    found = read_run(reopened.path)
    assert found.records["id"].tolist() == [0, 1, 2, 3, 4, 5, 6, 8] and len(found.attempts) == 1, "nothing twice"
    assert found.done.tolist() == [[0, 7], [8, 9]] == [list(span) for span in reopened.tally.done]
    assert reopened.best is not None and (reopened.best.id, reopened.best.cost) == (8, 1.0)
    assert reopened.tally.counts[Status.OK] == 8 and reopened.tally.counts[Status.LOST] == 1


SURVIVOR = World(None, 0, (0,), "none", "ulfm", owns_mpi=False, epoch=1)


def test_a_run_whose_root_was_lost_before_it_made_the_folder_begins(tmp_path: Path) -> None:
    past = Past(out=tmp_path / "run", newest_life=1)
    opened = lives._open(SURVIVOR, Request(load=lambda: CONFIG, out=tmp_path / "run"), past)
    assert (opened.path, opened.life, opened.folder) == (tmp_path / "run", 1, None)


def test_a_run_that_is_to_be_replaced_is_not_gone_on_with(tmp_path: Path) -> None:
    """A rank was lost before the new run had taken the place of the old one."""
    RunFolder.create(tmp_path / "run", CONFIG).close()
    request = Request(load=lambda: CONFIG, out=tmp_path / "run", overwrite=True)
    opened = open_run(request)
    past = Past(out=opened.path, newest_life=1, replaces=opened.replaces)
    again = lives._going_on(request, past)
    assert (again.overwrite, again.resume, again.load) == (True, None, request.load)
    opened.claim()
    opened.close()
    going_on = lives._going_on(again, past)
    assert (going_on.overwrite, going_on.resume, going_on.load) == (False, tmp_path / "run", None)


def test_a_rank_that_was_left_out_leaves_before_it_touches_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(Exception):
        pass

    def leave(world: World, why: str) -> None:
        raise Left(why)

    monkeypatch.setattr(lives, "leave", leave)
    RunFolder.create(tmp_path / "run", CONFIG).close()
    for life in (1, 2):
        with RunFolder.open(tmp_path / "run", 0.0) as folder:
            folder.begin_life(n_ranks=1)
            assert folder.life == life
    before = (tmp_path / "run" / ".lock").read_bytes()
    with pytest.raises(Left, match="the others have gone on with it"):
        lives._open(SURVIVOR, Request(resume=tmp_path / "run"), Past(out=tmp_path / "run", newest_life=1))
    assert (tmp_path / "run" / ".lock").read_bytes() == before


def test_nothing_new_makes_no_file(reopened: Opened) -> None:
    before = sorted((reopened.path / "results").iterdir())
    reopened.rescue([delta(1, (0, 2)), delta(2, records=rows(4, status=Status.LOST))])
    assert sorted((reopened.path / "results").iterdir()) == before
    assert reopened.best is not None and reopened.best.cost == 9.0


def test_another_attempt_is_news_though_the_evaluation_is_done(reopened: Opened) -> None:
    again = delta(1, (1, 2), records=rows(1, cost=0.5, attempt=1))
    lost = delta(2, records=rows(9, status=Status.LOST))
    reopened.rescue([again, lost, again, lost])
    found = read_run(reopened.path)
    assert found.records["cost"][found.records["id"] == 1].tolist() == [0.5]
    assert found.attempts["id"].tolist() == [1]
    assert found.records["id"][found.records["status"] == Status.LOST].tolist() == [4, 9]


class Channel(NoChannel):
    """Tell of lost ranks."""

    def __init__(self, *lost: int) -> None:
        self._lost = list(lost)

    def lost(self) -> list[int]:
        lost, self._lost = self._lost, []
        return lost


class Machine:
    """Note what it is told, and end."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def handle(self, event: Any, now: float) -> list[Any]:
        self.told.append(event)
        return []

    def slack_s(self) -> float:
        return 0.0


def test_only_the_loss_of_a_vital_rank_ends_the_loop() -> None:
    machine = Machine()
    with Signals(launched=False) as signals:
        log = logging.getLogger("regroup")
        loop = Loop(3, {Role.WORKER: machine}, Channel(2), signals, log, vital=frozenset({0, 1}))
        loop._turn()
        assert machine.told[0] == PeerLost(2)
        loop = Loop(3, {Role.WORKER: machine}, Channel(2, 1), signals, log, vital=frozenset({0, 1}))
        with pytest.raises(MembersLost) as caught:
            loop.run()
    assert caught.value.ranks == (2, 1)


def test_what_is_under_way_begins_behind_the_rows_that_are_back() -> None:
    orders = [Order(40, 8, 2, 8, 5), Order(48, 8, 0, 8, 5)]
    kept = Kept(None, None, orders, 6)  # type: ignore[arg-type]  # neither is used
    assert [(order.first, order.row_start, order.row_stop) for order in kept.open_orders()] == [(40, 6, 8), (48, 0, 8)]
    assert Kept(None, None, [], 0).open_orders() == []  # type: ignore[arg-type]  # neither is used


def test_a_tree_of_survivors_has_their_ranks() -> None:
    placed = plan(7, 2).on((2, 3, 5, 6, 8, 11, 12))
    assert (placed.root, placed.leaders) == (2, (3, 8))
    assert [flock.workers for flock in placed.flocks] == [(5, 6), (11, 12)]
    assert placed.flock_of(11) is placed.flocks[1] and placed.flock_of(4) is None
    same = plan(4, 16)
    assert same.on((0, 1, 2, 3)) is same
