"""A config as it was read, before its keys mean anything: plain data, and where each key came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osprey_mpi.config.section import KeyPath, dotted
from osprey_mpi.errors import Problem


class Origin(NamedTuple):
    """Tell where a key was written: "run.yaml:12" or "--set a.b"; `order` sorts problems."""

    label: str
    order: int
    is_override: bool = False


@dataclass(slots=True)
class Source:
    """Hold the data of one config; `origins` is empty if it came from a mapping."""

    data: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
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
        origin, key = self.origin(path), dotted(path)
        if origin is None:
            self.problems.append((0, Problem(key, message)))
        elif origin.is_override and origin.label == f"--set {key}":
            self.problems.append((origin.order, Problem(origin.label, message)))
        else:
            self.problems.append((origin.order, Problem(f"{origin.label}:{key}" if key else origin.label, message)))

    def sorted_problems(self) -> list[Problem]:
        """Give all problems in the order of their lines, overrides last, each once."""
        ordered = sorted(self.problems, key=lambda problem: problem[0])
        return list(dict.fromkeys(problem for _, problem in ordered))

    def replace(self, path: KeyPath, origin: Origin) -> None:
        """Say that everything at and below `path` now comes from `origin`."""
        self.origins = {p: o for p, o in self.origins.items() if p[: len(path)] != path}
        self.origins[path] = origin
