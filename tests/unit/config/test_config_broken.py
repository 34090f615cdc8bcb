"""Every broken config is refused with the sentence that its first line announces, at its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from osprey_mpi.config import load_config
from osprey_mpi.errors import ConfigError, ExitCode

BROKEN = Path(__file__).parents[2] / "data" / "broken"
# Problems of a file as a whole: there is no line to name.
WHOLE_FILE = {"yaml_only_comments", "yaml_old_version"}


@pytest.mark.parametrize("path", sorted(BROKEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_broken_config_is_refused_with_its_place(path: Path) -> None:
    expected = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expect: ")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert expected in message
    assert caught.value.exit_code == ExitCode.CONFIG
    line = next(line for line in message.splitlines() if expected in line)
    place = re.escape(str(path)) + (":" if path.stem in WHOLE_FILE else r":\d+:")
    assert re.match(place, line)


@pytest.mark.parametrize("path", sorted(BROKEN.glob("objective/*.yaml")), ids=lambda path: path.stem)
def test_config_whose_objective_alone_is_broken_loads(path: Path) -> None:
    """What only the objective's own check can find passes here; `osprey validate` runs that check too."""
    assert load_config(path).name == "broken"


def test_there_are_enough_broken_configs() -> None:
    assert len(list(BROKEN.glob("*.yaml"))) >= 24
