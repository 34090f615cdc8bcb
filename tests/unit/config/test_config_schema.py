"""JSON there and back, the JSON Schema, immutability, defaults that depend on other keys, and differences."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pydantic
import pytest

from osprey_mpi.config import Config, Objective, RealParameter, config_from_mapping, json_schema
from osprey_mpi.config.durations import parse_duration
from osprey_mpi.errors import ConfigError

RICH = {
    "name": "rich",
    "seed": 2**63 - 1,
    "objective": {
        "python": "model:loss",
        "options": {"a": [1, 2.0, None, {"b": True}], "c": "\u00e4"},
        "time_limit": "00:01:30",
        "early_stop": {},
    },
    "parameters": {
        "x": {"type": "real", "low": -5, "high": 1e-300, "size": 3},
        "k": {"type": "categorical", "choices": ["a", 2, 2.5, False]},
        "n": {"type": "integer", "low": 1, "high": 2**53, "scale": "log", "when": {"k": ["a", False]}},
        "c": {"type": "fixed", "value": 0.1},
    },
    "constraints": ["sum(x) + c <= 1"],
    "start": [{"x": [0.0, -1, -2.5], "n": 7}, {"k": False}],
    "budget": {"target": -1.5, "walltime": "1-00:00:00"},
    "device": "cpu",
}


def test_json_there_and_back_is_lossless(tmp_path: Path) -> None:
    config = config_from_mapping(RICH, tmp_path)
    text = config.to_json()
    back = Config.from_json(text)
    assert back == config
    assert back.to_json() == text
    assert (back.base_dir, back.source_text) == (tmp_path.resolve(), "")
    assert list(back.parameters) == ["x", "k", "n", "c"]
    choices = back.parameters["k"].choices  # type: ignore[union-attr]  # is categorical
    assert [(type(choice), choice) for choice in choices] == [(str, "a"), (int, 2), (float, 2.5), (bool, False)]
    assert back.objective.options == RICH["objective"]["options"]  # type: ignore[index]  # a nested mapping
    assert back.differences(config) == []


def test_json_holds_every_default(make: Callable[..., Config]) -> None:
    stored = json.loads(make().to_json())["config"]
    assert stored["objective"]["batch"] == 32
    assert stored["continuity"] == {"cycle": 1.0, "stale_window": 3, "suspect_after": 5.0, "lost_after": 30.0}


def test_json_of_a_large_config_is_read_quickly(make: Callable[..., Config]) -> None:
    """One read of 1000 parameters stays far below the time that MPI's own start takes; 0.5 s is ten times the usual."""
    import time

    parameters = {f"p{i}": {"type": "real", "low": 0, "high": i + 1} for i in range(1000)}
    text = make(parameters=parameters).to_json()
    begin = time.perf_counter()
    Config.from_json(text)
    assert time.perf_counter() - begin < 0.5


def test_broken_json_is_refused(make: Callable[..., Config]) -> None:
    with pytest.raises(pydantic.ValidationError):
        Config.from_json(make().to_json().replace('"high":5.0', '"high":-9.0'))


def test_every_key_of_the_json_schema_is_described() -> None:
    schema = json_schema()
    sections = {"Config": schema} | schema["$defs"]
    bare = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, value in section.get("properties", {}).items()
        if "description" not in value
    ]
    assert bare == []
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"name", "objective", "parameters", "budget"}
    assert set(schema["$defs"]["Continuity"]["properties"]) == {"cycle", "stale_window", "suspect_after", "lost_after"}
    assert "x-" in next(iter(schema["patternProperties"]))
    json.dumps(schema)


def test_configs_cannot_be_changed(make: Callable[..., Config]) -> None:
    config = make()
    with pytest.raises(pydantic.ValidationError):
        config.seed = 3
    with pytest.raises(pydantic.ValidationError):
        RealParameter(low=1, high=0)


@pytest.mark.parametrize(
    ("objective", "batch", "runs_in"),
    [
        ({"builtin": "sphere"}, 32, "none"),
        ({"builtin": "sphere", "batch": 1}, 1, "none"),
        ({"python": "m:f"}, 1, "process"),
        ({"python": "m:f", "isolation": "thread"}, 1, "thread"),
        ({"python": "m:f", "ranks": 2}, 1, "none"),
        ({"python": "m:f", "array": "cupy", "batch": 9}, 9, "none"),
        ({"command": ["./p"], "result": {"pattern": "(.)"}, "time_limit": 1}, 1, "process"),
    ],
)
def test_batch_and_place_follow_the_kind_of_objective(objective: dict[str, object], batch: int, runs_in: str) -> None:
    read = Objective.model_validate(objective)
    assert (read.batch, read.runs_in) == (batch, runs_in)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:01", 1.0), ("12:30:45", 45045.0), ("100:00:00", 360000.0), ("2-01:00:00.5", 176400.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["5m", "10:30", "1:60:00", "00:00:61", "-1:00:00", "", "1e3", "1 day"])
def test_ambiguous_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HH:MM:SS"):
        parse_duration(text)


def test_differences_name_both_values(make: Callable[..., Config]) -> None:
    old = make(parameters={"k": {"type": "categorical", "choices": ["a", "b"]}, "x": {"type": "fixed", "value": 1}})
    new = make(
        parameters={"k": {"type": "categorical", "choices": ["b", "a"]}, "x": {"type": "fixed", "value": 1.0}},
        budget={"evaluations": 200},
        checkpoint={"keep": 5},
        continuity={"cycle": 2},
        device="cpu",
        output={"results_interval": 2, "record": "all"},
        seed=1,
    )
    assert old.differences(new) == [
        "seed: 0 -> 1",
        'parameters.k.choices: ["a", "b"] -> ["b", "a"]',
        "parameters.x.value: 1 -> 1.0",
        "budget.evaluations: 100 -> 200",
        "continuity.cycle: 1.0 -> 2.0",
        "checkpoint.keep: 3 -> 5",
        'device.kind: "auto" -> "cpu"',
        'output.record: "auto" -> "all"',
        "output.results_interval: 1.0 -> 2.0",
    ]


def test_another_order_of_parameters_is_a_difference(make: Callable[..., Config]) -> None:
    x, y = {"type": "real", "low": 0, "high": 1}, {"type": "real", "low": 0, "high": 2}
    old, new = make(parameters={"x": x, "y": y}), make(parameters={"y": y, "x": x})
    assert old.differences(new) == ["parameters: order x, y -> y, x"]
    assert old.differences(make(parameters={"x": x})) == [
        'parameters.y: {"size": null, "when": {}, "type": "real", "low": 0.0, "high": 2.0, '
        '"scale": "linear", "step": null} -> absent'
    ]


def test_importing_loads_no_yaml_and_no_edge() -> None:
    code = (
        "import sys; import osprey_mpi.config as c; c.Config.from_json; "
        "print(sorted(m for m in ('ruamel', 'mpi4py', 'h5py', 'cupy', 'rich') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["x-1", "1x", "x y", "x/y", "\u00e4", "evaluation", "seed"])
def test_names_that_results_cannot_hold_are_refused(make: Callable[..., Config], name: str) -> None:
    with pytest.raises(ConfigError, match=r"is no name|is a reserved name"):
        make(parameters={name: {"type": "real", "low": 0, "high": 1}})


def test_a_step_may_miss_its_end_by_rounding_only(make: Callable[..., Config]) -> None:
    make(parameters={"x": {"type": "real", "low": 0, "high": 0.3, "step": 0.1}}, start=[{"x": 0.1 + 0.2 - 0.1}])
    with pytest.raises(ConfigError, match=r"high 0\.35 could not be reached"):
        make(parameters={"x": {"type": "real", "low": 0, "high": 0.35, "step": 0.1}})


def test_start_points_may_name_one_value_for_all_elements(make: Callable[..., Config]) -> None:
    array = {"x": {"type": "integer", "low": 0, "high": 9, "size": 3}}
    assert make(parameters=array, start=[{"x": 4}, {"x": [1, 2, 3]}, {}]).start == ({"x": 4}, {"x": [1, 2, 3]}, {})
    with pytest.raises(ConfigError, match=r"start\[0\]\.x: element 1 is 10, must be between 0 and 9"):
        make(parameters=array, start=[{"x": [1, 10, 3]}])


def test_braces_that_are_no_placeholders_are_left_alone(make: Callable[..., Config]) -> None:
    command = ["awk", "{print $1}", "{x:.3e}", "{id}-{seed}", "{scratch}/in", '{"a": 1}']
    config = make(objective={"command": command, "result": {"pattern": "(.*)"}})
    assert config.objective.command == tuple(command)
