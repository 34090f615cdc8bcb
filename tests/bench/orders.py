"""How many evaluations a search takes to a target, by how long an order lasts: simulated, mean time 10 ms.

    python tests/bench/orders.py --dims 20 --seconds 0.020 0.030            # with dives
    python tests/bench/orders.py --dims 20 --seconds 0.020 0.030 --sigma 1  # times of evaluations vary much
    python tests/bench/orders.py --dims 20 --seconds 0.010 0.020 0.030 --no-dives

Prints the geometric mean over the seeds. The lengths in `continuity/orders.py` were chosen by it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

from scenario import build

from osprey_mpi.continuity import orders
from osprey_mpi.continuity.budget import BudgetRule

TARGET, MOST = 1e-4, 60_000
Floats = NDArray[np.float64]


def rosenbrock(values: Floats) -> Floats:
    """Return the costs of the box scaled to [-1.8, 2.2]."""
    x = 0.4 * values + 0.2
    costs: Floats = (100.0 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1.0 - x[:, :-1]) ** 2).sum(axis=1)
    return costs


def ellipsoid(values: Floats) -> Floats:
    """Return the costs of a rotated ellipsoid of condition 1e4."""
    n = values.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0]
    costs: Floats = (10.0 ** (4.0 * np.arange(n) / (n - 1)) * ((values - 1.25) @ rotation) ** 2).sum(axis=1)
    return costs


def main() -> None:
    """Print a line for each function and length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, default=20)
    parser.add_argument("--seconds", nargs="*", type=float, default=[0.020, 0.030])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--sigma", type=float, default=0.0, help="of the log-normal time of an evaluation")
    parser.add_argument("--no-dives", action="store_true")
    a = parser.parse_args()
    search = {"dives": False} if a.no_dives else {}
    for function in (rosenbrock, ellipsoid):
        for seconds in a.seconds:
            orders.ORDER_S = orders.ORDER_DIVES_S = orders.ORDER_LONG_S = seconds
            taken = []
            for seed in range(a.seeds):
                budget = BudgetRule(MOST, target=TARGET)
                cluster = build(
                    a.workers, seed=seed, budget=budget, objective=function, size=a.dims, sigma=a.sigma,
                    mean_s=0.010 * float(np.exp(-(a.sigma**2) / 2)), evaluations=None, **search,
                )  # fmt: skip
                cluster.run()
                taken.append(cluster.disk.tally.n_evaluations)
            mean = np.exp(np.log(taken).mean())
            print(f"{function.__name__:12s}{seconds:6.3f} s{mean:10.0f} evaluations, worst {max(taken)}", flush=True)


if __name__ == "__main__":
    main()
