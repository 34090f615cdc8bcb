"""The `objective` section: what is minimised, and how it is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue

from osprey_mpi.config.builtin_names import BUILTIN_BATCH, BUILTIN_NAMES
from osprey_mpi.config.nearest import suggestion
from osprey_mpi.config.section import Fault, Items, Seconds, Section, Word, show

Text = Annotated[str, Field(min_length=1)]
FileName = Annotated[Word, Field(min_length=1)]
Isolation = Literal["process", "thread", "none"]
# More points than this in one call are a typing mistake: what is kept of each would fill the memory of a rank.
BATCH_LIMIT = 2**20
NAME_BYTES = 255  # NAME_MAX of Linux
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Template(Section):
    """Read one input file that is written anew for each evaluation."""

    source: FileName
    """The file with `{name}` placeholders, relative to the config's folder."""
    target: FileName
    """Its name in the evaluation's scratch folder."""

    def faults(self) -> Iterator[Fault]:
        """Yield a target outside the scratch folder."""
        return _inside_scratch("target", self.target)


class Result(Section):
    """Read where a command's cost is found."""

    pattern: Text | None = None
    """Regular expression, a group around the number; its last match counts. Null: last line."""
    file: FileName | None = None
    """The file in the scratch folder to read; null: standard output."""

    def faults(self) -> Iterator[Fault]:
        """Yield a pattern that is no regular expression or has not one group, and a file outside the scratch folder."""
        try:
            n_groups = re.compile(self.pattern).groups if self.pattern is not None else 1
        except re.error as error:
            yield Fault(("pattern",), f"is no regular expression: {error}")
        else:
            if n_groups != 1:
                yield Fault(("pattern",), f"has {n_groups} groups, must have one, around the number: cost = (\\S+)")
        if self.file is not None:
            yield from _inside_scratch("file", self.file)


class EarlyStop(Section):
    """Read the median rule: stop what is worse than half of the others were at the same step."""

    min_steps: Annotated[int, Field(ge=1)] = 3
    """Reports that an evaluation makes before it may be stopped."""
    min_reports: Annotated[int, Field(ge=1)] = 5
    """Evaluations that must have reported at a step before it stops others."""


def _existing(name: str) -> str:
    if name not in BUILTIN_NAMES:
        raise ValueError(f"which is no built-in{suggestion(name, BUILTIN_NAMES)}")
    return name


def _function(name: str) -> str:
    if not _FUNCTION.fullmatch(name):
        raise ValueError("must be module:function, for example model:loss")
    return name


def _default_batch(data: dict[str, Any]) -> int:
    return BUILTIN_BATCH if data.get("builtin") is not None else 1


class Objective(Section):
    """Read what is minimised; exactly one of `builtin`, `python` and `command`."""

    builtin: Annotated[str, AfterValidator(_existing)] | None = None
    """Name of a built-in function, such as `rastrigin`."""
    python: Annotated[str, AfterValidator(_function)] | None = None
    """`module:function`, imported with the config's folder first on the path."""
    command: Annotated[Items[Word], Field(min_length=1)] | None = None
    """Program, arguments; `{x}`, `{x[0]}`, `{id}`, `{seed}` and `{scratch}` are filled in."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the built-in, or further keyword arguments of the function."""
    batch: Annotated[int, Field(ge=1, le=BATCH_LIMIT)] = Field(default_factory=_default_batch)
    """Points per call; 32 for a built-in, else 1."""
    array: Literal["numpy", "cupy"] = "numpy"
    """The arrays that a Python function with batch > 1 gets."""
    ranks: Annotated[int, Field(ge=1)] = 1
    """MPI ranks of one evaluation of a Python function, which gets a communicator."""
    isolation: Literal["auto", "process", "thread", "none"] = "auto"
    """A Python function runs in a child process or (thread, none) in the rank itself, where a crash ends the rank;
    auto: none for cupy and for ranks > 1, else process.
    """
    time_limit_s: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, alias="time_limit")
    """Longest time of a call, above 0, in seconds or HH:MM:SS; past it the status is timeout."""
    retries: Annotated[int, Field(ge=0)] = 0
    """How often a failed evaluation, but not a timeout, is tried again at once."""
    on_failure: Literal["skip", "penalty", "stop"] = "skip"
    """A failed evaluation ranks last, costs `penalty`, or ends the run."""
    penalty: float | None = None
    """What the search takes as the cost of a failed evaluation, with `on_failure: penalty`."""
    template: Items[Template] = ()
    """Input files of a command, written anew for each evaluation."""
    result: Result | None = None
    """Where a command's cost is; null: the last line of its output."""
    keep_scratch: Literal["never", "failed", "always"] = "failed"
    """Which scratch folders of a command, with its output, are kept."""
    early_stop: EarlyStop | None = None
    """Stop what reports poor values; `{}`: as below, null: never."""

    @property
    def kind(self) -> Literal["builtin", "python", "command"]:
        """Tell which of the three kinds of objective this is."""
        return "builtin" if self.builtin is not None else "python" if self.python is not None else "command"

    @property
    def runs_in(self) -> Isolation:
        """Tell what `isolation` comes to: where an evaluation runs."""
        if self.isolation != "auto":
            return self.isolation
        if self.kind == "command":
            return "process"
        inline = self.kind == "builtin" or self.array == "cupy" or self.ranks > 1
        return "none" if inline else "process"

    def faults(self) -> Iterator[Fault]:
        """Yield keys that exclude or need each other."""
        given = [key for key in ("builtin", "python", "command") if getattr(self, key) is not None]
        if len(given) != 1:
            named = f"has {' and '.join(given)}" if given else "has none of the three"
            yield Fault((), f"{named}, must have exactly one of builtin, python, command")
            return
        if self.command is not None and not self.command[0]:
            yield Fault(("command", 0), "is empty, must be the program")
        yield from self._target_faults()
        yield from self._foreign_keys()
        yield from self._isolation_faults()
        if self.on_failure == "penalty" and self.penalty is None:
            yield Fault(("penalty",), "is missing, but on_failure is penalty: give the cost of a failed evaluation")
        if self.on_failure != "penalty" and self.penalty is not None:
            yield Fault(("penalty",), f"is {self.penalty}, but has no effect with on_failure: {self.on_failure}")

    def _target_faults(self) -> Iterator[Fault]:
        """Yield template files that would take each other's place."""
        targets = [PurePosixPath(item.target) for item in self.template]
        for i, target in enumerate(targets):
            for other in targets[:i]:
                if target.is_relative_to(other) or other.is_relative_to(target):
                    message = f"is '{target}', but '{other}' is the target of another file"
                    yield Fault(("template", i, "target"), message)
                    break

    def _foreign_keys(self) -> Iterator[Fault]:
        """Yield keys that have no effect on, or cannot work with, this kind of objective."""
        kind = self.kind
        if kind == "command":
            if self.batch > 1:
                yield Fault(("batch",), f"is {self.batch}, but a command gets one point per call: must be 1")
            if self.options:
                yield Fault(("options",), "has no effect on a command: put its options into the list itself")
            if self.isolation in ("thread", "none"):
                yield Fault(("isolation",), f"is {self.isolation}, but a command always is a process of its own")
        else:
            for key, is_given in (("template", self.template), ("result", self.result)):
                if is_given:
                    yield Fault((key,), f"is for command only, but the objective is {kind}")
            if self.keep_scratch != "failed":
                yield Fault(("keep_scratch",), f"is for command only, but the objective is {kind}")
        if kind != "python":
            if self.ranks > 1:
                yield Fault(("ranks",), f"is {self.ranks}, but only a Python function takes a communicator: must be 1")
            if self.array == "cupy":
                yield Fault(("array",), f"is cupy, but that is for python only, and the objective is {kind}")
            if self.early_stop is not None:
                yield Fault(("early_stop",), f"needs a Python function that reports, but the objective is {kind}")
        if kind == "builtin" and self.retries:
            yield Fault(("retries",), f"is {self.retries}, but a built-in gives the same cost again: must be 0")
        if kind == "builtin" and self.isolation in ("process", "thread"):
            yield Fault(
                ("isolation",), f"is {self.isolation}, but a built-in runs in the rank itself: use auto or none"
            )

    def _isolation_faults(self) -> Iterator[Fault]:
        """Yield what cannot work where the evaluations run."""
        if self.kind == "python":
            if self.array == "cupy" and self.batch == 1:
                yield Fault(("array",), "is cupy, but batch is 1: one point gets plain numbers; give batch > 1")
            if self.ranks > 1 and self.isolation in ("process", "thread"):
                yield Fault(
                    ("isolation",),
                    f"is {self.isolation}, but ranks is {self.ranks}: a communicator cannot be "
                    "used outside the rank itself: must be auto or none",
                )
            if self.array == "cupy" and self.isolation == "process":
                yield Fault(
                    ("isolation",),
                    "is process, but array is cupy: the arrays are the rank's own, on its GPU: "
                    "must be auto, thread or none",
                )
            if self.early_stop is not None and self.batch > 1:
                yield Fault(("early_stop",), f"cannot stop one point of a call, but batch is {self.batch}: must be 1")
            elif self.early_stop is not None and self.runs_in == "none":
                yield Fault(("early_stop",), f"cannot work here: {self._why_inline()}, so it cannot be told to stop")
        if self.time_limit_s is not None and self.runs_in != "process":
            yield Fault(
                ("time_limit",),
                f"is {self.time_limit_s:g} s, but {self._why_inline()}, and only a process can be stopped from outside",
            )

    def _why_inline(self) -> str:
        if self.isolation in ("thread", "none"):
            place = "a thread of the rank" if self.isolation == "thread" else "the rank itself"
            return f"isolation is {self.isolation}: the function runs in {place}"
        reason = "a built-in" if self.kind == "builtin" else f"ranks: {self.ranks}" if self.ranks > 1 else "array: cupy"
        return f"{reason} runs in the rank itself"


def _inside_scratch(key: str, name: str) -> Iterator[Fault]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        yield Fault((key,), f"is '{name}', must be a name inside the scratch folder, without '..'")
    if any(len(part.encode()) > NAME_BYTES for part in path.parts):
        yield Fault((key,), f"is {show(name)}, but a file's name has at most {NAME_BYTES} bytes")
