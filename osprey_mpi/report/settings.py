"""Say how the settings of a run have changed, and where its config.yaml says something else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osprey_mpi.config import load_config
from osprey_mpi.config.differences import differences
from osprey_mpi.errors import ConfigError


def changes(facts: Mapping[str, Any]) -> list[str]:
    """Return "life 2: budget.target: null -> 0.5" for each setting that a resume has changed. facts: run.json."""
    former = facts.get("former_configs", [])
    configs = [entry["config"]["config"] for entry in former] + [facts["config"]["config"]]
    return [
        f"life {entry['until_life'] + 1}: {text}"
        for entry, old, new in zip(former, configs, configs[1:], strict=False)
        for text in differences(old, new)
    ]


def unlike_file(path: Path, facts: Mapping[str, Any]) -> list[str]:
    """Return "seed: 6 -> 5" where config.yaml in the run's folder has 6 and the run 5: edits there change nothing."""
    if not (path / "config.yaml").exists():
        return []
    try:
        return differences(load_config(path / "config.yaml").values(), facts["config"]["config"])
    except ConfigError as error:
        return [str(error)]
