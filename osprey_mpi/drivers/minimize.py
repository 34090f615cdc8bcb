"""Give the whole tool as one Python function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    out: the run's folder; a new one below runs/ if None: runs/minimize, runs/minimize-2, ..., also for calls at the
    same moment.
    resume: go on with the run in `out`, with budget, objective.time_limit and what else may change as they are given
    now (the error for what must not names them all); start one if there is none yet.
    sections: the other sections of the config: name, seed, objective, constraints, start, swarm, budget, continuity,
    checkpoint, device, output. `budget` is needed.

    Without a launcher a callable may call it for a run of its own, and several threads may call it at once: callables
    of one process take turns. Under a launcher all ranks call it alike, from one thread.

    Raises ConfigError for arguments and a config that are not valid, and UsageError for a folder that is given and
    used, on every rank; and KeyboardInterrupt after SIGINT, once the run is saved, and after any signal that came
    before it began. Under a launcher SIGTERM counts as SIGINT: Open MPI's mpirun makes it of a Ctrl-C.
    MPI, once started, stays so until the program ends.
    """
    from osprey_mpi.drivers.request import Request
    from osprey_mpi.drivers.wording import in_python

    _check(function, out, sections.get("objective"))
    folder = None if out is None else Path(out)
    mapping = _mapping(function, parameters, sections)
    is_old = resume and _holds_run(folder, overwrite)
    claimed: list[Path] = []
    request = Request(
        load=lambda: _load(mapping, folder, claimed),
        resume=folder if is_old else None,
        out=folder,
        keep_mpi=True,
        overwrite=overwrite,
        quiet=quiet,
        function=None if isinstance(function, str) else function,
        wording=in_python,
    )
    try:
        with _turn_lent():
            return _run(request)
    finally:
        for path in claimed:
            with suppress(OSError):  # it holds the run
                path.rmdir()


@contextmanager
def _turn_lent() -> Iterator[None]:
    """Let the callable of a call within a callable have the turn of that one. Raises UsageError under a launcher."""
    from osprey_mpi.comm.launcher import detect
    from osprey_mpi.errors import UsageError
    from osprey_mpi.evaluate.wake import USER_CODE

    if not USER_CODE.is_here:
        yield
        return
    if detect().expects_mpi:
        raise UsageError(
            "minimize() is called by an objective in a thread of its rank, but under a launcher all ranks must call it "
            'together: minimise the text "module:function", which runs in a child process'
        )
    with USER_CODE.lent():
        yield


def _run(request: Request) -> RunResult:
    """Run as a Python program expects it: messages in its terms, and a Ctrl-C comes as KeyboardInterrupt."""
    from osprey_mpi.comm.launcher import detect
    from osprey_mpi.drivers.lives import run_session
    from osprey_mpi.errors import OspreyError, StoppedEarly

    try:
        result = run_session(request)
    except StoppedEarly as error:
        raise KeyboardInterrupt(str(error)) from None
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
    if not isinstance(out, str | Path | None) or out == "":
        raise ConfigError(f"out is {out!r}, must be a path or None")
    if isinstance(objective, Mapping) and "python" in objective:
        raise ConfigError("objective.python is given beside a function, which is what is minimised: leave it out")
    if isinstance(objective, Mapping) and objective.get("isolation") == "process" and not isinstance(function, str):
        raise ConfigError(
            "objective.isolation is process, but a callable runs in a thread of its rank: leave it out, or give the "
            'text "module:function" for a child process'
        )


def _mapping(
    function: Callable[..., Any] | str, parameters: Mapping[str, Any], sections: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the config that the arguments stand for, as a YAML file would hold it."""
    objective = sections.get("objective", {})
    if isinstance(objective, Mapping):  # else it is the config's to refuse, like all that is wrong below it
        is_text = isinstance(function, str)
        own = {"python": function} if is_text else {"python": "minimize:function", "isolation": "thread"}
        objective = {**own, **objective}
        is_in_rank = objective.get("ranks", 1) != 1 or objective.get("array") == "cupy"
        if not is_text and objective["isolation"] == "auto" and not is_in_rank:
            objective["isolation"] = "thread"  # what it comes to: a time limit must not be taken and then not be kept
    return {"name": "minimize", **sections, "objective": objective, "parameters": parameters}


def _holds_run(folder: Path | None, overwrite: bool) -> bool:
    """Tell whether there is a run to go on with. Raises UsageError for arguments that do not go together."""
    from osprey_mpi.errors import UsageError

    if folder is None:
        raise UsageError("resume=True needs out=, the folder of the run")
    if overwrite:
        raise UsageError("resume=True goes on with the run in the folder, overwrite=True replaces it: give one of them")
    return (folder / "run.json").is_file()


def _load(mapping: Mapping[str, Any], folder: Path | None, claimed: list[Path]) -> Config:
    """Return the config, with a folder of its own, which is claimed, where none is given."""
    from osprey_mpi.config import config_from_mapping

    config = config_from_mapping(mapping)
    if folder is not None or config.output.dir is not None:
        return config
    claimed.append(claim_folder(config.output_dir.absolute()))
    output = config.output.model_copy(update={"dir": str(claimed[0])})
    return config.model_copy(update={"output": output}).placed(config.base_dir)


def claim_folder(path: Path) -> Path:
    """Make `path`, or the first of path-2, path-3, ... that is not there yet, and return it: nobody else can."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    with suppress(OSError):  # where none can be made the run says so
        path.parent.mkdir(parents=True, exist_ok=True)
        for candidate in itertools.chain([path], numbered):
            with suppress(FileExistsError):
                candidate.mkdir()
                return candidate
    return path
