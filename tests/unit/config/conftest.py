"""Small configs to start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.config import Config, config_from_mapping, load_config


@pytest.fixture
def make() -> Callable[..., Config]:
    """Build a small valid config with sections replaced."""

    def build(**sections: Any) -> Config:
        whole: dict[str, Any] = {
            "name": "small",
            "objective": {"builtin": "sphere"},
            "parameters": {"x": {"type": "real", "low": -5, "high": 5}},
            "budget": {"evaluations": 100},
        }
        return config_from_mapping(whole | sections)

    return build


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Config]:
    """Load YAML text from a file run.yaml in a fresh folder."""

    def from_text(text: str, *overrides: str) -> Config:
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        return load_config(tmp_path / "run.yaml", overrides)

    return from_text
