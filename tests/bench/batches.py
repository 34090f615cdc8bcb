"""Measure a run of a built-in objective in batches against the bare NumPy function on as many processes.

    python tests/bench/batches.py --ranks 1 2 --batch 16384 --dims 20 --seconds 5

Prints per function: our evaluations per second, those of the bare function, and the ratio. Runs alternate.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from throughput import BIN, launch

FUNCTIONS = ("rastrigin", "ackley", "griewank", "schwefel", "levy", "rosenbrock", "sphere")
BARE = """
import sys, time
import numpy as np
from mpi4py import MPI
from osprey_mpi.config import config_from_mapping
from osprey_mpi.evaluate.builtin import Arrays, prepare
name, n, d, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
parameters = {"x": {"type": "real", "low": -5, "high": 5, "size": d}}
config = config_from_mapping({"name": "b", "objective": {"builtin": name}, "parameters": parameters,
                              "budget": {"evaluations": 1}})
function = prepare(name, config.parameters, {}, Arrays(np, 2**62))
points = np.random.default_rng(MPI.COMM_WORLD.rank).uniform(-5, 5, (n, d))
MPI.COMM_WORLD.Barrier()
done, began = 0, time.perf_counter()
while time.perf_counter() - began < seconds:
    function.evaluate(points)
    done += n
rate = MPI.COMM_WORLD.reduce(done / (time.perf_counter() - began))
if MPI.COMM_WORLD.rank == 0:
    print(rate)
"""


def ours(name: str, n_ranks: int, batch: int, n_dims: int, seconds: float) -> float:
    """Return the evaluations per second of a run."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "bench.yaml")
        config.write_text(
            f"name: bench\nobjective: {{builtin: {name}, batch: {batch}}}\n"
            f"parameters:\n  x: {{type: real, low: -5, high: 5, size: {n_dims}}}\nbudget: {{walltime: {seconds}}}\n"
        )
        command = [str(BIN / "osprey"), "run", str(config), "--out", f"{folder}/run", "-q", "--format", "json"]
        result = json.loads(launch(n_ranks, command, seconds + 120).splitlines()[-1])
    return float(result["n_evaluations"] / result["wall_s"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--dims", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--functions", nargs="*", default=FUNCTIONS)
    a = parser.parse_args()
    for n_ranks in a.ranks:
        for name in a.functions:
            command = [sys.executable, "-c", BARE, name, str(a.batch), str(a.dims), str(a.seconds)]
            bound = float(launch(n_ranks, command, a.seconds + 60).split()[-1])
            rate = ours(name, n_ranks, a.batch, a.dims, a.seconds)
            ratio = rate / bound
            print(f"{name:12s} {n_ranks} ranks  {rate:12.0f}/s  bare {bound:12.0f}/s  ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
