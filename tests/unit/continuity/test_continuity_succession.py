"""Who goes on after a loss: one heir, one roster, an epoch above all that its members saw, no wait without end."""

from __future__ import annotations

from typing import Any

import pytest

from osprey_mpi.continuity.events import PeerLost, Tick
from osprey_mpi.continuity.succession import (
    Accept,
    Join,
    LastWord,
    Leave,
    PostJoin,
    PostRoster,
    Roster,
    Succession,
    TakeUp,
    Word,
)


def succession(rank: int, *lost: int, epoch: int = 0) -> Succession:
    return Succession(rank, (0, 1, 2, 3), epoch, 0.0, limit_s=30.0, patience_s=900.0, lost=lost)


def test_the_heir_waits_for_all_and_its_epoch_is_above_theirs() -> None:
    heir = succession(1, 0)
    assert heir.awaited() == [(2, Word.JOIN), (3, Word.JOIN)]
    assert heir.handle(Tick(), 0.1) == heir.handle(Join(2, 0), 0.2) == heir.handle(Tick(), 0.2) == []
    assert heir.handle(Join(3, 4), 0.3) == []
    members = (1, 2, 3)
    assert heir.handle(Tick(), 0.3) == [PostRoster(2, 5, members), PostRoster(3, 5, members), TakeUp(5, members)]
    assert heir.is_over and heir.awaited() == heir.handle(Tick(), 0.4) == []


def test_who_does_not_join_in_time_is_left_out_and_each_loss_gives_more_time() -> None:
    heir = succession(1)
    heir.handle(PeerLost(0), 10.0)
    heir.handle(Join(3, 0), 11.0)
    assert heir.handle(Tick(), 40.0) == []
    assert heir.handle(Tick(), 40.1) == [PostRoster(3, 1, (1, 3)), TakeUp(1, (1, 3))]


def test_survivors_ask_the_lowest_once_and_the_next_when_it_is_lost() -> None:
    survivor = succession(3, 0, epoch=2)
    assert survivor.handle(Tick(), 0.0) == [PostJoin(1, 2)]
    assert survivor.handle(Tick(), 0.1) == []
    survivor.handle(PeerLost(1), 0.2)
    assert survivor.handle(Roster(1, 3, (1, 2, 3)), 0.3) == [], "it is not the heir any more"
    assert survivor.handle(Tick(), 0.3) == [PostJoin(2, 2)]
    assert survivor.awaited() == [(2, Word.LAST), (2, Word.ROSTER)]
    assert survivor.handle(Roster(2, 3, (2, 3)), 0.4) == [TakeUp(3, (2, 3))]
    survivor.check()


@pytest.mark.parametrize("roster", [Roster(1, 2, (1, 3)), Roster(1, 1, (1, 3)), Roster(1, 3, (1, 2))])
def test_a_roster_of_an_older_epoch_or_without_this_rank_counts_nothing(roster: Roster) -> None:
    survivor = succession(3, 0, epoch=2)
    survivor.handle(Tick(), 0.0)
    assert survivor.handle(roster, 0.1) == [] and not survivor.is_over


def test_a_run_that_is_over_ends_the_wait_and_so_does_time() -> None:
    result: Any = object()
    assert succession(3, 0).handle(LastWord(1, result), 0.1) == [Accept(result)]
    silent = succession(3, 0)
    silent.handle(Tick(), 0.0)
    assert silent.handle(Tick(), 930.0) == []
    assert silent.handle(Tick(), 930.1) == [Leave("rank 1 has said nothing for 930 s")]


def test_others_that_give_up_give_the_rest_no_more_time() -> None:
    """Else each wave of them would let the next wait for as long again."""
    survivor = succession(3, 0)
    survivor.handle(Tick(), 0.0)
    survivor.handle(PeerLost(2), 929.0)
    assert survivor.handle(Tick(), 930.1) == [Leave("rank 1 has said nothing for 930 s")]


def test_alone_it_goes_on_at_once() -> None:
    assert succession(2, 0, 1, 3).handle(Tick(), 0.0) == [TakeUp(1, (2,))]
