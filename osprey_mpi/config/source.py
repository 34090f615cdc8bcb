"""A config as it was read, before its keys mean anything: plain data, and where each key came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osprey_mpi.config.section import KeyPath, dotted, printable
from osprey_mpi.errors import Problem


class Unreadable:
    """Stand for a value that could not be read and was reported: no type takes it."""

    def __str__(self) -> str:
        return "unreadable"


UNREADABLE = Unreadable()


class Origin(NamedTuple):
    """Tell where a key was written: "run.yaml:12" or "--set a.b"; `order` sorts problems."""

    label: str
    order: int


def place_of(label: str, key: str) -> str:
    """Write a place with its key: "run.yaml:12:budget", but not "--set budget:budget"."""
    return printable(label if not key or label == f"--set {key}" else f"{label}:{key}")


@dataclass(slots=True)
class Source:
    """Hold the data of one config; `origins` is empty if it came from a mapping.

    unreadable: what was reported as such. What else is said at, below or around such a key is hidden: it would be
    about a value that nobody has written.
    """

    data: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    unreadable: set[KeyPath] = field(default_factory=set)
    problems: list[tuple[int, Problem]] = field(default_factory=list)
    text: str = ""

    def origin(self, path: KeyPath) -> Origin | None:
        """Find where a key was written, or the nearest one around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return None

    def report(self, path: KeyPath, message: str) -> None:
        """Add a problem with the key at `path`."""
        origin = self.origin(path)
        self.problems.append((0 if origin is None else origin.order, self.problem(path, message)))

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return a problem with the key at `path`."""
        origin, key = self.origin(path), dotted(path)
        return Problem(printable(key) if origin is None else place_of(origin.label, key), message)

    def is_hidden(self, path: KeyPath) -> bool:
        """Tell whether a problem at `path` only follows from something unreadable."""
        return any(path[: len(other)] == other[: len(path)] for other in self.unreadable)

    def sorted_problems(self) -> list[Problem]:
        """Give all problems in the order of their lines, overrides last, each once."""
        ordered = sorted(self.problems, key=lambda problem: problem[0])
        return list(dict.fromkeys(problem for _, problem in ordered))

    def replace(self, path: KeyPath, origin: Origin) -> None:
        """Say that everything at and below `path` now comes from `origin`."""
        self.origins = {p: o for p, o in self.origins.items() if p[: len(path)] != path}
        self.origins[path] = origin
