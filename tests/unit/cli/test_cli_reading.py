"""The verbs that only read: what they print, where, and how they end."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from osprey_mpi import __version__
from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.records import RECORD, reasons_of
from osprey_mpi.search.space import Space
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import Best, RunStatus, State, write_status

COMMAND = [sys.executable, "-c", "from osprey_mpi.cli import main; main()"]


def test_version(osprey: Any) -> None:
    done = osprey("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"osprey-mpi {__version__}\n", "")


def test_help_names_every_verb(osprey: Any) -> None:
    for flag in ("--help", "-h"):
        done = osprey(flag)
        assert done.returncode == 0 and done.stderr == ""
        for verb in ("validate", "run", "resume", "status", "report", "export", "doctor", "schema", "--version"):
            assert verb in done.stdout


@pytest.mark.parametrize("verb", ["validate", "run", "resume", "status", "report", "export", "doctor", "schema"])
def test_help_of_every_verb_needs_no_mpi(osprey: Any, verb: str) -> None:
    done = osprey(verb, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: osprey {verb}")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from osprey_mpi.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'h5py', 'mpi4py', 'pydantic', 'ruamel', 'rich', 'cupy', 'pynvml'} & sys.modules.keys()\n"
        "sys.stderr.write(','.join(sorted(heavy)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_shells_complete_verbs_options_and_choices() -> None:
    for words, at, found in (
        ("osprey re", 1, "resume\nreport\n"), ("osprey run --ov", 2, "--overwrite\n"),
        ("osprey export DIR --format ", 4, "csv\njson\nhdf5\n"),
    ):  # fmt: skip
        asked = {**os.environ, "_OSPREY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            [sys.executable, "-m", "osprey_mpi"], env=asked, capture_output=True, text=True, timeout=30, check=False
        )
        assert (done.returncode, done.stdout.rstrip("\n")) == (0, found.rstrip("\n")), done


def test_usage_errors_exit_2(osprey: Any, tmp_path: Path) -> None:
    for arguments in (["nothing"], ["report"], ["report", tmp_path, "--format", "xml"]):
        done = osprey(*arguments)
        assert done.returncode == 2 and done.stdout == "" and "Error: " in done.stderr
        assert "Traceback" not in done.stderr


def test_usage_errors_are_said_by_the_first_rank_only(osprey: Any) -> None:
    for rank, n_said in (("0", 1), ("2", 0)):
        for arguments in (["run"], ["run", "--nope"], ["nope"]):
            done = osprey(*arguments, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK=rank)
            assert (done.returncode, done.stdout, done.stderr.count("Error: ")) == (2, "", n_said)


def test_our_errors_are_one_message(osprey: Any, tmp_path: Path) -> None:
    done = osprey("report", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"osprey: {tmp_path / 'none'} does not exist\n"
    for arguments in (["--debug", "report", "none"], ["report", "none", "--debug"]):
        done = osprey(*arguments)
        assert done.returncode != 0 and "Traceback" in done.stderr and "does not exist" in done.stderr


def test_schema_is_json(osprey: Any) -> None:
    done = osprey("schema")
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["properties"]["budget"]


def test_report(osprey: Any, run: Path) -> None:
    done = osprey("report", run)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"shown in {run}" and "ValueError: ß" in done.stdout and "\x1b" not in done.stdout
    data = json.loads(osprey("report", run, "--format", "json").stdout)
    assert data["best"]["cost"] == 2 and data["counts"]["failed"] == 1 and len(data["best"]["parameters"]["x"]) == 30


def test_report_names_a_broken_segment_and_goes_on(osprey: Any, run: Path) -> None:
    broken = run / "results" / "life-0002-epoch-0001.h5"
    broken.write_bytes(b"torn")
    done = osprey("report", run)
    assert done.returncode == 0 and f"note: {broken} cannot be read" in done.stdout and "best cost" in done.stdout


def test_export_csv_and_json(osprey: Any, run: Path, tmp_path: Path) -> None:
    done = osprey("export", run, LC_ALL="C")  # a batch job without a locale
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["cost"] for row in rows] == ["4.0", "2.0", "", "3.0"] and rows[2]["reason"] == "ValueError: ß"
    done = osprey("export", run, "--format", "json", "--output", tmp_path / "out.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert len(json.loads((tmp_path / "out.json").read_text("utf-8"))["evaluations"]) == 4


def test_export_into_a_folder_that_is_not_there_is_a_usage_error(run: Path, osprey: Any, tmp_path: Path) -> None:
    for format in ("csv", "json", "hdf5"):
        done = osprey("export", run, "--format", format, "-o", "/nonexistent/x.csv")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "osprey: --output is /nonexistent/x.csv, but the folder /nonexistent does not exist\n"
        )
    done = osprey("export", run, "-o", tmp_path)
    assert done.returncode == 2 and f"--output is {tmp_path}, which is a folder" in done.stderr


def test_export_csv_ends_lines_as_rfc_4180(run: Path, osprey: Any, tmp_path: Path) -> None:
    osprey("export", run, "-o", tmp_path / "out.csv")
    raw = (tmp_path / "out.csv").read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n") == 5


def test_export_hdf5(osprey: Any, run: Path, tmp_path: Path) -> None:
    done = osprey("export", run, "--format", "hdf5")
    assert (done.returncode, done.stdout) == (0, f"{run / 'results.h5'}\n")
    with h5py.File(run / "results.h5") as file:
        assert file["evaluations/evaluation"][:].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("words", [["export"], ["report"], ["status"], ["schema"], ["doctor"], ["--version"]])
def test_a_full_stdout_is_no_reason_to_resume_a_run(run: Path, words: list[str]) -> None:
    """No run lacks anything, so the code is not that of a run that stopped, which batch systems start again."""
    folder = [str(run)] if words[0] in ("export", "report", "status") else []
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *words, *folder], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 4
    assert done.stderr == "osprey: the output cannot be written to stdout: No space left on device (errno 28)\n"


@pytest.mark.parametrize(
    ("format", "is_given"), [("csv", True), ("json", True), ("hdf5", True), ("hdf5", False)]
)
def test_an_export_that_found_no_room_is_to_be_made_again(
    run: Path, tmp_path: Path, format: str, is_given: bool
) -> None:
    """A limit on the size of files stands for the full disk."""
    path = tmp_path / f"out.{format}" if is_given else run / "results.h5"
    words = [*COMMAND, "export", str(run), "--format", format, *(["-o", str(path)] if is_given else [])]
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert re.fullmatch(
        re.escape(f"osprey: {path} cannot be written: File too large (errno 27); ") + r"\d+ bytes free; "
        r"a limit on the size of files was met \(ulimit -f\): raise it and export again\n",
        done.stderr,
    )
    assert not path.exists() and not list(path.parent.glob(".*.tmp-*"))


def test_export_into_a_pipe_that_closes(run: Path) -> None:
    command = [*COMMAND, "export", str(run), "--format", "json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")  # silently, as click does it


def status(state: State) -> RunStatus:
    return RunStatus(
        state,
        n_evaluations=3,
        counts={"ok": 3, "failed": 0},
        best=Best(2.0, 0.0, {"x": [0.5] * 30}, 1),
        budget={"evaluations": 4},
        host=socket.gethostname(),
        updated_unix_s=1.0,
        reason="evaluations" if state is State.DONE else "",
        exit_code=0 if state is State.DONE else None,
    )


def test_status_of_a_running_a_killed_and_a_finished_run(osprey: Any, run: Path) -> None:
    write_status(run, status(State.RUNNING))
    with (run / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = osprey("status", run)
        assert done.returncode == 0 and "state: running" in done.stdout and "evaluations: 3 of 4" in done.stdout
    done = osprey("status", run)
    assert "state: interrupted: it was killed or lost" in done.stdout
    assert "evaluations: 4 of 4" in done.stdout and "  failed: 1" in done.stdout  # as the segments have it
    data = json.loads(osprey("status", run, "--format", "json").stdout)
    assert (data["state"], data["counts"]["ok"], data["best"]["cost"]) == ("interrupted", 3, 2.0)
    write_status(run, status(State.DONE))
    done = osprey("status", run)
    assert "state: done" in done.stdout and "exit code: 0" in done.stdout


def test_status_counts_points_that_were_not_called(osprey: Any, tmp_path: Path) -> None:
    """While the run goes on as its last status has it, afterwards as the segments do."""
    mapping = {
        "name": "broken", "objective": {"python": "m:f"}, "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
        "constraints": ["x <= 0.5"], "budget": {"evaluations": 3},
    }  # fmt: skip
    config = config_from_mapping(mapping)
    records = np.zeros(3, RECORD)
    records["id"], records["t_end_s"] = range(3), (0, 1, 1)
    records["cost"], records["violation"] = (np.nan, 1, 2), (0.25, 0.5, 0)
    with RunFolder.create(tmp_path / "run", config) as folder:
        Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1).append(records, np.ones((3, 1)))
        write_status(tmp_path / "run", replace(status(State.RUNNING), n_not_called=7))
        assert "not called: 7 (they break a constraint)\n" in osprey("status", tmp_path / "run").stdout
    assert "not called: 1 (they break a constraint)\n" in osprey("status", tmp_path / "run").stdout
    data = json.loads(osprey("status", tmp_path / "run", "--format", "json").stdout)
    assert (data["n_infeasible"], data["n_not_called"]) == (2, 1)


def test_status_says_what_is_damaged_and_what_is_gone(osprey: Any, run: Path) -> None:
    write_status(run, status(State.RUNNING))
    assert json.loads(osprey("status", run, "--format", "json").stdout)["notes"] == []
    segment = run / "results" / "life-0001-epoch-0001.h5"
    segment.write_bytes(b"")
    note, missing = json.loads(osprey("status", run, "--format", "json").stdout)["notes"]
    assert note.startswith(f"{segment} cannot be read, its evaluations are left out: ")
    assert missing == "3 of 3 evaluations that were on disk are missing"
    segment.unlink()
    gone = f"{segment} is gone, and with it what life 1 had written to it"
    assert osprey("status", run).stdout.endswith(f"note: {gone}\nnote: {missing}\n")
    assert f"note: {gone}\n" in osprey("report", run).stdout
    assert f"osprey: {gone}\n" in osprey("export", run).stderr
    with (run / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert json.loads(osprey("status", run, "--format", "json").stdout)["notes"] == [gone], "while it runs, too"
    assert gone in osprey("resume", run).stderr


def test_status_before_the_first_status(osprey: Any, run: Path) -> None:
    done = osprey("status", run)
    assert done.returncode == 0 and "no status has been written yet" in done.stdout
    assert json.loads(osprey("status", run, "--format", "json").stdout)["state"] == "interrupted"


def test_reading_changes_no_byte(osprey: Any, run: Path) -> None:
    write_status(run, status(State.RUNNING))

    def state() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in run.rglob("*"))

    before = state()
    for arguments in (["status"], ["report"], ["export"]):
        assert osprey(arguments[0], run).returncode == 0
    assert state() == before


def test_reading_works_while_another_process_has_the_run(osprey: Any, run: Path) -> None:
    with RunFolder.open(run):
        for verb in ("status", "report", "export"):
            assert osprey(verb, run).returncode == 0


def test_what_ended_is_counted_alike_by_all_verbs(osprey: Any, run: Path) -> None:
    """The status counts attempts that were cancelled, and are done by now."""
    write_status(run, replace(status(State.DONE), counts={"ok": 3, "failed": 1, "cancelled": 2}))
    shown = [json.loads(osprey(verb, run, "--format", "json").stdout) for verb in ("status", "report", "export")]
    assert [data["counts"] for data in shown] == [
        {"ok": 3, "failed": 1, "timeout": 0, "lost": 0, "cancelled": 0, "stopped": 0}
    ] * 3
    assert [data["n_evaluations"] for data in shown] == [4] * 3


@pytest.mark.parametrize("words", [["--help"], ["run", "-h"], ["--version"], []])
def test_help_is_said_by_one_rank_of_a_launch(osprey: Any, words: list[str]) -> None:
    first, second = (osprey(*words, PMI_SIZE="2", PMI_RANK=str(rank)) for rank in range(2))
    assert first.stdout + first.stderr != "" == second.stdout + second.stderr
    assert first.returncode == second.returncode


def test_a_reason_of_several_lines_is_one_line_of_csv(osprey: Any, run: Path) -> None:
    with RunFolder.open(run) as folder:
        segment = Segment(folder.segment_path(1), Space(folder.config().parameters).columns, 2, 1)
        record = np.zeros(1, RECORD)
        record["id"], record["status"] = 4, 1
        segment.append(record, np.zeros((1, 30)), None, reasons_of({4: "E: a\n  File b\r\nend"}, record))
    done = osprey("export", run)
    assert len(done.stdout.split("\n")) == 1 + 5 + 1 and "E: a\\n  File b\\nend" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("run", "c.yaml", "--out", ""), ("launch", "c.yaml", "--out", ""), ("launch", "--resume", ""), ("status", "")],
)
def test_a_folder_without_a_name_is_refused(osprey: Any, config_file: Path, arguments: tuple[str, ...]) -> None:
    done = osprey(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is empty, must be the name of a folder" in done.stderr and "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_one_is_refused_with_the_rule(osprey: Any, config_file: Path) -> None:
    (config_file.parent / "link").symlink_to("nowhere")
    for out, rule in (
        ("link", "link is a symbolic link to nowhere, which is not there: make that folder first, or choose another"),
        (os.fsdecode(b"o\xff"), "cannot be the folder of a run: its name is not UTF-8"),
    ):
        done = osprey("run", config_file, "--out", out)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert rule in done.stderr


@pytest.mark.parametrize("content", ["{}", "[" * 100_000, '{"name": "shown", "lives": null}'])
def test_a_run_json_that_is_none_is_a_sentence_of_every_verb(osprey: Any, run: Path, content: str) -> None:
    (run / "run.json").write_text(content)
    for verb in ("status", "report", "export", "resume"):
        done = osprey(verb, run)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"osprey: {run / 'run.json'} cannot be read: ")
