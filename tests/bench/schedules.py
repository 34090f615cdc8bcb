"""Run schedules of faults in simulated time; of one that fails print the seed and the smallest part of it that fails.

    python tests/bench/schedules.py --seeds 0 10000 --ranks 40 --jobs 2
    python tests/bench/schedules.py --seeds 0 1 --ranks 10626 --flock-size 16 --evaluations 15000  # 625 flocks

Prints the CPU time per schedule. Exit code 1 when a schedule fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from osprey_mpi.simulate.faults import Fault, shrink
from osprey_mpi.simulate.schedule import Outcome, Scale, faults_of, run


def failure(seed: int, faults: list[Fault], scale: Scale) -> str:
    """Return what does not hold, "" when all does."""
    try:
        run(seed, faults, scale)
    except Exception as error:  # a machine that falls over is a failure like any other
        return f"{type(error).__name__}: {error}"
    return ""


def trial(seed: int, scale: Scale) -> tuple[int, Outcome | str, float]:
    """Run the schedule of a seed; return its outcome or what does not hold, and the CPU time in s."""
    began_s = time.process_time()
    faults = faults_of(seed, scale)
    try:
        outcome: Outcome | str = run(seed, faults, scale)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    return seed, outcome, time.process_time() - began_s


def show(seed: int, why: str, scale: Scale) -> None:
    """Print the smallest part of a schedule that fails."""
    print(f"seed {seed} fails, looking for the smallest part of its schedule that does", file=sys.stderr, flush=True)
    smallest = shrink(faults_of(seed, scale), lambda faults: bool(failure(seed, faults, scale)))
    print(f"seed {seed}: {why}\n  smallest: {failure(seed, smallest, scale)}")
    for fault in smallest:
        print(f"    {fault}", flush=True)


def main() -> int:
    """Run the range, print what failed and a summary."""
    usual = Scale()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100), metavar=("FIRST", "STOP"))
    parser.add_argument("--ranks", type=int, default=usual.n_ranks)
    parser.add_argument("--evaluations", type=int, default=usual.n_evaluations)
    parser.add_argument("--flock-size", type=int, default=usual.flock_size)
    parser.add_argument("--jobs", type=int, default=1)
    a = parser.parse_args()
    scale = Scale(a.ranks, a.evaluations, a.flock_size)
    one = partial(trial, scale=scale)
    seeds = range(*a.seeds)
    if a.jobs == 1:
        return report(map(one, seeds), scale)
    with ProcessPoolExecutor(a.jobs) as pool:
        return report(pool.map(one, seeds, chunksize=10), scale)


def report(trials: Iterable[tuple[int, Outcome | str, float]], scale: Scale) -> int:
    """Print failures as they come, then the summary; return the exit code."""
    counts: Counter[str] = Counter()
    cpu_s = 0.0
    for seed, outcome, spent_s in trials:
        cpu_s += spent_s
        counts["schedules"] += 1
        if isinstance(outcome, str):
            counts["failed"] += 1
            show(seed, outcome, scale)
            continue
        counts["launches"] += outcome.n_launches
        counts["regroupings"] += outcome.n_epochs
        counts["lost ranks"] += outcome.n_lost
    n = max(counts["schedules"], 1)
    names = ("schedules", "failed", "launches", "regroupings", "lost ranks")
    told = ", ".join(f"{counts[name]} {name}" for name in names)
    print(f"{told}; {cpu_s / n:.3f} s of CPU each")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
