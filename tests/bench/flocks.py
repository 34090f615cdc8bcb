"""Compare flocks with one coordinator for all workers: CPU time of rank 0 and of the busiest leader per evaluation.

    python tests/bench/flocks.py --workers 16 64 256 1024 4096 --evaluations 40

Runs the real state machines and the real search in simulated time and measures the CPU time that each of them takes
for what it handles, messages decoded; MPI's own part is not in it. load: share of one core when every worker gives an
evaluation a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

from scenario import build

from osprey_mpi.comm.tree import plan
from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.events import Received
from osprey_mpi.continuity.messages import Role

FLOCK_SIZE = 16


def measure(n_workers: int, flock_size: int, n_each: int) -> tuple[float, float]:
    """Return the CPU time per evaluation in us: of rank 0, and of the busiest leader."""
    n_flocks = 1 if flock_size >= n_workers else -(-n_workers // flock_size)
    n_ranks = n_workers if n_flocks == 1 else 1 + n_workers + n_flocks
    assert sum(len(flock.workers) for flock in plan(n_ranks, flock_size).flocks) == n_workers
    cluster = build(
        n_ranks, flock_size=flock_size, evaluations=n_each * n_workers, mean_s=1.0, checkpoint_interval_s=1e6
    )  # fmt: skip
    used_s: dict[int, float] = defaultdict(float)

    def timed(rank: int, machine: Any) -> None:
        handle = machine.handle

        def wrapped(event: Any, now: float) -> Any:
            data = encode(event.message) if isinstance(event, Received) else b""
            began_s = time.process_time()
            if data:
                decode(data)
            actions = handle(event, now)
            used_s[rank] += time.process_time() - began_s
            return actions

        machine.handle = wrapped

    for rank, machines in cluster.machines.items():
        for role, machine in machines.items():
            if role is not Role.WORKER:
                timed(rank, machine)
            machine.check = lambda: None
    cluster.run(n_events=10**9)
    n = n_each * n_workers
    leaders = [used_s[flock.leader] for flock in plan(n_ranks, flock_size).flocks]
    return 1e6 * used_s[0] / n, 1e6 * max(leaders) / n


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="*", type=int, default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--evaluations", type=int, default=40, help="of each worker")
    a = parser.parse_args()
    print("workers   one coordinator: us an evaluation, load   flocks of 16: rank 0 us, load   busiest leader's load")
    for n_workers in a.workers:
        alone_us, _ = measure(n_workers, n_workers, a.evaluations)
        root_us, leader_us = measure(n_workers, FLOCK_SIZE, a.evaluations)
        loads = [us * 1e-6 * n_workers for us in (alone_us, root_us, leader_us)]
        print(
            f"{n_workers:7d}{alone_us:42.1f}{loads[0]:7.1%}{root_us:26.1f}{loads[1]:7.1%}{loads[2]:18.1%}"
            f"   rank 0: {alone_us / root_us:.1f} x less",
            flush=True,
        )


if __name__ == "__main__":
    main()
