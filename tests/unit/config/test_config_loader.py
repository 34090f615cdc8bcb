"""Reading files: YAML 1.2 scalars, lines, duplicates, merges, and all problems at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.config import Config, IntegerParameter, RealParameter, config_from_mapping, load_config
from osprey_mpi.errors import ConfigError

SMALL = """\
name: small
objective: {builtin: sphere}
parameters:
  x: {type: real, low: -5, high: 5}
budget: {evaluations: 100}
"""


def test_small_config_has_the_documented_defaults(load: Callable[..., Config], tmp_path: Path) -> None:
    config = load(SMALL)
    assert (config.seed, config.objective.batch, config.objective.kind) == (0, 32, "builtin")
    assert (config.continuity.cycle_s, config.continuity.suspect_after_s, config.continuity.lost_after_s) == (1, 5, 30)
    assert (config.checkpoint.interval_s, config.checkpoint.failures_per_day, config.checkpoint.keep) == (None, 1, 3)
    assert (config.swarm.flock_size, config.swarm.search.dives, config.swarm.search.sigma) == (16, "auto", 0.2)
    assert (config.output.results_interval_s, config.output.record) == (1, "auto")
    assert config.output_dir == Path("runs/small")
    assert config.base_dir == tmp_path.resolve()
    assert config.source_text == SMALL


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1E-1", 0.1), ("2.5e4", 25000.0), ("1e2", 100.0), ("1e+3", 1000.0), (".5", 0.5), ("012", 12.0)],
)
def test_every_spelling_of_a_number_is_a_number(load: Callable[..., Config], text: str, value: float) -> None:
    parameter = load(SMALL.replace("high: 5", f"high: {text}")).parameters["x"]
    assert isinstance(parameter, RealParameter)
    assert parameter.high == value
    assert type(parameter.high) is float


def test_exponents_are_numbers_inside_lists_too(load: Callable[..., Config]) -> None:
    config = load(SMALL.replace("{builtin: sphere}", "{builtin: sphere, options: {a: [1e-2, 1e2]}}"))
    assert config.objective.options == {"a": [0.01, 100.0]}


def test_yes_no_and_dates_are_text(load: Callable[..., Config]) -> None:
    config = load(
        SMALL.replace("parameters:\n", "parameters:\n  k: {type: categorical, choices: [yes, no, 2001-01-01]}\n")
    )
    assert config.parameters["k"].choices == ("yes", "no", "2001-01-01")  # type: ignore[union-attr]  # is categorical


def test_durations_are_seconds(load: Callable[..., Config]) -> None:
    config = load(SMALL.replace("evaluations: 100", "walltime: 12:30:45"))
    assert config.budget.walltime_s == 45045.0


def test_merge_keys_give_way_to_written_ones_and_keep_their_lines(load: Callable[..., Config]) -> None:
    text = """\
x-base: &base
  type: integer
  low: 0
  high: 9
name: small
objective: {builtin: sphere}
parameters:
  a: {<<: *base, high: 5}
  b: {<<: [{low: 3}, *base]}
budget: {evaluations: 100}
"""
    config = load(text)
    a, b = config.parameters["a"], config.parameters["b"]
    assert isinstance(a, IntegerParameter)
    assert isinstance(b, IntegerParameter)
    assert (a.low, a.high, b.low, b.high) == (0, 5, 3, 9)
    with pytest.raises(ConfigError, match=r"run\.yaml:3:parameters\.a\.low: is 0\.5, must be a whole number"):
        load(text.replace("low: 0", "low: 0.5"))


def test_parameters_keep_their_order(load: Callable[..., Config]) -> None:
    text = SMALL.replace("parameters:\n", "parameters:\n  z: {type: fixed, value: 1}\n  a: {type: fixed, value: 2}\n")
    assert list(load(text).parameters) == ["z", "a", "x"]


def test_all_problems_come_at_once_in_the_order_of_their_lines(load: Callable[..., Config]) -> None:
    text = """\
name: small
seed: yes
objective: {builtin: sphere, bacth: 3, time_limit: 5}
parameters:
  x: {type: real, low: false, high: 5}
  y: {type: real, low: 1, high: 0}
  z: {type: real, low: 0, high: 1}
  z: {type: real, low: 0, high: 1}
constraints: ["z + q <= 1"]
start: [{z: 2}]
budget: {evaluations: true}
"""
    with pytest.raises(ConfigError) as caught:
        load(text, "checkpoint.keep=0")
    places = [problem.where.rpartition("run.yaml:")[2] for problem in caught.value.problems]
    assert places == [
        "2:seed",
        "3:objective.bacth",
        "3:objective.time_limit",
        "5:parameters.x.low",
        "6:parameters.y.high",
        "8:parameters.z",
        "9:constraints[0]",
        "10:start[0].z",
        "11:budget.evaluations",
        "--set checkpoint.keep",
    ]


def test_a_broken_parameter_causes_no_second_problem_where_it_is_used(load: Callable[..., Config]) -> None:
    text = SMALL.replace("high: 5", "high: five") + 'constraints: ["x <= 1"]\nstart: [{x: 1}]\n'
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert [problem.where.rpartition(":")[2] for problem in caught.value.problems] == ["parameters.x.high"]


def test_a_duplicate_in_an_anchored_mapping_is_reported_once(load: Callable[..., Config]) -> None:
    text = SMALL.replace("parameters:\n", "parameters:\n  w: &w {type: real, low: 0, low: 1, high: 2}\n  v: {<<: *w}\n")
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert len(caught.value.problems) == 1


def test_files_that_are_none_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file$"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r": is a folder, must be a YAML file$"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: a\n# \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: is not UTF-8: byte 10 is 0xe9"):
        load_config(tmp_path / "latin.yaml")
    (tmp_path / "empty.yaml").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"empty\.yaml: is empty"):
        load_config(tmp_path / "empty.yaml")
    (tmp_path / "control.yaml").write_bytes(b"name: \x01\n")
    with pytest.raises(ConfigError, match=r"control\.yaml:1: is not YAML: holds the character U\+0001, which"):
        load_config(tmp_path / "control.yaml")


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert load_config(tmp_path / "run.yaml").name == "small"


def test_aliases_that_explode_are_refused(load: Callable[..., Config]) -> None:
    levels = "".join(f"x-{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    with pytest.raises(ConfigError, match=r"run\.yaml:6:x-5: brings the config to more than 100000 values"):
        load("x-0: &a0 [1, 2]\n" + levels + SMALL)


def test_deep_nesting_is_refused(load: Callable[..., Config]) -> None:
    for depth in (100, 1000):  # which ruamel.yaml reads, and cannot
        with pytest.raises(ConfigError, match=r"run\.yaml:2(:a)?: is nested too deeply: at most 100 levels are read$"):
            load("b: [1]\na: " + "[" * depth + "]" * depth)


def test_aliases_that_nest_deeply_are_refused(load: Callable[..., Config]) -> None:
    deep, end = "[" * 100, "]" * 100
    chain = "".join(f"x-{i}: &a{i} {deep}*a{i - 1}{end}\n" for i in range(1, 12))
    with pytest.raises(ConfigError, match="nested too deeply"):
        load("x-0: &a0 [1]\n" + chain + SMALL)


def test_keys_of_a_mapping_must_be_text() -> None:
    with pytest.raises(ConfigError, match=r"^parameters: has the key 1, but keys must be text$"):
        config_from_mapping({"name": "a", "parameters": {1: {"type": "fixed", "value": 1}}})


def test_mappings_may_hold_numpy_values_and_name_keys_without_a_file() -> None:
    mapping = {
        "name": "array",
        "objective": {"builtin": "sphere"},
        "parameters": {"x": {"type": "real", "low": np.float64(-1), "high": 1, "size": np.int64(3)}},
        "start": [{"x": np.array([0.0, 0.5, 1.0])}],
        "budget": {"evaluations": np.int64(9)},
    }
    config = config_from_mapping(mapping)
    assert config.start == ({"x": [0.0, 0.5, 1.0]},)
    assert config.source_text == ""
    with pytest.raises(ConfigError) as caught:
        config_from_mapping(mapping | {"seed": -1, "budget": 3})
    assert caught.value.problems[0].where == "seed"


@pytest.mark.parametrize(
    ("override", "where", "message"),
    [
        ("budget.evaluations=0", "--set budget.evaluations", "is 0, must be at least 1"),
        ("budget.evalutions=5", "--set budget.evalutions", "did you mean 'evaluations'"),
        ("checkpoint={keep: 0}", "--set checkpoint:checkpoint.keep", "is 0, must be at least 1"),
        ("seed", "--set seed", "must be KEY=VALUE"),
        ("seed=", "--set seed", "has no value"),
        ("a..b=1", "--set a..b=1", "must be KEY=VALUE"),
        (f"{'a.' * 100}a=1", f"--set {'a.' * 100}a=1", "must be KEY=VALUE"),
        (f"start[{'9' * 5000}]=1", f"--set start[{'9' * 5000}]=1", "must be KEY=VALUE"),
        ("seed=[1", "--set seed", "is not YAML"),
        ("name.x=1", "--set name.x", "cannot be set: name is 'small', no section"),
        ("checkpoint={keep: 1, keep: 2}", "--set checkpoint:checkpoint.keep", "is given twice"),
        ("start[3].x=1", "--set start[3].x", "cannot be set: start has 1 items"),
        ("start.0.x=1", "--set start.0.x", "cannot be set: start is a list: write start[0]"),
        ("start.x=1", "--set start.x", "cannot be set: start is a list: write start[0]"),
    ],
)
def test_problems_with_overrides_name_the_override(
    load: Callable[..., Config], override: str, where: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SMALL + "start: [{x: 1}]\n", override)
    (problem,) = caught.value.problems
    assert problem.where == where
    assert message in problem.message


@pytest.mark.parametrize(
    ("override", "what", "whole"),
    [
        ("start[0].x=0.5", "start", "start=[{x: 0.5}]"),
        ("start.0.x=0.5", "start", "start=[{x: 0.5}]"),
        ("constraints[0]=x <= 0.5", "constraints", "constraints=[x <= 0.5]"),
        ("objective.command[0]=./prog", "objective.command", "objective.command=[./prog]"),
    ],
)
def test_an_item_of_a_list_that_is_not_there_is_one_sentence(
    load: Callable[..., Config], override: str, what: str, whole: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SMALL, override)
    (problem,) = caught.value.problems
    assert problem.where == f"--set {override.partition('=')[0]}"
    assert problem.message == f"cannot be set: the config has no {what}; give the list, as in --set '{whole}'"


def test_a_number_of_too_many_digits_is_named_as_such(load: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SMALL, f"seed={'9' * 5000}")
    (problem,) = caught.value.problems
    assert problem.message == f"is '{'9' * 56}..., a number of 5000 digits: at most 4300 are read"


def test_a_long_constraint_is_shortened(load: Callable[..., Config]) -> None:
    long = " + ".join(["x"] * 100)
    for text, end in (
        (f"{long} + nix <= 1", "names 'nix', which is no parameter"),
        (f"{long * 9} <= 1", "has 3578 characters, at most 1000 are read"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(SMALL, f"constraints=['{text}']")
        (problem,) = caught.value.problems
        assert end in problem.message and len(problem.message) < 300, problem.message


def test_overrides_replace_and_add(load: Callable[..., Config]) -> None:
    overrides = ("seed=3", "checkpoint.keep=7", "start[0].x=1e-1", "budget={walltime: 00:01:00}", "device=cpu")
    config = load(SMALL + "start: [{x: 1}]\n", *overrides)
    assert (config.seed, config.checkpoint.keep, config.start, config.device.kind) == (3, 7, ({"x": 0.1},), "cpu")
    assert (config.budget.evaluations, config.budget.walltime_s) == (None, 60.0)


def test_the_same_override_twice_is_refused(load: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"^--set seed: is given twice; keep one$"):
        load(SMALL, "seed=1", "seed=2")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("float", "did you mean 'real'?"),
        ("Double", "did you mean 'real'?"),
        ("int", "did you mean 'integer'?"),
        ("choice", "did you mean 'categorical'?"),
        ("constant", "did you mean 'fixed'?"),
        ("bool", "write {type: categorical, choices: [false, true]}"),
        ("rael", "did you mean 'real'?"),
    ],
)
def test_a_kind_by_the_name_that_other_tools_give_it(load: Callable[..., Config], word: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SMALL.replace("real", word))
    place = f"parameters.x.type: is '{word}', must be one of real, integer, categorical, fixed; {hint}"
    assert str(caught.value).endswith(place)


def test_a_keyword_of_python_is_a_name_like_any_other(load: Callable[..., Config]) -> None:
    config = load(SMALL.replace("  x:", "  lambda:") + "constraints: [lambda <= 2]\nstart: [{lambda: 1}]\n")
    assert list(config.parameters) == ["lambda"]
    with pytest.raises(ConfigError, match=r"start\[0\]: has lambda = 3, which violates the constraint 'lambda <= 2'"):
        load(SMALL.replace("  x:", "  lambda:") + "constraints: [lambda <= 2]\nstart: [{lambda: 3}]\n")
