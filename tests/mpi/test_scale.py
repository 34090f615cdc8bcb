"""Unequal evaluations keep all ranks busy; two flocks and many ranks start, run and end exactly."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from problem import BASE, Problem

pytestmark = [pytest.mark.launch, pytest.mark.slow]

START_S = 1.5  # from the first order to the first result, and from the last result to the end
UNEQUAL = """\
import time
def f(p, context):
    time.sleep(1.0 if context.id % 5 == 0 else 0.05)
    return p["x"] ** 2
"""


def test_nobody_waits_for_the_slowest(case: Problem) -> None:
    """0.05 s and 1 s on four ranks; the wall time is what the work takes on three of them, plus the start."""
    case.write(UNEQUAL, BASE.replace("evaluations: 8", "evaluations: 40"))
    done = case.run(4)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 40), done.stderr
    work_s = 8 * 1.0 + 32 * 0.05
    assert done.json()["wall_s"] < 1.3 * work_s / 3 + START_S, done.json()
    times = case.columns("t_start_s", "t_end_s", "rank")
    assert set(times["rank"].tolist()) == {0, 1, 2, 3}
    assert (times["t_end_s"] - times["t_start_s"] > 0.049).all()
    assert case.status()["idle_share"] is not None


def test_two_flocks_are_exact(case: Problem) -> None:
    """Twenty ranks: rank 0 is the root alone, ranks 1 and 11 lead, 17 evaluate."""
    config = BASE.replace('{python: "case:f"}', "{builtin: sphere, batch: 1}")
    case.write("", config.replace("evaluations: 8", "evaluations: 2003"))
    done = case.run(20, timeout_s=120)
    assert (done.rc, done.json()["n_evaluations"], done.json()["n_ranks"]) == (0, 2003, 20), done.stderr
    columns = case.columns("rank", "flock")
    assert columns["id"].tolist() == list(range(2003))
    assert set(columns["flock"].tolist()) == {0, 1}
    assert not {0, 1, 11} & set(columns["rank"].tolist())
    assert case.status()["n_flocks"] == 2
    resumed = case.resume(2, "--max-evaluations", 2100)
    assert (resumed.rc, resumed.json()["n_evaluations"]) == (0, 2100), resumed.stderr


def test_sixty_four_ranks(case: Problem) -> None:
    """They start, run and end; what a rank weighs is measured where it runs."""
    code = """\
import pathlib, re
def f(p):
    rollup = pathlib.Path(f"/proc/{__import__('os').getppid()}/smaps_rollup").read_text()
    return float(re.search(r"^Pss: +([0-9]+) kB", rollup, re.M).group(1)) / 1024
"""
    case.write(code, BASE.replace("evaluations: 8", "evaluations: 256"))
    done = case.run(64, timeout_s=240)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 256), done.stderr
    columns = case.columns("rank", "cost", "status")
    assert columns["id"].tolist() == list(range(256)) and not columns["status"].any()
    n_each = Counter(columns["rank"].tolist())
    pss_mib = columns["cost"]
    print(f"64 ranks: {done.seconds:.1f} s, of these {done.json()['wall_s']:.1f} s in the run, PSS of a rank "
          f"{pss_mib.min():.0f} to {pss_mib.max():.0f} MiB, {len(n_each)} ranks evaluated")  # fmt: skip
    assert pss_mib.max() < 60.0
    assert len(re.findall(r"rank-\d{4}\.log", "\n".join(map(str, (case.out / "logs").iterdir())))) == 64
