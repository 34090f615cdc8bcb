"""results.h5 as others read it: xarray with both engines, pandas, h5py."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray

from osprey_mpi.config import Config
from osprey_mpi.continuity.records import BLOCK, RowReason, Status
from osprey_mpi.errors import StorageError
from osprey_mpi.search.space import Space
from osprey_mpi.search.streams import evaluation_seed
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.results import Segment, read_run, write_results

# Columns: x[0], x[1], n, opt (adam, ß), degree (only with ß), c.
VALUES = np.array([[0.5, 0.25, 3, 0, np.nan, 0], [0, 1, 9, 1, 5, 0], [0.1, 0.2, 1, 0, np.nan, 0]])


@pytest.fixture
def run(tmp_path: Path, config: Config, rows: Any) -> Path:
    space = Space(config.parameters)
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(2, ["h"], "MPI x", devices=[{"host": "h", "name": "H200", "memory_bytes": None}])
        segment = Segment(folder.segment_path(1), space.columns, 1, 1)
        records, _ = rows([0, 1, 2])
        records["status"] = (Status.OK, Status.OK, Status.FAILED)
        records["cost"][2] = np.nan
        lost, _ = rows([1], status=Status.LOST)
        segment.append(lost, VALUES[1:2], None, [RowReason(1, 0, Status.LOST, "its worker was lost")])
        segment.append(records, VALUES, np.array([(7, 3)], BLOCK), [RowReason(2, 0, Status.FAILED, "ValueError: ß")])
        folder.end_life(0)
    return tmp_path / "run"


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("ignore:numpy.ndarray size changed")
def test_xarray_opens_it(run: Path, engine: Any) -> None:
    path = write_results(run)
    with xarray.open_dataset(path, group="evaluations", engine=engine) as data:
        assert dict(data.sizes) == {"evaluation": 3, "x_index": 2}
        assert data.evaluation.values.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(data.x, VALUES[:, :2])
        assert data.n.dtype == np.int64 and data.n.values.tolist() == [3, 9, 1]
        assert data.opt.values.tolist() == ["adam", "ß", "adam"]
        np.testing.assert_array_equal(data.degree, [np.nan, 5, np.nan])
        assert data.c.dtype == np.int64 and data.c.values.tolist() == [3, 3, 3]
        np.testing.assert_array_equal(data.cost, [0, 10, np.nan])
        assert data.status.values.tolist() == [0, 0, 1] and data.status.dtype == np.uint8
        assert data.status.flag_meanings.split()[1] == "failed"
        assert data.reason.values.tolist() == ["", "", "ValueError: ß"]
        assert data.seed.values.tolist() == [evaluation_seed(7, i) for i in range(3)]
        assert data.to_dataframe().shape[0] == 6
    with xarray.open_dataset(path, group="attempts", engine=engine) as data:
        assert data.evaluation.values.tolist() == [1] and data.status.values.tolist() == [3]
    with xarray.open_dataset(path, group="lives", engine=engine) as data:
        assert data.mpi_library.values.tolist() == ["MPI x"] and data.exit_code.values.tolist() == [0]
    with xarray.open_dataset(path, group="devices", engine=engine) as data:
        assert data.memory_bytes.values.tolist() == [-1]  # unknown is not 0
    with xarray.open_dataset(path, group="blocks", engine=engine) as data:
        assert (data["first"].values.tolist(), data["n"].values.tolist()) == ([7], [3])


def test_h5py_reads_it(run: Path, config: Config) -> None:
    with h5py.File(write_results(run)) as file:
        group = file["evaluations"]
        assert group["opt"].asstr()[:].tolist() == ["adam", "ß", "adam"]
        assert group["degree"][:].tolist() == [-(2**63), 5, -(2**63)] and group["degree"].attrs["_FillValue"] == -(
            2**63
        )
        assert "_FillValue" not in group["n"].attrs  # never inactive: readers keep integers
        assert group["t_start_s"].attrs["units"] == "s"
        assert all(group[name].dims[0][0].name == "/evaluations/evaluation" for name in ("cost", "x", "opt", "seed"))
        assert group["cost"].fletcher32
        assert json.loads(file["config/json"][()])["config"]["name"] == "stored"
        assert json.loads(file["config/yaml"].asstr()[()])["seed"] == 7
        assert file.attrs["title"] == "stored" and file.attrs["seed"] == 7 and "numpy=" in file.attrs["versions"]


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump is not installed")
def test_h5dump_reads_it(run: Path) -> None:
    path = write_results(run)
    done = subprocess.run(["h5dump", "-d", "/evaluations/opt", str(path)], capture_output=True, text=True, check=True)
    assert '"adam"' in done.stdout


def test_nothing_but_captures(tmp_path: Path, config: Config, rows: Any) -> None:
    """A batched run may have no row at all, or no segment."""
    with RunFolder.create(tmp_path / "run", config) as folder:
        with h5py.File(write_results(folder.path)) as file:
            assert file["evaluations/cost"].shape == (0,)
        segment = Segment(folder.segment_path(1), Space(config.parameters).columns, 1, 1)
        segment.append(*rows([], width=6), np.array([(0, 1000)], BLOCK))
        assert read_run(folder.path).n_evaluations == 1000
        with h5py.File(write_results(folder.path)) as file:
            assert file["evaluations/x"].shape == (0, 2) and file["blocks/n"][:].tolist() == [1000]


def test_many_parameters_and_long_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from osprey_mpi.config import config_from_mapping

    monkeypatch.setenv("SLURM_JOB_NODELIST", "node," * 30_000)
    parameters = {f"p{i}": {"type": "categorical", "choices": ["a" * 200, "b" * 200]} for i in range(3000)}
    config = config_from_mapping(
        {"name": "wide", "objective": {"python": "m:f"}, "parameters": parameters, "budget": {"evaluations": 1}}
    )
    with RunFolder.create(tmp_path / "run", config) as folder:
        folder.begin_life(1, ["h"])
        with h5py.File(write_results(folder.path)) as file:
            assert len(file["provenance/slurm"][()]) > 64_000
            assert len(file["config/json"][()]) > 64_000


def test_a_failed_write_keeps_the_old_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_results(run)
    before = path.read_bytes()
    monkeypatch.setattr(
        "osprey_mpi.storage.results.write_blocks", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(StorageError, match=r"results\.h5 cannot be written: No space left"):
        write_results(run)
    assert path.read_bytes() == before and not list(run.glob(".*tmp*"))


def test_a_reason_may_hold_any_character(path: Path, columns: Any, rows: Any, config: Config) -> None:
    """A program that fails may have printed anything; NUL is the one that HDF5 has no place for."""
    run = path.parent.parent / "odd"
    with RunFolder.create(run, config) as folder:
        segment = Segment(folder.segment_path(1), columns, 1, 1)
        why = RowReason(0, 0, Status.FAILED, "printed \0\x1b\ufffd\ud800")
        segment.append(*rows([0], status=Status.FAILED), None, [why])
    assert read_run(run).reasons == {0: "printed \0\x1b\ufffd?"}
    with h5py.File(write_results(run)) as file:
        assert file["evaluations/reason"].asstr()[0] == "printed \\x00\x1b\ufffd?"
