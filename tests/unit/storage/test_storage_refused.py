"""Why a folder is refused to a run, in one sentence, and what the user can do about it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from osprey_mpi.config import Config
from osprey_mpi.errors import EnvironmentFault, StorageError, UsageError
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.status import RunStatus, State, write_status


@pytest.mark.parametrize(
    ("number", "kind", "rest"),
    [
        (errno.EROFS, UsageError, r"Read-only file system \(errno 30\); choose another folder with --out"),
        (errno.EACCES, UsageError, r"Permission denied \(errno 13\); choose another folder with --out"),
        (errno.ENOSPC, EnvironmentFault, r"No space left on device \(errno 28\); \d+ bytes free; see to that, .*"),
        (errno.EIO, EnvironmentFault, r"Input/output error \(errno 5\); \d+ bytes free; see to that, .*"),
    ],
)
@pytest.mark.parametrize("name", ["mkdir", "open"])
def test_a_new_run_that_gets_no_folder_speaks_of_no_resume(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], rest: str,
    name: str,
) -> None:  # fmt: skip
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "mkdir", refuse) if name == "mkdir" else (os, "open", refuse)))
        with pytest.raises(kind) as caught:
            RunFolder.create(tmp_path / "run", config)
    path = re.escape(str(tmp_path / "run"))
    assert re.fullmatch(f"{path} cannot be made the folder of a run: {rest}", str(caught.value))
    RunFolder.create(tmp_path / "run", config).close()


def test_a_folder_below_a_file_is_refused(tmp_path: Path, config: Config) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"file/run' cannot be the folder of a run: .*Not a directory"):
        RunFolder.create(tmp_path / "file" / "run", config)


def test_a_run_whose_folders_cannot_be_made_again_gives_its_lock_free(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder.create(tmp_path / "run", config).close()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(StorageError, match="`osprey resume` the run once it can be written"):
            RunFolder.open(tmp_path / "run")
    RunFolder.open(tmp_path / "run").close()


@pytest.mark.parametrize(
    ("state", "reason", "hint"),
    [
        (State.STOPPED, "signal TERM", "holds a run: continue it with `osprey resume`, or"),
        (State.DONE, "walltime", "holds a run: continue it with `osprey resume`, or"),
        (
            State.DONE, "evaluations",
            "holds a run that is over, ended by: evaluations; give it more with `osprey resume --max-evaluations`, or",
        ),
        (
            State.FAILED, "evaluations",
            "holds a run that is over, ended by: evaluations; give it more with `osprey resume --max-evaluations`, or",
        ),
        (State.DONE, "target", "holds a run that is over, ended by: target;"),
    ],
)  # fmt: skip
def test_a_folder_with_a_run_is_refused_with_what_can_be_done(
    tmp_path: Path, config: Config, state: State, reason: str, hint: str
) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, config).close()
    write_status(path, RunStatus(state, reason=reason))
    with pytest.raises(UsageError) as caught:
        RunFolder.create(path, config)
    assert str(caught.value) == f"{path} {hint} choose another folder or --overwrite"
