"""The choice of a backend, with stand-ins for CuPy on machines of every kind."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from osprey_mpi.device import memory, select
from osprey_mpi.device.backend import HOST_CHUNK_BYTES, ranks_on
from osprey_mpi.errors import ConfigError, EnvironmentFault

UUID = bytes.fromhex("00112233445566778899aabbccddeeff")


class FakeCuPy(ModuleType):
    """Behave as CuPy does up to the first array."""

    def __init__(self, n_gpus: int, available: bool = True, free_bytes: int = 1000, broken: bool = False) -> None:
        super().__init__("cupy")
        self.available, self.used, self.limits, self.freed = available, [], [], []
        pool = SimpleNamespace(
            set_limit=lambda size: self.limits.append(size), free_all_blocks=lambda: self.freed.append("device")
        )
        pinned = SimpleNamespace(free_all_blocks=lambda: self.freed.append("pinned"))
        self.get_default_memory_pool = lambda: pool
        self.get_default_pinned_memory_pool = lambda: pinned
        self.asnumpy = np.asarray
        self.is_available = lambda: self.available

        def use(index: int) -> Any:
            if broken:
                raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
            return SimpleNamespace(use=lambda: self.used.append(index))

        runtime = SimpleNamespace(
            getDeviceCount=lambda: n_gpus,
            memGetInfo=lambda: (free_bytes, 2000),
            getDeviceProperties=lambda index: {"uuid": UUID},
        )
        self.cuda = SimpleNamespace(Device=use, runtime=runtime)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND"):
        monkeypatch.delenv(name, raising=False)


def install(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_cpu_asks_for_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)  # importing it would raise
    backend = select("cpu")
    assert backend.xp is np and backend.name == "numpy" and backend.index is None and backend.limit_bytes is None
    assert backend.chunk_bytes == HOST_CHUNK_BYTES and backend.reason == "device is cpu"
    array = np.arange(3)
    assert backend.to_host(array) is array
    backend.synchronize()
    backend.free()


def no_library(*_: object) -> Any:
    raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory\nsecond line")


class Finder:
    """Fail as CuPy does where the driver's library is missing."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cupy":
            no_library()


def test_auto_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert select("auto").name == "numpy" and "CuPy cannot be imported" in select("auto").reason
    install(monkeypatch, FakeCuPy(0, available=False))
    assert "CuPy finds no usable GPU or driver" in select("auto").reason
    install(monkeypatch, FakeCuPy(0))
    assert "no GPU is visible" in select("auto").reason
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    reason = select("auto").reason
    assert "libcuda.so.1: cannot open shared object file" in reason and "second line" not in reason


def test_cuda_without_a_gpu_is_an_environment_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeCuPy(0, available=False))
    with pytest.raises(EnvironmentFault, match="device is cuda, but CuPy finds no usable GPU or driver"):
        select("cuda")
    install(monkeypatch, FakeCuPy(1, broken=True))
    with pytest.raises(EnvironmentFault, match=r"GPU 0 of 1 visible cannot be used: .*invalid device"):
        select("cuda")
    fallen_back = select("auto")  # a GPU in exclusive mode that another process holds, for one
    assert fallen_back.name == "numpy" and "invalid device ordinal" in fallen_back.reason


def test_eight_tasks_that_see_one_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    for local_rank in range(8):
        cupy = FakeCuPy(1)
        install(monkeypatch, cupy)
        backend = select("cuda", local_rank, 8, 0.9)
        assert cupy.used == [0] and backend.index == 0 and backend.limit_bytes == 900 == cupy.limits[0]


def test_ranks_take_turns_where_all_gpus_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCuPy(4)
    install(monkeypatch, cupy)
    backends = [select("auto", local_rank, 8, 0.8) for local_rank in range(8)]
    assert cupy.used == [0, 1, 2, 3, 0, 1, 2, 3]
    assert {backend.limit_bytes for backend in backends} == {400}  # 80 % of what is free, shared by two
    assert backends[5].reason == "GPU 1 of 4 visible (GPU-00112233-4455-6677-8899-aabbccddeeff), shared by 2 ranks"
    backends[0].free()
    assert cupy.freed == ["device", "pinned"]


@pytest.mark.parametrize(
    ("index", "n_visible", "n_ranks", "bound", "expected"),
    [
        (0, 1, 4, False, 4),
        (0, 1, 4, True, 1),
        (0, 4, 6, False, 2),
        (3, 4, 6, False, 1),
        (3, 4, 2, False, 1),
        (1, 2, 1, False, 1),
    ],
)
def test_ranks_per_gpu(index: int, n_visible: int, n_ranks: int, bound: bool, expected: int) -> None:
    assert ranks_on(index, n_visible, n_ranks, bound) == expected


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.1, float("nan")])
def test_memory_fraction_is_a_fraction(fraction: float) -> None:
    with pytest.raises(ConfigError, match="memory_fraction"):
        memory.share(fraction, 1)


def test_unknown_device() -> None:
    with pytest.raises(ConfigError, match="must be auto, cpu or cuda"):
        select("gpu")


class OutOfMemoryError(Exception):
    """Named like CuPy's and Torch's."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class Speechless(RuntimeError):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), True),
        (caused(ValueError("while solving"), MemoryError()), True),
        (RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered"), False),
        (ValueError("out of memory of the past"), False),
        (Speechless(), False),
    ],
)
def test_out_of_memory_is_recognised(error: Exception, expected: bool) -> None:
    assert memory.is_out_of_memory(error) is expected
