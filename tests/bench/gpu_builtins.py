"""Measure evaluations per second of every built-in: NumPy against CuPy, and CuPy against what the GPU can do.

    python tests/bench/gpu_builtins.py OUT.h5 [seconds per measurement]

Prints a table and writes it to OUT.h5. The ceiling of a built-in is the smaller of bandwidth / bytes and rate /
operations per evaluation, as one fused kernel would need them. Bandwidth is measured by copying 1 GiB, the rate by a
double precision matrix product: functions that are no matrix products reach at most about half of it on GPUs whose
product runs on tensor cores. "path" is the whole evaluator: draw, decode, function, selection.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from osprey_mpi.config.parameters import RealParameter
from osprey_mpi.device import Backend, select
from osprey_mpi.device.inventory import inventory
from osprey_mpi.evaluate.builtin import BUILTIN, Arrays, prepare
from osprey_mpi.evaluate.inline import InlineEvaluator
from osprey_mpi.evaluate.task import Task
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.space import Space

COLUMNS = {"lennard_jones": 39, "travelling_salesman": 20, "antenna_array": 16}
BATCH = {"cupy": 1 << 18, "numpy": 4096}
SMALL_BATCH = {"lennard_jones": 1 << 16, "antenna_array": 1 << 16}


def rate(work: Callable[[], Any], backend: Backend, seconds: float) -> float:
    """Return calls per second, best of several rounds: what else runs on the machine only ever slows a round down."""
    work()
    backend.synchronize()
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end or best == 0.0:
        start = time.perf_counter()
        work()
        backend.synchronize()
        best = max(best, 1.0 / (time.perf_counter() - start))
    return best


def ceilings(backend: Backend, seconds: float) -> tuple[float, float]:
    """Measure (bytes per second of a copy, double precision operations per second of a matrix product)."""
    xp, on_gpu = backend.xp, backend.index is not None
    n, m = (1 << 27, 8192) if on_gpu else (1 << 23, 1024)
    pair = [xp.ones(n), xp.empty(n)]
    copies = rate(lambda: xp.copyto(pair[1], pair[0]), backend, seconds)
    pair.clear()
    backend.free()
    matrix = xp.ones((m, m))
    products = rate(lambda: matrix @ matrix, backend, seconds)
    return copies * 2 * 8 * n, products * 2 * m**3


def evaluator(name: str, parameters: dict[str, Any], backend: Backend, n: int) -> Callable[[], None]:
    """Return one call of the whole evaluator on a batch of n."""
    objective = SimpleNamespace(builtin=name, batch=n, options={}, retries=0)
    config = SimpleNamespace(objective=objective, parameters=parameters, seed=1, base_dir=None)
    space = Space(parameters)
    d = space.n_dims
    made = InlineEvaluator(
        config, space, rank=0, clock=time.monotonic, record_all=False, device=backend, scratch_root=Path("nowhere")
    )
    made.check()
    distribution = Distribution(0, np.full(d, 0.5), 0.2, np.ones(d), np.empty(0))
    first = 0

    def call() -> None:
        nonlocal first
        made.submit(Task(first, n, 0, n, 0, 0, None, distribution))
        while not made.poll():
            pass
        first += n

    return call


def measure(name: str, backend: Backend, seconds: float) -> tuple[float, float, float, float]:
    """Return (evaluations per second of the function, of the whole path, bytes and operations per evaluation)."""
    key = "amplitude" if name == "antenna_array" else "x"
    low, high = (0.0, 1.0) if name in COLUMNS else (-5.0, 5.0)
    parameters = {key: RealParameter(low=low, high=high, size=COLUMNS.get(name, 20))}
    n = min(BATCH[backend.name], SMALL_BATCH.get(name, 1 << 30))
    function = prepare(name, parameters, {}, Arrays(backend.xp, backend.chunk_bytes))
    values = backend.xp.asarray(np.random.default_rng(0).uniform(low, high, (n, COLUMNS.get(name, 20))))
    bare = n * rate(lambda: function.evaluate(values), backend, seconds)
    path = n * rate(evaluator(name, parameters, backend, n), backend, seconds)
    backend.free()
    return bare, path, function.bytes, function.flops


def write(path: Path, rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """Write one dataset per column, and the machine as attributes."""
    import h5py

    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        for key, value in facts.items():
            file.attrs[key] = value
        for column in rows[0]:
            data = [row[column] for row in rows]
            file[column] = np.array(data, dtype=h5py.string_dtype()) if isinstance(data[0], str) else np.array(data)
            file[column].attrs["units"] = "1/s" if column.endswith("per_s") else "1"


def main(arguments: list[str]) -> int:
    """Measure and report; without a GPU the NumPy columns only."""
    out, seconds = Path(arguments[0]), float(arguments[1]) if len(arguments) > 1 else 1.0
    backends = [select("cpu")]
    best = select("auto")
    if best.name == "cupy":
        backends.append(best)
    else:
        print(f"no GPU: {best.reason}")
    facts: dict[str, Any] = {"device": best.reason}
    limits = {}
    for backend in backends:
        limits[backend.name] = ceilings(backend, seconds)
        facts[f"{backend.name}_bytes_per_s"], facts[f"{backend.name}_flops_per_s"] = limits[backend.name]
        n_bytes, n_flops = limits[backend.name]
        print(f"{backend.name}: copy {n_bytes:.3g} bytes/s, matrix product {n_flops:.3g} flop/s")
    for gpu in inventory():
        print(f"{gpu['uuid']}: {gpu['name']}, slowed by {gpu['throttle_reasons']}")
    print(
        f"{'built-in':<20} {'NumPy 1/s':>11} {'path/bare':>9} {'CuPy 1/s':>11} {'path/bare':>9} {'speed-up':>8} ceiling"
    )
    rows = []
    for name in BUILTIN:
        row: dict[str, Any] = {"name": name}
        for backend in backends:
            bare, path, n_bytes, flops = measure(name, backend, seconds)
            ceiling = min(limits[backend.name][0] / n_bytes, limits[backend.name][1] / flops)
            row |= {
                f"{backend.name}_per_s": bare,
                f"{backend.name}_path_per_s": path,
                f"{backend.name}_share_of_ceiling": bare / ceiling,
            }
        rows.append(row)
        text = f"{name:<20} {row['numpy_per_s']:>11.4g} {row['numpy_path_per_s'] / row['numpy_per_s']:>9.2f}"
        if len(backends) > 1:
            text += f" {row['cupy_per_s']:>11.4g} {row['cupy_path_per_s'] / row['cupy_per_s']:>9.2f}"
            text += f" {row['cupy_path_per_s'] / row['numpy_path_per_s']:>8.1f} {row['cupy_share_of_ceiling']:>8.1%}"
        print(text, flush=True)
    write(out, rows, facts)
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
