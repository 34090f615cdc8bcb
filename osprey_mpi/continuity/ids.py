"""Keep sets of evaluation ids as sorted, disjoint ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


class IdRanges:
    """Hold a set of non-negative integers as ranges [start, stop); cheap while the set has few gaps."""

    __slots__ = ("_starts", "_stops", "n")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.n = 0
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __contains__(self, id: int) -> bool:
        index = bisect_right(self._starts, id) - 1
        return index >= 0 and id < self._stops[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdRanges) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"IdRanges({list(self)})"

    def add(self, start: int, stop: int) -> int:
        """Add [start, stop) and return how many of its ids are new."""
        if stop <= start:
            return 0
        low = bisect_left(self._stops, start)  # the first range that touches or follows
        high = bisect_right(self._starts, stop)  # one past the last that touches
        known = sum(self._stops[i] - self._starts[i] for i in range(low, high))
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]
        new = (stop - start) - known
        self.n += new
        return new

    def remove(self, start: int, stop: int) -> int:
        """Remove [start, stop) and return how many of its ids were there."""
        removed = 0
        for low, high in list(self.overlap(start, stop)):
            index = bisect_right(self._starts, low) - 1
            old_start, old_stop = self._starts[index], self._stops[index]
            pieces = [(a, b) for a, b in ((old_start, low), (high, old_stop)) if a < b]
            self._starts[index : index + 1] = [a for a, _ in pieces]
            self._stops[index : index + 1] = [b for _, b in pieces]
            removed += high - low
        self.n -= removed
        return removed

    def overlap(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of the set that lie inside [start, stop)."""
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self._starts) and self._starts[index] < stop:
            low, high = max(start, self._starts[index]), min(stop, self._stops[index])
            if low < high:
                yield low, high
            index += 1

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of [start, stop) that are not in the set."""
        result, at = [], start
        for low, high in self.overlap(start, stop):
            if at < low:
                result.append((at, low))
            at = high
        if at < stop:
            result.append((at, stop))
        return result

    def first_run(self) -> tuple[int, int]:
        """Return the lowest range; (0, 0) when the set is empty."""
        return (self._starts[0], self._stops[0]) if self._starts else (0, 0)

    @classmethod
    def from_array(cls, ranges: NDArray[np.int64]) -> IdRanges:
        """Build a set from ranges, (n_ranges, 2)."""
        return cls((int(a), int(b)) for a, b in ranges)
