"""Kill or stop ranks of a run under Open MPI and see what it costs: a table, resumable.

    python tests/bench/losses.py --runs 50 --to losses.jsonl
    python tests/bench/losses.py --runs 10 --to stops.jsonl --signal STOP
    python tests/bench/losses.py --runs 10 --to recovery.jsonl --launcher=--enable-recovery

Each run has 9 ranks in 2 flocks (rank 0 is the root, 1 and 5 lead) and ends by itself, or counts as not survived.
pause: the longest time without an evaluation that ended, in s. in vain: evaluations that were begun beyond the budget.
Runs that the file holds are not done again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from throughput import BIN, ENVIRONMENT

N_RANKS, BUDGET, LIMIT_S = 9, 1200, 90.0
LOST_AFTER_S = 6.0  # of silence
ROLES: dict[str, list[list[int]]] = {
    "worker": [[3]],
    "leader": [[5]],
    "root": [[0]],
    "leader and root": [[0, 1]],
    "four, one after the other": [[0], [1], [2], [5]],
}
OBJECTIVE = """
import os, time
def f(p, context):
    with open(os.environ["OSPREY_BENCH_CALLS"], "ab", buffering=0) as calls:
        calls.write(b".")
    time.sleep(0.02)
    return (p["x"] ** 2).sum()
"""
CONFIG = f"""
name: losses
objective: {{python: "objective:f"}}
parameters: {{x: {{type: real, low: -5, high: 5, size: 5}}}}
swarm: {{flock_size: 3}}
budget: {{evaluations: {BUDGET}}}
"""


def ranks_of(out: Path) -> dict[int, int]:
    """Return rank -> process id of a run in a folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(out).encode() not in (process / "cmdline").read_bytes():
                continue
            for entry in (process / "environ").read_bytes().split(b"\0"):
                key, _, value = entry.partition(b"=")
                if key == b"OMPI_COMM_WORLD_RANK":
                    found[int(value)] = int(process.name)
    return found


def trial(role: str, seed: int, launcher: list[str], number: signal.Signals) -> dict[str, Any]:
    """Do one run and return its facts."""
    draw = random.Random(f"{role} {seed}")
    with tempfile.TemporaryDirectory() as name:
        folder, calls = Path(name), Path(name, "calls")
        (folder / "objective.py").write_text(OBJECTIVE)
        (folder / "c.yaml").write_text(CONFIG)
        out = folder / "run"
        command = [BIN / "mpirun", *launcher, "-n", str(N_RANKS), BIN / "osprey", "run", folder / "c.yaml"]
        process = subprocess.Popen(
            [*command, "--out", out, "-q", "--set", f"seed={seed}", "--set", f"continuity.lost_after={LOST_AFTER_S}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**ENVIRONMENT, "OSPREY_BENCH_CALLS": str(calls)},
        )  # fmt: skip
        while process.poll() is None and not (calls.exists() and calls.stat().st_size > 100 * draw.random() + 20):
            time.sleep(0.01)
        pids = ranks_of(out)
        for wave in ROLES[role]:
            for rank in wave:
                os.kill(pids[rank], number)
            time.sleep(0.5 * draw.random())
        try:
            _, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            for pid in [*ranks_of(out).values(), process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.wait()
            return {"role": role, "seed": seed, "rc": None, "why": "no end"}
        facts = {"role": role, "seed": seed, "rc": process.returncode, "why": errors.decode()[-300:]}
        if process.returncode == 0:
            with xarray.open_dataset(out / "results.h5", group="evaluations") as rows:
                ends = np.sort(rows["t_end_s"].values)
                facts["n"], facts["pause_s"] = len(np.unique(rows["evaluation"])), float(np.diff(ends).max())
            facts["in_vain"] = calls.stat().st_size - BUDGET
        return facts


def main() -> None:
    """Do what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--roles", nargs="*", default=list(ROLES))
    parser.add_argument("--launcher", default="--with-ft ulfm", help="What makes mpirun outlive losses.")
    parser.add_argument("--signal", choices=["KILL", "STOP"], default="KILL")
    parser.add_argument("--to", type=Path, default=Path("losses.jsonl"))
    a = parser.parse_args()
    done = [json.loads(line) for line in a.to.read_text().splitlines()] if a.to.exists() else []
    known = {(facts["role"], facts["seed"]) for facts in done}
    for seed in range(a.runs):
        for role in a.roles:
            if (role, seed) not in known:
                done.append(trial(role, seed, a.launcher.split(), signal.Signals[f"SIG{a.signal}"]))
                with a.to.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    print("role                        runs  survived  pause s: median  worst  in vain: median  worst")
    for role in a.roles:
        runs = [facts for facts in done if facts["role"] == role]
        good = [facts for facts in runs if facts["rc"] == 0 and facts["n"] == BUDGET]
        pauses, in_vain = ([facts[key] for facts in good] or [float("nan")] for key in ("pause_s", "in_vain"))
        print(
            f"{role:28s}{len(runs):4d}{len(good):10d}{np.median(pauses):17.2f}{max(pauses):7.2f}"
            f"{np.median(in_vain):17.0f}{max(in_vain):7.0f}"
        )


if __name__ == "__main__":
    main()
