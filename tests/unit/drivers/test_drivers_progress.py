"""What a run says on stderr: how it ended once, and how to go on; what hosts give it, as it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from osprey_mpi.comm.launcher import Launch, detect
from osprey_mpi.drivers.hosts import Place, notes, silence_notes
from osprey_mpi.drivers.progress import Progress
from osprey_mpi.storage.status import RunStatus, State


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, state: State, exit_code: int) -> str:
    progress = Progress("r", Path("/runs/r"), quiet=False, stream=stream)
    progress.update(RunStatus(State.RUNNING, n_evaluations=1, budget={"evaluations": 9}))
    for n in (5, 6, 7):
        progress.update(RunStatus(state, exit_code=exit_code, n_evaluations=n, budget={"evaluations": 9}, wall_s=2.0))
    progress.close()
    progress.close()
    return stream.getvalue()


def test_a_stopped_run_says_so_once_and_how_to_go_on() -> None:
    lines = shown(io.StringIO(), State.STOPPED, 75).splitlines()
    assert lines[0] == "r: running 1/9 evaluations, best none, 0 s"
    assert lines[1].startswith("r: stopped 7/9 evaluations")
    assert lines[2:] == ["osprey: the run is saved: `osprey resume /runs/r` goes on"]


def test_the_rate_is_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that break a constraint take an evaluation each, and no time."""
    now = iter([0.0, 0.0, 20.0, 20.0])
    monkeypatch.setattr("osprey_mpi.drivers.progress.time.monotonic", lambda: next(now))
    stream = io.StringIO()
    progress = Progress("r", Path("/runs/r"), quiet=False, stream=stream)
    progress.update(RunStatus(State.RUNNING, n_evaluations=100, n_not_called=90))
    progress.update(RunStatus(State.RUNNING, n_evaluations=400, n_not_called=350))
    assert stream.getvalue().splitlines()[1] == "r: running 400 evaluations, best none, 2/s, 0 s"


def test_a_terminal_keeps_one_bar() -> None:
    text = shown(Terminal(), State.STOPPED, 75)
    assert "stopped 7/9" in text and "stopped 5/9" not in text and text.count("the run is saved") == 1


def test_a_run_that_is_done_is_not_to_be_resumed() -> None:
    assert "resume" not in shown(io.StringIO(), State.DONE, 0)


def places(*cores: set[int]) -> list[Place]:
    return [Place(rank, "h", 1, frozenset(mine), 1, "cpu") for rank, mine in enumerate(cores)]


def test_ranks_that_are_bound_to_cores_of_their_own_take_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    bound = "h: each rank may use one core only; for threaded programs start with `mpirun --bind-to none` or "
    bound += "`osprey launch --launcher-args '--bind-to none'`"
    crowd = "h: 2 ranks with 2 threads on 1 core: they take turns"
    assert notes(places({0}, {1})) == [bound]
    assert notes(places({1}, {1})) == [crowd, bound]
    assert notes(places({0, 1}, {0, 1})) == []


def test_what_mpirun_will_not_let_us_say_later_is_said_before() -> None:
    ours, folder = detect({"OMPI_COMM_WORLD_SIZE": "2"}), Path("/runs/r")
    told = "Ctrl-C saves the run, though mpirun then shows no more of it: `osprey resume /runs/r` goes on"
    assert silence_notes(ours, {}, folder) == [told]
    assert silence_notes(ours, {"OSPREY_LAUNCH": "x"}, folder) == []
    assert silence_notes(detect({"PMI_SIZE": "2"}), {}, folder) == silence_notes(Launch("", 1, 0), {}, folder) == []
