"""The Python function: wrong arguments are ConfigErrors, and its messages are in the caller's terms."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import osprey_mpi
from osprey_mpi.config import load_config
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.wording import in_python
from osprey_mpi.errors import ConfigError, UsageError
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
