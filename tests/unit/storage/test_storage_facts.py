"""What is no run.json, no status.json and no file at all: one sentence, and nobody waits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from osprey_mpi.config import Config
from osprey_mpi.errors import UsageError
from osprey_mpi.storage.checkpoint import load_checkpoint, write_checkpoint
from osprey_mpi.storage.facts import read_facts
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.journal import journal_path
from osprey_mpi.storage.lock import read_holder
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import RunStatus, State, read_status, write_status

ACTIONS: list[Callable[[Path], Any]] = [RunFolder.open, RunFolder.peek, read_facts]


@pytest.fixture
def run(tmp_path: Path, config: Config, columns: Any) -> Path:
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(2, ["a", "b"], devices=[{"host": "a", "memory_bytes": None}])
        Segment(folder.segment_path(1), columns, 1, 1).close()
    return tmp_path / "run"


def fails(run: Path, content: str, why: str) -> None:
    (run / "run.json").write_text(content)
    for action in ACTIONS:
        with pytest.raises(UsageError) as caught:
            action(run)
        assert str(caught.value) == f"{run / 'run.json'} cannot be read: {why}; nothing was changed"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}", "it has no name"),
        ("null", "it holds no mapping"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a":' + "[" * 900 + "]" * 900 + "}", "it is nested too deeply"),
        ("", "it is no JSON (line 1, column 1)"),
    ],
)
def test_what_is_no_run_json_is_a_sentence(run: Path, content: str, why: str) -> None:
    fails(run, content, why)


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        (["lives"], None, "lives is null, which should be a valid list"),
        (["name"], 7, "name is 7, which should be a valid string"),
        (["started_unix_s"], "now", 'started_unix_s is "now", which should be a valid number'),
        (["started_unix_s"], 1e300, "started_unix_s is 1e+300, which should be less than or equal to 100000000000"),
        (["config", "config", "seed"], -1, "config.config.seed is -1, which should be greater than or equal to 0"),
        (["lives", 0, "life"], None, "lives.0.life is null, which should be a valid integer"),
        (["lives", 0, "hosts"], [1], "lives.0.hosts.0 is 1, which should be a valid string"),
        (["lives", 0, "exit_code"], "0", 'lives.0.exit_code is "0", which should be a valid integer'),
    ],
)
def test_a_value_of_another_type_is_named(run: Path, keys: list[Any], value: Any, why: str) -> None:
    facts = read_facts(run)
    part = facts
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    fails(run, json.dumps(facts), why)


def test_a_format_to_come_is_not_judged_by_the_rules_of_this_one(run: Path) -> None:
    (run / "run.json").write_text('{"format_version": 2}')
    with pytest.raises(UsageError, match="has format 2, this version reads up to 1: update osprey-mpi"):
        RunFolder.peek(run)


@pytest.mark.parametrize(
    "content", ["", "null", "[" * 100_000, '{"state": "done", "life": "x"}', '{"state": "running", "best": []}', "{}"]
)
def test_a_bad_status_counts_as_none(run: Path, content: str) -> None:
    (run / "status.json").write_text(content)
    assert RunFolder.peek(run).observe() == (None, State.INTERRUPTED)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"life": null}', "[1]", ""])
def test_a_bad_lock_names_nobody(run: Path, content: str) -> None:
    (run / ".lock").write_text(content)
    assert read_holder(run / ".lock") == {}
    assert RunFolder.peek(run).observe() == (None, State.INTERRUPTED)


@pytest.mark.timeout(20)
def test_nobody_waits_for_a_pipe(run: Path) -> None:
    write_status(run, RunStatus(State.DONE))
    segment = run / "results" / "life-0001-epoch-0001.h5"
    pipes = [run / "status.json", run / ".lock", run / "checkpoint.h5", segment, journal_path(segment)]
    for path in pipes:
        was = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        read_status(run)
        RunFolder.peek(run).observe()
        notes = [*read_run(run).notes, *load_checkpoint(run)[1]]
        shown = [note for note in notes if f"{path.name} is not a regular file" in note]
        assert len(shown) == (path not in pipes[:2]), path
        path.unlink()
        path.write_bytes(was)
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    with pytest.raises(UsageError, match=r"it has no run\.json"):
        RunFolder.peek(run)


def test_a_checkpoint_whose_text_is_no_json_is_skipped_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osprey_mpi.storage.checkpoint.json.dumps", _torn_meta)
    path = write_checkpoint(tmp_path, {}, {"n": 1})
    with h5py.File(path) as file:
        assert file["meta"][()] == b""
    assert load_checkpoint(tmp_path) == (None, [f"{path} is skipped: it is no JSON (line 1, column 1)"])


def _torn_meta(value: Any, default: Any = None) -> str:
    return "" if default is not None else json.JSONEncoder().encode(value)
