"""What the README shows works as it stands: its example, its commands and options, its numbers of a status."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import typer

from osprey_mpi.cli import build_app
from osprey_mpi.config import load_config
from osprey_mpi.continuity.records import Status
from osprey_mpi.drivers.trial import try_objective
from osprey_mpi.search.space import Space

TEXT = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def block(language: str, begins: str) -> str:
    (found,) = re.findall(rf"```{language}\n({re.escape(begins)}.*?)```\n", TEXT, re.DOTALL)
    return str(found)


def test_the_example_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "furnace.py").write_text(block("python", "# furnace.py"))
    (tmp_path / "furnace.yaml").write_text(block("yaml", "# furnace.yaml"))
    config = load_config(tmp_path / "furnace.yaml")
    trial = try_objective(config, Space(config.parameters))
    assert (trial.status, trial.parameters["alloy"] in "AB") == (Status.OK, True)
    temperature, n, alloy = (trial.parameters[name] for name in ("temperature", "n_stages", "alloy"))
    assert trial.cost == (temperature - 870) ** 2 / 1e4 + n * (alloy == "B")


def test_every_command_and_option_exists() -> None:
    verbs = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]  # it is a group
    shown = re.findall(r"\bosprey ([a-z]+)((?: [^`#\n]*)?)", re.sub(r"(?<=[^`])\n(?=[^`])", " ", TEXT))
    shown = [(verb, rest) for verb, rest in shown if verb in verbs or "--" in rest]
    assert {verb for verb, _ in shown} >= {"run", "resume", "launch", "status", "report", "validate", "export"}
    for verb, rest in shown:
        options = {option for parameter in verbs[verb].params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest)) <= options, (verb, rest)


def test_the_numbers_of_a_status() -> None:
    (told,) = re.findall(r"`status` is ([^(]*?) \(its attribute", TEXT)
    assert re.findall(r"(\d) (\w+)", told) == [(str(int(status)), status.name.lower()) for status in Status]
