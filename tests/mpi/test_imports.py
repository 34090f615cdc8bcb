"""What the ranks of a run load: only rank 0 owns the files, so only it needs HDF5, YAML and a terminal's tools."""

from __future__ import annotations

import sys

import pytest
from launch import launch
from problem import Problem

pytestmark = pytest.mark.launch

SCRIPT = """\
import os, pathlib, sys
from osprey_mpi.cli import main
try:
    main(["run", "case.yaml", "--out", "out"])
finally:
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
    loaded = {"h5py", "ruamel", "rich", "cupy", "numpy"} & sys.modules.keys()
    pathlib.Path("loaded-" + rank).write_text(" ".join(loaded))
"""


def test_only_rank_0_loads_hdf5_and_yaml(case: Problem) -> None:
    case.write("def f(p):\n    return p['x']")
    (case.folder / "script.py").write_text(SCRIPT)
    done = launch(2, [sys.executable, "script.py"], cwd=case.folder)
    assert done.rc == 0, done
    loaded = [set((case.folder / f"loaded-{rank}").read_text().split()) for rank in (0, 1)]
    assert {"h5py", "ruamel"} <= loaded[0] and loaded[1] == {"numpy"}
