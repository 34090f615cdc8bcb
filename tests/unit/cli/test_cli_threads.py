"""osprey run and resume limit the threads of each rank while that still has an effect."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# BLAS reads the variables once, when NumPy is imported.
PROGRAM = """\
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print(os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS"))
            os._exit(0)
sys.stdout.reconfigure(line_buffering=True)
sys.meta_path.insert(0, Finder())
from osprey_mpi.cli import main
main([*sys.argv[1:], "nowhere"])
"""
NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.mark.parametrize("verb", ["run", "resume"])
@pytest.mark.parametrize(("given", "seen"), [({}, "1 1"), ({"OMP_NUM_THREADS": "3"}, "3 None")])
def test_numpy_finds_the_limit_of_threads(verb: str, given: dict[str, str], seen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, verb], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == seen, done.stderr
