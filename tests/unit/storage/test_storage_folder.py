"""The run folder: one run at a time, nothing of the user's touched, and what a look from outside sees."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config import Config, load_config
from osprey_mpi.errors import EnvironmentFault, StorageError, UsageError
from osprey_mpi.storage.files import storage_error, write_atomic
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.lock import take_from
from osprey_mpi.storage.provenance import collect
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import Best, RunStatus, State, read_status, write_status

HOLDER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from osprey_mpi.storage.folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]))
print(folder.life, flush=True)
time.sleep(60)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_create_and_open(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "deep" / "run"
    with RunFolder.create(path, config) as folder:
        assert folder.life == 1 and folder.path == path
        assert folder.segment_path(2) == path / "results" / "life-0001-epoch-0002.h5"
        folder.begin_life(4, ["a", "b"], "Open MPI 5", "ulfm", [{"host": "a", "name": "H200"}])
        folder.end_life(75)
        started = folder.started_unix_s
    with RunFolder.open(path) as again:
        assert again.life == 2 and again.started_unix_s == started
        assert again.config() == config and again.config().base_dir == config.base_dir
        (life,) = again.run["lives"]
        assert (life["n_ranks"], life["hosts"], life["exit_code"], life["mpi_library"]) == (
            4,
            ["a", "b"],
            75,
            "Open MPI 5",
        )
        assert life["versions"]["numpy"] == np.__version__ and life["host"] == socket.gethostname()
    assert config.differences(load_config(path / "config.yaml")) == []  # made from a mapping: it is written as a file


def test_each_trace_of_a_life_counts(tmp_path: Path, config: Config, columns: Any) -> None:
    RunFolder.create(tmp_path / "run", config).close()
    assert RunFolder.peek(tmp_path / "run").life == 0
    Segment(tmp_path / "run" / "results" / "life-0004-epoch-0001.h5", columns, 4, 1)
    with RunFolder.open(tmp_path / "run") as folder:
        assert folder.life == 5
    write_status(tmp_path / "run", RunStatus(State.DONE, life=9))
    with RunFolder.open(tmp_path / "run") as folder:
        assert folder.life == 10


def test_a_used_folder_is_refused(tmp_path: Path, config: Config) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="is not empty"):
            RunFolder.create(tmp_path, config, overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    RunFolder.create(tmp_path / "run", config).close()
    with pytest.raises(UsageError, match="continue it with `osprey resume`"):
        RunFolder.create(tmp_path / "run", config)
    with pytest.raises(UsageError, match="is a file, not a folder"):
        RunFolder.create(tmp_path / "thesis.tex", config)


def test_overwrite_replaces_a_run_and_nothing_else(tmp_path: Path, config: Config, columns: Any) -> None:
    path = tmp_path / "run"
    with RunFolder.create(path, config) as folder:
        Segment(folder.segment_path(1), columns, 1, 1)
        for name in ("status.json", "results.h5", "checkpoint.h5", "checkpoint-1.h5"):
            (path / name).write_bytes(b"old")
    (path / "plot.png").write_bytes(b"mine")
    with RunFolder.create(path, config, overwrite=True) as folder:
        assert folder.life == 1
    assert sorted(p.name for p in path.iterdir()) == [
        ".lock", "config.yaml", "logs", "plot.png", "results", "run.json", "scratch",
    ]  # fmt: skip
    assert list((path / "results").iterdir()) == []


def test_overwrite_keeps_what_is_not_of_a_run_and_refuses_before_it_deletes(
    tmp_path: Path, config: Config, columns: Any
) -> None:
    path, elsewhere = tmp_path / "run", tmp_path / "large disk"
    with RunFolder.create(path, config) as folder:
        Segment(folder.segment_path(1), columns, 1, 1)
    (path / "results").rename(elsewhere)
    (path / "results").symlink_to(elsewhere)
    (path / "logs" / "rank-0000.log").touch()
    (path / "logs" / "notes.txt").write_text("mine")
    (path / "results.h5").mkdir()
    (path / "results.h5" / "mine").touch()
    before = sorted(path.rglob("*"))
    with pytest.raises(UsageError, match=r"results\.h5 is not what a run makes of that name.* deleted nothing"):
        RunFolder.create(path, config, overwrite=True)
    assert sorted(path.rglob("*")) == before and len(list(elsewhere.iterdir())) == 2
    (path / "results.h5" / "mine").unlink()
    (path / "results.h5").rmdir()
    RunFolder.create(path, config, overwrite=True).close()
    assert (path / "results").is_symlink() and list(elsewhere.iterdir()) == []
    assert [file.name for file in (path / "logs").iterdir()] == ["notes.txt"]


def test_a_folder_in_use_is_refused_and_says_by_whom(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    process = hold(path)
    try:
        for action in (lambda: RunFolder.open(path), lambda: RunFolder.create(path, config, overwrite=True)):
            with pytest.raises(UsageError, match=f"in use by process {process.pid} on {socket.gethostname()} .life 1."):
                action()
        assert RunFolder.peek(path).life == 0
    finally:
        end(process)
    RunFolder.open(path).close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path, config: Config) -> None:
    folder = RunFolder.create(tmp_path / "run", config)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        folder.close()
        RunFolder.open(tmp_path / "run").close()
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [errno.ENOLCK, 524])
def test_a_filesystem_without_locks(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(EnvironmentFault, match=r"\.lock cannot be locked: .*HDF5_USE_FILE_LOCKING=FALSE"):
        RunFolder.create(tmp_path / "run", config)
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    RunFolder.create(tmp_path / "run", config).close()
    (tmp_path / "run" / ".lock").write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "life": 1}))
    with pytest.raises(UsageError, match="in use by process 1 on"):  # it exists: the lock's text is all there is
        RunFolder.open(tmp_path / "run")


def test_lock_errors_name_path_owner_and_remedy() -> None:
    for number in (11, 37, 524):
        text = str(storage_error(Path("/d/f.h5"), OSError(number, ""), "opened", "process 7 on node3"))
        assert text.startswith("/d/f.h5 cannot be opened: ") and f"(errno {number})" in text
        assert "process 7 on node3" in text and "HDF5_USE_FILE_LOCKING=FALSE" in text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for action in (RunFolder.open, RunFolder.peek):
        with pytest.raises(UsageError, match="does not exist"):
            action(tmp_path / "nothing")
        with pytest.raises(UsageError, match=r"is not the folder of a run: it has no run\.json"):
            action(tmp_path)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(UsageError, match=r"py is a file, not the folder of a run"):
            action(Path(__file__))


def test_a_damaged_run_json_is_a_sentence(tmp_path: Path, config: Config) -> None:
    RunFolder.create(tmp_path / "run", config).close()
    file = tmp_path / "run" / "run.json"
    whole = file.read_text()
    edited = whole.replace('"evaluations": 100', '"evaluations": 900')
    assert edited != whole
    torn = r"it is no JSON \(line \d+, column \d+\)"
    cases = {"{": torn, "[]": "it holds no mapping", edited: "its checksum fails", whole[:-9]: torn}
    for text, why in cases.items():
        file.write_text(text)
        with pytest.raises(UsageError, match=rf"run\.json cannot be read: .*{why}.*; nothing was changed"):
            _ = RunFolder.peek(tmp_path / "run").run
        assert file.read_text() == text
    without = json.loads(edited)
    del without["sha256"]
    file.write_text(json.dumps(without))
    assert RunFolder.peek(tmp_path / "run").config().budget.evaluations == 900, "who edits it on purpose can say so"
    with RunFolder.open(tmp_path / "run") as folder:
        folder.begin_life(1)
    assert json.loads(file.read_text())["sha256"] and folder.config().budget.evaluations == 900


def test_any_flipped_bit_of_run_json_is_noticed(tmp_path: Path, config: Config) -> None:
    RunFolder.create(tmp_path / "run", config).close()
    folder, file = RunFolder.peek(tmp_path / "run"), tmp_path / "run" / "run.json"
    whole, run = file.read_bytes(), folder.run
    for at in range(0, len(whole), 7):
        torn = bytearray(whole)
        torn[at] ^= 1 << at % 8
        file.write_bytes(torn)
        try:
            assert folder.run == run or b'"sha256"' not in torn, "white space, or the checksum's own name"
        except UsageError:
            continue


def test_a_changed_config_keeps_the_former_one(tmp_path: Path, config: Config) -> None:
    RunFolder.create(tmp_path / "run", config).close()
    with RunFolder.open(tmp_path / "run") as folder:
        longer = config.model_copy(update={"budget": config.budget.model_copy(update={"evaluations": 400})})
        folder.change_config(longer)
        assert folder.config().budget.evaluations == 400
        assert folder.run["former_configs"][0]["config"]["config"]["budget"]["evaluations"] == 100


def test_json_is_strict_and_whole(tmp_path: Path, config: Config) -> None:
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.write_json(
            "a.json", {"cost": math.nan, "x": np.arange(2), "state": State.DONE, "deep": [{"y": math.inf}]}
        )
        text = (folder.path / "a.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "cost": None, "x": [0, 1], "state": "done", "deep": [{"y": None}],
    }  # fmt: skip


def test_an_atomic_write_that_fails_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"old")

    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match="Input/output error"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f"]


STATUS = RunStatus(
    State.RUNNING,
    n_evaluations=3,
    counts={"ok": 2, "failed": 1},
    best=Best(math.inf, 0.0, {"x": np.array([1.0, 2.0]), "opt": "ß"}, 2),
    n_ranks=4,
    budget={"evaluations": 10},
    wall_s=1.5,
    updated_unix_s=1000.0,
    host=socket.gethostname(),
    idle_share=0.25,
)


def test_status_round_trip(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    found = read_status(tmp_path)
    assert found is not None and found.best == Best(None, 0.0, {"x": [1.0, 2.0], "opt": "ß"}, 2)
    assert found.to_mapping() == STATUS.to_mapping()
    mapping = json.loads((tmp_path / "status.json").read_text())
    (tmp_path / "status.json").write_text(json.dumps({**mapping, "of_a_later_version": 1}))
    assert read_status(tmp_path) == found
    (tmp_path / "status.json").write_text('{"state":')
    assert read_status(tmp_path) is None


def test_a_killed_run_is_interrupted(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    look = RunFolder.peek(path)
    assert look.observe() == (None, State.INTERRUPTED)  # killed before its first status
    process = hold(path)
    try:
        assert look.observe() == (None, State.STARTING)
        write_status(path, STATUS)
        assert look.observe()[1] is State.RUNNING
        assert look.observe()[1] is State.RUNNING
    finally:
        end(process)
    assert look.observe()[1] is State.INTERRUPTED
    process = hold(path)  # life 2 has the lock; the status is still of life 1
    try:
        assert look.observe()[1] is State.STARTING
    finally:
        end(process)
    write_status(path, RunStatus(State.DONE, exit_code=0))
    assert look.observe()[1] is State.DONE


@pytest.mark.parametrize(
    ("code", "state"), [(0, State.DONE), (4, State.DONE), (3, State.FAILED), (75, State.STOPPED), (1, State.STOPPED)]
)
def test_an_end_that_no_status_tells_of_counts(tmp_path: Path, config: Config, code: int, state: State) -> None:
    """The disk took run.json and then no status.json any more."""
    path = tmp_path / "run"
    with RunFolder.create(path, config) as folder:
        folder.begin_life(3, ["h"], fault_tolerance="ulfm")
        folder.end_life(code, "evaluations", 7)
        assert folder.observe() == (None, State.STARTING), "it has not let go"
    look = RunFolder.peek(path)
    (life,) = look.run["lives"]
    ended = life["ended_unix_s"]
    status, found = look.observe()
    assert found is state and status == RunStatus(
        state, code, "evaluations", 7, n_ranks=3, n_flocks=0, host=life["host"], pid=life["pid"],
        fault_tolerance="ulfm", updated_unix_s=ended,
    )  # fmt: skip
    before = replace(STATUS, best=None, updated_unix_s=ended - 1.0)
    write_status(path, before)
    expected = replace(
        before, state=state, exit_code=code, reason="evaluations", n_evaluations=7, updated_unix_s=ended
    )
    assert look.observe() == (expected, state)
    after = replace(before, state=State.DONE, exit_code=4, updated_unix_s=ended + 1.0)
    write_status(path, after)
    assert look.observe() == (after, State.DONE)
    with RunFolder.open(path) as folder:
        folder.begin_life(2)
    status, found = look.observe()
    assert found is State.INTERRUPTED and status is not None, "killed before its first status: life 1 was done, not 2"
    assert (status.life, status.exit_code, status.n_ranks, status.wall_s) == (2, None, 2, after.wall_s)


def test_on_another_host_the_age_of_the_status_tells(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    (path / ".lock").write_text(json.dumps({"host": "elsewhere", "pid": 1, "life": 1}))
    write_status(path, STATUS)
    look = RunFolder.peek(path)
    assert look.observe(now_unix_s=1030.0)[1] is State.RUNNING
    assert look.observe(now_unix_s=1100.0)[1] is State.INTERRUPTED


def test_looking_changes_no_byte(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()

    def state() -> list[tuple[str, int]]:
        return sorted((str(p), p.stat().st_mtime_ns) for p in path.rglob("*"))

    before = state()
    look = RunFolder.peek(path)
    look.observe()
    look.config()
    assert state() == before


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    for leftover in (path / ".status.json.tmp-77", path / "results" / ".life-0001-epoch-0001.h5.tmp-77"):
        leftover.write_bytes(b"half")
    RunFolder.open(path).close()
    assert not list(path.rglob("*.tmp-*"))


def test_provenance_leaves_secrets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JWT", "secret")
    monkeypatch.setenv("SLURM_API_KEY", "secret")
    found = collect()
    assert found["slurm"]["SLURM_JOB_ID"] == "12" and "secret" not in json.dumps(found)


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "a\udcff"])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path, config: Config, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the folder of a run"):
        RunFolder.create(tmp_path / name, config)


def test_a_filesystem_that_became_read_only_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There even a file that was never made cannot be deleted."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match="read-only"):
        write_atomic(tmp_path / "status.json", b"{}")


def test_a_run_that_goes_on_has_no_results_of_before(tmp_path: Path, config: Config) -> None:
    """They would look like the whole, and stay when this life is killed."""
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(1)
        (folder.path / "results.h5").touch()
    with RunFolder.open(tmp_path / "run") as folder:
        assert (folder.path / "results.h5").exists(), "it is not sure yet that the run goes on"
        folder.begin_life(1)
        assert not (folder.path / "results.h5").exists()


def test_who_was_cut_off_writes_nothing_more(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts whose locks do not reach each other: the one that came later has the run."""
    path = tmp_path / "run"
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with RunFolder.create(path, config) as old:
        old.begin_life(4)
        old.write_status(RunStatus(State.RUNNING, life=1))
        monkeypatch.setenv("OSPREY_LAUNCH", "second")
        with RunFolder.open(path) as new:
            assert (new.life, new.last_holder["launch"]) == (2, "second")
            new.begin_life(2)
            new.write_status(RunStatus(State.RUNNING, life=2))
            before = {name: (path / name).read_bytes() for name in ("run.json", "status.json")}
            for write in (
                lambda: old.write_status(RunStatus(State.STOPPED, life=1)),
                lambda: old.end_life(75),
                old.refuse_taken,
            ):
                with pytest.raises(StorageError, match=r"on .* \(life 2\) has taken .*: life 1 writes no more"):
                    write()
            assert before == {name: (path / name).read_bytes() for name in before}
            new.end_life(0)


def test_a_lock_is_taken_from_a_process_that_is_lost_and_from_no_other(tmp_path: Path, config: Config) -> None:
    path, me = tmp_path / "run", (socket.gethostname(), os.getpid())
    with RunFolder.create(path, config) as old:
        old.begin_life(4)
        old.write_status(RunStatus(State.RUNNING, life=1))
        for others in ({(me[0], me[1] + 1)}, {("elsewhere", me[1])}, set()):
            assert not take_from(path / ".lock", others)
        with pytest.raises(UsageError, match="is in use by"):
            RunFolder.open(path)
        assert take_from(path / ".lock", {me}) and not take_from(path / ".lock", {me}), "it is free now"
        old.refuse_taken()
        with RunFolder.open(path) as new:
            assert (new.life, new.is_held()) == (2, True)
            with pytest.raises(StorageError, match=r"\(life 2\) has taken .*: life 1 writes no more"):
                old.write_status(RunStatus(State.STOPPED, life=1))
            with pytest.raises(UsageError, match="is in use by"):
                RunFolder.open(path)


def test_a_life_that_had_not_begun_is_cut_off_too(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has left no trace, so that the next one has its number."""
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with RunFolder.open(path) as old, RunFolder.open(path) as new:
        assert old.life == new.life == 1
        new.begin_life(2)
        with pytest.raises(StorageError, match="has taken"):
            old.begin_life(4)
        assert [life["n_ranks"] for life in new.run["lives"]] == [2]
