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
    rule = f"what was edited in {file} has no effect: a run keeps its config, but for what "
    rule += "`osprey resume --set KEY=VALUE` changes; "
    for edited, warnings in (
        (text, []),
        (text + "# a remark\n", []),
        (text.replace("seed: 5", "seed: 6"), [f"{rule}seed: 5 -> 6"]),
        (text + "nonsense: 1\n", [f"{rule}it is no config any more"]),
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
    again = {"overrides": ("budget.evaluations=20", "seed=0")}
    for request in ({"max_evaluations": 20}, {"max_evaluations": 20}, again, {"load": lambda: longer}):
        opened = open_run(Request(resume=path, **request))
        opened.close()
        assert opened.config.budget.evaluations == RunFolder.peek(path).config().budget.evaluations == 20
    former = RunFolder.peek(path).run["former_configs"]
    assert [entry["config"]["config"]["budget"]["evaluations"] for entry in former] == [9]


TEXT = """\
name: changed
objective: {python: "model:loss", time_limit: 1}  # far too short
parameters: {x: {type: real, low: 0, high: 1}}
budget: {evaluations: 9}
"""


def test_settings_change_on_a_resume_and_config_yaml_says_what_is_run(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(TEXT)
    path, file = tmp_path / "run", tmp_path / "run" / "config.yaml"
    RunFolder.create(path, load_config(tmp_path / "case.yaml")).close()
    assert file.read_text() == TEXT
    limit, both = "objective.time_limit: 1.0 -> 60.0", ("objective.time_limit=60", "objective.retries=2")
    for life, (overrides, changes) in enumerate(
        ((both, [limit, "objective.retries: 0 -> 2"]), (both, []), (("budget={target: 0.5}",), None)), start=1
    ):
        opened = open_run(Request(resume=path, overrides=overrides))
        opened.claim()
        assert opened.folder is not None
        opened.folder.begin_life(1)
        opened.close()
        assert (opened.life, opened.warnings) == (life, [])
        assert changes is None or opened.changes == changes
        for told in (load_config(file), RunFolder.peek(path).config()):
            assert opened.config.differences(told) == []
    assert file.read_text().splitlines()[1:5] == [
        f"#   life 1: {limit}",
        "#   life 1: objective.retries: 0 -> 2",
        "#   life 3: budget.evaluations: 9 -> null",
        "#   life 3: budget.target: null -> 0.5",
    ]
    assert opened.config.places["objective.python"] == f"{tmp_path / 'case.yaml'}:2"
    assert opened.config.places["objective.time_limit"] == "--set objective.time_limit"
    former = RunFolder.peek(path).run["former_configs"]
    assert [entry["until_life"] for entry in former] == [0, 2]
    assert [entry["config"]["source_text"] == TEXT for entry in former] == [True, False]


def test_what_the_points_mean_cannot_change_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(TEXT)
    RunFolder.create(tmp_path / "run", load_config(tmp_path / "case.yaml")).close()
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("run.json", "config.yaml")}
    for overrides, refused in (
        (("seed=7", "continuity.cycle=2"), "seed: 0 -> 7"),
        (("parameters.x.low=-1",), "parameters.x.low: 0.0 -> -1.0"),
        (("constraints=[x < 1]",), 'constraints: [] -> ["x < 1"]'),
        (("swarm.flock_size=8",), "swarm.flock_size: 16 -> 8"),
        (("objective={python: 'model:other'}",), 'objective.python: "model:loss" -> "model:other"'),
    ):
        with pytest.raises(UsageError) as caught:
            open_run(Request(resume=tmp_path / "run", overrides=overrides))
        assert str(caught.value) == (
            f"{tmp_path / 'run'} cannot be resumed with another config: {refused}; what may change is budget.*, "
            "objective.time_limit, objective.retries, objective.on_failure, objective.penalty, objective.keep_scratch, "
            "continuity.*, checkpoint.*, output.results_interval"
        )
    for overrides, message in (
        ("objective.time_limit=-1", "--set objective.time_limit: is -1, must be above 0"),
        ("objective.penalty=3", "--set objective.penalty: is 3.0, but has no effect with on_failure: skip"),
        ("objective.time=3", "--set objective.time: is an unknown key"),
    ):
        with pytest.raises(ConfigError) as wrong:
            open_run(Request(resume=tmp_path / "run", overrides=(overrides,)))
        assert str(wrong.value).startswith(message) and "\n" not in str(wrong.value)
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}


def test_a_budget_below_what_is_done_is_refused_and_one_of_exactly_that_is_met(make_run: Any) -> None:
    path = make_run(evaluations=9)
    for request in ({"max_evaluations": 3}, {"overrides": ("budget.evaluations=3",)}):
        with pytest.raises(UsageError) as caught:
            open_run(Request(resume=path, **request))
        assert str(caught.value) == f"budget.evaluations is 3, but {path} has 4 already: a budget can only grow"
    opened = open_run(Request(resume=path, overrides=("budget.evaluations=4",)))
    opened.close()
    assert opened.notes[0].startswith("the run is over, all 4 evaluations")


def test_an_edited_config_stays_as_it_is_when_a_setting_changes(make_run: Any) -> None:
    path = make_run(evaluations=9)
    file = path / "config.yaml"
    edited = file.read_text().replace("evaluations: 9", "evaluations: 7")
    file.write_text(edited)
    opened = open_run(Request(resume=path, overrides=("budget.evaluations=20",)))
    opened.close()
    assert len(opened.warnings) == 1 and opened.warnings[0].endswith("changes; budget.evaluations: 9 -> 7")
    assert file.read_text() == edited and opened.config.budget.evaluations == 20


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
