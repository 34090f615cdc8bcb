"""Own the folder of a run: its names, its lock, its lives."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from osprey_mpi.config.retelling import text_of
from osprey_mpi.errors import EnvironmentFault, OspreyError, StorageError, UsageError
from osprey_mpi.storage.facts import FORMAT_VERSION, digest, read_facts
from osprey_mpi.storage.files import (
    discard,
    read_regular,
    remove_temporary,
    room,
    storage_error,
    sync_folder,
    write_atomic,
)
from osprey_mpi.storage.former import FOLDERS, refuse_used, remove_run
from osprey_mpi.storage.lock import LAUNCH, WAIT_S, FolderLock, describe, is_alive, is_held, read_holder
from osprey_mpi.storage.provenance import collect
from osprey_mpi.storage.reading import segment_name, segments_of
from osprey_mpi.storage.remains import names_of, note_remains
from osprey_mpi.storage.status import RunStatus, State, as_of, plain, read_status, write_status

if TYPE_CHECKING:
    from osprey_mpi.config import Config

# Errors that tell of the place that was asked for, not of the machine.
_NO_PLACE = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP}
)
_SILENT_S = 60.0  # a run on another host whose status is older than this, and whose lock is free, is gone


class RunFolder:
    """Give access to a run's files; made by `create`, `open` or `peek`, never directly."""

    def __init__(self, path: Path, life: int, lock: FolderLock | None) -> None:
        self.path = path
        self.life = life
        self._lock = lock

    @classmethod
    def create(cls, path: Path, config: Config, overwrite: bool = False) -> Self:
        """Make the folder of a new run and lock it.

        overwrite: replace a former run in it; files that are not a run's stay, and a folder that is no run is refused.
        Raises UsageError for a folder in use, not empty or where none can be made, EnvironmentFault for a full disk.
        """
        path = Path(path).absolute()
        refuse_used(path, overwrite)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = FolderLock.acquire(path / ".lock", _holder(1))
        except (OSError, StorageError) as error:
            raise _not_made(path, error) from error
        try:
            refuse_used(path, overwrite, is_ours=True)  # again: another run may have come and gone meanwhile
            if overwrite:
                remove_run(path)
            for name in FOLDERS:
                (path / name).mkdir(exist_ok=True)
            folder = cls(path, 1, lock)
            write_atomic(path / "config.yaml", text_of(config).encode())
            folder._write_run(_new_run(config))
            sync_folder(path.parent)
        except (OSError, StorageError) as error:
            with contextlib.suppress(OSError, UsageError):
                remove_run(path)  # the next try must not find it half made
            lock.release()
            raise _not_made(path, error) from error
        except BaseException:
            lock.release()
            raise
        return folder

    @staticmethod
    def refuse_used(path: Path, overwrite: bool = False) -> None:
        """Raise UsageError where `create` would, without changing a byte."""
        refuse_used(Path(path).absolute(), overwrite)

    @classmethod
    def open(cls, path: Path, wait_s: float = WAIT_S) -> Self:
        """Lock the folder of an existing run for its next life.

        wait_s: for how long a lock is tried that another run has. Raises UsageError if it is no run or in use,
        StorageError if it cannot be written.
        """
        path = _existing(path)
        lock = FolderLock.acquire(path / ".lock", _holder(_newest_life(path) + 1), wait_s)
        try:
            life = _newest_life(path) + 1  # again: another life may have come and gone meanwhile
            for name in (".", *FOLDERS):
                (path / name).mkdir(exist_ok=True)
                remove_temporary(path / name)
        except OSError as error:
            lock.release()
            raise storage_error(path, error) from error
        except UsageError:
            lock.release()
            raise
        return cls(path, life, lock)

    @classmethod
    def peek(cls, path: Path) -> Self:
        """Look at a run without a lock and without changing a byte. `life` is the newest one."""
        path = _existing(path)
        return cls(path, _newest_life(path), None)

    @classmethod
    def began(cls, path: Path) -> float | None:
        """Return when the run in a folder first started: no two have the same; None where none can be read."""
        try:
            return cls.peek(path).started_unix_s
        except UsageError:
            return None

    def close(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def segment_path(self, epoch: int) -> Path:
        """Return the segment of this life's epoch."""
        return self.path / "results" / segment_name(self.life, epoch)

    def removed(self, segments: Iterable[Path]) -> Path | None:
        """Return what another program has removed of a run that goes on: its folder, that of its results, a segment."""
        if not (self.path / "run.json").is_file():
            return self.path
        gone = next((path for path in segments if not path.is_file()), None)
        return gone if gone is None or gone.parent.is_dir() else gone.parent

    @property
    def run(self) -> dict[str, Any]:
        """Return run.json. Raises UsageError if it is damaged."""
        return read_facts(self.path)

    @property
    def started_unix_s(self) -> float:
        """Return when the run first started; the times of all its rows count from here."""
        return float(self.run["started_unix_s"])

    def config(self) -> Config:
        """Return the config that the run uses now."""
        from osprey_mpi.config import Config

        try:
            return Config.from_json(json.dumps(self.run["config"]))
        except (KeyError, ValueError) as error:  # pydantic's ValidationError is a ValueError
            raise UsageError(f"{self.path / 'run.json'} holds no config that this version can read: {error}") from error

    def change_config(self, config: Config) -> None:
        """Use `config` from this life on; the former one stays in run.json, and so does a config.yaml that was edited.

        The file comes first: if this is interrupted, the next resume says that what is in it has no effect.
        """
        run = self.run
        if not self.is_edited(self.config()):
            write_atomic(self.path / "config.yaml", text_of(config).encode())
        run.setdefault("former_configs", []).append({"until_life": self.life - 1, "config": run["config"]})
        run["config"] = json.loads(config.to_json())
        self._write_run(run)

    def is_edited(self, config: Config) -> bool:
        """Tell whether config.yaml is not as it was written for `config`; one that is gone is not edited."""
        try:
            return read_regular(self.path / "config.yaml") != text_of(config).encode()
        except OSError:
            return False

    def begin_life(
        self,
        n_ranks: int,
        hosts: Sequence[str] = (),
        mpi_library: str = "",
        fault_tolerance: str = "none",
        devices: Sequence[Mapping[str, Any]] = (),
        begun_s: float = 0.0,
    ) -> None:
        """Record in run.json what this life runs on. devices: inventory rows, each with its host.

        begun_s: how long ago it has begun.

        The results.h5 of an earlier life goes: it would look like the whole of a run that goes on.
        """
        started_unix_s = time.time() - begun_s
        self.drop_results()
        run = self.run
        base_dir = run.get("base_dir")
        note_remains(self.path, run["lives"], read_status(self.path))
        life = {
            "life": self.life,
            "started_unix_s": started_unix_s,
            "ended_unix_s": None,
            "exit_code": None,
            "n_ranks": n_ranks,
            "hosts": list(hosts),
            "mpi_library": mpi_library,
            "fault_tolerance": fault_tolerance,
            "devices": [dict(device) for device in devices],
            **collect(Path(base_dir) if base_dir else None),
        }
        run["lives"] = [old for old in run["lives"] if old["life"] != self.life] + [life]
        self._write_run(run)

    def end_life(self, exit_code: int, reason: str = "", n_evaluations: int | None = None) -> None:
        """Record in run.json when and how this life ended, and what it leaves. n_evaluations: of all lives."""
        ended_unix_s, run = time.time(), self.run
        for life in run["lives"]:
            if life["life"] == self.life:
                life["ended_unix_s"], life["exit_code"], life["reason"] = ended_unix_s, int(exit_code), reason
                life["n_evaluations"], life["segments"] = n_evaluations, names_of(self.path, self.life)
        self._write_run(run)

    def _write_run(self, run: Mapping[str, Any]) -> None:
        self.write_json("run.json", {**run, "sha256": digest(run)})

    def drop_results(self) -> None:
        """Delete results.h5; all that is in it is in the segments."""
        discard(self.path / "results.h5")

    def refuse_taken(self) -> None:
        """Raise StorageError if another life has taken the folder since: what it writes must stay."""
        holder = {} if self._lock is None else self._lock.successor()
        if holder:
            raise StorageError(f"{describe(holder)} has taken {self.path} over: life {self.life} writes no more to it")

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file in the folder in one durable step. NaN and infinities become null."""
        self.refuse_taken()
        text = json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(self.path / name, (text + "\n").encode())

    def write_status(self, status: RunStatus) -> None:
        """Replace status.json."""
        self.refuse_taken()
        write_status(self.path, status)

    def observe(self, now_unix_s: float | None = None) -> tuple[RunStatus | None, State]:
        """Return the last status and the state as seen from outside; takes no lock that lasts.

        Where nobody has the run any more and run.json tells of a later moment than status.json, that counts. A run that
        says it is active is INTERRUPTED when its lock is free: its processes are gone.
        """
        status = read_status(self.path)
        holder, held = self.last_holder, self.is_held()
        newest = max(self.run["lives"], key=lambda life: int(life["life"]), default=None)
        if newest is not None and not held:
            status = as_of(status, newest)
        if status is None or (held and int(holder.get("life", 0)) > status.life):
            return status, State.STARTING if held else State.INTERRUPTED
        if held or not status.state.is_active:
            return status, status.state
        # Some filesystems keep locks to one host: from another one, only the age of the status tells.
        elsewhere = holder.get("host", status.host) != socket.gethostname()
        age_s = (time.time() if now_unix_s is None else now_unix_s) - status.updated_unix_s
        return status, status.state if elsewhere and age_s < _SILENT_S else State.INTERRUPTED

    def is_held(self) -> bool:
        """Tell whether a process has the folder, as far as this host can know."""
        held = is_held(self.path / ".lock")
        return is_alive(self.last_holder) if held is None else held

    @property
    def last_holder(self) -> Mapping[str, Any]:
        """Return who has or last had the folder: host, pid, life, launch, started_unix_s; empty if nobody."""
        return read_holder(self.path / ".lock")

    def holder(self) -> str:
        """Return who has or last had the folder, for a message."""
        return describe(self.last_holder)


def _holder(life: int) -> dict[str, Any]:
    launch = os.environ.get(LAUNCH, "")
    return {
        "host": socket.gethostname(), "pid": os.getpid(), "life": life, "launch": launch, "started_unix_s": time.time()
    }  # fmt: skip


def _new_run(config: Config) -> dict[str, Any]:
    return {
        "format": "osprey-mpi run",
        "format_version": FORMAT_VERSION,
        "name": config.name,
        "started_unix_s": time.time(),
        "config": json.loads(config.to_json()),
        "base_dir": str(config.base_dir),
        "lives": [],
    }


def _not_made(path: Path, error: OSError | StorageError) -> OspreyError:
    """Say why a new run has no folder: nothing is there yet that a resume could go on with."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) and cause.errno else 0
    text = f"{path} cannot be made the folder of a run: {os.strerror(number) if number else error} (errno {number})"
    if number in _NO_PLACE:
        return UsageError(f"{text}; choose another folder with --out")
    return EnvironmentFault(f"{text}; {room(path)}; see to that, or choose another folder with --out")


def _existing(path: Path) -> Path:
    path = Path(path).absolute()
    if not path.is_dir():
        raise UsageError(f"{path} is a file, not the folder of a run" if path.exists() else f"{path} does not exist")
    if not (path / "run.json").is_file():
        raise UsageError(f"{path} is not the folder of a run: it has no run.json")
    return path


def _newest_life(path: Path) -> int:
    """Return the newest life that left a trace anywhere in the folder. Raises UsageError for a damaged run.json."""
    lives = [int(life["life"]) for life in read_facts(path)["lives"]]
    lives += [life for life, _, _ in segments_of(path / "results")]
    status = read_status(path)
    if status is not None:
        lives.append(status.life)
    return max(lives, default=0)
