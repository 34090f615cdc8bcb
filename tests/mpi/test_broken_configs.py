"""Broken configs through the command line in this process: exit code 2, each message once, no traceback, no run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from osprey_mpi.cli import main

BROKEN = Path(__file__).parents[1] / "data" / "broken"
NAMES = (
    "misspelt_key", "misspelt_switch", "misspelt_section", "duplicate_key", "duplicate_nested_key", "yes_as_seed",
    "quoted_number", "bool_as_count", "low_above_high", "infinite_bound", "log_from_zero", "log_with_step",
    "unknown_type", "unknown_builtin", "missing_budget", "no_parameters", "when_cyclic", "constraint_syntax",
    "start_outside", "short_cycle", "bad_duration", "yaml_tab", "yaml_list", "objective/no_such_module",
    "objective/no_such_function", "objective/not_callable", "objective/no_such_program", "objective/no_such_template",
    "objective/unknown_option", "objective/lennard_jones_size", "objective/template_is_a_folder", "half_a_character",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_run_refuses(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BROKEN / f"{name}.yaml"
    expected = config.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expect: ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(config), "--out", str(tmp_path / "out")])
    out, err = capfd.readouterr()
    assert (ended.value.code, out) == (2, "")
    lines = [line for line in err.splitlines() if expected in line]
    assert len(lines) == 1, err
    assert "Traceback" not in err


def test_a_refused_objective_leaves_the_folder_free(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever mends the config starts again with the same command."""
    for _ in range(2):
        with pytest.raises(SystemExit):
            main(["run", str(BROKEN / "objective" / "no_such_module.yaml"), "--out", str(tmp_path / "out")])
        assert "nosuch" in capfd.readouterr().err


def test_a_refused_objective_does_not_cost_the_former_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--overwrite replaces a run with one that starts, not with nothing."""
    good = tmp_path / "good.yaml"
    good.write_text(
        "name: good\nobjective: {builtin: sphere}\nparameters: {x: {type: real, low: 0, high: 1}}\n"
        "budget: {evaluations: 4}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", str(good), "--out", str(tmp_path / "out")])
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as ended:
        main(["run", str(BROKEN / "objective" / "no_such_module.yaml"), "--out", str(tmp_path / "out"), "--overwrite"])
    assert ended.value.code == 2
    assert (tmp_path / "out" / "results.h5").exists()
