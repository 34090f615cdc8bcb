"""Read YAML 1.2 into plain data with the line of every key; what is ambiguous is refused.

ruamel.yaml scans and resolves (so `1e-3` is a float and `yes` is text); the tree is walked here, because its own
constructors either drop the lines or stop at the first duplicate key.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from osprey_mpi.config.section import KeyPath, dotted, show
from osprey_mpi.config.source import UNREADABLE, Origin, Source, place_of
from osprey_mpi.errors import ConfigError, Problem

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

_TAG = "tag:yaml.org,2002:"
# Aliases can make a short file expand without bound ("a billion laughs"); no honest config is that long.
MAX_NODES = 100_000
# Deeper nesting is no honest config either, and pydantic's JSON has a limit of its own.
MAX_DEPTH = 100
TOO_DEEP = f"is nested too deeply: at most {MAX_DEPTH} levels are read"
_OTHER_VERSION = re.compile(r"^%YAML\s+(?!1\.2\s*$)(\S+)", re.MULTILINE)


def compose(text: str, name: str, has_lines: bool = True) -> Node | None:
    """Parse YAML text into ruamel's tree of nodes, None if there is nothing in it; `name` is what messages call it.

    Raises ConfigError with one sentence for text that is not one YAML document.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    def fault(line: int, message: str) -> ConfigError:
        return ConfigError([Problem(f"{name}:{line}" if has_lines else name, message)])

    version = _OTHER_VERSION.search(text)
    if version:
        line = _line_of(text, version.start())
        raise fault(line, f"asks for YAML {version[1]}, but only YAML 1.2 is read; remove the line")
    try:
        return YAML(typ="safe", pure=True).compose(text)  # type: ignore[no-any-return]  # compose has no annotations
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise fault(mark.line + 1, _syntax_message(str(error.problem), error.context, mark)) from None
    except ReaderError as error:
        character = f"the character U+{error.character:04X}, which YAML does not allow"
        raise fault(_line_of(text, error.position), f"is not YAML: holds {character}") from None
    except RecursionError:
        raise fault(_deep_line(text), TOO_DEEP) from None


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _deep_line(text: str) -> int:
    """Find the line that is nested too deeply; events, unlike nodes, come without recursion."""
    from ruamel.yaml import YAML
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            return int(event.start_mark.line) + 1
    raise AssertionError("a text that is not nested that deeply is read")


def _syntax_message(problem: str, context: str | None, mark: Any) -> str:
    if "'\\t'" in problem:
        return "a tab is used for indentation, YAML allows spaces only"
    if "another document" in problem:
        return "a second document begins here (---); a config is one document"
    if "undefined alias" in problem:
        return f"{problem.removeprefix('found ')}: no &anchor of that name comes before it"
    column = f" at column {mark.column + 1}" if mark else ""
    return f"is not YAML: {problem}{column}{f' ({context})' if context else ''}"


class _Builder:
    """Turn nodes into plain data; problems are collected, and the first of two equal keys is kept."""

    def __init__(self, source: Source, name: str, label: str | None = None) -> None:
        self.source, self.name, self.label = source, name, label
        self.n_nodes = 0
        self.open: list[Node] = []
        self.reported: set[int] = set()

    def value(self, node: Node, path: KeyPath) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode

        self.n_nodes += 1
        if self.n_nodes > MAX_NODES:
            message = f"brings the config to more than {MAX_NODES} values, with its aliases filled in"
            raise ConfigError([self.source.problem(path[:1], message)])
        if len(self.open) >= MAX_DEPTH:
            raise ConfigError([self.source.problem(path[:1], TOO_DEEP)])
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        if any(node is other for other in self.open):
            return self.unreadable(path, "contains itself through an alias")
        expected = "map" if isinstance(node, MappingNode) else "seq"
        if node.tag != _TAG + expected:
            return self.unreadable(path, f"has the tag {node.tag}, which is not supported")
        self.open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self.mapping(node, path, frozenset())
            items = []
            for i, item in enumerate(node.value):
                self.mark(item, (*path, i))
                items.append(self.value(item, (*path, i)))
            return items
        finally:
            self.open.pop()

    def mapping(self, node: MappingNode, path: KeyPath, skip: frozenset[str]) -> dict[str, Any]:
        """Build a mapping without the keys in `skip`; merged keys (<<) come first and give way to written ones."""
        merges: list[Node] = []
        own: dict[str, tuple[Node, Node]] = {}
        for key_node, value_node in node.value:
            key = "<<" if key_node.tag == f"{_TAG}merge" else self.key(key_node, path)
            if key is None:
                continue
            if key in own:
                self.duplicate(own[key][0], key_node, path, key)
                continue
            own[key] = (key_node, value_node)
            if key_node.tag == f"{_TAG}merge":
                merges = value_node.value if value_node.tag == f"{_TAG}seq" else [value_node]
        result: dict[str, Any] = {}
        taken = skip | own.keys()
        for merged in merges:
            result |= self.merged(merged, path, taken)
            taken = taken | result.keys()
        for key, (key_node, value_node) in own.items():
            if key not in skip and key_node.tag != f"{_TAG}merge":
                self.mark(key_node, (*path, key))
                result[key] = self.value(value_node, (*path, key))
        return result

    def merged(self, node: Node, path: KeyPath, skip: frozenset[str]) -> dict[str, Any]:
        from ruamel.yaml.nodes import MappingNode

        if not isinstance(node, MappingNode) or any(node is other for other in self.open):
            self.problem(node, path, "merges (<<) something that is no mapping, or that contains this one")
            self.source.unreadable.add(path)
            return {}
        self.open.append(node)
        try:
            return self.mapping(node, path, skip)
        finally:
            self.open.pop()

    def key(self, node: Node, path: KeyPath) -> str | None:
        if node.tag in (f"{_TAG}str", f"{_TAG}timestamp"):
            return _joined(node.value)
        text = node.value if isinstance(node.value, str) else "a list or a mapping"
        self.problem(node, path, f"has the key {text or 'null'}, but keys must be text; put it in quotes")
        self.source.unreadable.add((*path, text))  # what lacks in this section may be behind that key
        return None

    def duplicate(self, first: Node, second: Node, path: KeyPath, key: str) -> None:
        if id(second) in self.reported:  # seen before through an alias
            return
        self.reported.add(id(second))
        lines = first.start_mark.line + 1, second.start_mark.line + 1
        message = f"is given twice, in lines {lines[0]} and {lines[1]}; keep one"
        where = place_of(self.label or f"{self.name}:{lines[1]}", dotted((*path, key)))
        self.source.problems.append((lines[1], Problem(where, message)))

    def scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        tag, text = str(node.tag).removeprefix(_TAG), str(node.value)
        try:
            match tag:
                case "str" | "timestamp":  # nothing in a config is a date: the text as written
                    return _joined(text)
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return _integer(text)
                case "float":
                    return _float(text)
        except (ValueError, KeyError):
            n, most = sum(map(str.isdecimal, text)), sys.get_int_max_str_digits()
            if tag == "int" and n > most > 0:
                return self.unreadable(path, f"is {show(text)}, a number of {n} digits: at most {most} are read")
            return self.unreadable(path, f"is {show(text)}, which is no {tag}")
        return self.unreadable(path, f"has the tag {node.tag}, which is not supported")

    def mark(self, node: Node, path: KeyPath) -> None:
        if self.label is None:
            line = node.start_mark.line + 1
            self.source.origins[path] = Origin(f"{self.name}:{line}", line)

    def unreadable(self, path: KeyPath, message: str) -> Any:
        self.source.report(path, message)
        self.source.unreadable.add(path)
        return UNREADABLE

    def problem(self, node: Node, path: KeyPath, message: str) -> None:
        line = node.start_mark.line + 1
        label = self.label or f"{self.name}:{line}"
        self.source.problems.append((line, Problem(place_of(label, dotted(path)), message)))


def _joined(text: str) -> str:
    """Join surrogate pairs, as which JSON, and so YAML, may write a character beyond U+FFFF."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    prefixed = re.match(r"[-+]?0[xob]", digits) is not None
    return int(digits, 0) if prefixed else int(digits)  # 012 is twelve in YAML 1.2


def _float(text: str) -> float:
    return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


def read_yaml(text: str, name: str) -> Source:
    """Read a whole config; `name` is the file as messages should call it.

    Raises ConfigError if it is not one YAML mapping; lesser problems are collected in the source.
    """
    node = compose(text, name)
    if node is None:
        raise ConfigError(f"{name}: is empty; a config needs at least name, objective, parameters and budget")
    source = Source({}, {(): Origin(f"{name}:{node.start_mark.line + 1}", node.start_mark.line + 1)}, text=text)
    data = _Builder(source, name).value(node, ())
    if data is UNREADABLE:
        raise ConfigError(source.sorted_problems())
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:{node.start_mark.line + 1}: is {show(data)}, must be a mapping of sections")
    source.data = data
    return source


def read_value(text: str, source: Source, label: str, path: KeyPath) -> Any:
    """Read the value of an override; problems go to `source` under `label`."""
    node = compose(text, label, has_lines=False)
    return None if node is None else _Builder(source, label, label).value(node, path)
