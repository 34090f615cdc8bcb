"""What every section of the config shares: strict types, no unknown keys, and faults that name their key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from osprey_mpi.config.durations import DURATION_PATTERN, parse_duration

KeyPath = tuple[str | int, ...]


class Fault(NamedTuple):
    """Name the key that is at fault, relative to its section, and say why in one sentence."""

    path: KeyPath
    message: str


class Section(BaseModel):
    """Read one section; frozen, no unknown keys, no conversion between types, finite numbers only."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong between the keys of this section, each of which is right for itself."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_faults(self) -> Self:
        refuse(self.faults())
        return self


def refuse(faults: Iterable[Fault]) -> None:
    """Raise all faults as one validation error; `problems.py` takes them apart again."""
    found = list(faults)
    if found:
        text = "; ".join(f"{dotted(fault.path)}: {fault.message}" if fault.path else fault.message for fault in found)
        raise PydanticCustomError("faults", "{text}", {"text": text, "faults": found})


def dotted(path: KeyPath) -> str:
    """Write a path as people do: start[0].lr."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def printable(text: str) -> str:
    """Write halves of surrogate pairs, which no file and no terminal takes, as \\ud800."""
    return text.encode("utf-8", "backslashreplace").decode()


def show(value: object, limit: int = 60) -> str:
    """Write a value as YAML would, shortened; mappings and long lists by their kind only."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        text = "[" + ", ".join(show(item) for item in value[:20]) + "]"
        return text if len(text) <= limit and len(value) <= 20 else f"a list of {len(value)} items"
    text = f"'{printable(value)}'" if isinstance(value, str) else str(value)
    text = text.replace("\0", "\\0")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def show_constraint(text: str) -> str:
    """Write a constraint, longer than other values: what is said of it is about a part of it."""
    return show(text, 200)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain the character NUL, which no file name and no argument can hold")
    return text


# What the operating system gets: a file name, or a word of a command.
Word = Annotated[str, AfterValidator(_without_nul)]

# HDF5 and Python's int64 columns hold numbers below this; larger ones could not be stored as what they are.
INT64_LIMIT = 2**63


def _choice(value: Any) -> Any:
    if not isinstance(value, str | int | float):
        raise ValueError("must be text, a number, true or false")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain the character NUL, which no file of results can hold")
    if isinstance(value, int) and abs(value) >= INT64_LIMIT:
        raise ValueError("must be smaller than 2**63, which is what a file of results can hold")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ValueError("must be a finite number")
    return value


# The value of a categorical or fixed parameter. A plain validator, because a union would report each member's error.
Choice = Annotated[
    str | int | float | bool, PlainValidator(_choice), WithJsonSchema({"type": ["string", "number", "boolean"]})
]

# Seconds, written as a number or as HH:MM:SS.
Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{DURATION_PATTERN}$"}]}
    ),
]

T = TypeVar("T")
# A YAML list. Strict mode would ask for a tuple, which YAML does not have; the items stay strict.
Items = Annotated[tuple[T, ...], Strict(False)]
