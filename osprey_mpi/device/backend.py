"""Choose what a rank computes with, once: NumPy, or CuPy on one GPU. Nothing above this asks again."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.device import memory
from osprey_mpi.errors import ConfigError, EnvironmentFault

# Below 128 KiB glibc's malloc reuses a block; above, each temporary may be mapped anew and its pages zeroed by the
# kernel, which makes an addition ten times slower. It also keeps a handful of temporaries in a second level cache.
HOST_CHUNK_BYTES = 112 << 10
# Enough to fill any GPU, few enough for several temporaries beside each other.
DEVICE_CHUNK_BYTES = 256 << 20


def _nothing() -> None:
    """Do nothing: a CPU has no queue to wait for and no pool to give back."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Hold an array namespace and what differs beside it.

    use: makes the GPU that of the calling thread.
    index: place of the GPU among the visible ones, None on a CPU. reason: why it is this one, for the log.
    limit_bytes: memory that this rank may take on the GPU, None on a CPU.
    """

    xp: ModuleType
    name: str
    to_host: Callable[[Any], NDArray[Any]]
    reason: str
    synchronize: Callable[[], None] = _nothing
    free: Callable[[], None] = _nothing
    use: Callable[[], None] = _nothing
    index: int | None = None
    limit_bytes: int | None = None
    chunk_bytes: int = HOST_CHUNK_BYTES
    is_out_of_memory: Callable[[BaseException], bool] = memory.is_out_of_memory


def select(kind: str, local_rank: int = 0, n_local_ranks: int = 1, memory_fraction: float = 0.9) -> Backend:
    """Return the backend of a rank; `auto` takes a GPU where one can be used, NumPy otherwise, and says why.

    local_rank, n_local_ranks: place among the ranks of this node. Where a rank sees one GPU only (srun
    --gpus-per-task), that is its own; where it sees several, ranks take turns. Ranks on one GPU share its memory.
    Raises EnvironmentFault for `cuda` where no GPU can be used.
    """
    if kind not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {kind!r}, must be auto, cpu or cuda")
    if kind == "cpu":
        return _numpy("device is cpu")
    fraction_checked = memory.share(memory_fraction, 1)
    cupy, n_visible, why_not = _probe()
    if cupy is None or n_visible == 0:
        if kind == "cuda":
            raise EnvironmentFault(
                f"device is cuda, but {why_not}; install the extra cuda12 or cuda13, or set device: cpu"
            )
        return _numpy(f"device is auto, and {why_not}")
    try:
        return _on_gpu(cupy, n_visible, local_rank, n_local_ranks, fraction_checked)
    except EnvironmentFault as fault:
        if kind == "cuda":
            raise
        return _numpy(f"device is auto, and {fault}")


def _numpy(reason: str) -> Backend:
    return Backend(np, "numpy", np.asarray, reason)


def _probe() -> tuple[Any, int, str]:
    """Return (cupy or None, number of visible GPUs, why there is none).

    CuPy imports without a driver, and fails to where its own libraries are missing: both mean "no GPU", not a crash.
    """
    # Kernels are cached in $HOME otherwise: shared, slow and small on clusters.
    os.environ.setdefault("CUPY_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"cupy-{os.getuid()}"))
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return (
            None,
            0,
            f"CuPy cannot be imported ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
        )
    except Exception as error:  # a broken installation raises what it likes
        return None, 0, f"CuPy fails on import ({type(error).__name__}: {error})"
    try:
        if not cupy.is_available():
            return cupy, 0, "CuPy finds no usable GPU or driver"
        return cupy, int(cupy.cuda.runtime.getDeviceCount()), "no GPU is visible (CUDA_VISIBLE_DEVICES)"
    except Exception as error:
        return cupy, 0, f"CuPy cannot count GPUs ({type(error).__name__}: {error})"


def _on_gpu(cupy: Any, n_visible: int, local_rank: int, n_local_ranks: int, fraction: float) -> Backend:
    index = local_rank % n_visible
    # With one visible GPU it may be this rank's own or everyone's: only the driver's bindings know, by UUID. The limit
    # for the worse case would waste a private GPU, so it is shared only where ranks outnumber what all can see.
    n_sharing = ranks_on(index, n_visible, n_local_ranks, _bound_per_task())
    try:
        cupy.cuda.Device(index).use()
        limit_bytes = memory.limit_pool(cupy, memory.share(fraction, n_sharing))
        uuid = _uuid(cupy, index)
    except Exception as error:
        raise EnvironmentFault(
            f"GPU {index} of {n_visible} visible cannot be used: {type(error).__name__}: {error}"
        ) from error
    shared = f", shared by {n_sharing} ranks" if n_sharing > 1 else ""
    return Backend(
        cupy,
        "cupy",
        cupy.asnumpy,
        f"GPU {index} of {n_visible} visible ({uuid}){shared}",
        synchronize=lambda: cupy.cuda.get_current_stream().synchronize(),
        free=lambda: memory.free_pools(cupy),
        use=lambda: cupy.cuda.Device(index).use(),
        index=index,
        limit_bytes=limit_bytes,
        chunk_bytes=min(DEVICE_CHUNK_BYTES, max(1 << 20, limit_bytes // 16)),
    )


def ranks_on(index: int, n_visible: int, n_local_ranks: int, bound_per_task: bool) -> int:
    """Return how many ranks of the node use the GPU at `index` of the visible ones."""
    if n_visible == 1 and bound_per_task:
        return 1
    return max(1, (n_local_ranks - index + n_visible - 1) // n_visible)


def _bound_per_task() -> bool:
    """Tell whether Slurm gave each task GPUs of its own (srun: --gpus-per-task implies --gpu-bind=per_task)."""
    bind = os.environ.get("SLURM_GPU_BIND", "") + os.environ.get("SLURM_GPUS_PER_TASK", "")
    return bool(os.environ.get("SLURM_GPUS_PER_TASK")) or "per_task" in bind or "single" in bind


def _uuid(cupy: Any, index: int) -> str:
    raw = cupy.cuda.runtime.getDeviceProperties(index).get("uuid")
    if not isinstance(raw, bytes) or len(raw) < 16:
        return "UUID unknown"
    digits = raw[:16].hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
