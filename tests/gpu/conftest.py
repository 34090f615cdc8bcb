"""Skip the GPU tests, with the reason, where no GPU can be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osprey_mpi.device import Backend, select


@pytest.fixture(scope="session")
def gpu_backend() -> Backend:
    backend = select("auto", 0, 1, 0.5)
    if backend.name != "cupy":
        pytest.skip(f"no GPU: {backend.reason}")
    return backend


@pytest.fixture
def gpu(gpu_backend: Backend) -> Iterator[Backend]:
    gpu_backend.free()
    yield gpu_backend
    gpu_backend.free()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.gpu)
