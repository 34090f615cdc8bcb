"""The same run on any number of ranks: the budget is met exactly, stdout is the result, the files open elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray
from launch import launch, osprey
from problem import Problem

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
BROKEN = Path(__file__).parents[1] / "data" / "broken"
VARIABLES = (
    "cost", "status", "violation", "rank", "flock", "attempt", "generation", "seed", "t_start_s", "t_end_s", "reason",
    "x",
)  # fmt: skip
REFUSED = (
    "misspelt_key", "duplicate_key", "yes_as_seed", "low_above_high", "objective/no_such_module",
    "objective/unknown_option",
)  # fmt: skip

pytestmark = pytest.mark.launch


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_quickstart(n: int, tmp_path: Path) -> None:
    out, n_evaluations = tmp_path / "out", 3001
    done = launch(
        n,
        osprey(
            "run", QUICKSTART, "--out", out, "--format", "json", "--set", "budget.target=null", "--set",
            f"budget.evaluations={n_evaluations}", "--set", "output.record=all",
        ),
        cwd=tmp_path,
    )  # fmt: skip
    assert done.rc == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = done.json()
    assert (result["n_evaluations"], result["n_ranks"], result["reason"]) == (n_evaluations, n, "evaluations")
    assert Path(result["out"]) == out
    status = json.loads((out / "status.json").read_text())
    assert (status["state"], status["exit_code"], status["n_evaluations"]) == ("done", 0, n_evaluations)
    assert status["best"]["cost"] == result["best"]["cost"]
    assert sorted(file.name for file in (out / "logs").iterdir()) == [f"rank-{rank:04d}.log" for rank in range(n)]
    with xarray.open_dataset(out / "results.h5", group="evaluations", engine="h5netcdf") as data:
        assert set(VARIABLES) <= set(data.variables)
        assert np.array_equal(np.sort(data["evaluation"].values), np.arange(n_evaluations))
        assert data["x"].shape == (n_evaluations, 10)
        assert data["x"].values.min() >= -2.0 and data["x"].values.max() <= 2.0
        assert float(data["cost"].min()) == result["best"]["cost"]
        assert set(np.unique(data["rank"])) <= set(range(n))


def test_budget_smaller_than_what_is_in_flight(case: Problem) -> None:
    """Seven rows for a budget of seven, whatever four ranks could have asked for (R13), and n logs (U7)."""
    case.write("def f(p):\n    return p['x']")
    done = case.run(4, "--set", "budget.evaluations=7")
    assert (done.rc, done.json()["n_evaluations"]) == (0, 7), done.stderr
    assert case.columns()["id"].tolist() == list(range(7))
    assert all("life 1 begins" in case.log(rank) for rank in range(4))
    assert case.columns("n")["n"].dtype == np.int64


@pytest.mark.parametrize("name", REFUSED)
def test_broken_config_is_refused_once_by_all_ranks(name: str, tmp_path: Path) -> None:
    config = BROKEN / f"{name}.yaml"
    expected = config.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expect: ")
    done = launch(3, osprey("run", config, "--out", tmp_path / "out"), cwd=tmp_path)
    assert (done.rc, done.stdout) == (2, ""), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("osprey: ")]
    assert sum(expected in line for line in said) == 1 and len(set(said)) == len(said), done.stderr
    assert done.stderr.count(expected) == sum(line.count(expected) for line in said)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("n", [1, 3])
def test_dry_run_writes_nothing(n: int, case: Problem) -> None:
    case.write("def f(p):\n    return p['x']")
    before = {path.name for path in case.folder.iterdir()}
    done = case.run(n, "--dry-run")
    assert done.rc == 0, done.stderr
    shown = done.json()
    assert (shown["n_ranks"], shown["n_workers"], shown["budget"]) == (n, n, {"evaluations": 8})
    assert len(shown["first_points"]) == 3
    assert {path.name for path in case.folder.iterdir()} - before <= {"__pycache__"}


def test_dry_run_that_is_refused_ends_all_ranks(case: Problem) -> None:
    case.write("", "name: broken")
    done = case.run(3, "--dry-run")
    assert (done.rc, done.stdout) == (2, ""), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("osprey: ")]
    keys = [line.partition("case.yaml:1:")[2].partition(":")[0] for line in said]
    assert sorted(keys) == ["budget", "objective", "parameters"] and "Traceback" not in done.stderr
