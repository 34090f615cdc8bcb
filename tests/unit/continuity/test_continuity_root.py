"""The root as a state machine: every transition and every rule of its header."""

from __future__ import annotations

from typing import Any

import numpy as np
from protocol_helpers import delta_of, piece, record, sends

from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.codec import pack_arrays
from osprey_mpi.continuity.events import (
    Append,
    Appended,
    CheckpointTried,
    Conclude,
    Concluded,
    Event,
    Finish,
    Log,
    PeerLost,
    Received,
    StopAsked,
    Tick,
    WriteCheckpoint,
    WriteStatus,
)
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import (
    Ack,
    Best,
    Delta,
    Farewell,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Message,
    Resync,
    Snapshot,
    SnapshotRequest,
    Stop,
    Trouble,
    Want,
)
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.root import Phase, Root, RootSettings
from osprey_mpi.continuity.sender import Sender
from osprey_mpi.continuity.tally import Tally


class Driver:
    """A root with leaders 1 and 2, its clock, and one sender for each leader."""

    def __init__(
        self, evaluations: int | None = 100, *, exact: bool = False, interval_s: float | None = 5.0,
        walltime_s: float | None = None, **options: Any,
    ) -> None:  # fmt: skip
        settings = RootSettings(
            BudgetRule(evaluations, walltime_s), 2, exact, suspect_after_s=2.0, lost_after_s=10.0,
            checkpoint_interval_s=interval_s,
        )  # fmt: skip
        self.root = Root(0, [1] if exact else [1, 2], settings, 0.0, **options)
        self.senders = {1: Sender(1, 2, 2), 2: Sender(1, 2, 2)}
        self.now = 0.0

    def __call__(self, event: Event | Message, source: int = 1) -> list[Any]:
        actions = self.root.handle(Received(source, event) if isinstance(event, Message) else event, self.now)
        self.root.check()
        return actions

    def done(self, source: int, first: int, n: int = 1, cost: float = 1.0) -> Delta:
        """Return a delta of a leader: n evaluations, the first with a row."""
        sender = self.senders[source]
        sender.capture(cost, 0.0, first, np.array([0.5, 0.5]))
        return delta_of(sender, piece(first, n, n_records=1), records=record(first, cost))

    def wait(self, seconds: float, alive: tuple[int, ...] = (1, 2)) -> list[Any]:
        """Tick ten times a second, with signs of life of some leaders; answer appends."""
        actions: list[Any] = []
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + 0.1, 6)
            for source in alive:
                counter = self.senders[source].account.counter
                actions += self(Heartbeat(1, counter), source)
            for action in self(Tick()):
                actions.append(action)
                if isinstance(action, Append):
                    actions += self(Appended(action.serial))
                if isinstance(action, Conclude):
                    actions += self(Concluded(action.exit_code))
        return actions


def _kinds(actions: list[Any], kind: type) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def test_an_id_is_leased_once() -> None:
    drive = Driver(10, tally=Tally(IdRanges([(0, 2)])))
    leased = []
    for _ in range(12):
        for lease in sends(drive(Want(3)), Lease):
            leased += [id for start, stop in lease.ranges.tolist() for id in range(start, stop)]
    assert leased == list(range(2, 10))


def test_a_delta_is_acknowledged_when_it_is_on_disk() -> None:
    drive = Driver()
    drive(Want(100))
    drive(drive.done(1, 0, 3))
    assert sends(drive(Heartbeat(1, 1)), Ack) == [Ack(0, 0)], "nothing is durable yet"
    drive.now = 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert append.records["id"].tolist() == [0] and append.blocks.tolist() == [(1, 2)]
    actions = drive(Appended(append.serial))
    assert sends(actions) == [Ack(1, 1)] and _kinds(actions, WriteStatus) == [WriteStatus("running")]
    assert sends(drive(Heartbeat(1, 1)), Ack) == [Ack(1, 1)]
    assert drive(Appended(append.serial)) == []


def test_the_best_point_spreads_to_the_others_and_to_who_comes_later() -> None:
    drive = Driver()
    drive(Want(100))
    actions = drive(drive.done(1, 0, cost=5.0))
    assert [(a.rank, a.message.cost) for a in actions] == [(2, 5.0)]
    assert drive(drive.done(1, 1, cost=6.0)) == []
    (best,) = sends(drive(Hello(1), 2), Best)
    assert (best.cost, best.id, best.position.tolist()) == (5.0, 0, [0.5, 0.5])


def test_an_exact_run_goes_on_from_its_snapshot_and_nothing_else() -> None:
    drive = Driver(exact=True, best=Best(1.0, 0.0, 3, np.zeros(2)))
    assert sends(drive(Hello(1))) == []


def test_a_gap_is_asked_for_and_a_late_delta_is_a_fact() -> None:
    drive = Driver()
    drive(Want(100))
    lost, second = drive.done(1, 0), drive.done(1, 1)
    assert sends(drive(second)) == [Resync(0)]
    assert drive.root.tally.n_evaluations == 0
    drive(lost)
    drive(second)
    drive(second)
    assert drive.root.tally.n_evaluations == 2
    young = Sender(2, 2, 2)
    drive(delta_of(young, piece(2)))
    late = drive.done(1, 3)
    assert drive(late) == [] and drive.root.tally.n_evaluations == 4
    drive.now = 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert sends(drive(Appended(append.serial))) == [Ack(2, 1)], "facts are not acknowledged"


def test_the_budget_ends_the_run_step_by_step() -> None:
    drive = Driver(3)
    drive(Want(5), 1)
    drive(Want(5), 2)
    drive(Want(5), 1)
    assert not drive(drive.done(1, 0, 2))[1:]
    actions = drive(drive.done(2, 2), 2)
    assert drive.root.phase is Phase.STOPPING and drive.root.reason is Reason.EVALUATIONS
    assert [(a.rank, a.message) for a in actions if hasattr(a, "message")] == [
        (1, Stop("evaluations")),
        (2, Stop("evaluations")),
    ]
    assert sends(drive(Want(5)), Lease) == [], "no ids any more"
    assert drive(Tick()) == []
    drive(Snapshot(-1, 0, pack_arrays({"a": np.ones(1)})), 1)
    drive(Farewell(1, 1), 1)
    drive(Farewell(1, 2), 2)  # one delta is missing still
    assert _kinds(drive(Tick()), WriteCheckpoint) == []
    drive(delta_of(drive.senders[2]), 2)
    (append,) = drive(Tick())
    assert isinstance(append, Append), "the rows first"
    (checkpoint,) = _kinds(drive(Appended(append.serial)), WriteCheckpoint)
    assert list(checkpoint.groups) == ["flock-0000"] and drive.root.phase is Phase.CLOSING
    assert drive(Tick()) == [Conclude(0)] and drive(Tick()) == []
    status, one, two, finish = drive(Concluded(4))
    assert status == WriteStatus("done", "evaluations", 4) and finish == Finish(4), "done, and its files are not"
    assert one.message == two.message == Goodbye(4)
    assert drive.root.phase is Phase.OVER and drive(Tick()) == [] and drive(StopAsked("x")) == []


def test_a_farewell_that_never_comes_is_waited_for_a_bounded_time() -> None:
    drive = Driver(3)
    drive(Want(9), 1)
    drive(StopAsked("signal TERM"))
    actions = drive.wait(8.5)
    assert "no farewell from the leaders on ranks 1, 2" in [a.text for a in _kinds(actions, Log)]
    assert actions[-1] == Finish(75)


def test_farewells_are_awaited_by_a_root_that_did_not_run_meanwhile() -> None:
    """Held up by its disk for longer than it waits, it has not read what has come."""
    drive = Driver(3)
    drive(Want(9), 1)
    drive(StopAsked("signal TERM"))
    drive.now += 60.0
    drive(Tick())
    assert drive.root.phase is Phase.STOPPING
    for leader in (1, 2):
        drive(Farewell(1, 0), leader)
    assert not [a for a in drive.wait(0.2) if isinstance(a, Log) and a.warning] and drive.root.exit_code == 75


def test_a_signal_saves_first() -> None:
    drive = Driver()
    drive(Want(100))
    drive(drive.done(1, 0))
    actions = drive(StopAsked("signal TERM"))
    kinds = [type(getattr(action, "message", action)) for action in actions]
    assert kinds == [Log, Append, WriteStatus, SnapshotRequest, SnapshotRequest, Stop, Stop]
    assert actions[2] == WriteStatus("stopped", "signal TERM", 75) and drive.root.exit_code == 75
    assert drive(StopAsked("signal TERM")) == []


def test_trouble_from_anybody_stops_the_run() -> None:
    for source in (1, 9):
        for is_signal, reason in ((1, Reason.SIGNAL), (0, Reason.TROUBLE)):
            drive = Driver()
            drive(Trouble("x", is_signal), source)
            assert drive.root.reason is reason and drive.root.detail == "x" and drive.root.exit_code == 75


def test_a_failure_that_ends_the_run_is_not_resumed_by_itself() -> None:
    drive = Driver()
    drive(Trouble("boom", is_failure=1), 1)
    assert drive.root.reason is Reason.FAILURE and drive.root.detail == "boom" and drive.root.exit_code == 3


def test_a_leader_whose_process_has_ended_stops_the_run() -> None:
    drive = Driver()
    drive(PeerLost(99))
    assert drive.root.reason is None, "nobody that the root listens to"
    drive(PeerLost(1))
    assert drive.root.reason is Reason.TROUBLE and drive.root.exit_code == 75
    assert drive.root.detail == "the leader on rank 1 is lost"


def test_a_lost_leader_stops_the_run() -> None:
    drive = Driver()
    actions = drive.wait(10.5, alive=(1,))
    (warning,) = [a.text for a in _kinds(actions, Log) if a.warning]
    assert warning.startswith("rank 2 is lost: silent for 10.")
    assert drive.root.reason is Reason.TROUBLE and "the leader on rank 2 is lost" in drive.root.detail
    drive(Farewell(1, 0), 1)
    assert drive.wait(0.5, alive=())[-1] == Finish(75), "the lost one is not waited for"


def test_a_silent_leader_is_asked_first() -> None:
    drive = Driver()
    assert Resync(0) in sends(drive.wait(2.5, alive=(1,)))
    drive(Heartbeat(1, 0), 2)
    assert drive.root.members[2].pulse.health.value == "healthy"


def test_checkpoints_by_the_clock() -> None:
    drive = Driver()
    requests = [a for a in drive.wait(5.05) if isinstance(getattr(a, "message", None), SnapshotRequest)]
    assert [a.rank for a in requests] == [1, 2]
    serial = requests[0].message.serial
    state = pack_arrays({"a": np.ones(1)})
    assert drive(Snapshot(serial, 0, state), 1) == []
    (checkpoint,) = drive(Snapshot(serial, 1, state), 2)
    assert isinstance(checkpoint, WriteCheckpoint) and checkpoint.meta == {"n_evaluations": 0}


def snapshots(drive: Driver, serial: int, state: int) -> list[Any]:
    """Let both leaders answer; return what is done after the second."""
    drive(Snapshot(serial, 0, pack_arrays({"a": np.array([state])})), 1)
    return drive(Snapshot(serial, 1, pack_arrays({"a": np.array([state])})), 2)


def known(actions: list[Any]) -> list[tuple[int, int]]:
    """Return of each checkpoint that is written what the search has learned, and how many evaluations count."""
    made = _kinds(actions, WriteCheckpoint)
    return [(int(one.groups["flock-0000"]["a"][0]), one.meta["n_evaluations"]) for one in made]


def test_a_checkpoint_never_knows_more_than_the_segments() -> None:
    drive = Driver(interval_s=1.0)
    drive(Want(100))
    drive(drive.done(1, 0))
    drive(StopAsked("signal TERM"))  # it appends, and asks for snapshots
    drive(drive.done(1, 1))
    assert snapshots(drive, 1, 2) == [], "one append is on its way, with row 0; row 1 waits for the next"
    assert known(drive(Appended(1))) == []
    drive.now += 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert append.records["id"].tolist() == [1]
    drive(drive.done(1, 2))
    actions = drive(Appended(append.serial))
    assert known(actions) == [(2, 2)], "as it was when the snapshots came"
    kinds = [type(getattr(action, "message", action)) for action in actions]
    assert kinds == [Ack, WriteStatus, WriteCheckpoint]
    drive.now += 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert known(drive(Appended(append.serial))) == [], "once"


def test_a_checkpoint_waits_for_a_disk_that_takes_the_rows() -> None:
    drive = Driver()
    drive.wait(5.05)  # the snapshots are asked for
    drive(Want(100))
    drive(drive.done(1, 0))
    (append,) = snapshots(drive, 1, 1)
    assert known(drive(Appended(append.serial, "File too large"))) == [] and drive.root.phase is Phase.STOPPING
    drive.now += 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert known(drive(Appended(append.serial, "File too large"))) == []
    drive.now += 1.0
    (append,) = _kinds(drive(Tick()), Append)
    assert known(drive(Appended(append.serial))) == [(1, 1)]


def test_without_room_for_the_last_rows_there_is_no_last_checkpoint() -> None:
    drive = Driver(1)
    drive(Want(1))
    drive(drive.done(1, 0))
    drive(Farewell(1, 1), 1)
    drive(Farewell(1, 0), 2)
    assert known(without_room(drive)) == [] and drive.root.exit_code == 75


def test_checkpoints_as_often_as_their_cost_allows() -> None:
    drive = Driver(interval_s=None)

    def requests(seconds: float) -> int:
        messages = [getattr(action, "message", None) for action in drive.wait(seconds)]
        return sum(isinstance(message, SnapshotRequest) for message in messages) // 2  # to two leaders

    assert requests(10.05) == 1
    drive(CheckpointTried(0.0002))  # sqrt(2 * 0.0002 * 86400) is 5.9 s
    assert requests(5.5) == 0
    assert requests(0.5) == 1


def without_room(drive: Driver) -> list[Any]:
    """Tick to the end of the run on a full disk; return what was done."""
    done: list[Any] = []
    while drive.root.phase is not Phase.OVER:
        drive.now += 0.1
        for action in drive(Tick()):
            done.append(action)
            if isinstance(action, Append):
                drive(Appended(action.serial, "no space left"))
            if isinstance(action, Conclude):
                done += drive(Concluded(action.exit_code))
    return done


def test_an_error_of_the_disk_stops_the_run_and_the_rows_are_tried_again() -> None:
    drive = Driver()
    drive(Want(100))
    drive(drive.done(1, 0))
    drive.now = 1.0
    (append,) = _kinds(drive(Tick()), Append)
    actions = drive(Appended(append.serial, "no space left"))
    assert actions[0] == Log("no space left", warning=True) and drive.root.reason is Reason.TROUBLE
    drive(Farewell(1, 1), 1)
    drive(Farewell(1, 0), 2)
    (again,) = drive(Tick())
    assert again.serial == append.serial + 1 and again.records["id"].tolist() == [0]
    drive(Appended(again.serial, "no space left"))
    rest = without_room(drive)
    assert any("could not be written" in a.text for a in _kinds(rest, Log)) and rest[-1] == Finish(75)
    assert len(_kinds(rest, Append)) <= 9, "tried again once a second, not at every tick"
    assert not [a for a in _kinds(rest, Log) if a.text == "no space left"], "said once"


def test_a_disk_that_takes_rows_again_is_told_of_once() -> None:
    drive = Driver()
    drive(Want(100))
    drive(drive.done(1, 0))
    said: list[str] = []
    for error in ("no space left", "no space left", "", "", "no space left"):
        drive.now += 1.0
        drive(drive.done(1, int(drive.now)))
        for append in _kinds(drive(Tick()), Append):
            said += [log.text for log in _kinds(drive(Appended(append.serial, error)), Log)]
    again = "writing again: all rows so far are on disk"
    assert said == ["no space left", "stopping: no space left", again, "no space left"]


def test_a_disk_that_fills_at_the_very_end_is_the_reason_not_the_budget() -> None:
    drive = Driver(1)
    drive(Want(1))
    drive(drive.done(1, 0))
    drive(Farewell(1, 1), 1)
    drive(Farewell(1, 0), 2)
    assert drive.root.reason is Reason.EVALUATIONS
    rest = without_room(drive)
    assert rest[-1] == Finish(75) and drive.root.detail == "no space left"


def test_repetitions_keep_a_run_open_that_has_spent_its_budget() -> None:
    redo = Redo(np.array([1]), np.zeros((1, 2)), 1)
    drive = Driver(2, tally=Tally(IdRanges([(0, 2)])), redo=redo)
    drive(Tick())
    assert drive.root.phase is Phase.RUNNING
    (lease,) = sends(drive(Want(4)), Lease)
    assert lease.ranges.tolist() == [[1, 2]] and lease.attempt == 1
    drive(delta_of(drive.senders[1], piece(1), records=record(1, attempt=1)))
    assert drive.root.reason is Reason.EVALUATIONS


def test_time_ends_a_run_whatever_is_to_be_done_again() -> None:
    redo = Redo(np.array([1]), np.zeros((1, 2)), 1)
    drive = Driver(2, tally=Tally(IdRanges([(0, 2)])), redo=redo, walltime_s=3.0)
    drive.wait(2.9)
    assert drive.root.phase is Phase.RUNNING
    actions = drive.wait(0.2)
    assert drive.root.reason is Reason.WALLTIME and drive.root.exit_code == 75
    left = "1 evaluation of --retry will not have been done again: resume with it once more"
    assert [log.text for log in _kinds(actions, Log) if log.warning] == [left]
