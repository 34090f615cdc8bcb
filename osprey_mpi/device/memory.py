"""Share a GPU's memory between ranks, give it back, and recognise that it is full."""

from __future__ import annotations

from typing import Any

from osprey_mpi.errors import ConfigError
from osprey_mpi.words import message_of

# Error texts of libraries that a user's function may call on the same GPU; CuPy's own error is a MemoryError.
FULL = ("out of memory", "cudaerrormemoryallocation", "cuda_error_out_of_memory", "cublas_status_alloc_failed")


def share(fraction: float, n_ranks: int) -> float:
    """Return the part of a GPU's memory that one of `n_ranks` ranks on it may take."""
    if not 0.0 < fraction <= 1.0:
        raise ConfigError(f"device.memory_fraction is {fraction}, must be above 0 and at most 1")
    return fraction / max(1, n_ranks)


def limit_pool(cupy: Any, fraction: float) -> int:
    """Limit the pool of this process on the current device to a part of the memory that is free now; returns bytes.

    Before the first allocation: what a pool already holds does not shrink, and what ranks beside this one hold is no
    longer free.
    """
    free_bytes, _ = cupy.cuda.runtime.memGetInfo()
    limit_bytes = max(1, int(free_bytes * fraction))  # CuPy takes 0 for "no limit"
    cupy.get_default_memory_pool().set_limit(size=limit_bytes)
    return limit_bytes


def free_pools(cupy: Any) -> None:
    """Give blocks that nothing uses back to the device, so that other ranks and a second try find room."""
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception, or what caused it, says that memory is full.

    By type and text, without importing anything: the error may come from CuPy, Torch, JAX or NumPy.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
            return True
        if isinstance(cause, RuntimeError):
            text = message_of(cause).lower()
            if any(sign in text for sign in FULL):
                return True
        cause = cause.__cause__ or cause.__context__
    return False
