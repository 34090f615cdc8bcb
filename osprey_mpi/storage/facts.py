"""Read run.json: what a run is, and what each of its lives ran on and has left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osprey_mpi.errors import UsageError
from osprey_mpi.storage.files import parse_json, read_regular
from osprey_mpi.storage.status import plain

NAME = "run.json"
FORMAT_VERSION = 1

_Time = Annotated[float, Field(ge=0.0, le=1e11)]  # s since 1970: what a calendar can show
_Number = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Part(BaseModel):
    """Be a part of run.json, as far as this version reads it."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Device(_Part):
    memory_bytes: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class _Life(_Part):
    life: _Count
    n_ranks: _Count
    started_unix_s: _Time
    ended_unix_s: _Time | None = None
    exit_code: _Number | None = None
    reason: str = ""
    n_evaluations: Annotated[int, Field(ge=0)] | None = None
    segments: list[str] | None = None
    host: str = ""
    pid: int = 0
    fault_tolerance: str = "none"
    hosts: list[str] = []
    argv: list[str] = []
    devices: list[_Device] = []
    versions: dict[str, Any] = {}
    slurm: dict[str, Any] = {}


class _Settings(_Part):
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class _Config(_Part):
    config: _Settings
    source_text: str


class _Facts(_Part):
    name: str
    started_unix_s: _Time
    config: _Config
    lives: list[_Life]
    base_dir: str | None = None
    former_configs: list[dict[str, Any]] = []


def read_facts(folder: Path) -> dict[str, Any]:
    """Return run.json; what readers take from it has the type that they take it for. Raises UsageError otherwise."""
    path = folder / NAME
    try:
        facts = _parse(read_regular(path))
    except RecursionError:
        reason = "it is nested too deeply"
    except (OSError, ValueError) as error:
        reason = str(error)
    else:
        version = facts.get("format_version", 0)
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise UsageError(
                f"{path} has format {version}, this version reads up to {FORMAT_VERSION}: update osprey-mpi"
            )
        try:
            _Facts.model_validate(facts)
        except ValidationError as error:
            reason = _fault(error)
        else:
            return facts
    raise UsageError(f"{path} cannot be read: {reason}; nothing was changed")


def _parse(data: bytes) -> dict[str, Any]:
    facts = parse_json(data)
    if not isinstance(facts, dict):
        raise ValueError("it holds no mapping")
    if facts.pop("sha256", None) not in (None, digest(facts)):
        raise ValueError("its checksum fails: it is damaged, or was edited (without its line sha256 it counts)")
    return facts


def digest(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what run.json says, however it is laid out."""
    return hashlib.sha256(json.dumps(plain(facts), sort_keys=True).encode()).hexdigest()


def _fault(error: ValidationError) -> str:
    """Say what is wrong first, as a sentence without pydantic's terms."""
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it has no {key}"
    value = json.dumps(first["input"])
    shown = value if len(value) <= 60 else f"{value[:60]} ..."
    return f"{key} is {shown}, {first['msg'].replace('Input should', 'which should')}"
