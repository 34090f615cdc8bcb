"""Write the JSON Schema of a config as YAML with comments: every key with its default, its range and what it is for."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

Node = Mapping[str, Any]

WIDTH = 120
COMMENT_AT = 24  # column of the comments
_KINDS = {"string": "text", "number": "number", "integer": "whole number", "array": "list"}
_NAMES = {"real": "x", "integer": "n", "categorical": "k", "fixed": "c"}  # of the parameters that stand for their kinds
# Bounds from here on are those of a float64 or an int64, not of the key.
_BEYOND = 2**53


def reference(schema: Node) -> str:
    """Return the keys of a config file as commented YAML, in the order of the sections."""
    return "\n".join(_section(schema, schema["$defs"], 0)) + "\n"


def _section(section: Node, definitions: Node, depth: int) -> Iterator[str]:
    required = section.get("required", ())
    for key, node in section["properties"].items():
        inner, is_list = _inner(node, definitions)
        says = [_requirement(key in required, node, inner), node["description"]]
        is_open = inner is not None or key == "parameters"
        yield from _line(depth, f"{key}:{'' if is_open else _default(node)}", says)
        if key == "parameters":
            yield from _parameters(node, definitions)
        elif inner is not None:
            first, *rest = _section(inner, definitions, depth + 1 + is_list)
            yield re.sub(r"  (?=\w)", "- ", first, count=1) if is_list else first
            yield from rest


def _parameters(node: Node, definitions: Node) -> Iterator[str]:
    """Write one parameter of each kind; a key that kinds share is explained once."""
    told: dict[str, str] = {}
    models = node["additionalProperties"]["discriminator"]["mapping"]
    for kind, name in _NAMES.items():
        model = definitions[models[kind].rpartition("/")[2]]
        properties = dict(sorted(model["properties"].items(), key=lambda item: item[0] in ("size", "when")))
        shared = [key for key, value in properties.items() if told.get(key) == value["description"]]
        also = f"Also {', '.join(shared)}." if shared else ""
        yield f"  {name}:"
        yield from _line(2, f"type: {kind}", ["required", model["description"].replace("Read ", "").capitalize(), also])
        new = {key: value for key, value in properties.items() if key != "type" and key not in shared}
        told |= {key: value["description"] for key, value in new.items()}
        yield from _section({**model, "properties": new}, definitions, 2)


def _inner(node: Node, definitions: Node) -> tuple[Node | None, bool]:
    """Return the section that a key holds, if it holds one, and whether it holds a list of them."""
    for part in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
        target = part.get("$ref") or part.get("items", {}).get("$ref")
        model = definitions[target.rpartition("/")[2]] if target else {}
        if "properties" in model:
            return model, "$ref" not in part
    return None, False


def _default(node: Node) -> str:
    if "default" in node:
        return " " + json.dumps(node["default"]).strip('"')
    return " {}" if node.get("type") == "object" else ""


def _requirement(is_required: bool, node: Node, inner: Node | None) -> str:
    """Say whether a key must be given, of what kind and in what range, as far as its default does not show it."""
    options = [part for part in node.get("anyOf", (node,)) if part.get("type") != "null"]
    main = options[0]
    words = ["required"] if is_required else []
    if inner is not None:
        if {"type": "null"} in node.get("anyOf", ()):
            words.append("null or a section")
    elif "enum" in main:
        words.append(" | ".join(json.dumps(value).strip('"') for value in main["enum"]))
    elif len(options) == 1 and (node.get("default") is None or "minimum" in main or "exclusiveMinimum" in main):
        kind = main.get("type") if node.get("default") is None else None
        words += [_KINDS.get(kind, "") if isinstance(kind, str) else "", *_range(main)]
    return " ".join(filter(None, words))


def _range(node: Node) -> list[str]:
    low, above, high = node.get("minimum"), node.get("exclusiveMinimum"), node.get("maximum")
    parts = []
    if low is not None and abs(low) < _BEYOND:
        parts.append(f"from {low}")
    if above is not None:
        parts.append(f"above {above:g}")
    if high is not None and high < _BEYOND:
        parts.append(f"to {high}")
    return parts


def _line(depth: int, text: str, says: list[str]) -> Iterator[str]:
    """Yield a key with its comment, which goes on below itself where it is long."""
    comment = " ".join(filter(None, [f"({says[0]})" if says[0] else "", *says[1:]]))
    head = "  " * depth + text
    column = max(COMMENT_AT, len(head) + 1)
    first, *more = textwrap.wrap(comment, WIDTH - column - 2, break_on_hyphens=False) or [""]
    yield f"{head:<{column}}# {first}"
    for rest in more:
        yield f"{'':<{column}}# {rest}"
