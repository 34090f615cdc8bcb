"""A block that the budget cut in two is carried over until the search has learned from the whole of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Order
from osprey_mpi.continuity.orders import OpenOrder

Make = Callable[..., Any]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k], equal_nan=True) for k in one)


def _cut(make_search: Make) -> tuple[Carry, dict[str, Any], OpenOrder]:
    """Return a carry that holds rows [0, 3) of the block [10, 18)."""
    search, carry = make_search(batch=8), Carry()
    before = search.snapshot()
    carry.before_ask(search, cut=True)
    search.ask(10, 8)
    entry = OpenOrder.of(Order(10, 8, 0, 3, 0), 1)
    entry.costs[:3], entry.rows_back, entry.generation = [3.0, 1.0, 2.0], 3, 0
    assert carry.keep(entry)
    return carry, before, entry


def test_the_checkpoint_holds_the_search_as_it_was_and_the_rows(make_search: Make) -> None:
    carry, before, _ = _cut(make_search)
    search, carried = Carry.split(carry.snapshot(make_search(batch=8)))
    assert _same(search, before)
    restored = make_search(batch=8)
    assert _same(carried.snapshot(restored), carry.snapshot(restored)), "stopped again before it was resumed"


def test_the_resumed_run_evaluates_the_rest_and_has_the_whole(make_search: Make) -> None:
    saved, before, _ = _cut(make_search)
    search = make_search(batch=8)
    _, carry = Carry.split(saved.snapshot(search))
    pool = IdRanges([(13, 40)])
    order = carry.resume(pool, search, 4)
    assert order is not None
    assert (order.first, order.n, order.row_start, order.row_stop, order.cycle) == (10, 8, 3, 8, 4)
    assert list(pool) == [(18, 40)] and carry.resume(pool, search, 4) is None
    entry = OpenOrder.of(order, 1)
    carry.fill(entry)
    np.testing.assert_array_equal(entry.costs, [3.0, 1.0, 2.0, *[np.nan] * 5])
    assert _same(Carry.split(carry.snapshot(search))[0], before), "stopped again while the rest is out"
    carry.complete()
    assert _same(carry.snapshot(search), search.snapshot())


def test_a_block_may_be_cut_twice(make_search: Make) -> None:
    saved, before, _ = _cut(make_search)
    search = make_search(batch=8)
    _, carry = Carry.split(saved.snapshot(search))
    order = carry.resume(IdRanges([(13, 15)]), search, 0)
    assert order is not None and (order.row_start, order.row_stop) == (3, 5)
    entry = OpenOrder.of(order, 1)
    carry.fill(entry)
    entry.costs[3:5], entry.rows_back = [5.0, 4.0], 5
    assert carry.keep(entry)
    kept, again = Carry.split(carry.snapshot(search))
    assert _same(kept, before)
    last = again.resume(IdRanges([(15, 16)]), make_search(batch=8), 0)
    assert last is not None and (last.row_start, last.row_stop) == (5, 6)
    entry = OpenOrder.of(last, 1)
    again.fill(entry)
    assert entry.costs[:5].tolist() == [3.0, 1.0, 2.0, 5.0, 4.0]


def test_in_the_same_life_the_search_is_not_asked_again(make_search: Make) -> None:
    carry, before, _ = _cut(make_search)
    search = make_search(batch=8)
    search.ask = None
    order = carry.resume(IdRanges([(13, 20)]), search, 1)
    assert order is not None and order.row_start == 3
    assert _same(Carry.split(carry.snapshot(search))[0], before)


def test_other_ids_are_another_story(make_search: Make) -> None:
    carry, _, _ = _cut(make_search)
    search = make_search(batch=8)
    assert carry.resume(IdRanges([(14, 20)]), search, 0) is None
    assert carry.resume(IdRanges(), search, 0) is None
    carry.before_ask(search, cut=False)
    assert _same(carry.snapshot(search), search.snapshot()), "the next block makes an end of it"


def test_a_block_whose_search_was_not_remembered_teaches_what_there_is(make_search: Make) -> None:
    carry = Carry()
    carry.before_ask(make_search(), cut=False)
    assert not carry.keep(OpenOrder.of(Order(0, 8, 0, 3, 0), 1))
