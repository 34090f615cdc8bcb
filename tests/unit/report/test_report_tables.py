"""Reports and exports: exact figures, strict formats, quick on long histories."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.records import BLOCK, RECORD, RowReason
from osprey_mpi.report import tables
from osprey_mpi.report.export import csv_parts, json_parts
from osprey_mpi.report.load import load, typed
from osprey_mpi.report.render import cell, head, plain_table, report_json, tables_of, write_report
from osprey_mpi.report.tables import Table
from osprey_mpi.search.space import Space
from osprey_mpi.search.streams import evaluation_seed
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import State


def test_counts_by_status(run: Path) -> None:
    table = tables.counts(load(run).rows)
    assert dict(table.rows) == {"ok": 3, "failed": 1, "timeout": 1, "cancelled": 1, "stopped": 1}
    assert table.note == "not counted, but kept: 1 earlier attempt of 1 evaluation"
    assert load(run).rows.n_evaluations == 6


def test_best_and_convergence(run: Path) -> None:
    loaded = load(run)
    assert loaded.best == {
        "id": 4,
        "cost": 1.0,
        "violation": 0.0,
        "rank": 1,
        "t_end_s": 102.0,
        "parameters": {"x": [0.5, 0.25], "n": 5, "opt": "adam", "on": True, "degree": 3},
    }
    # By the time they ended: evaluation 1 before 0, which was then no improvement.
    table = tables.convergence(loaded.rows)
    assert [row[:3] for row in table.rows] == [(1.0, 1, 4.0), (102.0, 4, 1.0)]
    assert table.columns[0] == "since its start (s)"
    assert table.note.splitlines()[1:] == ["the time between its lives counts as well"]


def test_ranks_and_flocks(run: Path) -> None:
    """Life 1 lasts from 0 to 4 s, life 2 from 100 to 102 s; of rank 2 the lost second counts no more."""
    rows = load(run).rows
    assert tables.by(rows, "rank").rows == [
        (1, 3, 2.0, 0.0),  # 2 + 2 of 4 s, 2 of 2 s
        (2, 2, 1.5, 0.25),  # 1 + 2 of 4 s
        (3, 2, 1.0, 0.75),  # two points of one call
    ]
    assert tables.by(rows, "flock").rows == [(0, 5, 9 / 5, pytest.approx(0.1)), (1, 2, 1.0, 0.75)]
    assert tables.by(rows, "rank", limit=1) == Table(
        "Ranks", ("rank", "evaluations", "mean time (s)", "idle share"), [(1, 3, 2.0, 0.0)], "the 1 slowest of 3"
    )


def test_failures_are_grouped_by_their_first_line(run: Path) -> None:
    """What was stopped early or cancelled, 5 and 6, is no failure."""
    rows = load(run).rows
    assert {5, 6} <= rows.reasons.keys()
    assert tables.failures(rows).rows == [(1, 2, "ValueError: ß is bad"), (1, 3, "over the time limit of 2 s")]
    rows.reasons[0] = "over the time limit of 2 s\nend of its output:\nother"
    assert tables.failures(rows).rows == [(2, 0, "over the time limit of 2 s"), (1, 2, "ValueError: ß is bad")]


def test_lives(run: Path) -> None:
    rows = tables.lives(load(run).facts, load(run).rows).rows
    assert [(row[0], row[3], row[5], row[6]) for row in rows] == [(1, 4, None, 6), (2, 4, 0, 1)]


def test_settings_that_changed_are_told_with_their_life(run: Path) -> None:
    with RunFolder.open(run) as folder:
        config = folder.config()
        continuity = config.continuity.model_copy(update={"lost_after_s": 60.0})
        folder.change_config(config.model_copy(update={"continuity": continuity}).placed(config.base_dir))
    changes = ["life 3: continuity.lost_after: 30.0 -> 60.0"]
    assert tables.lives(load(run).facts, load(run).rows).note == changes[0]
    told = report_json(load(run))
    assert (told["changes"], told["unlike_config_yaml"]) == (changes, [])
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("lost_after: 60.0", "lost_after: 50"))
    assert report_json(load(run))["unlike_config_yaml"] == ["continuity.lost_after: 50.0 -> 60.0"]
    (run / "config.yaml").write_text("budget: 5\n")
    (problems,) = report_json(load(run))["unlike_config_yaml"]
    assert f"{run / 'config.yaml'}:1:budget: is 5, must be a mapping of keys" in problems
    (run / "config.yaml").unlink()
    assert report_json(load(run))["unlike_config_yaml"] == []


def test_text_report(run: Path) -> None:
    text = io.StringIO()
    write_report(load(run), text)
    lines = text.getvalue().splitlines()
    assert lines[:2] == [f"reported in {run}", "state: done"], "as run.json has it: no status was ever written"
    for words in ("Best", "  x           [0.5, 0.25]", "Convergence", "Evaluations", "Ranks", "Failures", "Lives"):
        assert words in lines
    assert "\x1b" not in text.getvalue()


def test_rich_report_shows_the_same(run: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    text = Terminal()
    write_report(load(run), text)
    for table in tables_of(load(run)):
        assert table.title in text.getvalue()


def test_json_report(run: Path) -> None:
    report = report_json(load(run))
    assert report["state"] == "done" and report["counts"]["timeout"] == 1
    assert report["tables"]["ranks"][1] == {"rank": 2, "evaluations": 2, "mean time (s)": 1.5, "idle share": 0.25}


def test_a_run_without_evaluations(tmp_path: Path) -> None:
    config = config_from_mapping(
        {
            "name": "empty",
            "objective": {"python": "m:f"},
            "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
            "budget": {"evaluations": 1},
        }
    )
    RunFolder.create(tmp_path / "run", config).close()
    loaded = load(tmp_path / "run")
    text = io.StringIO()
    write_report(loaded, text)
    assert "no evaluation has given a usable result yet" in text.getvalue()
    assert loaded.state is State.INTERRUPTED and loaded.best is None
    assert json.loads("".join(json_parts(loaded)))["evaluations"] == []
    assert "".join(csv_parts(loaded)).count("\r\n") == 1


def test_csv_is_rfc_4180(run: Path) -> None:
    text = "".join(csv_parts(load(run)))
    assert text.count("\r\n") == 8 and '"a ""quoted"", ß"' in text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 7 and list(rows[0])[-6:] == ["x[0]", "x[1]", "n", "opt", "on", "degree"]
    assert rows[1] | {"reason": ""} == {
        "id": "1", "status": "ok", "cost": "4.0", "violation": "0.0", "rank": "2", "flock": "0", "attempt": "0",
        "generation": "0", "t_start_s": "0.0", "t_end_s": "1.0", "seed": str(evaluation_seed(0, 1)), "reason": "",
        "x[0]": "0.125", "x[1]": "0.0625",
        "n": "2", "opt": 'a "quoted", ß', "on": "false", "degree": "",
    }  # fmt: skip
    assert rows[2]["cost"] == "" and rows[2]["status"] == "failed"
    assert rows[2]["reason"].startswith("ValueError: ß is bad\\n  File")  # one line a row


def test_json_is_strict_and_typed(run: Path) -> None:
    data = json.loads("".join(json_parts(load(run))), parse_constant=pytest.fail)
    assert data["n_evaluations"] == 6 and data["best"]["parameters"]["opt"] == "adam"
    assert [row["id"] for row in data["evaluations"]] == list(range(7))
    assert data["evaluations"][2]["cost"] is None
    assert len({tuple(row) for row in data["evaluations"]}) == 1, "every row has the same keys"
    reasons = [row["reason"] for row in data["evaluations"]]
    assert reasons[:2] == [None, None] and reasons[2] == 'ValueError: ß is bad\n  File "user.py", line 7, in f'
    assert [row["seed"] for row in data["evaluations"]] == [evaluation_seed(0, id) for id in range(7)]
    assert data["evaluations"][1]["parameters"] == {
        "x": [0.125, 0.0625], "n": 2, "opt": 'a "quoted", ß', "on": False,
    }  # fmt: skip
    assert data["evaluations"][0]["parameters"]["on"] is True and data["evaluations"][0]["parameters"]["degree"] == 2


def test_typed_values(run: Path) -> None:
    values = typed(load(run).rows, 0, 2)
    assert values == {
        "x": [[0.0, 0.0], [0.125, 0.0625]],
        "n": [1, 2],
        "opt": ["adam", 'a "quoted", ß'],
        "on": [True, False],
        "degree": [2, None],
    }
    assert type(values["n"][0]) is int and type(values["on"][0]) is bool


@pytest.mark.parametrize("choices", [[1, 2, 4], [1, 2, 4.0], [True, False], ["a", 2, True]])
def test_values_of_choices_are_those_that_the_objective_got(choices: list[Any]) -> None:
    both = {"one": {"type": "categorical", "choices": choices}}
    both["two"] = {**both["one"], "size": 2}
    mapping = {"name": "t", "objective": {"python": "m:f"}, "parameters": both, "budget": {"evaluations": 1}}
    space = Space(config_from_mapping(mapping).parameters)
    row = np.array([0.0, len(choices) - 1.0, 0.0])
    objective = space.parameters(row)
    shown = typed(SimpleNamespace(values=row[None], columns=space.columns))  # type: ignore[arg-type]  # all it reads
    assert repr(shown) == repr({"one": [objective["one"]], "two": [objective["two"].tolist()]})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "true"), (3, "3"), (0.1 + 0.2, "0.3"), (float("nan"), "nan"), ([1.0, 2.5], "[1, 2.5]"),
     (list(range(10)), "[0, 1, 2, 3, 4, 5, 6, 7, ... 10 in all]")],
)  # fmt: skip
def test_cells(value: Any, text: str) -> None:
    assert cell(value) == text


def test_improvements_have_the_digits_that_tell_them_apart() -> None:
    rows = [(1.0, 0.5), (2.0, 0.123456789), (2.0, 0.123456712)]
    lines = plain_table(Table("Convergence", ("since its start (s)", "best cost"), rows)).splitlines()
    assert [line.split()[-1] for line in lines[2:]] == ["0.5", "0.1234568", "0.1234567"]


def test_plain_tables_align() -> None:
    assert plain_table(Table("T", ("name", "n"), [("a", 1), ("long name", 100)], "note")) == (
        "T\n  name         n\n  a            1\n  long name  100\n  note\n"
    )


def test_thinning() -> None:
    assert tables.thinned(5, 12).tolist() == [0, 1, 2, 3, 4]
    for n in (13, 1000, 10**6):
        chosen = tables.thinned(n, 12)
        assert chosen.size <= 12 and chosen[0] == 0 and chosen[-1] == n - 1 and (np.diff(chosen) > 0).all()


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    parameters = {f"p{i}": {"type": "real", "low": 0, "high": 1} for i in range(20)}
    config = config_from_mapping(
        {"name": "long", "objective": {"python": "m:f"}, "parameters": parameters, "budget": {"evaluations": 100_000}}
    )
    chance = np.random.default_rng(0)
    with RunFolder.create(tmp_path / "run", config) as folder:
        segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
        for start in range(0, 100_000, 20_000):
            records = np.zeros(20_000, RECORD)
            records["id"] = np.arange(start, start + 20_000)
            records["cost"] = chance.random(20_000)
            records["rank"] = chance.integers(0, 500, 20_000)
            records["flock"] = records["rank"] // 16
            records["t_start_s"] = records["id"] / 100 + chance.random(20_000)
            records["t_end_s"] = records["t_start_s"] + chance.random(20_000)
            failed = np.flatnonzero(chance.random(20_000) < 0.1)
            records["status"][failed] = 1
            reasons = [RowReason(int(records["id"][i]), 0, 1, f"ValueError: {i % 30}") for i in failed]
            segment.append(records, chance.random((20_000, 20)), None, reasons)
    return tmp_path / "run"


def test_a_report_of_100_000_rows_is_quick(long_run: Path) -> None:
    start = time.process_time()
    text = io.StringIO()
    write_report(load(long_run), text)
    assert time.process_time() - start < 5
    assert len(text.getvalue()) < 20_000 and "the 16 slowest of 500" in text.getvalue()


def test_means_are_over_calls(tmp_path: Path) -> None:
    """A point that breaks a constraint takes an evaluation, but no call and no time."""
    mapping = {
        "name": "broken",
        "objective": {"python": "m:f"},
        "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
        "constraints": ["x <= 0.5"],
        "budget": {"evaluations": 4},
    }
    config = config_from_mapping(mapping)
    records = np.zeros(4, RECORD)
    records["id"], records["t_start_s"], records["t_end_s"] = np.arange(4), [0, 2, 5, 9], [2, 6, 5, 9]
    records["cost"], records["violation"] = [1, 2, np.nan, np.nan], [0, 0, 0.25, 0.5]
    with RunFolder.create(tmp_path / "run", config) as folder:
        Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1).append(records, np.ones((4, 1)))
    run = load(tmp_path / "run")
    assert tables.by(run.rows, "rank").rows == [(0, 4, 3.0, 0.0)]
    assert dict(tables.times(run.rows).rows)["one call: mean"] == 3.0
    assert head(run)[2:4] == ["evaluations: 4", "not called: 2 (they break a constraint)"]
    told = report_json(run)
    assert (told["n_infeasible"], told["n_not_called"]) == (2, 2)


def test_captures_only_say_what_is_not_known(tmp_path: Path) -> None:
    config = config_from_mapping(
        {
            "name": "captures",
            "objective": {"python": "m:f"},
            "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
            "budget": {"evaluations": 1},
        }
    )
    with RunFolder.create(tmp_path / "run", config) as folder:
        segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
        records = np.zeros(1, RECORD)
        records["id"], records["t_end_s"] = 5, 1
        segment.append(records, np.ones((1, 1)), np.array([(0, 256)], BLOCK))
    rows = load(tmp_path / "run").rows
    assert rows.n_evaluations == 256 and rows.counts["ok"] == 256
    assert tables.by(rows, "rank").columns[1] == "recorded" and tables.by(rows, "rank").rows == [(0, 1, 1.0, None)]
    assert tables.times(rows).rows[1] == ("in recorded evaluations, all ranks", 1.0)
