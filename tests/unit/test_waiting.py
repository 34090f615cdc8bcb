"""Files of any number: a program that calls us may hold thousands."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from osprey_mpi.waiting import readable

MANY = 2000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the ends of a pipe whose reader has a number that select() refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 100), hard))
    low, writer = os.pipe()
    reader = os.dup2(low, MANY)
    yield reader, writer
    for file in (low, reader, writer):
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_has_something_to_read_is_returned(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    began = time.monotonic()
    assert readable([reader], 0.05) == [] and time.monotonic() - began >= 0.05
    assert readable([reader], 0.0) == []
    os.write(writer, b"x")
    assert readable([reader], 0.0) == readable([reader]) == [reader]


def test_the_end_of_a_pipe_is_something_to_read() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    assert readable([reader]) == [reader]
    os.close(reader)


PROGRAM = """\
import os, resource
import osprey_mpi
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2100), hard))
many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
result = osprey_mpi.minimize("case:f", {"x": {"type": "real", "low": 0.0, "high": 1.0}}, budget={"evaluations": 3})
print(result.n_evaluations)
"""


def test_a_program_with_many_open_files_may_minimise_in_a_child(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text("def f(p):\n    return p['x']\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done
