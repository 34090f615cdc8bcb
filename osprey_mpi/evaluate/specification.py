"""Say what the child process is to run, and look at what of an external program can be seen without running it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osprey_mpi.errors import ConfigError, Problem
from osprey_mpi.evaluate.command import STDERR, STDOUT, Specification, read_template
from osprey_mpi.evaluate.placeholders import SPECIAL, names_in
from osprey_mpi.evaluate.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Say what the child is to run. `order` travels to it as JSON (see child.py); `time_limit_s` is per call."""

    order: Mapping[str, Any]
    folder: Path
    scratch_root: Path
    rank: int
    batch: int
    retries: int
    time_limit_s: float | None

    @property
    def is_command(self) -> bool:
        """Tell whether the child runs external programs; it then keeps the time limit itself."""
        return self.order["command"] is not None


def command_specification(objective: Any, schema: Schema, folder: Path) -> Specification:
    """Describe the command with absolute paths: the program's current folder will be its scratch folder.

    A program with a slash is relative to the config's folder, one without is found on PATH, as in a shell.
    """
    program, *arguments = objective.command
    return Specification(
        argv=[str(folder / program) if "/" in program else program, *arguments],
        names=[*(layout.name for layout in schema.layouts), *SPECIAL],
        template=[(str(folder / item.source), item.target) for item in objective.template],
        pattern=None if objective.result is None else objective.result.pattern,
        file=None if objective.result is None else objective.result.file,
        time_limit_s=objective.time_limit_s,
        keep_scratch=objective.keep_scratch,
    )


def check_command(spec: Specification) -> None:
    """Check the program and its templates; raises ConfigError. Placeholders are the config's business."""
    program = spec["argv"][0]
    if not names_in(program):
        path = shutil.which(program)
        if path is None and os.access(program, os.F_OK) and not os.access(program, os.X_OK):
            raise ConfigError(f"objective.command starts {program}, which is not executable (chmod +x)")
        if path is None and "/" in program and os.access(program, os.F_OK) and Path(program).is_dir():
            raise ConfigError(f"objective.command starts {program}, which is a folder, must be a program")
        if path is None:
            where = "no such file" if "/" in program else "found in no folder of PATH"
            raise ConfigError(f"objective.command starts {program!r}: {where}")
    for i, (source, target) in enumerate(spec["template"]):
        where = f"objective.template[{i}]"
        if fault := _unusable(Path(source)):
            raise ConfigError([Problem(f"{where}.source", f"is {source}, {fault}")])
        if str(Path(target)) in (STDOUT, STDERR):
            raise ConfigError([Problem(f"{where}.target", f"is {target}, but the program's own output goes there")])


def _unusable(source: Path) -> str:
    """Say why a file cannot be a template; empty if it can."""
    try:
        mode = source.stat().st_mode
        if not stat.S_ISREG(mode):
            return "which is a folder, must be a text file" if stat.S_ISDIR(mode) else "which is no regular file"
        read_template(source)
    except OSError as error:
        return f"which does not exist or cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        return f"which is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
    return ""
