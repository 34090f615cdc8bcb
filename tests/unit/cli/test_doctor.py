"""osprey doctor: facts of this machine, and of machines where something is broken."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from osprey_mpi.cli import doctor, doctor_facts
from osprey_mpi.errors import ExitCode


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return doctor_facts.gather()


def test_facts_are_json_and_complete(facts: dict[str, Any]) -> None:
    assert json.loads(json.dumps(facts)) == facts
    assert list(facts) == [
        *("osprey_mpi", "python", "packages", "mpi", "launcher", "fault_tolerance", "hdf5", "gpus", "cores", "threads"),
        "shared_memory",
    ]
    assert facts["python"]["executable"] == sys.executable and facts["packages"]["numpy"]
    assert facts["hdf5"]["error"] is None and facts["hdf5"]["library"].count(".") == 2
    assert facts["cores"]["n_allowed"] == len(os.sched_getaffinity(0))
    assert facts["shared_memory"]["free_bytes"] is None or facts["shared_memory"]["free_bytes"] > 0
    assert facts["fault_tolerance"]["mode"] in ("none", "ulfm")


def test_text_has_a_line_for_each_fact(facts: dict[str, Any]) -> None:
    text = "\n".join(doctor.lines({**facts, "notes": ["something hurts"]}))
    for start in (
        "osprey-mpi: ",
        "Python: ",
        "MPI: ",
        "launcher: ",
        "HDF5: ",
        "GPUs: ",
        "cores: ",
        "note: something hurts",
    ):
        assert any(line.startswith(start) for line in text.splitlines()), start


def test_works_where_mpi4py_cannot_be_imported() -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None; sys.modules['h5py'] = None\n"
        "from osprey_mpi.cli import doctor_facts, doctor, options\n"
        "doctor_facts.MPI_PROBE = doctor_facts.HDF5_PROBE = 'raise ImportError(\"libmpi.so: not found\")'\n"
        "doctor.doctor_command(options.TextFormat.JSON)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.DONE, done.stderr
    found = json.loads(done.stdout)
    assert found["mpi"]["library"] is None and found["mpi"]["error"] == "ImportError: libmpi.so: not found"
    assert any("MPI cannot be used (ImportError: libmpi.so: not found)" in note for note in found["notes"])
    assert any("HDF5 cannot be used" in note for note in found["notes"])


def test_a_library_that_crashes_or_hangs_hurts_nobody() -> None:
    unknown = {"library": None, "error": None}
    crashed = doctor_facts._probe("import os; os.kill(os.getpid(), 11)", unknown, 30)
    assert crashed == {"library": None, "error": "ended with -11"}
    before = time.monotonic()
    assert doctor_facts._probe("import time; time.sleep(60)", unknown, 0.5)["error"] == "no answer within 0.5 s"
    assert time.monotonic() - before < 10


def test_secrets_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "eyJhbGciOi")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    environment = doctor_facts._launcher(5)["environment"]
    assert environment["SLURM_JOB_ID"] == "4711" and "SLURM_JWT" not in environment


def healthy(facts: dict[str, Any]) -> dict[str, Any]:
    sound = copy.deepcopy(facts)
    sound["mpi"]["error"] = sound["hdf5"]["error"] = None
    sound["cores"] = {"n_cpus": 8, "n_allowed": 8, "allowed": list(range(8))}
    sound["threads"] = {"OMP_NUM_THREADS": "1"}
    sound["shared_memory"]["free_bytes"] = 1 << 34
    sound["gpus"].update(all=[], visible=[], order_is_certain=True)
    return sound


def test_notes(facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(name, raising=False)
    sound = healthy(facts)
    assert doctor.notes(sound) == []
    pinned = {**sound, "cores": {"n_cpus": 8, "n_allowed": 1, "allowed": [0]}}
    assert "may use 1 of 8 cores" in doctor.notes(pinned)[0] and "--bind-to none" in doctor.notes(pinned)[0]
    assert "may start 8 threads" in doctor.notes({**sound, "threads": {"OMP_NUM_THREADS": None}})[0]
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    crowded = doctor.notes({**sound, "threads": {"OMP_NUM_THREADS": "4"}})
    assert crowded == ["4 ranks with 4 threads each want 16 cores, but there are 8: set OMP_NUM_THREADS"]
    small = {**sound, "shared_memory": {"path": "/dev/shm", "free_bytes": 64 << 20}}
    assert "--shm-size=1g" in doctor.notes(small)[0]
    gpu = {"uuid": "GPU-1", "mig_uuids": []}
    hidden = {**sound, "gpus": {**sound["gpus"], "all": [gpu], "cuda_visible_devices": "-1"}}
    assert "CUDA_VISIBLE_DEVICES is '-1'" in doctor.notes(hidden)[0]
