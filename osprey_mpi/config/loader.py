"""Load a config from a file or a mapping: every problem at once, each with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from osprey_mpi.config.checks import Pieces, faults_between
from osprey_mpi.config.objective import Objective
from osprey_mpi.config.overrides import apply_overrides
from osprey_mpi.config.parameters import Parameter
from osprey_mpi.config.problems import translate, unknown_keys
from osprey_mpi.config.retelling import retold
from osprey_mpi.config.running import Device, Swarm
from osprey_mpi.config.schema import Config
from osprey_mpi.config.section import Fault, KeyPath, dotted, printable, show
from osprey_mpi.config.source import UNREADABLE, Source
from osprey_mpi.config.yaml_source import MAX_DEPTH, TOO_DEEP, read_yaml
from osprey_mpi.errors import ConfigError, Problem

M = TypeVar("M", bound=BaseModel)

# A hundred times what the longest honest config has; a device gives bytes without end.
SIZE_LIMIT_BYTES = 2**24
# Pipes that are open already, as of `osprey run <(make_config)`: another one would block until somebody writes to it.
_OPEN_FILES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Load a YAML file with overrides ("budget.evaluations=100") applied.

    Raises ConfigError with all problems; each names file, line and key, or the override.
    """
    source = read_yaml(_text_of(Path(path)), str(path))
    apply_overrides(source, overrides)
    config = _build(source, Path(path).resolve().parent)
    return retold(config, [f"--set {override}" for override in overrides]) if overrides else config


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Return a config that was checked before with overrides applied; its text stays. Raises ConfigError."""
    source = Source(config.values())
    apply_overrides(source, overrides)
    changed = _build(source, config.base_dir)
    return changed.placed(config.base_dir, config.source_text, {**config.places, **changed.places})


def config_from_mapping(mapping: Mapping[str, Any], base_dir: str | Path | None = None) -> Config:
    """Check a config given as nested mappings with the keys of the YAML file.

    base_dir: where relative names start from; the current folder by default. NumPy values become Python's.
    Raises ConfigError with all problems.
    """
    source = Source({})
    data = _plain(mapping, ())
    if not isinstance(data, dict):
        raise ConfigError("the config must be a mapping of sections")
    source.data = data
    return _build(source, Path(base_dir).resolve() if base_dir is not None else Path.cwd())


def _build(source: Source, base_dir: Path) -> Config:
    data = _readable({key: value for key, value in source.data.items() if not key.startswith("x-")}, (), source)
    _check_encoding(base_dir)
    config = None
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        known = _without(data, unknown_keys(error))
        for fault in dict.fromkeys([*translate(error), *_faults_within(known), *_faults_of_the_rest(known)]):
            if not source.is_hidden(fault.path):
                source.report(fault.path, fault.message)
    if config is None or source.problems:
        raise ConfigError(source.sorted_problems())
    return config.placed(base_dir, source.text, _places(source))


def _readable(value: Any, path: KeyPath, source: Source) -> Any:
    """Copy nested data; report text that is no Unicode, and put UNREADABLE in its place."""
    if isinstance(value, list):
        return [_readable(item, (*path, i), source) for i, item in enumerate(value)]
    if isinstance(value, dict):
        whole = {key: item for key, item in value.items() if _is_unicode(key, (*path, key), source)}
        return {key: _readable(item, (*path, key), source) for key, item in whole.items()}
    return value if not isinstance(value, str) or _is_unicode(value, path, source) else UNREADABLE


def _is_unicode(text: str, path: KeyPath, source: Source) -> bool:
    """Tell if files can hold a text; if not, report it: pydantic, which reads on, could not even name it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = printable(text[error.start])
        source.report(path, f"is {show(text)}, but {half} is half of a surrogate pair, which is no character")
        source.unreadable.add(path)
        return False
    return True


def _places(source: Source) -> dict[str, str]:
    """Give the places of what can turn out wrong later: sections and their keys, of the objective all."""
    return {
        dotted(path): origin.label
        for path, origin in source.origins.items()
        if 0 < len(path) <= (4 if path[0] == "objective" else 2)
    }


def _without(data: Any, paths: Sequence[KeyPath]) -> Any:
    """Copy the data without the keys at `paths`."""
    dropped = {path[0] for path in paths if len(path) == 1}
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = {
        key: _without(value, [path[1:] for path in paths if path[0] == key and len(path) > 1])
        for key, value in items
        if key not in dropped
    }
    return below if isinstance(data, dict) else list(below.values()) if isinstance(data, list) else data


def _faults_within(data: Any) -> list[Fault]:
    """Check the sections once more without their unknown keys: pydantic stops before what is between keys."""
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return list(translate(error))
    return []


def _faults_of_the_rest(data: Mapping[str, Any]) -> list[Fault]:
    """Check what is between the sections that are valid, since pydantic stops before that if any is not."""
    valid: dict[str, Any] = {}
    parameters = data.get("parameters")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        try:
            valid[name] = _PARAMETER.validate_python(value)
        except ValidationError:
            continue
    broken = [name for name in parameters if name not in valid] if isinstance(parameters, dict) else []
    constraints, start, device = data.get("constraints"), data.get("start"), data.get("device")
    if not valid:
        return []
    pieces = Pieces(
        valid,
        broken,
        constraints if isinstance(constraints, list) and all(isinstance(text, str) for text in constraints) else (),
        start if isinstance(start, list) and all(isinstance(point, dict) for point in start) else (),
        _section(Objective, data.get("objective")),
        _section(Swarm, data.get("swarm")),
        _section(Device, {"kind": device} if isinstance(device, str) else device),
    )
    return list(faults_between(pieces))


_PARAMETER: TypeAdapter[Any] = TypeAdapter(Parameter)


def _section(model: type[M], value: Any) -> M | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _text_of(path: Path) -> str:
    try:
        if not (path.is_file() or path.is_dir() or str(path).startswith(_OPEN_FILES)) and path.exists():
            raise ConfigError(f"{path}: is no regular file")
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder, must be a YAML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > SIZE_LIMIT_BYTES:
        raise ConfigError(f"{path}: is too long for a config: at most {SIZE_LIMIT_BYTES} bytes are read")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = f"is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}; save the file as UTF-8"
        raise ConfigError([Problem(f"{path}:{line}", problem)]) from None


def _check_encoding(folder: Path) -> None:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(folder)!r}: its name is not UTF-8, so no file of the run could hold it") from None


def _plain(value: Any, path: KeyPath) -> Any:
    """Copy nested data with Python's own types: NumPy scalars and arrays are converted exactly."""
    if len(path) > MAX_DEPTH:  # as of a mapping that holds itself
        raise ConfigError([Problem(dotted(path[:1]), TOO_DEEP)])
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError([Problem(dotted(path), f"has the key {show(key)}, but keys must be text")])
        return {key: _plain(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, i)) for i, item in enumerate(value)]
    return value.tolist() if hasattr(value, "tolist") else value
