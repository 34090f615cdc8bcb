"""osprey validate: everything that can be known without MPI and without a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from osprey_mpi.cli.options import TextFormat
from osprey_mpi.cli.run import print_facts


def test_a_valid_config(osprey: Any, config_file: Path) -> None:
    done = osprey("validate", config_file)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"{config_file} is valid"
    assert "dimensions: 30" in lines and "objective: builtin rosenbrock" in lines and "budget: evaluations 4" in lines


def test_json_and_overrides(osprey: Any, config_file: Path) -> None:
    done = osprey("validate", config_file, "--set", "budget.evaluations=70", "--set", "seed=9", "--format", "json")
    data = json.loads(done.stdout)
    assert (data["valid"], data["budget"], data["seed"], data["dimensions"]) == (True, {"evaluations": 70}, 9, 30)
    assert isinstance(data["advice"], list)


def test_all_problems_at_once_with_their_lines(osprey: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: bad\nobjective: {builtin: rosenbrock}\nparameters:\n  x: {type: real, low: 2, high: 1}\n"
        "budget: {evaluatons: 5}\n"
    )
    done = osprey("validate", path)
    assert done.returncode == 2 and done.stdout == ""
    assert "bad.yaml:4" in done.stderr and "bad.yaml:5" in done.stderr and "'evaluations'" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_problem_stays_on_one_line(osprey: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        'name: bad\nobjective: {builtin: rosenbrock, time_limit: "a\\nb"}\nparameters:\n'
        '  x: {type: real, low: 0, high: 1, "si\\nze": 3}\nbudget: {evaluations: -5}\n'
    )
    done = osprey("validate", path)
    lines = done.stderr.splitlines()
    assert len(lines) == 3 and all(line.startswith(f"osprey: {path}:") for line in lines)
    assert "is 'a\\nb', must be seconds" in lines[0] and "x.si\\nze: is an unknown key" in lines[1]


def python_config(tmp_path: Path, source: str) -> Path:
    (tmp_path / "model.py").write_text(source)
    path = tmp_path / "python.yaml"
    path.write_text(
        "name: p\nobjective: {python: 'model:loss'}\nparameters:\n  x: {type: real, low: 0, high: 1}\n"
        "budget: {evaluations: 5}\n"
    )
    return path


def test_the_objective_is_imported_unless_told_not_to(osprey: Any, tmp_path: Path) -> None:
    path = python_config(tmp_path, "import not_installed_anywhere\n")
    done = osprey("validate", path)
    assert done.returncode == 2 and done.stdout == "" and "not_installed_anywhere" in done.stderr
    done = osprey("validate", path, "--no-import")
    assert done.returncode == 0 and "objective not imported" in done.stdout


def test_what_the_objective_prints_is_no_result(osprey: Any, tmp_path: Path) -> None:
    path = python_config(tmp_path, "print('hello')\ndef loss(x):\n    return x\n")
    done = osprey("validate", path, "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["valid"] is True


def test_a_missing_file_is_a_sentence(osprey: Any) -> None:
    done = osprey("validate", "nowhere.yaml")
    assert done.returncode == 2 and done.stderr == "osprey: nowhere.yaml: there is no such file\n"


def test_a_dry_run_says_each_point_and_each_piece_of_advice_on_its_line(osprey: Any, tmp_path: Path) -> None:
    path = tmp_path / "dry.yaml"
    path.write_text(
        "name: dry\nobjective: {builtin: sphere}\nparameters:\n  x: {type: real, low: 0, high: 1, size: 2}\n"
        "  k: {type: fixed, value: 3}\nconstraints: ['sum(x) >= 3']\nbudget: {evaluations: 20}\n"
    )
    done = osprey("run", path, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:8] == [
        "name: dry", f"out: {tmp_path / 'runs' / 'dry'}", "n_ranks: 1", "n_workers: 1", "n_flocks: 1", "n_dims: 2",
        "parameters: x, k", "budget: evaluations 20",
    ]  # fmt: skip
    for number, line in enumerate(lines[8:11], 1):
        assert re.fullmatch(rf"first point {number}: x = \[[-\d.e]+, [-\d.e]+\], k = 3", line)
    assert lines[11].startswith("warning: the constraint 'sum(x) >= 3' is satisfied by none of 10000 random points")
    assert len(lines) > 12 and all(line.startswith("advice: ") for line in lines[12:])
    assert not (tmp_path / "runs").exists()


def test_try_evaluates_one_point_and_its_failure_is_exit_code_3(osprey: Any, tmp_path: Path) -> None:
    path = python_config(tmp_path, "def loss(x):\n    print('seen')\n    return x['x'] + 1\n")
    done = osprey("validate", path, "--try", "--format", "json")
    trial = json.loads(done.stdout)["trial"]
    assert (done.returncode, done.stderr, trial["status"]) == (0, "evaluation 0: seen\n", "ok")
    assert trial["cost"] == trial["parameters"]["x"] + 1
    path = python_config(tmp_path, "def loss(x):\n    return x['y']\n")
    done = osprey("validate", path, "--try")
    assert done.returncode == 3 and done.stderr == "" and done.stdout.startswith(f"{path} is valid\n")
    assert "s: KeyError: 'y'\n" in done.stdout and "result: failed after" in done.stdout
    done = osprey("validate", path, "--try", "--no-import")
    assert (done.returncode, done.stdout) == (2, "") and "give one of them" in done.stderr


def test_the_points_of_one_rank_are_called_so_on_several(capsys: Any) -> None:
    for n_ranks, words in ((1, "first point 1: x = 2"), (3, "first point 1 on one rank: x = 2")):
        print_facts({"n_ranks": n_ranks, "first_points": [{"x": 2}]}, TextFormat.TEXT)
        assert capsys.readouterr().out == f"n_ranks: {n_ranks}\n{words}\n"
