"""Compare flocks with one coordinator for all workers: CPU time of rank 0 and of the busiest leader per evaluation.

    python tests/bench/flocks.py --workers 16 64 256 1024 4096 --evaluations 40
    python tests/bench/flocks.py --picture tests/bench/flocks.svg  # needs matplotlib

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
    parser.add_argument("--picture", type=Path, help="where to draw the loads")
    a = parser.parse_args()
    curve: list[list[float]] = []
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
        curve.append([n_workers, *loads])
    if a.picture is not None:
        draw(a.picture, curve)


def draw(path: Path, curve: list[list[float]]) -> None:
    """Draw the loads over the number of workers; curve: rows of workers and three loads."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "flocks", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    workers, *loads = zip(*curve, strict=True)
    for load, label in zip(loads, ("one coordinator", "rank 0 above flocks", "busiest leader of a flock"), strict=True):
        axes.loglog(workers, load, "o-", label=label, base=2)
    axes.axhline(1.0, color="grey", linestyle=":")
    axes.set(xlabel="workers, an evaluation a second each", ylabel="load of a core", xticks=workers)
    axes.set_yticks([0.001, 0.01, 0.1, 1.0], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.set_xticks(workers, [str(n) for n in workers])
    axes.minorticks_off()
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
