"""Import `module:function` from the config's folder, and say in one sentence why that did not work."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.objective import Objective
from osprey_mpi.words import message_of, visible


def put_first(folder: Path) -> None:
    """Put a folder first on sys.path and make every entry absolute.

    The current folder is no place to import from: an objective may change it, and then a later import would fail.
    """
    first = str(folder.resolve())
    rest = [str(Path(entry).absolute()) for entry in sys.path if entry not in ("", first)]
    sys.path[:] = [first, *(entry for entry in rest if entry != first)]


def load_function(target: str, folder: Path) -> Any:
    """Import "module:function" (or "module:Class.method") with `folder` first on sys.path.

    Raises ConfigError with the reason.
    """
    what = f"objective.python is {target!r}"
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{what}: it must be written module:function")
    put_first(folder)
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(f"{what}: no module named {error.name!r} (looked in {folder} and on sys.path)") from None
        raise ConfigError(f"{what}: importing {module_name} failed: {_last_line(error)}") from None
    except BaseException as error:  # a module may do anything when imported, sys.exit() included
        raise ConfigError(f"{what}: importing {module_name} failed: {_last_line(error)}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, [n for n in dir(found) if not n.startswith("__")], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            where = getattr(sys.modules[module_name], "__file__", None) or module_name
            raise ConfigError(f"{what}: {where} has no attribute {name!r}{hint}")
        found = getattr(found, name)
    return found


def load_objective(config: Any, function: Any = None) -> Objective:
    """Make the objective of a Python config, of `function` instead of `objective.python` if it is given.

    Raises ConfigError if it cannot be imported, or not be called with the config's options.
    """
    options, target = config.objective.options, config.objective.python
    if function is not None:
        return Objective(function, options, "the objective function")
    return Objective(load_function(target, config.base_dir), options, f"objective.python ({target})")


def _last_line(error: BaseException) -> str:
    """Write an import error in one line, with the place in the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({error.filename}:{error.lineno})"
    message = visible(error.msg) if isinstance(error, SyntaxError) else " ".join(message_of(error).split())
    return f"{type(error).__name__}: {message}{where}"
