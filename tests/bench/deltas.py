"""Measure what a leader takes for one delta: decoded, entered in the ledger, passed on; and with the search's part.

    python tests/bench/deltas.py --dims 20 300

Real state machines and search in simulated time, 4 workers, log-normal times; MPI's own part is not in it. The search's
part is to learn from the results and to give the next orders.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

from scenario import build

from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.events import Received
from osprey_mpi.continuity.messages import Delta, Role


class Clock:
    """Add up the time of calls; of those within calls that another clock times, if there is one."""

    def __init__(self, within: Clock | None = None) -> None:
        self.used_s, self.is_running = 0.0, False
        self._within = within

    def timed(self, function: Any) -> Any:
        """Return the function with its calls timed."""

        def wrapped(*args: Any) -> Any:
            if self._within is not None and not self._within.is_running:
                return function(*args)
            self.is_running, began_s = True, time.perf_counter()
            try:
                return function(*args)
            finally:
                self.used_s += time.perf_counter() - began_s
                self.is_running = False

        return wrapped


def main() -> None:
    """Print a line for each number of dimensions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", nargs="*", type=int, default=[20, 300])
    parser.add_argument("--evaluations", type=int, default=8000)
    a = parser.parse_args()
    for n_dims in a.dims:
        cluster = build(4, seed=1, evaluations=a.evaluations, mean_s=0.006, sigma=1.0, size=n_dims)
        leader = cluster.machines[0][Role.LEADER]
        sizes: list[int] = []
        whole = Clock()
        search = Clock(whole)
        for owner, name in ((leader.dispatch, "enter"), (leader, "_feed")):
            setattr(owner, name, search.timed(getattr(owner, name)))
        handle = leader.handle
        take = whole.timed(lambda source, data, now, handle=handle: handle(Received(source, decode(data)), now))

        def measured(event: Any, now: float, handle: Any = handle, take: Any = take, sizes: Any = sizes) -> Any:
            if not (isinstance(event, Received) and isinstance(event.message, Delta)):
                return handle(event, now)
            data = encode(event.message)
            sizes.append(len(data))
            return take(event.source, data, now)

        leader.handle = measured
        cluster.run()
        n = len(sizes)
        protocol_us, all_us = (1e6 * used_s / n for used_s in (whole.used_s - search.used_s, whole.used_s))
        print(
            f"d = {n_dims}: {n} deltas of {sum(sizes) / n:.0f} bytes, {protocol_us:.1f} us each, with the search "
            f"{all_us:.1f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
