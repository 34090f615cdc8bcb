"""IdRanges against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osprey_mpi.continuity.ids import IdRanges

ENDS = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


class Ranges(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranges, self.model = IdRanges(), set[int]()

    @rule(ends=ENDS)
    def add(self, ends: tuple[int, int]) -> None:
        new = set(range(*ends)) - self.model
        self.model |= new
        assert self.ranges.add(*ends) == len(new)

    @rule(ends=ENDS)
    def remove(self, ends: tuple[int, int]) -> None:
        gone = set(range(*ends)) & self.model
        self.model -= gone
        assert self.ranges.remove(*ends) == len(gone)

    @rule(ends=ENDS)
    def look(self, ends: tuple[int, int]) -> None:
        inside = {id for part in self.ranges.overlap(*ends) for id in range(*part)}
        outside = {id for part in self.ranges.gaps(*ends) for id in range(*part)}
        assert inside == set(range(*ends)) & self.model
        assert outside == set(range(*ends)) - self.model

    @invariant()
    def same(self) -> None:
        parts = list(self.ranges)
        assert {id for part in parts for id in range(*part)} == self.model
        assert self.ranges.n == len(self.model)
        assert all(a[1] < b[0] for a, b in pairwise(parts)), "ranges touch"
        assert all((id in self.ranges) == (id in self.model) for id in range(55))
        assert self.ranges.first_run() == (parts[0] if parts else (0, 0))


TestRanges = Ranges.TestCase
TestRanges.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(ENDS))
def test_from_arrays(parts: list[tuple[int, int]]) -> None:
    ranges = IdRanges(parts)
    assert IdRanges.from_array(np.array(parts, np.int64).reshape(-1, 2)) == ranges
    assert ranges != IdRanges([*parts, (100, 101)])
