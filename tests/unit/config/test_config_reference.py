"""The reference of all keys: it says what the models say, and the README holds it as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from osprey_mpi.config import json_schema, reference

ROOT = Path(__file__).parents[3]
TEXT = reference(json_schema())
LINES = TEXT.splitlines()


def test_the_readme_holds_it_as_it_is() -> None:
    """After a change of a key: `osprey schema --format text` gives the block."""
    assert f"```yaml\n{TEXT}```\n" in (ROOT / "README.md").read_text("utf-8")


def section_of(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    for part in (node, *node.get("anyOf", ())):
        reference = part.get("$ref") or part.get("items", {}).get("$ref")
        if reference and "properties" in definitions[reference.rpartition("/")[2]]:
            return definitions[reference.rpartition("/")[2]]
    return None


def test_every_key_is_there_with_its_default() -> None:
    schema = json_schema()
    definitions = schema["$defs"]

    def compare(section: dict[str, Any], written: dict[str, Any]) -> None:
        assert list(section["properties"]) == list(written)
        for key, node in section["properties"].items():
            inner, value = section_of(node, definitions), written[key]
            if inner is not None:
                compare(inner, value[0] if isinstance(value, list) else value)
            elif key != "parameters":
                assert value == node.get("default", {} if node.get("type") == "object" else None), key

    written = YAML(typ="safe").load(TEXT)
    compare(schema, written)
    assert [value["type"] for value in written["parameters"].values()] == ["real", "integer", "categorical", "fixed"]
    told = {key for value in written["parameters"].values() for key in value}
    assert told == {"type", "low", "high", "scale", "step", "size", "when", "choices", "value"}


@pytest.mark.parametrize(
    "line",
    [
        "seed: 0                 # (from 0) Seed of all random streams.",
        "      target:           # (required text) Its name in the evaluation's scratch folder.",
        "    type: categorical   # (required) One of several choices without an order. Also size, when.",
        "    sigma: 0.2          # (above 0 to 1) First spread of the samples, as a part of each parameter's range.",
        "  evaluations: null     # (whole number from 1) Number of evaluations, met exactly.",
        "    restarts: true      # Start again elsewhere when a flock has converged.",
    ],
)
def test_lines_say_default_range_and_purpose(line: str) -> None:
    assert line in LINES


def test_it_is_compact() -> None:
    assert max(map(len, LINES)) <= 120 and len(LINES) < 85
