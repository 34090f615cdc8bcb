"""The sections that say how a run goes on: swarm, budget, continuity, checkpoint, device, output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from osprey_mpi.config.parameters import INTEGER_LIMIT
from osprey_mpi.config.section import Fault, Seconds, Section, Word

Count = Annotated[int, Field(ge=1, le=INTEGER_LIMIT)]


def _auto_or_bool(value: Any) -> Any:
    if value == "auto" or isinstance(value, bool):
        return value
    raise ValueError("must be auto, true or false")


Switch = Annotated[
    Literal["auto"] | bool, PlainValidator(_auto_or_bool), WithJsonSchema({"enum": ["auto", True, False]})
]


class Search(Section):
    """Read how a flock searches; the defaults fit most objectives."""

    sigma: Annotated[float, Field(gt=0, le=1)] = 0.2
    """First spread of the samples, as a part of each parameter's range."""
    population: Annotated[int, Field(ge=4, le=INTEGER_LIMIT)] | None = None
    """Results per step of the distribution; null: by dimensions, ranks."""
    dives: Switch = "auto"
    """Follow slopes by differences; auto: where all parameters are real."""
    restarts: bool = True
    """Start again elsewhere when a flock has converged."""
    speed_exponent: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A worker's spread is scaled by its relative speed to minus this power."""


class Swarm(Section):
    """Read how ranks form flocks."""

    flock_size: Count = 16
    """Workers per flock, each flock with a leader."""
    deterministic: bool = False
    """Apply results in the order of their ids: a run on as many ranks repeats bit for bit, slower."""
    search: Search = Search()
    """How a flock searches."""

    def faults(self) -> Iterator[Fault]:
        """Yield what makes a deterministic run depend on time."""
        if self.deterministic and self.search.speed_exponent != 0:
            yield Fault(
                ("search", "speed_exponent"),
                f"is {self.search.speed_exponent}, but deterministic is true: measured speeds "
                "differ from run to run; must be 0",
            )


class Budget(Section):
    """Read when a run is over: at the first bound that is met; at least one is needed."""

    evaluations: Count | None = None
    """Number of evaluations, met exactly."""
    walltime_s: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, alias="walltime")
    """Time of one start (run or resume), in seconds or HH:MM:SS; exit 75 if `evaluations` are left."""
    target: float | None = None
    """Cost that is good enough, of a point that violates no constraint."""
    stagnation: Count | None = None
    """Evaluations without a better best."""

    def faults(self) -> Iterator[Fault]:
        """Yield a run without an end."""
        if (self.evaluations, self.walltime_s, self.target, self.stagnation) == (None, None, None, None):
            yield Fault((), "has no bound: the run would never end; give evaluations, walltime, target or stagnation")


class Continuity(Section):
    """Read how the loss of a rank is noticed."""

    cycle_s: Annotated[Seconds, Field(ge=0.1)] = Field(default=1.0, alias="cycle")
    """Time between signs of life, at least 0.1, in seconds."""
    stale_window: Count = 3
    """Cycles after which a result, though kept, no longer steers the search."""
    suspect_after_s: Seconds = Field(default=5.0, alias="suspect_after")
    """Silence after which a rank is asked for what is missing, at least two cycles, in seconds."""
    lost_after_s: Seconds = Field(default=30.0, alias="lost_after")
    """Silence after which a rank's work is given to others, above suspect_after, in seconds."""

    def faults(self) -> Iterator[Fault]:
        """Yield limits so short that living ranks would be taken for lost."""
        if self.suspect_after_s < 2 * self.cycle_s:
            yield Fault(
                ("suspect_after",),
                f"is {self.suspect_after_s:g} s, must be at least two cycles ({2 * self.cycle_s:g} s): "
                "one late sign of life is no failure",
            )
        if self.lost_after_s <= self.suspect_after_s:
            limit = f"must be above suspect_after, {self.suspect_after_s:g} s"
            yield Fault(("lost_after",), f"is {self.lost_after_s:g} s, {limit}")


class Checkpoint(Section):
    """Read how often the state of the search is saved; results themselves are always saved."""

    interval_s: Annotated[Seconds, Field(ge=0.1)] | None = Field(default=None, alias="interval")
    """Time between them, at least 0.1, in seconds or HH:MM:SS; null: by their cost (Young)."""
    failures_per_day: Annotated[float, Field(gt=0.0)] = 1.0
    """How often the run is expected to fail, for that choice."""
    keep: Count = 3
    """Checkpoints kept; an older one is used if the newest is broken."""


class Device(Section):
    """Read where arrays are computed; `device: cuda` is short for `device: {kind: cuda}`."""

    kind: Literal["auto", "cpu", "cuda"] = "auto"
    """Auto: cuda where a GPU and CuPy are found. Short: `device: cpu`."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Part of a GPU's free memory that its ranks may use together."""


class Output(Section):
    """Read where results go and which are kept."""

    dir: Annotated[Word, Field(min_length=1)] | None = None
    """The run folder; null: runs/<name> below the current folder."""
    record: Literal["auto", "all", "captures"] = "auto"
    """Rows kept of batches: auto means captures, that is improvements."""
    results_interval_s: Annotated[Seconds, Field(ge=0.1)] = Field(default=1.0, alias="results_interval")
    """Time between writes of new results, at least 0.1, in seconds."""

    def faults(self) -> Iterator[Fault]:
        """Yield a folder that is meant to be below the user's home: nobody would look for it in one called ~."""
        if self.dir is not None and self.dir.startswith("~"):
            yield Fault(("dir",), f"is '{self.dir}', but only a shell replaces ~; write the whole path")


def _device(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


DeviceOrName = Annotated[
    Device, BeforeValidator(_device, json_schema_input_type=Device | Literal["auto", "cpu", "cuda"])
]
