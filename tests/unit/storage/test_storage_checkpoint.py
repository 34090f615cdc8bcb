"""Checkpoints: what verifies is loaded, bit for bit; what does not is skipped and named."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from osprey_mpi.errors import StorageError
from osprey_mpi.storage import files
from osprey_mpi.storage.checkpoint import checkpoint_paths, load_checkpoint, write_checkpoint

STATE = {
    "flock-0": {
        "mean": np.random.default_rng(0).standard_normal(7),
        "levels": np.array([2**62, -1], np.int64),
        "text": np.frombuffer("ß".encode(), np.uint8),
        "flags": np.array([True, False]),
        "empty": np.empty((0, 3)),
        "scalar": np.array(1.5),
        "special": np.array([np.nan, -0.0, np.inf]),
    },
    "flock-1": {},
}
META = {"n": 2**63 + 1, "cost": 0.1, "worst": float("inf"), "name": "ü" * 100_000, "count": np.int64(3)}


def test_what_is_written_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, STATE, META)
    loaded, notes = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.meta == META and loaded.path == tmp_path / "checkpoint.h5" and notes == []
    assert loaded.groups.keys() == STATE.keys()
    for name, arrays in STATE.items():
        assert loaded.groups[name].keys() == arrays.keys()
        for key, array in arrays.items():
            found = loaded.groups[name][key]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_hdf5_tools_open_it(tmp_path: Path) -> None:
    with h5py.File(write_checkpoint(tmp_path, STATE, {})) as file:
        assert file["groups/flock-0/mean"][0] == STATE["flock-0"]["mean"][0]


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    for n in range(5):
        write_checkpoint(tmp_path, {}, {"n": n}, keep=3)
    names = [path.name for path in checkpoint_paths(tmp_path)]
    assert names == ["checkpoint.h5", "checkpoint-1.h5", "checkpoint-2.h5"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for n in (4, 3, 2):
        loaded, _ = load_checkpoint(tmp_path)
        assert loaded is not None and loaded.meta == {"n": n}
        loaded.path.unlink()
    assert load_checkpoint(tmp_path) == (None, [])
    write_checkpoint(tmp_path, {}, {}, keep=1)
    write_checkpoint(tmp_path, {}, {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.h5"]


def damaged(how: str, data: bytes) -> bytes:
    return {
        "empty": b"",
        "torn": data[: len(data) // 2],
        "short by one": data[:-1],
        "bit in the data": data[:-3000] + bytes([data[-3000] ^ 1]) + data[-2999:],
        "bit in the head": bytes([data[0] ^ 1]) + data[1:],
        "bit in the checksum": data.replace(b'"sha256": "', b'"sha256": "0', 1)[: len(data)],
        "other version": data.replace(b'"format_version": 1', b'"format_version": 2', 1),
        "no checkpoint": b"\x89HDF\r\n\x1a\n" + data[8:],
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "empty", "torn", "short by one", "bit in the data", "bit in the head", "bit in the checksum", "other version",
        "no checkpoint",
    ],
)  # fmt: skip
def test_a_damaged_newest_gives_way_to_the_one_before(tmp_path: Path, how: str) -> None:
    write_checkpoint(tmp_path, STATE, {"n": 1})
    path = write_checkpoint(tmp_path, STATE, {"n": 2})
    path.write_bytes(damaged(how, path.read_bytes()))
    loaded, notes = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.meta == {"n": 1} and loaded.path.name == "checkpoint-1.h5"
    assert len(notes) == 1 and notes[0].startswith(f"{path} is skipped: ")
    (tmp_path / "checkpoint-1.h5").unlink()
    assert load_checkpoint(tmp_path) == (None, notes)


def test_every_bit_counts(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, {"a": {"b": np.arange(3)}}, {})
    whole = path.read_bytes()
    chance = random.Random(1)
    for _ in range(200):
        data = bytearray(whole)
        at = chance.randrange(512, len(data))
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        assert load_checkpoint(tmp_path)[0] is None, at


def test_a_failure_half_way_leaves_all_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, {}, {"n": 1})

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "write_all", fail)
    with pytest.raises(StorageError, match="the file server failed"):
        write_checkpoint(tmp_path, {}, {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.h5"]
    loaded, _ = load_checkpoint(tmp_path)
    assert loaded is not None and loaded.meta == {"n": 1}


WRITER = """
import sys
from pathlib import Path
import numpy as np
from osprey_mpi.storage.checkpoint import write_checkpoint
n = 0
while True:
    write_checkpoint(Path(sys.argv[1]), {"flock-0": {"mean": np.full(20_000, n)}}, {"n": n}, keep=2)
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
    n += 1
"""


@pytest.mark.timeout(120)
def test_sigkill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    chance = random.Random(3)
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        told = int((first + writer.stdout.read()).split()[-1])
        writer.wait()
        loaded, notes = load_checkpoint(folder)
        assert loaded is not None and notes == []
        n = loaded.meta["n"]
        assert n in (told, told + 1)
        np.testing.assert_array_equal(loaded.groups["flock-0"]["mean"], np.full(20_000, n))
        assert len(checkpoint_paths(folder)) <= 3  # the surplus one is deleted by the next
