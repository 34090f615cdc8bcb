"""The journal: every moment of a transaction leaves the file before it or after it."""

from __future__ import annotations

import io
import os
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

from osprey_mpi.storage import journal
from osprey_mpi.storage.journal import JournaledFile, Transaction, journal_path, read_image
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.segment import Segment

WRITER = """
import sys
from pathlib import Path
import numpy as np
from osprey_mpi.continuity.records import BLOCK, RECORD, RowReason
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.storage.segment import Segment

columns = [Column(f"p{i}", None, Kind.REAL) for i in range(5)]
segment = Segment(Path(sys.argv[1]), columns, 1, 1)
n_rows = [1, 40, 700, 3, 2500]
id = step = 0
while True:
    n = n_rows[step % 5]
    records = np.zeros(n, RECORD)
    records["id"] = np.arange(id, id + n)
    values = np.repeat(records["id"][:, None] * 0.5, 5, axis=1)
    segment.append(records, values, np.array([(10**9 + step, 1)], BLOCK), [RowReason(id, 0, 0, f"step {step}")])
    id, step = id + n, step + 1
    sys.stdout.write(f"{step} {id}\\n")
    sys.stdout.flush()
"""


def kill_after(path: Path, delay_s: float) -> tuple[int, int]:
    """Start a writer, SIGKILL it, and return the last (step, number of rows) that it was told is durable."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    first = writer.stdout.readline()  # the start of Python is not what is tested
    time.sleep(delay_s)
    writer.send_signal(signal.SIGKILL)
    lines = (first + writer.stdout.read()).splitlines(keepends=True)
    writer.wait()
    whole = [line for line in lines if line.endswith("\n")]
    step, n = whole[-1].split()
    return int(step), int(n)


def check(path: Path, told_step: int, told_rows: int) -> None:
    data = read_segment(path)
    assert data.notes == ()
    assert data.step in (told_step, told_step + 1)  # killed between the commit and telling
    assert len(data.records) >= told_rows
    np.testing.assert_array_equal(data.records["id"], np.arange(len(data.records)))
    np.testing.assert_array_equal(data.values, np.repeat(data.records["id"][:, None] * 0.5, 5, axis=1))
    assert len(data.blocks) == len(data.reasons) == data.step
    assert [data.reason(row) for row in data.reasons] == [f"step {i}" for i in range(data.step)]


@pytest.mark.timeout(200)
def test_sigkill_at_any_moment_leaves_the_last_step(tmp_path: Path) -> None:
    chance = random.Random(20240607)
    for number in range(32):
        path = tmp_path / f"{number}.h5"
        check(path, *kill_after(path, chance.uniform(0.0, 0.06)))


def test_every_prefix_of_the_writes_of_an_append_is_readable(
    tmp_path: Path, columns: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut an append after each single write, of the journal and of the file: what no random kill hits for certain."""
    real = os.pwrite
    seen: list[int] = []
    n_allowed = 0
    while True:
        path = tmp_path / f"cut-{n_allowed}.h5"
        segment = Segment(path, columns, 1, 1)
        segment.append(*rows(range(1000)))
        left = n_allowed

        def pwrite(fd: int, data: Any, offset: int) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                real(fd, memoryview(data)[: len(data) // 2], offset)  # a torn write, then the power goes
                raise KeyboardInterrupt
            return real(fd, data, offset)

        monkeypatch.setattr(os, "pwrite", pwrite)
        try:
            segment.append(*rows(range(1000, 1500)))
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(os, "pwrite", real)
        data = read_segment(path)
        assert data.notes == () and data.step in (1, 2)
        np.testing.assert_array_equal(data.records["id"], np.arange(1000 if data.step == 1 else 1500))
        seen.append(data.step)
        n_allowed += 1
    assert len(seen) > 5 and seen == sorted(seen) and set(seen) == {1, 2}  # first the journal, then the file


def test_a_new_writer_completes_what_a_killed_one_committed(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver=journal.LIBVER) as file:
        file["a"] = np.zeros(4)
    whole = path.read_bytes()
    file = JournaledFile(path)
    file.update(lambda h5: h5["a"].write_direct(np.arange(4.0)))
    path.write_bytes(whole)  # as if it had been killed right after the commit
    with h5py.File(io.BytesIO(read_image(path))) as h5:
        assert h5["a"][:].tolist() == [0, 1, 2, 3]
    JournaledFile(path).finish()
    with h5py.File(path) as h5:
        assert h5["a"][:].tolist() == [0, 1, 2, 3]


def test_a_failing_change_leaves_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver=journal.LIBVER) as file:
        file["a"] = np.zeros(4)
    whole = path.read_bytes()

    def change(h5: Any) -> None:
        h5["a"][:] = 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        JournaledFile(path).update(change)
    assert path.read_bytes() == whole and journal_path(path).read_bytes() == b""


def test_a_torn_journal_is_no_transaction() -> None:
    raw = Transaction(100, ((0, b"abc"), (50, b"defg"))).pack()
    assert Transaction.unpack(raw) == Transaction(100, ((0, b"abc"), (50, b"defg")))
    assert Transaction.unpack(raw + b"left from a longer one") is not None
    for length in range(len(raw)):
        assert Transaction.unpack(raw[:length]) is None
    for index in range(len(raw) - 1):
        if not 36 <= index < 40:  # the unused word of the header
            assert Transaction.unpack(raw[:index] + bytes([raw[index] ^ 4]) + raw[index + 1 :]) is None, index


def test_readers_see_whole_steps_while_a_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "live.h5"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        end, n_looks, steps = time.monotonic() + 1.0, 0, set()
        while time.monotonic() < end:
            data = read_segment(path)
            assert data.notes == (), data.notes
            np.testing.assert_array_equal(data.records["id"], np.arange(len(data.records)))
            assert len(data.blocks) == data.step
            steps.add(data.step)
            n_looks += 1
    finally:
        writer.kill()
        writer.communicate()
    assert n_looks >= 3 and len(steps) >= 2
