"""Write as YAML what is run, where that is not the text of one file: values were set, or there is no file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osprey_mpi.config.schema import Config

_HEAD = "# This is what is run. It was made from the config that was given by:"
_STEP = "#   "
_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


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
    """Write all values that are no defaults: as JSON, which is YAML, in which plain words need no quotes."""
    data = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data["parameters"] = {  # the kind is a default of its model, which is chosen by it
        name: {"type": config.parameters[name].type, **rest} for name, rest in data["parameters"].items()
    }
    return "".join(f"{line}\n" for key, value in data.items() for line in _lines(key, value, ""))


def _lines(key: str, value: Any, indent: str) -> Iterator[str]:
    """Yield a key on one line, or, where that is too long, one for each key of its section; parameters always so."""
    line = f"{indent}{_flow(key)}: {_flow(value)}"
    if not isinstance(value, dict) or not value or (len(line) <= _WIDTH and (indent or key != "parameters")):
        yield line
        return
    yield f"{indent}{_flow(key)}:"
    for inner, item in value.items():
        yield from _lines(inner, item, f"{indent}  ")


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null"):
        return value
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))
