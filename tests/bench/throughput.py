"""Measure evaluations per second against a bare loop of the same objective on the same ranks, alternating, in one run.

    python tests/bench/throughput.py --cost sleep --ranks 4 --dims 20 --seconds 30 --pairs 1
    python tests/bench/throughput.py --cost sleep --peers DIR   # also the drivers bench_*.py in DIR, one JSON line each

Prints per pair: the bare rate, ours, their ratio, and CPU times. Rank 0 evaluates like every other rank, so what the
coordinator costs is what rank 0 uses beyond the mean of the others, divided by the number of workers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
NOT_STARTED = 213  # Open MPI's mpirun: its server could not start, and nothing of ours has
ENVIRONMENT = {
    **os.environ,
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def launch(n_ranks: int, command: list[str], limit_s: float) -> str:
    """Return stdout of a launch on n_ranks."""
    line = [str(BIN / "mpirun"), "-n", str(n_ranks), *command]
    for _ in range(2):
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=limit_s, check=False)
        if done.returncode != NOT_STARTED:
            break
        print("mpirun did not start and is tried again", file=sys.stderr)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def cpu_share(log: Path) -> float:
    """Return the CPU seconds per wall second of the rank that wrote this log, its child process not counted."""
    cpu_s, wall_s = (float(x) for x in re.findall(r"used ([\d.]+) s of CPU in ([\d.]+) s", log.read_text())[-1])
    return cpu_s / wall_s


def ours(cost: str, n_ranks: int, n_dims: int, seconds: float) -> tuple[float, list[float]]:
    """Return evaluations per second, and the CPU share of each rank's process."""
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "bench.yaml")
        config.write_text(
            f"name: bench\nobjective: {{python: 'costs:{cost}'}}\n"
            f"parameters:\n  x: {{type: real, low: -5, high: 5, size: {n_dims}}}\nbudget: {{walltime: {seconds}}}\n"
        )
        Path(folder, "costs.py").write_text((HERE / "costs.py").read_text())
        out = Path(folder, "run")
        launch(n_ranks, [str(BIN / "osprey"), "run", str(config), "--out", str(out), "-q"], seconds + 120)
        with h5py.File(out / "results.h5") as file:
            rows = file["evaluations"]
            done = rows["status"][:] == 0  # what the end of the time cut off is there too
            start, end = rows["t_start_s"][:][done], rows["t_end_s"][:][done]
        shares = [cpu_share(log) for log in sorted((out / "logs").glob("rank-*.log"))]
    return len(start) / (end.max() - start.min()), shares


def bare(cost: str, n_ranks: int, n_dims: int, seconds: float) -> float:
    """Return evaluations per second of the bare loop."""
    command = [sys.executable, str(HERE / "bare.py"), cost, str(n_dims), str(seconds)]
    return float(launch(n_ranks, command, seconds + 60).split()[-1])


def peer(driver: Path, a: argparse.Namespace) -> float:
    """Return evaluations per second of a peer's driver, nan where it gives none."""
    command = [
        a.peer_python, str(driver), "--cost", {"free": "none"}.get(a.cost, a.cost), "--ranks", str(a.ranks),
        "--dim", str(a.dims), "--time", str(a.seconds),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=a.seconds + 180, check=False)
    try:
        return float(json.loads(done.stdout.splitlines()[-1])["evals_per_s"])
    except (IndexError, KeyError, ValueError):
        return float("nan")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", choices=("free", "sleep", "lognormal"), default="sleep")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--dims", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pairs", type=int, default=1, help="ours and bare, so many times")
    parser.add_argument("--peers", type=Path, help="folder with drivers of other tools")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the other tools")
    a = parser.parse_args()
    print(f"{a.cost}, {a.ranks} ranks, d = {a.dims}, {a.seconds:g} s each")
    for _ in range(a.pairs):
        bound = bare(a.cost, a.ranks, a.dims, a.seconds)
        rate, shares = ours(a.cost, a.ranks, a.dims, a.seconds)
        print(f"{'bare loop':24s} {bound:10.1f}/s")
        print(f"{'osprey':24s} {rate:10.1f}/s   ratio {rate / bound:.3f}")
        worker = statistics.mean(shares[1:])
        each = (shares[0] - worker) / a.ranks
        print(f"CPU of wall time: rank 0 {shares[0]:.2%}, others {worker:.2%}; so the coordinator {each:.2%} a worker")
        for driver in sorted(a.peers.glob("bench_*.py")) if a.peers else []:
            theirs = peer(driver, a)
            print(f"{driver.stem.removeprefix('bench_'):24s} {theirs:10.1f}/s   ratio {theirs / bound:.3f}")


if __name__ == "__main__":
    main()
