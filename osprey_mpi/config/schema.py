"""The whole config: its sections, and how it travels as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from osprey_mpi.config.checks import Pieces, faults_between
from osprey_mpi.config.differences import differences
from osprey_mpi.config.objective import Objective
from osprey_mpi.config.parameters import Parameter
from osprey_mpi.config.running import Budget, Checkpoint, Continuity, Device, DeviceOrName, Output, Swarm
from osprey_mpi.config.section import INT64_LIMIT, Choice, Fault, Items, Section
from osprey_mpi.config.source import place_of
from osprey_mpi.errors import ConfigError, Problem

Value = Choice | Items[Choice]


class Config(Section):
    """Read one experiment. Top-level keys that begin with `x-` are ignored: a place for YAML anchors."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the run folder: letters, digits, dot, underscore and hyphen."""
    seed: Annotated[int, Field(ge=0, lt=INT64_LIMIT)] = 0
    """Seed of all random streams."""
    objective: Objective
    """What is minimised, and how: exactly one of `builtin`, `python` and `command`."""
    parameters: Annotated[dict[str, Parameter], Field(min_length=1)]
    """What the search may change, by name. The order is part of the run."""
    constraints: Items[str] = ()
    """What must hold between parameters: `a + sum(x) <= 1`; also abs, exp, log, max, min, sqrt."""
    start: Items[dict[str, Any]] = ()
    """Points to evaluate first, as `{x: 1, k: a}`; what is not named takes the middle of its range."""
    swarm: Swarm = Swarm()
    """How ranks form flocks, and how these search."""
    budget: Budget
    """When the run is over."""
    continuity: Continuity = Continuity()
    """How the loss of a rank is noticed."""
    checkpoint: Checkpoint = Checkpoint()
    """How often the state of the search is saved."""
    device: DeviceOrName = Device()
    """Where arrays are computed."""
    output: Output = Output()
    """Where results go and which are kept."""

    _base_dir: Path = PrivateAttr(default_factory=Path)  # the current folder, which need not be there
    _source_text: str = PrivateAttr(default="")
    _places: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def base_dir(self) -> Path:
        """Give the folder that relative names in the config start from: the one the file lies in."""
        return self._base_dir

    @property
    def source_text(self) -> str:
        """Give the YAML as it was read, or that of what is run if values were set; empty if it came from a mapping."""
        return self._source_text

    @property
    def output_dir(self) -> Path:
        """Give the run folder, relative to the current folder unless `output.dir` is absolute."""
        return Path(self.output.dir) if self.output.dir is not None else Path("runs", self.name)

    @property
    def places(self) -> dict[str, str]:
        """Give where sections and their keys were written: {"objective.python": "run.yaml:3"}."""
        return self._places

    def placed(self, base_dir: Path, source_text: str = "", places: Mapping[str, str] | None = None) -> Config:
        """Return this config with the folder, the text and the places it came from."""
        config = self.model_copy()
        config._base_dir, config._source_text, config._places = base_dir, source_text, dict(places or {})
        return config

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Let a ConfigError of the block that begins with a key of this config say where the key was written."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError([self._located(problem) for problem in error.problems]) from None

    def _located(self, problem: Problem) -> Problem:
        named = re.match(r"\w+(\.\w+|\[\d+\])*", problem.where or problem.message)
        key = named.group() if named is not None else ""
        while key and key not in self._places:  # the nearest key around it
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        place = self._places.get(key)
        return problem if place is None else Problem(place_of(place, problem.where), problem.message)

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong between sections."""
        pieces = Pieces(
            dict(self.parameters), (), self.constraints, self.start, self.objective, self.swarm, self.device
        )
        return faults_between(pieces)

    def to_json(self) -> str:
        """Write everything, defaults included (they may differ in another version), for `from_json`."""
        envelope = _Envelope(
            config=self, base_dir=str(self.base_dir), source_text=self.source_text, places=self.places
        )
        return envelope.model_dump_json(by_alias=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Config:
        """Read what `to_json` wrote: an equal config. Reads no YAML.

        Raises pydantic.ValidationError for a text that `to_json` of this version would not have written.
        """
        envelope = _Envelope.model_validate_json(text)
        return envelope.config.placed(Path(envelope.base_dir), envelope.source_text, envelope.places)

    def differences(self, other: Config) -> list[str]:
        """Name each key in which `other` differs, as "key: mine -> other's"."""
        return differences(self.values(), other.values())

    def values(self) -> dict[str, Any]:
        """Return everything, defaults included, as JSON values under the keys of the YAML."""
        return self.model_dump(mode="json", by_alias=True)


class _Envelope(BaseModel):
    """Carry a config with what is not part of its YAML."""

    model_config = ConfigDict(extra="forbid")

    config: Config
    base_dir: str
    source_text: str
    places: dict[str, str] = Field(default_factory=dict)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config file, for editors and checkers."""
    schema = Config.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "osprey-mpi experiment"
    schema["patternProperties"] = {"^x-": {}}
    return schema
