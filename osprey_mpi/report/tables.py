"""Work out the tables of a report: whole arrays in, a few rows out, however long the history is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import NO_FAILURES, Status
from osprey_mpi.continuity.violations import not_called
from osprey_mpi.report.settings import changes
from osprey_mpi.storage.rows import Rows
from osprey_mpi.storage.status import idle_share
from osprey_mpi.words import counted

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Table:
    """Hold one table. rows: plain Python values, None where unknown. note: a line below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""


def improvements(rows: Rows) -> NDArray[np.int64]:
    """Return the rows that were the best result when they ended, in that order.

    Feasible ones only, or all by violation and cost if none is feasible.
    """
    good = np.flatnonzero((rows.records["status"] == Status.OK) & np.isfinite(rows.records["cost"]))
    records = rows.records[good]
    order = np.lexsort((records["id"], records["t_end_s"]))
    key: NDArray[np.float64] = records["cost"][order]
    feasible = records["violation"][order] <= 0
    if feasible.any():
        order, key = order[feasible], key[feasible]
    else:
        key = records["violation"][order]
    if not key.size:
        return good[:0]
    lowest = np.minimum.accumulate(key)
    first = np.concatenate(([True], lowest[1:] < lowest[:-1]))
    return np.asarray(good[order[first]])


def thinned(n: int, limit: int) -> NDArray[np.int64]:
    """Return at most `limit` of n indices, the first and the last among them, denser at the start."""
    if n <= limit:
        return np.arange(n)
    return np.unique(np.rint(np.geomspace(1, n, limit)).astype(np.int64) - 1)


def convergence(rows: Rows, limit: int = 12) -> Table:
    """Return how the best cost fell: one row for each of `limit` improvements, and a line of bars over time."""
    better = improvements(rows)
    shown = better[thinned(better.size, limit)]
    records = rows.records[shown]
    body = [
        (float(r["t_end_s"]), int(r["id"]), float(r["cost"]), float(r["violation"]), int(r["rank"])) for r in records
    ]
    note = f"{better.size} improvements, {shown.size} shown" if shown.size < better.size else ""
    pauses = "the time between its lives counts as well" if np.unique(rows.lives).size > 1 else ""
    bars = sparkline(rows, better)
    columns = ("since its start (s)", "evaluation", "best cost", "violation", "rank")
    return Table("Convergence", columns, body, "\n".join(filter(None, (bars, note, pauses))))


def sparkline(rows: Rows, better: NDArray[np.int64], width: int = 60) -> str:
    """Return one bar for each of `width` equal times from the first result to the last: high is a high best cost."""
    if better.size < 2:
        return ""
    records = rows.records[better]
    end_s = float(np.nanmax(rows.records["t_end_s"]))
    times = np.linspace(float(records["t_end_s"][0]), end_s, width)
    cost = records["cost"][np.searchsorted(records["t_end_s"], times, side="right") - 1]
    low, high = float(cost.min()), float(cost.max())
    scaled = np.log(cost) if low > 0 and high > 100 * low else cost
    low, high = float(scaled.min()), float(scaled.max())
    level = np.rint((scaled - low) / ((high - low) or 1.0) * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[i] for i in level)


def counts(rows: Rows) -> Table:
    """Return how many evaluations ended in each way."""
    body = [(name, n) for name, n in rows.counts.items() if n or name == "ok"]
    retried = np.unique(rows.attempts["id"]).size
    earlier = f"{counted(len(rows.attempts), 'earlier attempt')} of {counted(retried, 'evaluation')}"
    note = f"not counted, but kept: {earlier}" if retried else ""
    return Table("Evaluations", ("status", "number"), body, note)


def _calls(rows: Rows) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.int32]]:
    """Return (records, duration_s, lives) of one row a call: the points of a batch share its start and end.

    Points that break a constraint of the config take an evaluation, but no call.
    """
    is_timed = np.isfinite(rows.records["t_end_s"] - rows.records["t_start_s"])
    timed = np.flatnonzero(is_timed & ~not_called(rows.records))
    records = rows.records[timed]
    order = np.lexsort((records["t_end_s"], records["t_start_s"], records["rank"]))
    keys = records[["rank", "t_start_s", "t_end_s"]][order]
    chosen = order[np.concatenate((np.ones(min(1, keys.size), bool), keys[1:] != keys[:-1]))]
    calls = records[chosen]
    return calls, calls["t_end_s"] - calls["t_start_s"], rows.lives[timed[chosen]]


def _available_s(calls: NDArray[Any], group: NDArray[np.int64], lives: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the time that the ranks of each group had, s: each life lasts from its first start to its last end."""
    names, life = np.unique(lives, return_inverse=True)
    starts, ends = np.full(names.size, np.inf), np.full(names.size, -np.inf)
    np.minimum.at(starts, life, calls["t_start_s"])
    np.maximum.at(ends, life, calls["t_end_s"])
    present = np.unique(np.stack((group, life, calls["rank"].astype(np.int64)), axis=1), axis=0)
    return np.asarray(np.bincount(present[:, 0], weights=(ends - starts)[present[:, 1]]), np.float64)


def by(rows: Rows, key: str, limit: int = 16) -> Table:
    """Return evaluations, mean time and idle share of each `key`: "rank" or "flock"."""
    calls, duration_s, lives = _calls(rows)
    is_whole = len(rows.blocks) == 0  # with captures only, the busy time of a rank is not on disk
    columns = (key, "evaluations" if is_whole else "recorded", "mean time (s)", "idle share")
    title = f"{key.capitalize()}s"
    if not calls.size:
        return Table(title, columns, [])
    names, group = np.unique(calls[key], return_inverse=True)
    n_rows = Counter(rows.records[key].tolist())
    busy_s = np.bincount(group, weights=duration_s)
    mean_s = busy_s / np.bincount(group)
    available_s = _available_s(calls, group, lives)
    body: list[tuple[Any, ...]] = []
    for index, name in enumerate(names.tolist()):
        idle = idle_share(float(busy_s[index]), float(available_s[index])) if is_whole else None
        body.append((name, n_rows[name], float(mean_s[index]), idle))
    slowest = sorted(sorted(body, key=lambda row: -row[2])[:limit])
    return Table(title, columns, slowest, f"the {limit} slowest of {len(body)}" if len(body) > limit else "")


def times(rows: Rows) -> Table:
    """Return how long evaluations took."""
    calls, duration_s, _ = _calls(rows)
    if not duration_s.size:
        return Table("Times", ("what", "s"), [])
    quantiles = np.quantile(duration_s, (0.5, 0.95))
    return Table(
        "Times",
        ("what", "s"),
        [
            ("first start to last end", float(calls["t_end_s"].max() - calls["t_start_s"].min())),
            (f"in {'recorded ' if len(rows.blocks) else ''}evaluations, all ranks", float(duration_s.sum())),
            ("one call: mean", float(duration_s.mean())),
            ("one call: median", float(quantiles[0])),
            ("one call: 95 of 100 below", float(quantiles[1])),
            ("one call: longest", float(duration_s.max())),
        ],
    )


def failures(rows: Rows, limit: int = 10) -> Table:
    """Return the reasons of failed evaluations, most frequent first, grouped by their first line."""
    on_purpose = set(rows.own["id"][np.isin(rows.own["status"], NO_FAILURES)].tolist())
    groups: Counter[str] = Counter()
    examples: dict[str, int] = {}
    for id, text in rows.reasons.items():
        if id in on_purpose:
            continue
        line = text.strip().partition("\n")[0].rstrip()
        groups[line] += 1
        examples[line] = min(id, examples.get(line, id))
    body = [(n, examples[line], line) for line, n in groups.most_common(limit)]
    n_other = sum(groups.values()) - sum(row[0] for row in body)
    note = f"{n_other} more, of {len(groups) - limit} other reasons" if len(groups) > limit else ""
    return Table("Failures", ("number", "for example", "reason"), body, note)


def lives(facts: Any, rows: Rows) -> Table:
    """Return the life history: when, where, how it ended, and what it added."""
    added = Counter(rows.lives.tolist())
    body: list[tuple[Any, ...]] = []
    for life in facts.get("lives", []):
        end = life.get("ended_unix_s")
        duration_s = None if end is None else end - life["started_unix_s"]
        number, host, code = life["life"], life.get("host", ""), life.get("exit_code")
        body.append((number, life["started_unix_s"], duration_s, life["n_ranks"], host, code, added[number]))
    columns = ("life", "started", "duration (s)", "ranks", "host of rank 0", "exit code", "rows")
    return Table("Lives", columns, body, "\n".join(changes(facts)))
