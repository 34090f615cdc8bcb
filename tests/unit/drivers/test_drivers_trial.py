"""One evaluation as a run would do it: its result, or its reason, and what the objective printed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.continuity.records import Status
from osprey_mpi.drivers.dry_run import first_points
from osprey_mpi.drivers.lives import run_session
from osprey_mpi.drivers.request import Request
from osprey_mpi.drivers.trial import Trial, first_calls, try_objective
from osprey_mpi.errors import ConfigError, UsageError
from osprey_mpi.report.load import load, typed
from osprey_mpi.search.space import Space
from osprey_mpi.storage.status import plain

SOURCE = """\
import time
def good(p, context):
    print("id", context.id)
    return p["x"] ** 2
def bad(p):
    raise KeyError("nope")
def slow(p):
    time.sleep(30)
def batch(p):
    return p["x"] + [float("nan"), 0, 0]
def mixed(p):
    return p["x"] + (p["k"] == "a")
def soft(p):
    return {"violation": 2.0}
"""


def config_of(folder: Path, *, start: Any = ({"x": 0.5},), constraints: Any = (), **objective: Any) -> Config:
    (folder / "model.py").write_text(SOURCE)
    return config_from_mapping(
        {
            "name": "tried", "objective": objective, "start": list(start), "constraints": list(constraints),
            "parameters": {"x": {"type": "real", "low": 0, "high": 1}}, "budget": {"evaluations": 9},
        },
        folder,
    )  # fmt: skip


def tried(config: Config) -> Trial:
    return try_objective(config, Space(config.parameters, config.constraints))


@pytest.mark.parametrize("more", [{}, {"isolation": "thread"}])
def test_a_result_and_what_was_printed(tmp_path: Path, capfd: Any, more: dict[str, str]) -> None:
    trial = tried(config_of(tmp_path, python="model:good", **more))
    assert (trial.id, trial.parameters, trial.status, trial.cost, trial.reason) == (0, {"x": 0.5}, Status.OK, 0.25, "")
    assert re.fullmatch(r"result: cost 0\.25 in \S+ s", trial.to_text()[1])
    out, err = capfd.readouterr()
    assert (out, err) == ("", "id 0\n" if more else "evaluation 0: id 0\n")


def test_the_first_point_that_the_constraints_allow(tmp_path: Path) -> None:
    trial = tried(config_of(tmp_path, python="model:good", start=[], constraints=["x <= 0.25"]))
    assert trial.id > 0 and 0.0 <= trial.parameters["x"] <= 0.25 and trial.status is Status.OK


def test_failures_have_their_reasons(tmp_path: Path) -> None:
    trial = tried(config_of(tmp_path, python="model:bad"))
    assert trial.status is Status.FAILED and trial.reason.startswith("KeyError: 'nope'\n")
    assert re.match(r"result: failed after \S+ s: KeyError: 'nope'\n  File .*, line 6, in bad", trial.to_text()[1])
    trial = tried(config_of(tmp_path, python="model:slow", time_limit=0.5))
    assert (trial.status, trial.reason) == (Status.TIMEOUT, "ended by the time limit of 0.5 s")
    with pytest.raises(ConfigError, match="no attribute 'god'"):
        tried(config_of(tmp_path, python="model:god"))


def test_a_kept_scratch_folder_is_there_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    trial = tried(config_of(tmp_path, command=["sh", "-c", "echo {x}"]))
    assert (trial.status, trial.cost, list((tmp_path / "temporary").iterdir())) == (Status.OK, 0.5, [])
    trial = tried(config_of(tmp_path, command=["sh", "-c", "echo cost {x}"]))
    assert trial.reason.startswith("the result is no finite number\nkept scratch folder ")
    (kept,) = (tmp_path / "temporary").glob("*/*")
    assert str(kept) in trial.reason and (kept / "stdout.txt").read_text() == "cost 0.5\n"


def test_of_a_batch_the_first_point_with_a_result(tmp_path: Path) -> None:
    trial = tried(config_of(tmp_path, python="model:batch", batch=3, start=[{"x": x} for x in (0, 0.25, 0.5)]))
    assert (trial.id, trial.status, trial.cost) == (1, Status.OK, 0.25)


def test_a_violation_that_only_the_objective_knows_is_a_result(tmp_path: Path) -> None:
    trial = tried(config_of(tmp_path, python="model:soft"))
    assert (trial.status, trial.violation) == (Status.OK, 2.0)
    assert re.fullmatch(r"result: cost nan, violation 2 in \S+ s", trial.to_text()[1])


def test_what_cannot_be_tried(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"objective\.ranks is 2: try it by `mpirun -n 2 osprey run CONFIG --set"):
        tried(config_of(tmp_path, python="model:good", ranks=2))
    with pytest.raises(UsageError, match="none of the first 1000 points that satisfies the constraints"):
        tried(config_of(tmp_path, python="model:good", start=[], constraints=["x >= 2"]))


def test_a_dry_run_shows_the_start_points_first(tmp_path: Path) -> None:
    config = config_of(tmp_path, builtin="sphere", start=[{"x": 0.25}, {"x": 0.75}])
    assert [point["x"] for point in first_points(config, Space(config.parameters))][:2] == [0.25, 0.75]


X, K = {"type": "real", "low": 0, "high": 1}, {"type": "categorical", "choices": ["a", "b"]}


@pytest.mark.parametrize("record", ["auto", "all"])
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        ({"python": "model:mixed", "batch": 8}, {"x": X, "k": K}),
        ({"python": "model:mixed", "batch": 8, "isolation": "none"}, {"x": X, "k": K}),
        ({"python": "model:mixed"}, {"x": X, "k": K}),
        ({"builtin": "sphere"}, {"x": X}),
        ({"builtin": "sphere", "batch": 1}, {"x": X}),
    ],
)
def test_what_is_shown_and_tried_is_what_a_run_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: Any, parameters: Any, record: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "model.py").write_text(SOURCE)
    config = config_from_mapping(
        {
            "name": "same", "objective": objective, "parameters": parameters, "budget": {"evaluations": 20},
            "output": {"record": record},
        },
        tmp_path,
    )  # fmt: skip
    space = Space(config.parameters)
    shown, trial = first_points(config, space), try_objective(config, space)
    run_session(Request(load=lambda: config, out=tmp_path / "run", quiet=True))
    rows = load(tmp_path / "run").rows
    points = [dict(zip(parameters, point, strict=True)) for point in zip(*typed(rows).values(), strict=True)]
    evaluated = dict(zip(rows.records["id"].tolist(), points, strict=True))
    assert evaluated[0] == shown[0] == plain(trial.parameters) and trial.id == 0
    assert all(evaluated[id] == shown[id] for id in range(3) if id in evaluated)
    assert record == "auto" or len(evaluated) == 20


def test_a_call_is_cut_at_the_end_of_the_budget(tmp_path: Path) -> None:
    config = config_of(tmp_path, python="model:batch", batch=32, start=[])
    calls = itertools.islice(first_calls(config, Space(config.parameters)), 2)
    assert [(first, len(positions)) for first, positions in calls] == [(0, 9), (32, 32)]


def test_a_builtin_s_point_that_breaks_a_constraint_is_not_what_was_tried(tmp_path: Path) -> None:
    trial = tried(config_of(tmp_path, builtin="sphere", start=[], constraints=["x <= 0.1"]))
    assert (trial.status, trial.violation) == (Status.OK, 0.0) and trial.parameters["x"] <= 0.1
