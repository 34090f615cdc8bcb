"""Evaluate in a loop on every rank, without any search: the bound for evaluations per second.

Run by throughput.py: mpirun -n N python bare.py COST DIM SECONDS; prints the evaluations per second of all ranks.
"""

from __future__ import annotations

import sys
import time

import costs
import numpy as np
from mpi4py import MPI


def main(cost: str, n_dims: int, seconds: float) -> None:
    """Print the rate on rank 0."""
    world = MPI.COMM_WORLD
    function = getattr(costs, cost)
    random = np.random.default_rng(world.rank)
    world.Barrier()
    n, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        function({"x": random.uniform(-5.0, 5.0, n_dims)})
        n += 1
    rate = world.reduce(n / (time.perf_counter() - began))
    if world.rank == 0:
        print(rate)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
