"""Write as YAML what is run, where that is not the text of one file: values were set, or there is no file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osprey_mpi.config.schema import Config

_HEAD = "# This is what is run. It was made from the config that was given by:"
_STEP = "#   "


def retold(config: Config, steps: Sequence[str]) -> Config:
    """Return the config with a text that loads as it is, and says at its top which steps led from the given one to it.

    steps: such as "--set seed=3", after those that the text of the config names already.
    """
    return config.placed(config.base_dir, _headed(config, steps), config.places)


def text_of(config: Config) -> str:
    """Return the text of the config, made from its values where it came from a mapping."""
    return config.source_text or _yaml(config)


def _headed(config: Config, steps: Sequence[str]) -> str:
    lines = config.source_text.splitlines()
    before = list(takewhile(lambda line: line.startswith(_STEP), lines[1:])) if lines[:1] == [_HEAD] else []
    return "\n".join([_HEAD, *before, *(f"{_STEP}{_on_one_line(step)}" for step in steps), _yaml(config)])


def _on_one_line(text: str) -> str:
    """Escape what would end a comment, or that YAML does not allow."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _yaml(config: Config) -> str:
    """Write all values that are no defaults."""
    from ruamel.yaml import YAML

    data = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data["parameters"] = {  # the kind is a default of its model, which is chosen by it
        name: {"type": config.parameters[name].type, **rest} for name, rest in data["parameters"].items()
    }
    yaml: Any = YAML(typ="safe", pure=True)  # its settings have the types of their defaults, None for instance
    yaml.default_flow_style = None  # sections without sections in them on one line
    yaml.sort_base_mapping_type_on_output = False  # the order of parameters counts
    yaml.width = 120
    yaml.allow_unicode = "\x85" not in config.model_dump_json()  # ruamel writes this line end as it is
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()
