"""What nobody reads is lost, and nothing else."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from osprey_mpi.console import Unfailing, say
from osprey_mpi.storage.status import read_status


def unread() -> TextIO:
    """Return a stream of a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def test_a_stream_without_a_reader_takes_everything_and_leads_nowhere() -> None:
    with unread() as lost:
        stream = Unfailing(lost)
        assert stream.write("some\n") == 5
        stream.flush()
        stream.write("more\n")
        stream.flush()
        assert os.path.samestat(os.fstat(lost.fileno()), Path(os.devnull).stat())
        os.write(lost.fileno(), b"what writes to the descriptor itself")


def test_a_full_disk_costs_no_more_than_the_words(tmp_path: Path) -> None:
    file = tmp_path / "said"
    with Path("/dev/full").open("w") as full:
        stream = Unfailing(full)
        stream.write("some\n")
        stream.flush()
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), full.fileno())  # there is room again
        stream.write("more\n")
        stream.flush()
    assert file.read_text() == "some\nmore\n"


def test_a_closed_stream_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say("words")


def test_the_writer_s_own_mistake_is_raised() -> None:
    with pytest.raises(UnicodeEncodeError):
        Unfailing(io.TextIOWrapper(io.BytesIO(), "ascii")).write("é")


def test_all_else_is_as_the_stream_has_it() -> None:
    assert Unfailing(sys.__stderr__).fileno() == 2  # type: ignore[arg-type]


CODE = """\
import sys
def f(p):
    print("of the objective", flush=True)
    print("of the objective", file=sys.stderr, flush=True)
    return p["x"] ** 2
"""
CONFIG = """\
name: unread
objective: {python: "case:f"}
parameters: {x: {type: real, low: -1, high: 1}}
budget: {evaluations: 20}
"""


def test_a_run_whose_stderr_lost_its_reader_is_done_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CODE)
    (tmp_path / "case.yaml").write_text(CONFIG)
    argv = [Path(sys.executable).parent / "osprey", "run", "case.yaml", "--out", "out", "--format", "json"]
    with unread() as stderr:
        done = subprocess.run(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["n_evaluations"]) == (0, 20)
    status = read_status(tmp_path / "out")
    assert status is not None and status.counts["ok"] == 20
