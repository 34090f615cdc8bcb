"""Minimise expensive functions on many MPI ranks without a barrier."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "minimize"]

TYPE_CHECKING = False  # of `typing`, which takes its time: a signal that comes before `cli.main` ends the process
if TYPE_CHECKING:
    from osprey_mpi.drivers.minimize import minimize


def __getattr__(name: str) -> object:
    """Load the public functions on first use: importing the package starts no MPI and reads no file (PEP 562)."""
    if name == "minimize":
        from osprey_mpi.drivers.minimize import minimize

        return minimize
    raise AttributeError(f"module 'osprey_mpi' has no attribute {name!r}")
