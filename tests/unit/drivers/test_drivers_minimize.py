"""The Python function: wrong arguments are ConfigErrors, and its messages are in the caller's terms."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import osprey_mpi
from osprey_mpi.config import load_config
from osprey_mpi.drivers.minimize import claim_folder
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.wording import in_python
from osprey_mpi.errors import ConfigError, UsageError
from osprey_mpi.evaluate.wake import USER_CODE
from osprey_mpi.report import tables
from osprey_mpi.report.load import load
from osprey_mpi.storage.folder import RunFolder

X = {"x": {"type": "real", "low": -1, "high": 1}}


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def square(parameters: dict[str, Any]) -> float:
    return float(parameters["x"] ** 2)


def fail(parameters: dict[str, Any]) -> float:
    raise ValueError("nope")


def minimize(function: Any = square, parameters: Any = X, **more: Any) -> RunResult:
    return osprey_mpi.minimize(function, parameters, **{"budget": {"evaluations": 5}, "out": "out", **more})


WRONG = [
    ({"budget": 5}, "budget: is 5, must be a mapping of keys"),
    ({"budget": {"evaluations": "5"}}, "budget.evaluations: is '5', must be a whole number; remove the quotes"),
    ({"objective": "x"}, "objective: is 'x', must be a mapping of keys"),
    ({"objective": {"python": "m:f"}}, "objective.python is given beside a function, which is what is minimised"),
    ({"parameters": 5}, "parameters: is 5, must be a mapping of keys"),
    ({"function": None}, "function is None, must be callable or the text module:function"),
    ({"out": 5}, "out is 5, must be a path or None"),
    ({"out": ""}, "out is '', must be a path or None"),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
@pytest.mark.parametrize("resume", [False, True])
def test_wrong_arguments_are_one_sentence(wrong: dict[str, Any], sentence: str, resume: bool) -> None:
    if resume:
        minimize()
    with pytest.raises(ConfigError) as caught:
        minimize(**wrong, resume=resume)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)
    assert resume or not Path("out").exists()


def test_a_resume_takes_the_budget_as_it_is_given() -> None:
    assert minimize().n_evaluations == 5
    assert minimize(budget={"evaluations": 7}, resume=True).n_evaluations == 7
    with pytest.raises(UsageError) as caught:
        minimize(budget={"evaluations": 6}, resume=True)
    there = f"{Path('out').absolute()}"
    assert str(caught.value) == f"budget.evaluations is 6, but {there} has 7 already: a budget can only grow"
    with pytest.raises(UsageError, match=r"another config: seed: 0 -> 3; what may change is budget\.\*, obj"):
        minimize(budget={"evaluations": 9}, seed=3, resume=True)


def test_a_resume_takes_the_settings_that_may_change_as_they_are_given() -> None:
    minimize()
    result = minimize(budget={"evaluations": 9, "target": 1e9}, continuity={"lost_after": 60}, resume=True)
    assert (result.n_evaluations, result.reason) == (5, "target")
    config = RunFolder.peek(Path("out")).config()
    assert (config.budget.target, config.continuity.lost_after_s) == (1e9, 60.0)
    assert config.differences(load_config("out/config.yaml")) == []


def test_no_limit_of_evaluations_is_a_new_budget_as_well() -> None:
    minimize(budget={"evaluations": 5, "stagnation": 1000})
    assert minimize(budget={"stagnation": 1000}, resume=True).reason == "stagnation"


def test_messages_name_arguments_of_python() -> None:
    minimize()
    with pytest.raises(UsageError) as caught:
        minimize()
    assert str(caught.value) == (
        f"{Path('out').absolute()} holds a run that is over, ended by: evaluations; give it more with resume=True and "
        "a larger budget.evaluations, or choose another folder or overwrite=True"
    )


def test_a_run_without_a_result_has_no_cost(capsys: pytest.CaptureFixture[str]) -> None:
    result = minimize(fail, budget={"evaluations": 30})
    assert (result.cost, result.parameters, result.exit_code) == (None, None, 3)
    err = capsys.readouterr().err
    assert re.search("ValueError: nope; the run goes on, Ctrl-C saves and stops it\n", err) and "CONFIG" not in err


def test_the_result_has_the_types_that_the_objective_got() -> None:
    got: list[Any] = []

    def loss(parameters: dict[str, Any]) -> float:
        got.append(parameters["s"])
        return float(parameters["s"].sum())

    result = minimize(loss, {"s": {"type": "categorical", "choices": [1, 2, 4], "size": 3}}, budget={"evaluations": 1})
    assert result.parameters is not None and result.parameters["s"].tolist() == got[0].tolist()
    assert result.parameters["s"].dtype == got[0].dtype == "int64"


def test_the_time_of_a_run_is_that_of_its_lives() -> None:
    minimize()
    time.sleep(0.2)
    result = minimize(budget={"evaluations": 9}, resume=True)
    lives = tables.lives(load(result.out).facts, load(result.out).rows).rows
    assert len(lives) == 2 and sum(row[2] for row in lives) == pytest.approx(result.wall_s, abs=0.02)


@pytest.mark.parametrize("objective", [{}, {"batch": 8, "isolation": "none"}], ids=["thread", "none"])
def test_points_that_break_a_constraint_are_counted(objective: dict[str, Any]) -> None:
    n_called = 0

    def loss(parameters: dict[str, Any]) -> Any:
        nonlocal n_called
        x = np.asarray(parameters["x"])
        n_called += x.size
        violation = 1.0 * (x > 0.25)
        return {"cost": x**2, "violation": violation} if x.ndim else {"cost": float(x), "violation": float(violation)}

    result = minimize(
        loss, {"x": {"type": "real", "low": 0, "high": 1}}, budget={"evaluations": 64}, constraints=["x <= 0.5"],
        objective=objective, output={"record": "all"},
    )  # fmt: skip
    assert result.n_not_called == 64 - n_called and result.n_infeasible is not None and n_called > 0
    assert result.n_infeasible >= result.n_not_called > 0
    run = load(result.out)
    assert run.violations == (result.n_infeasible, result.n_not_called)
    assert run.status is not None and run.status.n_not_called == result.n_not_called
    ends = run.rows.records["t_end_s"] - run.rows.records["t_start_s"]
    assert ((ends == 0.0) == (run.rows.values[:, 0] > 0.5)).all()


@pytest.mark.parametrize(
    ("reason", "is_launched", "is_interrupt"),
    [("signal INT", False, True), ("signal TERM", True, True), ("signal TERM", False, False), ("", False, False)],
)
def test_only_a_signal_that_stands_for_ctrl_c_is_an_interrupt(
    reason: str, is_launched: bool, is_interrupt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = RunResult(None, None, 0.0, 0, reason, 0.0, 1, Path("out"), 75)
    monkeypatch.setattr("osprey_mpi.drivers.lives.run_session", lambda request: result)
    monkeypatch.setattr("osprey_mpi.comm.launcher.detect", lambda: SimpleNamespace(expects_mpi=is_launched))
    try:
        given: object = minimize()
    except KeyboardInterrupt as error:  # one that is not caught would end the tests
        given = str(error)
    assert given == ("the run is saved in out" if is_interrupt else result)


def test_every_command_that_a_message_names_is_put_in_python() -> None:
    said = {
        "holds a run: continue it with `osprey resume`, or": "holds a run: continue it with resume=True, or",
        "make room and `osprey resume` the run": "make room and resume the run",
        "the run is saved: `osprey resume /a b` goes on": "the run is saved: resume=True goes on",
        "but for what `osprey resume --set KEY=VALUE` changes": "but for what resume=True with other values changes",
        "is over: give it more with --max-evaluations": "is over: give it more with a larger budget.evaluations",
        "not the folder of a run: --overwrite does not": "not the folder of a run: overwrite=True does not",
        "ValueError: my--overwrite": "ValueError: my--overwrite",
    }
    assert [in_python(text) for text in said] == list(said.values())


def test_a_callable_may_minimise_itself() -> None:
    def best_of(parameters: dict[str, Any]) -> float:
        inner = osprey_mpi.minimize(lambda p: abs(p["x"] - parameters["x"]), X, budget={"evaluations": 4})
        assert inner.cost is not None
        return inner.cost

    result = minimize(best_of, budget={"evaluations": 3})
    assert (result.n_evaluations, result.reason) == (3, "evaluations")
    inner = sorted(path for path in Path("runs").iterdir())
    assert [path.name for path in inner] == ["minimize", "minimize-2", "minimize-3"]
    for folder in (Path("out"), *inner):
        log = (folder / "logs" / "rank-0000.log").read_text()
        assert log.count("life 1 begins") == log.count("life 1 ends with exit code 0") == 1, log


def test_under_a_launcher_a_callable_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ranks do not call with it."""
    monkeypatch.setattr("osprey_mpi.comm.launcher.detect", lambda: SimpleNamespace(expects_mpi=True))
    with USER_CODE, pytest.raises(UsageError, match="under a launcher all ranks must call it together"):
        minimize()


def test_calls_at_the_same_moment_get_folders_of_their_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: minimize(out=None), range(8)))
    assert len({result.out for result in results}) == 8
    assert all(result.n_evaluations == 5 and (result.out / "results.h5").exists() for result in results)


def test_folders_are_claimed_once(tmp_path: Path) -> None:
    """However the claims interleave: the processes of a job array begin at the same moment."""
    with ThreadPoolExecutor(16) as pool:
        claimed = list(pool.map(lambda _: claim_folder(tmp_path / "runs" / "m"), range(200)))
    assert len(set(claimed)) == 200


def test_no_folder_is_left_of_a_run_that_did_not_begin() -> None:
    with pytest.raises(ConfigError, match="no module named 'nothere'"):
        minimize("nothere:f", out=None)
    assert not list(Path("runs").iterdir())


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        ({"isolation": "process"}, "objective.isolation is process, but a callable runs in a thread of its rank"),
        ({"isolation": "auto", "time_limit": 3}, "objective.time_limit: is 3 s, but isolation is thread"),
    ],
)
def test_a_callable_cannot_have_a_process(objective: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        minimize(objective=objective)
