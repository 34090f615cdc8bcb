"""GPUs: which array namespace a rank computes with, what the devices are, how memory is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Backend", "select"]

if TYPE_CHECKING:
    from osprey_mpi.device.backend import Backend, select


def __getattr__(name: str) -> object:
    """Load names on first use: the child process that asks NVML needs no arrays (PEP 562)."""
    if name in __all__:
        from osprey_mpi.device import backend

        return getattr(backend, name)
    raise AttributeError(f"module 'osprey_mpi.device' has no attribute {name!r}")
