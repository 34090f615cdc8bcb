"""The current folder may have been removed under the shell: verbs that do not need it work, others say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REMOVED = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); from osprey_mpi.cli import main; main()"
CONFIG = """\
name: case
objective: {python: "case:f"}
parameters: {x: {type: real, low: -1, high: 1}}
budget: {evaluations: 3}
"""
SENTENCE = "osprey: the current folder has been removed"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    (tmp_path / "case.py").write_text("def f(p): return p['x']")
    (tmp_path / "case.yaml").write_text(CONFIG)
    return tmp_path


def osprey(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `osprey ARGUMENTS` in a folder that is not there any more."""
    return subprocess.run(
        [sys.executable, "-c", REMOVED, *map(str, arguments)],
        capture_output=True, encoding="utf-8", cwd=folder, env={**os.environ}, timeout=60, check=False,
    )  # fmt: skip


def test_what_is_named_in_full_works(case: Path) -> None:
    out = case / "out"
    for arguments in (
        ("run", case / "case.yaml", "--out", out), ("run", case / "case.yaml", "--out", case / "thread", "--set",
        "objective.isolation=thread"), ("run", case / "case.yaml", "--out", out, "--dry-run"), ("status", out),
        ("resume", out, "--max-evaluations", 5), ("report", out), ("export", out, "--format", "csv"),
        ("export", out, "--format", "hdf5"), ("schema",), ("--version",),
    ):  # fmt: skip
        done = osprey(case, *arguments)
        assert done.returncode == 0 and done.stdout, (arguments, done.stderr)


def test_what_needs_it_says_so(case: Path) -> None:
    for arguments in (
        ("run", case / "case.yaml"), ("run", case / "case.yaml", "--out", "out"), ("status", "out"), ("report", "out"),
        ("run", case / "case.yaml", "--dry-run"), ("resume", "out"),
        ("launch", case / "case.yaml", "--out", case / "out", "-n", 2),
    ):  # fmt: skip
        done = osprey(case, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), (arguments, done.stderr)
        assert done.stderr.startswith(SENTENCE) and done.stderr.count("\n") == 1, (arguments, done.stderr)
