"""Check that every config reaches the result it states, on several numbers of ranks and with several seeds.

    python tests/bench/configs.py                                # all: ranks 1, 2, 3, 5, 9, ten seeds each
    python tests/bench/configs.py --only digits_svm --ranks 1 3 --seeds 1 2

Prints a table: config, ranks, how many seeds reached the stated result, worst cost, longest time. Exits 1 when a config
reaches it with fewer than 9 of 10 seeds, or ends with another number of evaluations than its budget.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from throughput import BIN, launch

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RANKS = (1, 2, 3, 5, 9)
LIMIT_S = 300


def expected(config: Path) -> float:
    """Return the bound that the config's first lines state ("cost below X" or "cost at most X")."""
    head = "".join(line for line in config.read_text().splitlines(keepends=True) if line.startswith("#"))
    found = re.search(r"cost (?:below|at most) (-?[\d.]+(?:e-?\d+)?)", re.sub(r"\n#\s*", " ", head))
    if found is None:
        raise SystemExit(f"{config} states no result")
    return float(found[1])


def budget(config: Path) -> int:
    """Return the config's number of evaluations."""
    found = re.search(r"evaluations: (\d+)", config.read_text())
    assert found is not None, f"{config} has no budget of evaluations"
    return int(found[1])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ranks", nargs="*", type=int, default=RANKS)
    parser.add_argument("--seeds", nargs="*", type=int, default=range(1, 11))
    a = parser.parse_args()
    failed = False
    for config in sorted(CONFIGS.glob("*.yaml")):
        if a.only and config.stem not in a.only:
            continue
        bound, n = expected(config), budget(config)
        for n_ranks in a.ranks:
            costs, walls = [], []
            for seed in a.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    command = [
                        str(BIN / "osprey"), "run", str(config), "--out", f"{folder}/run", "--format", "json", "-q",
                        "--set", f"seed={seed}",
                    ]  # fmt: skip
                    try:
                        result = json.loads(launch(n_ranks, command, LIMIT_S).splitlines()[-1])
                    except subprocess.TimeoutExpired as error:
                        print(f"{config.stem}, seed {seed}, has not ended in {LIMIT_S} s: {error.stderr!r}", flush=True)
                        costs.append(float("inf"))
                        continue
                if result["n_evaluations"] != n:
                    print(f"{config.stem}: {result['n_evaluations']} evaluations, {n} were asked for")
                    failed = True
                costs.append(result["best"]["cost"])
                walls.append(result["wall_s"])
            reached = sum(cost <= bound for cost in costs)
            failed |= reached < 0.9 * len(costs)
            print(
                f"{config.stem:18s} {n_ranks:2d} ranks  {reached:2d}/{len(costs)} reach {bound:g}, "
                f"worst {max(costs):.6g}, longest {max(walls, default=0.0):.1f} s",
                flush=True,
            )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
