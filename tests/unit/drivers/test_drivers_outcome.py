"""What a run gives back, for a person and for a program, with a best point and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.progress import summary
from osprey_mpi.report.render import status_lines
from osprey_mpi.storage.status import Best, RunStatus, State

END = ["20 evaluations in 1.5 s on 2 ranks, ended by: evaluations", "results in /runs/r"]


def result(cost: float | None = None, parameters: Any = None, **more: Any) -> RunResult:
    facts = {"violation": 0.0, "n_evaluations": 20, "reason": "evaluations", "wall_s": 1.5, "n_ranks": 2}
    return RunResult(cost, parameters, **{**facts, "out": Path("/runs/r"), "exit_code": 3, **more})


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ({}, "no usable evaluation"),
        ({"n_infeasible": 20}, "no usable evaluation: none of 20 points satisfied the constraints"),
        ({"n_infeasible": 1, "n_evaluations": 1}, "no usable evaluation: none of 1 point satisfied the constraints"),
        ({"n_infeasible": 5}, "no usable evaluation: 5 of 20 points violated the constraints, the others failed"),
    ],
)
def test_without_a_best_point_the_text_says_why(facts: dict[str, Any], first: str) -> None:
    lines = result(**facts).to_text().splitlines()
    assert lines[0] == first and (lines[1:] == END or facts.get("n_evaluations") == 1)
    assert json.loads(result(**facts).to_json())["best"] is None


def test_with_a_best_point() -> None:
    best = result(0.25, {"x": [0.5, 1.0], "k": "a" * 300, "on": True})
    assert best.to_text().splitlines() == [
        "best cost 0.25", "  x = [0.5, 1.0]", f"  k = '{'a' * 199} ...", "  on = True", *END
    ]  # fmt: skip
    assert json.loads(best.to_json()) == {
        "best": {"cost": 0.25, "parameters": {"x": [0.5, 1.0], "k": "a" * 300, "on": True}}, "n_evaluations": 20,
        "n_infeasible": 0, "n_not_called": 0, "reason": "evaluations", "wall_s": 1.5, "n_ranks": 2, "n_lives": 1,
        "out": "/runs/r",
    }  # fmt: skip
    assert best.to_json().count("\n") == 0


def test_a_best_point_that_violates_constraints_says_by_how_much() -> None:
    best = result(0.25, {"x": 1.0}, violation=0.125)
    assert best.to_text().splitlines()[0] == "best cost 0.25 (violates constraints by 0.125)"
    assert json.loads(best.to_json())["best"] == {"cost": 0.25, "parameters": {"x": 1.0}, "violation": 0.125}


@pytest.mark.parametrize(
    ("n_not_called", "lines"),
    [
        (0, []),
        (4, ["not called: 4 (they break a constraint)"]),
        (5, ["not called: 5 (they break a constraint), 25% of the evaluations: give such a constraint as bounds of the "
             "parameters where it can be, or a point inside under start"]),
        (None, ["not called: not known, for batches record captures only"]),
    ],
)  # fmt: skip
def test_points_that_were_not_called_are_counted_and_many_of_them_advised_on(
    n_not_called: int | None, lines: list[str]
) -> None:
    best = result(0.25, {}, n_infeasible=7, n_not_called=n_not_called)
    assert best.to_text().splitlines()[1:] == [END[0], *lines, END[1]]
    told = json.loads(best.to_json())
    assert (told["n_infeasible"], told["n_not_called"]) == (7, n_not_called)


def test_the_time_of_several_lives_is_told_as_such() -> None:
    line = result(0.25, {"x": 0.5}, n_lives=3).to_text().splitlines()[-2]
    assert line == "20 evaluations in 1.5 s of 3 lives, the last on 2 ranks, ended by: evaluations"


def test_a_run_that_stopped_says_how_it_goes_on() -> None:
    lines = result(0.25, {"x": 0.5}, exit_code=75).to_text().splitlines()
    assert lines[-1] == "it is saved; to go on: osprey resume /runs/r"


def test_progress_and_status_say_that_the_best_is_not_feasible() -> None:
    status = RunStatus(State.RUNNING, n_evaluations=7, best=Best(1.5, 2.0, {"x": 0.5}, 3))
    assert summary(status) == "7 evaluations, best 1.5 (violates constraints by 2)"
    lines = status_lines("case", Path("/runs/r"), status, State.RUNNING, 0.0)
    assert "best cost: 1.5 (evaluation 3) (violates constraints by 2)" in lines
