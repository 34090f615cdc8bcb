"""Give the whole tool as one Python function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osprey_mpi.drivers.outcome import RunResult

if TYPE_CHECKING:
    from osprey_mpi.config import Config
    from osprey_mpi.drivers.request import Request


def minimize(
    function: Callable[..., Any] | str,
    parameters: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = True,
    **sections: Any,
) -> RunResult:
    """Minimise a function and return the result.

    Collective over the ranks of the launch, if a launcher started this program.

    function: a callable `f(parameters)` or `f(parameters, context)`, evaluated in a thread of each rank, or the text
    "module:function", evaluated in a child process of each rank, which adds time limits and survives crashes.
    parameters: as in the YAML config, {"x": {"type": "real", "low": -5, "high": 5, "size": 3}}.
    out: the run's folder; a new one below runs/ if None: runs/minimize, runs/minimize-2, ...
    resume: go on with the run in `out`, with budget, objective.time_limit and what else may change as they are given
    now (the error for what must not names them all); start one if there is none yet.
    sections: the other sections of the config: name, seed, objective, constraints, start, swarm, budget, continuity,
    checkpoint, device, output. `budget` is needed.

    Raises ConfigError for arguments and a config that are not valid, and UsageError for a folder that is given and
    used, on every rank; and KeyboardInterrupt after SIGINT, once the run is saved. Under a launcher SIGTERM counts as
    one: Open MPI's mpirun makes it of a Ctrl-C.
    MPI, once started, stays so until the program ends.
    """
    from osprey_mpi.drivers.request import Request
    from osprey_mpi.drivers.wording import in_python

    _check(function, out, sections.get("objective"))
    folder = None if out is None else Path(out)
    mapping = _mapping(function, parameters, sections)
    is_old = resume and _holds_run(folder, overwrite)
    return _run(Request(
        load=lambda: _load(mapping, folder),
        resume=folder if is_old else None,
        out=folder,
        keep_mpi=True,
        overwrite=overwrite,
        quiet=quiet,
        function=None if isinstance(function, str) else function,
        wording=in_python,
    ))  # fmt: skip


def _run(request: Request) -> RunResult:
    """Run as a Python program expects it: messages in its terms, and a Ctrl-C comes as KeyboardInterrupt."""
    from osprey_mpi.comm.launcher import detect
    from osprey_mpi.drivers.lives import run_session
    from osprey_mpi.errors import OspreyError

    try:
        result = run_session(request)
    except OspreyError as error:
        error.args = (request.wording(str(error)),)
        raise
    interrupts = {"signal INT", "signal TERM"} if detect().expects_mpi else {"signal INT"}
    if result.reason in interrupts:
        raise KeyboardInterrupt(f"the run is saved in {result.out}")
    return result


def _check(function: object, out: object, objective: object) -> None:
    """Raise ConfigError for arguments that no config could hold."""
    from osprey_mpi.errors import ConfigError

    if not isinstance(function, str) and not callable(function):
        raise ConfigError(f"function is {function!r}, must be callable or the text module:function")
    if not isinstance(out, str | Path | None):
        raise ConfigError(f"out is {out!r}, must be a path or None")
    if isinstance(objective, Mapping) and "python" in objective:
        raise ConfigError("objective.python is given beside a function, which is what is minimised: leave it out")


def _mapping(
    function: Callable[..., Any] | str, parameters: Mapping[str, Any], sections: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the config that the arguments stand for, as a YAML file would hold it."""
    objective = sections.get("objective", {})
    if isinstance(objective, Mapping):  # else it is the config's to refuse, like all that is wrong below it
        is_text = isinstance(function, str)
        own = {"python": function} if is_text else {"python": "minimize:function", "isolation": "thread"}
        objective = {**own, **objective}
    return {"name": "minimize", **sections, "objective": objective, "parameters": parameters}


def _holds_run(folder: Path | None, overwrite: bool) -> bool:
    """Tell whether there is a run to go on with. Raises UsageError for arguments that do not go together."""
    from osprey_mpi.errors import UsageError

    if folder is None:
        raise UsageError("resume=True needs out=, the folder of the run")
    if overwrite:
        raise UsageError("resume=True goes on with the run in the folder, overwrite=True replaces it: give one of them")
    return (folder / "run.json").is_file()


def _load(mapping: Mapping[str, Any], folder: Path | None) -> Config:
    """Return the config, with a folder of its own where none is given."""
    from osprey_mpi.config import config_from_mapping

    config = config_from_mapping(mapping)
    if folder is not None or config.output.dir is not None:
        return config
    output = config.output.model_copy(update={"dir": str(free_folder(config.output_dir))})
    return config.model_copy(update={"output": output}).placed(config.base_dir)


def free_folder(path: Path) -> Path:
    """Return `path`, or the first of path-2, path-3, ... that is not there yet."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([path], numbered) if not candidate.exists())
