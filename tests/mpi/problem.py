"""Write a small problem into a test's folder, start runs of them, and read what they left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from launch import Completed, Launch, launch, osprey

BASE = """\
name: case
seed: 5
objective: {python: "case:f"}
parameters:
  x: {type: real, low: -1, high: 1}
  n: {type: integer, low: 1, high: 9}
budget: {evaluations: 8}
"""


class Problem:
    """Hold a folder with `case.yaml` and `case.py`, and start osprey on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"

    def write(self, code: str, config: str = BASE) -> None:
        """Write the objective's module and the config."""
        (self.folder / "case.py").write_text(code)
        (self.folder / "case.yaml").write_text(config)

    def argv(self, *arguments: object) -> list[object]:
        """Return the command of a new run that prints JSON."""
        return osprey("run", self.folder / "case.yaml", "--out", self.out, "--format", "json", *arguments)

    def run(
        self, n: int, *arguments: object, timeout_s: float = 60.0, cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:  # fmt: skip
        """Start a new run on `n` ranks and wait for its end."""
        return launch(n, self.argv(*arguments), cwd=cwd or self.folder, env=env, timeout_s=timeout_s)

    def start(self, n: int, *arguments: object) -> Launch:
        """Start a new run on `n` ranks; use it in a `with`."""
        return Launch(n, self.argv(*arguments), cwd=self.folder)

    def resume(self, n: int, *arguments: object, timeout_s: float = 60.0) -> Completed:
        """Go on with the run on `n` ranks and wait for its end."""
        argv = osprey("resume", self.out, "--format", "json", *arguments)
        return launch(n, argv, cwd=self.folder, timeout_s=timeout_s)

    def status(self) -> dict[str, Any]:
        """Return status.json."""
        value = json.loads((self.out / "status.json").read_text("utf-8"))
        assert isinstance(value, dict)
        return value

    def wait_until(self, running: Launch, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 40.0) -> None:
        """Wait until the status of the run that `running` is fulfils a condition."""
        deadline = time.monotonic() + timeout_s
        while True:
            if (self.out / "status.json").exists() and condition(self.status()):
                return
            assert running.is_running, (running.stdout, running.stderr)
            assert time.monotonic() < deadline, running.stderr
            time.sleep(0.02)

    def shown(self) -> dict[str, Any]:
        """Return what `osprey status --format json` gives."""
        done = launch(1, osprey("status", self.out, "--format", "json"), cwd=self.folder)
        assert done.rc == 0, done.stderr
        value = json.loads(done.stdout)
        assert isinstance(value, dict)
        return value

    def columns(self, *names: str, group: str = "evaluations") -> dict[str, np.ndarray[Any, Any]]:
        """Return variables of results.h5, and `id`, in the order of the ids."""
        with h5py.File(self.out / "results.h5") as file:
            ids = file[group]["evaluation"][()]
            order = np.argsort(ids, kind="stable")
            return {"id": ids[order], **{name: _read(file[group][name])[order] for name in names}}

    def log(self, rank: int) -> str:
        """Return the log of a rank."""
        return (self.out / "logs" / f"rank-{rank:04d}.log").read_text("utf-8")


def _read(data: Any) -> np.ndarray[Any, Any]:
    text = h5py.check_string_dtype(data.dtype)
    values: np.ndarray[Any, Any] = data.asstr()[()] if text else data[()]
    return values
