"""Start the command line as users do: in a process of its own, MPI blocked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.config import load_config
from osprey_mpi.continuity.records import RECORD, reasons_of
from osprey_mpi.search.space import Space
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.segment import Segment

CONFIG = """\
name: shown
seed: 3
objective: {builtin: rosenbrock}
parameters:
  x: {type: real, low: -5, high: 5, size: 30}
budget: {evaluations: 4}
"""

BLOCKED = "import sys; sys.modules['mpi4py'] = None; from osprey_mpi.cli import main; main()"

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def osprey(tmp_path: Path) -> Cli:
    """Run `osprey ARGUMENTS` in tmp_path, where `import mpi4py` fails."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", BLOCKED, *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "shown.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def run(tmp_path: Path, config_file: Path) -> Path:
    """A run of four evaluations that was killed."""
    config = load_config(config_file)
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(2, ["h"])
        segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
        records = np.zeros(4, RECORD)
        records["id"], records["cost"] = range(4), (4, 2, np.nan, 3)
        records["status"][2], records["t_end_s"] = 1, (1, 2, 3, 4)
        segment.append(records, np.full((4, 30), 0.5), None, reasons_of({2: "ValueError: ß"}, records))
    return tmp_path / "run"
