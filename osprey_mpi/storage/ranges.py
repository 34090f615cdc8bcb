"""Compute with sets of ids as arrays of ranges, (k, 2) int64 [start, stop), sorted and disjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ranges = NDArray[np.int64]


def ranges_of(ids: NDArray[np.int64]) -> Ranges:
    """Return the ranges that hold exactly `ids`, which are sorted and unique."""
    if not ids.size:
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(ids) != 1)
    starts = np.concatenate(([0], breaks + 1))
    stops = np.concatenate((breaks, [ids.size - 1]))
    return np.stack((ids[starts], ids[stops] + 1), axis=1)


def from_blocks(blocks: NDArray[Any]) -> Ranges:
    """Return the union of blocks (BLOCK rows) that may overlap, be empty and come in any order."""
    blocks = blocks[blocks["n"] > 0]
    return union(np.stack((blocks["first"], blocks["first"] + blocks["n"]), axis=1).astype(np.int64))


def union(*parts: Ranges) -> Ranges:
    """Return the union of ranges in any order, touching ones joined."""
    ranges = np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    opens = np.concatenate(([True], ranges[1:, 0] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.stack((ranges[opens, 0], reach[closes]), axis=1)


def inside(ids: NDArray[np.int64], ranges: Ranges) -> NDArray[np.bool_]:
    """Return which ids lie in the ranges."""
    if not len(ranges):
        return np.zeros(ids.size, bool)
    index = np.searchsorted(ranges[:, 0], ids, side="right") - 1
    return np.asarray((index >= 0) & (ids < ranges[np.maximum(index, 0), 1]))


def without(ranges: Ranges, ids: NDArray[np.int64]) -> Ranges:
    """Return the ranges less `ids`, which are sorted and unique."""
    holes = ids[inside(ids, ranges)]
    starts = np.sort(np.concatenate((ranges[:, 0], holes + 1)))
    stops = np.sort(np.concatenate((ranges[:, 1], holes)))
    kept = starts < stops
    return np.stack((starts[kept], stops[kept]), axis=1)


def size(ranges: Ranges) -> int:
    """Return how many ids the ranges hold."""
    return int((ranges[:, 1] - ranges[:, 0]).sum())
