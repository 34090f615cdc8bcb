"""The GPU inventory against a small NVML of our own, built by gcc; one process per scenario, as a driver would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osprey_mpi.device import inventory
from osprey_mpi.device.inventory import Gpu, Inventory

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = shutil.which("gcc") or shutil.which("cc")


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler to build the fake NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libnvidia-ml.so.1",
         "-o", str(target), str(SOURCE)],
        check=True, timeout=60,
    )  # fmt: skip
    return folder


def ask(folder: Path, **environment: str) -> Inventory:
    root = Path(inventory.__file__).resolve().parents[2]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FAKE_NVML")}
    done = subprocess.run(
        [sys.executable, "-m", "osprey_mpi.device.inventory"],
        env={**kept, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(root), **environment},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return inventory.from_json(done.stdout)


def test_everything_is_read(fake_nvml: Path) -> None:
    found = ask(fake_nvml)
    assert (found.driver_version, found.cuda_version, found.error) == ("580.95.05", "13.0", None)
    assert len(found.gpus) == 4
    assert found.gpus[1] == Gpu(
        index=1,
        uuid="GPU-00000011-aaaa-bbbb-cccc-000000000001",
        name="Fake H200",
        pci_bus_id="00000000:19:00.0",
        compute_capability="9.0",
        memory_total_bytes=150754820096,
        memory_used_bytes=1073741824,
        sm_clock_hz=345_000_000,
        sm_clock_max_hz=1_980_000_000,
        memory_clock_hz=3_201_000_000,
        memory_clock_max_hz=3_201_000_000,
        power_w=76.543,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        temperature_c=31,
        utilization=0.25,
        throttle_reasons=("sw_power_cap", "0x800"),
        pcie_generation=1,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        mig_mode=False,
        compute_mode="exclusive_process",
    )


def test_what_cannot_be_read_is_none_with_its_error(fake_nvml: Path) -> None:
    found = ask(fake_nvml, FAKE_NVML_FAULT="nvmlDeviceGetMigMode=3,nvmlDeviceGetPowerUsage=4,nvmlDeviceGetUUID=15")
    for gpu in found.gpus:
        assert gpu.mig_mode is gpu.power_w is gpu.uuid is None and gpu.name == "Fake H200"
        assert gpu.unknown == {"uuid": "GpuIsLost", "power_w": "NoPermission", "mig_mode": "NotSupported"}


def test_a_link_of_width_0_is_unknown(fake_nvml: Path) -> None:
    zero = "nvmlDeviceGetCurrPcieLinkWidth,nvmlDeviceGetMaxPcieLinkGeneration,nvmlDeviceGetMemoryInfo"
    gpu = ask(fake_nvml, FAKE_NVML_ZERO=zero).gpus[0]
    assert gpu.pcie_width is gpu.pcie_generation_max is gpu.memory_total_bytes is None
    assert gpu.unknown["pcie_width"] == gpu.unknown["memory_total_bytes"] == "reported as 0"
    assert gpu.pcie_width_max == 16 and gpu.memory_used_bytes == 1073741824


def test_an_old_driver_knows_throttle_reasons_by_their_old_name(fake_nvml: Path) -> None:
    gpu = ask(fake_nvml, FAKE_NVML_FAULT="nvmlDeviceGetCurrentClocksEventReasons=13").gpus[0]
    assert gpu.throttle_reasons == ("idle",) and gpu.unknown == {}


def test_a_lost_gpu_does_not_hide_the_others(fake_nvml: Path) -> None:
    found = ask(fake_nvml, FAKE_NVML_FAULT="nvmlDeviceGetHandleByIndex_v2=15", FAKE_NVML_COUNT="2")
    assert [gpu.index for gpu in found.gpus] == [0, 1] and set(found.gpus[0].unknown.values()) == {"GpuIsLost"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nvmlInit_v2=9,nvmlInitWithFlags=9", "NVML cannot be used: DriverNotLoaded"),
        ("nvmlInit_v2=4", "NVML cannot be used: NoPermission"),
        ("nvmlDeviceGetCount_v2=1", "NVML cannot count GPUs: Uninitialized"),
    ],
)
def test_nvml_without_use(fake_nvml: Path, fault: str, message: str) -> None:
    found = ask(fake_nvml, FAKE_NVML_FAULT=fault)
    assert found.gpus == () and found.error == message


def test_no_gpu_and_no_library(fake_nvml: Path, tmp_path: Path) -> None:
    assert ask(fake_nvml, FAKE_NVML_COUNT="0") == Inventory((), "580.95.05", "13.0", None)
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert ask(tmp_path).error == "NVML cannot be used: LibraryNotFound"


def test_mig_instances_are_named(fake_nvml: Path) -> None:
    gpu = ask(fake_nvml, FAKE_NVML_MIG="1").gpus[1]
    assert gpu.mig_mode is True
    assert gpu.mig_uuids == ("MIG-00000001-1111-2222-3333-000000000001", "MIG-00000001-1111-2222-3333-000000000003")


def test_identity_survives_another_order(fake_nvml: Path) -> None:
    usual, shuffled = ask(fake_nvml), ask(fake_nvml, FAKE_NVML_ORDER="2,0,3,1")
    assert [gpu.uuid for gpu in shuffled.gpus] == [usual.gpus[i].uuid for i in (2, 0, 3, 1)]
    assert {(g.uuid, g.pci_bus_id) for g in shuffled.gpus} == {(g.uuid, g.pci_bus_id) for g in usual.gpus}


def test_a_hanging_driver_is_left_behind(fake_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml))
    monkeypatch.setenv("FAKE_NVML_SLEEP", "nvmlDeviceGetTemperature=30")
    before = time.monotonic()
    assert inventory.read_in_child(limit_s=1.0).error == "NVML did not answer within 1 s"
    assert time.monotonic() - before < 5
    monkeypatch.delenv("FAKE_NVML_SLEEP")
    assert len(inventory.read_in_child().gpus) == 4


def test_json_both_ways(fake_nvml: Path) -> None:
    found = ask(fake_nvml, FAKE_NVML_MIG="1", FAKE_NVML_FAULT="nvmlDeviceGetPowerUsage=3")
    assert inventory.from_json(inventory.to_json(found)) == found


def test_rows_for_the_results_file(fake_nvml: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml))
    monkeypatch.setattr(inventory, "DRIVER_SIGNS", (str(tmp_path / "no driver"),))
    assert inventory.inventory() == []
    monkeypatch.setattr(inventory, "DRIVER_SIGNS", (str(tmp_path),))
    rows = inventory.inventory()
    assert [row["uuid"][:12] for row in rows] == ["GPU-00000010", "GPU-00000011", "GPU-00000012", "GPU-00000013"]
    assert rows[0]["memory_bytes"] == 150754820096 and rows[0]["driver_version"] == "580.95.05"
    monkeypatch.setenv("FAKE_NVML_FAULT", "nvmlDeviceGetUUID=3")
    assert inventory.inventory()[2]["uuid"] == "unknown-00000000:1A:00.0"
