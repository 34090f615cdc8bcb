"""What is refused before a run begins or goes on: one sentence, and the exit code that tells whose fault it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping, load_config
from osprey_mpi.continuity.records import RECORD, RowReason, Status
from osprey_mpi.drivers.check import check_objective
from osprey_mpi.drivers.opening import open_run
from osprey_mpi.drivers.request import Request
from osprey_mpi.errors import ConfigError, UsageError
from osprey_mpi.search.space import Space
from osprey_mpi.storage import checkpoint
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.segment import Segment


@pytest.mark.parametrize("n", [-1, 0, 2**53 + 1, 10**30])
def test_a_budget_that_float64_cannot_count_is_refused(tmp_path: Path, n: int) -> None:
    with pytest.raises(UsageError) as caught:
        open_run(Request(resume=tmp_path, max_evaluations=n))
    assert str(caught.value) == f"--max-evaluations is {n}, must be at least 1 and at most 9007199254740992"


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    """Make a run of four evaluations, costs 2, 1, 3 and one that failed."""

    def make(**budget: Any) -> Path:
        config = config_from_mapping(
            {
                "name": "opened",
                "objective": {"builtin": "sphere"},
                "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
                "budget": budget,
            }
        )
        with RunFolder.create(tmp_path / "run", config) as folder:
            records = np.zeros(4, RECORD)
            records["id"], records["cost"], records["status"][3] = range(4), (2, 1, 3, np.nan), Status.FAILED
            segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
            segment.append(records, np.zeros((4, 1)), None, [RowReason(3, 0, Status.FAILED, "why")])
        return tmp_path / "run"

    return make


NOTHING = "there is nothing to retry: no evaluation ended as lost or timeout"
GOES_ON = "no checkpoint to go on from: the search starts afresh, what was evaluated counts"


@pytest.mark.parametrize(
    ("budget", "request_", "note"),
    [
        (
            {"evaluations": 4}, {},
            "the run is over, all 4 evaluations of its budget are on disk: give it more with --max-evaluations",
        ),
        ({"evaluations": 4}, {"max_evaluations": 5}, GOES_ON),
        ({"evaluations": 4}, {"retry": ("failed",)}, GOES_ON),
        ({"evaluations": 4}, {"retry": ("lost", "timeout")}, NOTHING),
        ({"evaluations": 9, "target": 1.5}, {}, "the run is over, its target 1.5 is met"),
        ({"stagnation": 2}, {}, "the run is over, its best cost has stood for 2 evaluations"),
        ({"evaluations": 9, "walltime": 1}, {}, GOES_ON),
    ],
)  # fmt: skip
def test_a_resume_of_a_run_that_is_over_says_so(make_run: Any, budget: Any, request_: Any, note: str) -> None:
    opened = open_run(Request(resume=make_run(**budget), **request_))
    opened.close()
    assert opened.notes == [note]


def test_an_edited_config_of_a_run_has_no_effect_and_that_is_said(tmp_path: Path) -> None:
    text = (
        "name: edited\nseed: 5\nobjective: {builtin: sphere}\nparameters: {x: {type: real, low: 0, high: 1}}\n"
        "budget: {evaluations: 9}\n"
    )
    (tmp_path / "case.yaml").write_text(text)
    RunFolder.create(tmp_path / "run", load_config(tmp_path / "case.yaml")).close()
    file = tmp_path / "run" / "config.yaml"
    rule = f"what was edited in {file} has no effect: a run keeps its config, but for the budget given by "
    for edited, warnings in (
        (text, []),
        (text + "# a remark\n", []),
        (text.replace("seed: 5", "seed: 6"), [f"{rule}--max-evaluations; seed: 5 -> 6"]),
        (text + "nonsense: 1\n", [f"{rule}--max-evaluations; it is no config any more"]),
    ):
        file.write_text(edited)
        opened = open_run(Request(resume=tmp_path / "run"))
        opened.close()
        assert (opened.warnings, opened.config.seed) == (warnings, 5)
    file.unlink()
    opened = open_run(Request(resume=tmp_path / "run", max_evaluations=20))
    opened.close()
    assert (opened.warnings, opened.config.budget.evaluations) == ([], 20)


def test_the_former_config_is_kept_where_the_budget_differs_and_only_there(make_run: Any) -> None:
    """Each regroup opens the run with what the launch was asked for; run.json must not grow by its config."""
    path = make_run(evaluations=9)
    config = RunFolder.peek(path).config()
    longer = config.model_copy(update={"budget": config.budget.model_copy(update={"evaluations": 20})}).placed(
        config.base_dir, config.source_text, config.places
    )
    before = (path / "run.json").read_bytes()
    for request in ({"max_evaluations": 9}, {"load": lambda: config}, {}):
        open_run(Request(resume=path, **request)).close()
        assert (path / "run.json").read_bytes() == before
    for request in ({"max_evaluations": 20}, {"max_evaluations": 20}, {"load": lambda: longer}):
        opened = open_run(Request(resume=path, **request))
        opened.close()
        assert opened.config.budget.evaluations == RunFolder.peek(path).config().budget.evaluations == 20
    former = RunFolder.peek(path).run["former_configs"]
    assert [entry["config"]["config"]["budget"]["evaluations"] for entry in former] == [9]


def test_checkpoints_that_are_torn_are_named_and_read_once(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = make_run(evaluations=9), []
    for name in ("checkpoint.h5", "checkpoint-1.h5"):
        (path / name).write_bytes(name.encode())
    verify = checkpoint._verified
    monkeypatch.setattr(checkpoint, "_verified", lambda file: [read.append(file.name), verify(file)][1])
    opened = open_run(Request(resume=path))
    opened.close()
    torn = "is skipped: its first 512 bytes are damaged"
    assert opened.warnings == [f"{path / 'checkpoint.h5'} {torn}", f"{path / 'checkpoint-1.h5'} {torn}"]
    assert read == ["checkpoint.h5", "checkpoint-1.h5"] and opened.notes == [GOES_ON]


def test_checkpoints_of_another_run_are_named_and_skipped(make_run: Any) -> None:
    path = make_run(evaluations=9)
    space = Space(RunFolder.peek(path).config().parameters)
    began = RunFolder.peek(path).started_unix_s
    mine = {"flock-0000": {"start_positions": np.zeros((0, space.n_dims))}}
    wide = {"flock-0000": {"start_positions": np.zeros((0, space.n_dims + 1))}}
    checkpoint.write_checkpoint(path, mine, {})  # an older version names no run
    checkpoint.write_checkpoint(path, wide, {})
    checkpoint.write_checkpoint(path, mine, {"run_unix_s": began + 1.0})
    opened = open_run(Request(resume=path))
    opened.close()
    assert opened.warnings == [
        f"{path / 'checkpoint.h5'} is skipped: it is of another run",
        f"{path / 'checkpoint-1.h5'} is skipped: it is of a run with other parameters",
    ]
    assert opened.notes == ["the search goes on from checkpoint-2.h5"]


def test_a_retry_of_nothing_in_a_run_that_goes_on_says_both(make_run: Any) -> None:
    opened = open_run(Request(resume=make_run(evaluations=9), retry=("lost", "timeout")))
    opened.close()
    assert opened.notes == [NOTHING, GOES_ON]


PLACED = """\
name: placed
objective: {builtin: lennard_jones}
parameters:
  x: {type: real, low: 0, high: 1}
budget: {evaluations: 5}
output:
  dir: %s
"""


@pytest.mark.parametrize("overrides", [(), ("output.dir=/etc/passwd",)])
def test_a_folder_that_is_refused_is_named_with_the_key_that_gave_it(tmp_path: Path, overrides: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(PLACED % "/dev/null/x")
    with pytest.raises(UsageError) as caught:
        open_run(Request(load=lambda: load_config(file, overrides)))
    message = str(caught.value)
    if overrides:
        assert message == "--set output.dir: /etc/passwd is a file, not a folder"
    else:
        assert message.startswith(f"{file}:7:output.dir: '/dev/null/x' cannot be the folder of a run: ")
    with pytest.raises(UsageError) as caught:
        open_run(Request(load=lambda: load_config(file, overrides), out=file))
    assert str(caught.value) == f"{file} is a file, not a folder"


def test_a_folder_that_cannot_be_made_is_named_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(PLACED % "/proc/nosuch")
    opened = open_run(Request(load=lambda: load_config(file)))
    with pytest.raises(UsageError, match=r"run\.yaml:7:output\.dir: /proc/nosuch cannot be made the folder of a run: "):
        opened.claim()


@pytest.mark.parametrize("overrides", [(), ("parameters.x={type: real, low: 0, high: 1}",)])
def test_a_size_that_does_not_fit_a_built_in_is_named_with_its_parameter(tmp_path: Path, overrides: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(PLACED % "out")
    config = load_config(file, overrides)
    with pytest.raises(ConfigError) as caught:
        check_objective(config, Space(config.parameters))
    place = "--set parameters.x" if overrides else f"{file}:4:parameters.x"
    size = "size is 1, must be 39 (x, y, z of each of 13 atoms)"
    assert str(caught.value) == f"{place}: objective.builtin lennard_jones: {size}"
