"""What a run keeps, what may change in it, and the YAML that says what is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_config_schema import RICH

from osprey_mpi.config import config_from_mapping, load_config, with_overrides
from osprey_mpi.config.changing import is_changeable
from osprey_mpi.config.retelling import retold, text_of

CONFIGS = sorted(Path(__file__).parents[3].glob("configs/*.yaml"))


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield path
        return
    for key, item in value.items():
        yield from keys_of(item, f"{path}.{key}" if path else key)


def test_the_settings_that_may_change_are_these_and_no_others() -> None:
    """A new key of one of the sections is in this list only once its effect on a run that goes on was thought of."""
    assert [key for key in keys_of(config_from_mapping(RICH).values()) if is_changeable(key)] == [
        "objective.time_limit", "objective.retries", "objective.on_failure", "objective.penalty",
        "objective.keep_scratch", "budget.evaluations", "budget.walltime", "budget.target", "budget.stagnation",
        "continuity.cycle", "continuity.stale_window", "continuity.suspect_after", "continuity.lost_after",
        "checkpoint.interval", "checkpoint.failures_per_day", "checkpoint.keep", "output.results_interval",
    ]  # fmt: skip


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_is_run_with_values_set_is_what_its_text_says(path: Path, tmp_path: Path) -> None:
    config = load_config(path, ("seed=12", "budget.target=-1e9"))
    (tmp_path / "again.yaml").write_text(config.source_text)
    again = load_config(tmp_path / "again.yaml")
    assert config.differences(again) == [] and again.seed == 12
    assert config.source_text.splitlines()[1:3] == ["#   --set seed=12", "#   --set budget.target=-1e9"]
    assert load_config(path).source_text == path.read_text()
    third = load_config(tmp_path / "again.yaml", ("seed=13",)).source_text.splitlines()
    assert third[1:3] == config.source_text.splitlines()[1:3]
    assert third[3:5] == ["#   --set seed=13", f"name: {config.name}"]


def test_a_mapping_is_written_as_a_file_would_be(tmp_path: Path) -> None:
    config = config_from_mapping(RICH)
    (tmp_path / "rich.yaml").write_text(text_of(config))
    assert config.differences(load_config(tmp_path / "rich.yaml")) == []


ODD = "a\x85\u2028\ufeff\n\r: #'\"-[{&*\x00.1e"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text(ODD, max_size=9)


@example({"line end": "a\x85b", "text": "1e-3"}, "seed='a\nb: \x00'")
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(TEXT, TEXT | st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=3), TEXT)
def test_no_text_and_no_number_is_changed_by_writing_it(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], step: str
) -> None:
    mapping = {**RICH, "objective": {"python": "m:f", "options": options}}
    config = retold(config_from_mapping(mapping), [step])
    file = tmp_path_factory.getbasetemp() / "odd.yaml"
    file.write_text(config.source_text, newline="")
    assert config.differences(load_config(file)) == []
    assert config.source_text.split("\n")[2].startswith("name: ")


def test_overrides_of_a_checked_config_keep_its_other_places(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(
        "name: c\nobjective: {builtin: sphere}\nparameters: {x: {type: real, low: 0, high: 1}}\n"
        "budget: {evaluations: 9}\n"
    )
    config = load_config(tmp_path / "case.yaml")
    changed = with_overrides(config, ("budget.target=2",))
    assert config.differences(changed) == ["budget.target: null -> 2.0"]
    assert changed.places == {**config.places, "budget.target": "--set budget.target"}
    assert (changed.source_text, changed.base_dir) == (config.source_text, config.base_dir)
