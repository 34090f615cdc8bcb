"""Judge what is in the folder that a new run wants, and delete a former run there."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from osprey_mpi.errors import UsageError
from osprey_mpi.storage.files import remove_temporary
from osprey_mpi.storage.lock import describe, is_held, read_holder
from osprey_mpi.storage.status import State, read_status

FOLDERS = ("results", "logs", "scratch")
# What --overwrite deletes, in this order: as long as run.json is there it is the folder of a run.
_OURS = (
    "results/life-*-epoch-*.h5*", "logs/rank-*.log", "checkpoint*.h5", "results.h5", "status.json", "config.yaml",
    "run.json",
)  # fmt: skip


def refuse_used(path: Path, overwrite: bool, is_ours: bool = False) -> None:
    """Raise UsageError where no new run can begin, without changing a byte. is_ours: we have its lock."""
    try:
        str(path).encode()
        path.stat()
        if not path.is_dir():
            raise UsageError(f"{path} is a file, not a folder")
        used = [entry for entry in path.iterdir() if entry.name != ".lock"]
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(
                f"{path} is a symbolic link to {path.readlink()}, which is not there: make that folder first, or "
                "choose another one"
            ) from None
        return
    except UnicodeEncodeError:
        raise UsageError(
            f"{str(path)!r} cannot be the folder of a run: its name is not UTF-8, as all is that is written about a run"
        ) from None
    except (OSError, ValueError) as error:  # such as a name that is too long, or holds NUL
        raise UsageError(f"{str(path)!r} cannot be the folder of a run: {error}") from error
    if not used:
        return
    is_run = (path / "run.json").is_file()
    if is_run and not is_ours and is_held(path / ".lock"):
        raise UsageError(f"{path} is in use by {describe(read_holder(path / '.lock'))}")
    if not overwrite:
        what = _what_it_holds(path) if is_run else "is not empty:"
        raise UsageError(f"{path} {what} choose another folder" + (" or --overwrite" if is_run else ""))
    if not is_run:
        raise UsageError(f"{path} is not empty and not the folder of a run: --overwrite does not touch it")


def _what_it_holds(path: Path) -> str:
    """Say what can be done with the run in a folder: one that has met its budget does not go on."""
    status = read_status(path)
    if status is None or status.state not in (State.DONE, State.FAILED) or status.reason == "walltime":
        return "holds a run: continue it with `osprey resume`, or"
    more = "give it more with `osprey resume --max-evaluations`, or " if status.reason == "evaluations" else ""
    return f"holds a run that is over, ended by: {status.reason}; {more}".rstrip()


def remove_run(path: Path) -> None:
    """Delete the files of a run and no others. Raises UsageError before anything is deleted if one is not a run's."""
    old = [file for pattern in _OURS for file in path.glob(pattern)]
    strange = [file for file in old if file.is_dir()]
    folders = [path / name for name in FOLDERS]
    strange += [folder for folder in folders if not folder.is_dir() and (folder.is_symlink() or folder.exists())]
    if strange:
        raise UsageError(f"{strange[0]} is not what a run makes of that name: --overwrite has deleted nothing")
    shutil.rmtree(path / "scratch", ignore_errors=True)
    for file in old:
        file.unlink()
    remove_temporary(path)
    for folder in folders:
        remove_temporary(folder)
        with contextlib.suppress(OSError):  # it holds files of the user's
            folder.rmdir()
