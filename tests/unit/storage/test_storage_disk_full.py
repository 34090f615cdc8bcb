"""A full disk: the segment stays readable, the error says how much room there is, and the append can be repeated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from osprey_mpi.config import Config
from osprey_mpi.errors import EnvironmentFault, StorageError
from osprey_mpi.search.space import Space
from osprey_mpi.storage.checkpoint import load_checkpoint, write_checkpoint
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.segment import Segment


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1.5 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small tmpfs cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing_and_doubles_nothing(small_disk: Path, columns: Any, rows: Any) -> None:
    segment = Segment(small_disk / "s.h5", columns, 1, 1)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    n = 0
    with pytest.raises(StorageError) as caught:
        while n < 10**6:
            segment.append(*rows(range(n, n + 500)))
            n += 500
    assert n > 0
    text = str(caught.value)
    assert f"{small_disk / 's.h5'} cannot be written: No space left on device (errno 28)" in text
    assert "bytes free" in text and "make room" in text
    for _ in range(5):  # retried while the disk is still full
        with pytest.raises(StorageError):
            segment.append(*rows(range(n, n + 500)))
        data = read_segment(segment.path)
        assert (data.notes, data.step) == ((), n // 500)
        np.testing.assert_array_equal(data.records["id"], np.arange(n))
    ballast.unlink()
    segment.append(*rows(range(n, n + 500)))
    segment.close()
    data = read_segment(segment.path)
    assert (data.notes, data.step) == ((), n // 500 + 1)
    np.testing.assert_array_equal(data.records["id"], np.arange(n + 500))
    np.testing.assert_array_equal(data.values, rows(range(n + 500))[1])


def test_a_disk_that_fills_to_the_last_byte(small_disk: Path, columns: Any, rows: Any) -> None:
    """Every amount of room that is left: the failure hits another write of the transaction each time."""
    segment = Segment(small_disk / "s.h5", columns, 1, 1)
    segment.append(*rows(range(3000)))
    n = 3000
    for room in range(0, 60):
        ballast = small_disk / "ballast"
        free = os.statvfs(small_disk).f_bavail * 4096
        ballast.write_bytes(bytes(max(0, free - room * 4096)))
        try:
            segment.append(*rows(range(n, n + 400)))
            n += 400
        except StorageError:
            pass
        data = read_segment(segment.path)
        assert data.notes == ()
        np.testing.assert_array_equal(data.records["id"], np.arange(n))
        ballast.unlink()
    assert n > 3000


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(small_disk: Path) -> None:
    write_checkpoint(small_disk, {"flock-0": {"mean": np.arange(3.0)}}, {"n": 1})
    with pytest.raises(StorageError, match=r"checkpoint\.h5 cannot be written: No space left.* bytes free"):
        write_checkpoint(small_disk, {"flock-0": {"mean": np.zeros(10**6)}}, {"n": 2})
    loaded, notes = load_checkpoint(small_disk)
    assert loaded is not None and loaded.meta == {"n": 1} and notes == []
    assert [path.name for path in small_disk.iterdir()] == ["checkpoint.h5"]


def test_a_new_run_on_a_full_disk_leaves_nothing_behind(small_disk: Path, config: Config) -> None:
    ballast = small_disk / "ballast"
    for room in range(12):
        free = os.statvfs(small_disk).f_bavail * 4096
        ballast.write_bytes(bytes(max(0, free - room * 4096)))
        try:
            RunFolder.create(small_disk / "run", config).close()
        except EnvironmentFault as error:
            assert "cannot be made the folder of a run: No space left on device (errno 28)" in str(error)
            assert "resume" not in str(error)
            assert [path.name for path in (small_disk / "run").glob("*") if path.name != ".lock"] == []
        else:
            return
        ballast.unlink()
    pytest.fail("48 KiB are too little for a new run")


MERGE = """
import os, sys
from pathlib import Path
from osprey_mpi.errors import StorageError
from osprey_mpi.storage.results import write_results
run, disk = Path(sys.argv[1]), Path(sys.argv[2])
for room in range(0, 320, 8):
    free = os.statvfs(disk).f_bavail * 4096
    (disk / "ballast").write_bytes(bytes(max(0, free - room * 1024)))
    try:
        write_results(run, output=disk / "results.h5")
    except StorageError as error:
        print(error)
    (disk / "ballast").unlink()
"""


def test_results_that_do_not_fit_are_an_error_and_no_crash(
    small_disk: Path, tmp_path: Path, config: Config, rows: Any
) -> None:
    """In a process of its own: h5py ends it by SIGSEGV where a file object raises in the middle of a close."""
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(1, ["h"])
        segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
        records, values = rows(range(1000), width=segment.n_columns)
        segment.append(records, np.zeros_like(values))
    done = subprocess.run(
        [sys.executable, "-c", MERGE, str(tmp_path / "run"), str(small_disk)], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    failures = done.stdout.splitlines()
    assert len(failures) > 10, "results of some 200 kB"
    start = f"{small_disk / 'results.h5'} cannot be written: No space left on device (errno 28); "
    assert all(line.startswith(start) for line in failures)
    with h5py.File(small_disk / "results.h5") as file:
        assert file["evaluations/evaluation"].shape == (1000,)
    assert [path.name for path in small_disk.iterdir()] == ["results.h5"]
