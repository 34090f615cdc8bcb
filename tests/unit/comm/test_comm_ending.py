"""What ranks hand over at the end of a run, or when they regroup, and who is named when ranks do not come."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from osprey_mpi.comm import ending
from osprey_mpi.comm.ending import Assembly, absence, assemble
from osprey_mpi.comm.mail import Tag
from osprey_mpi.comm.regroup import regroup
from osprey_mpi.comm.startup import World
from osprey_mpi.comm.tree import plan


class Failures:
    """Know which ranks are lost."""

    def __init__(self, *lost: int) -> None:
        self.lost = frozenset(lost)

    def look(self) -> list[int]:
        return []


class Post:
    """Be the mail of all ranks: what one posts is there for the other."""

    def __init__(self, rank: int, boxes: dict[tuple[int, int, int], list[Any]], *lost: int) -> None:
        self.rank, self.boxes, self.failures = rank, boxes, Failures(*lost)

    def post(self, rank: int, value: Any, tag: int) -> None:
        self.boxes[self.rank, rank, tag].append(value)

    def receive(self, source: int, tag: int) -> tuple[Any] | None:
        box = self.boxes[source, self.rank, tag]
        return (box.pop(0),) if box else None


def worlds(n: int, *lost: int) -> list[World]:
    boxes: dict[tuple[int, int, int], list[Any]] = defaultdict(list)
    return [
        World(None, rank, tuple(range(n)), "", "ulfm", owns_mpi=False, mail=Post(rank, boxes, *lost))  # type: ignore[arg-type]  # as far as it is used here
        for rank in range(n)
    ]


def test_at_the_end_the_root_is_handed_what_any_rank_holds() -> None:
    """Rank 2 has lost its leader in the last moment and wants to regroup; rank 3 is lost."""
    root, one, two, _ = worlds(4, 3)
    assert assemble(one, 0.0, [b"of 1", b"more of 1"]) == Assembly()
    assert two.mail is not None
    two.mail.post(0, (0, [b"of 2"]), Tag.JOIN)
    assert assemble(root, 60.0, [b"of 0"]) == Assembly([b"of 0", b"of 1", b"more of 1", b"of 2"])


def test_who_does_not_come_to_the_end_is_named_and_the_others_are_heard() -> None:
    root, one, _ = worlds(3)
    assemble(one, 0.0, [b"of 1"])
    assert assemble(root, 0.05, []) == Assembly([b"of 1"], frozenset({2}))


def test_alone_there_is_nobody_to_hand_anything_to() -> None:
    assert assemble(World(None, 0, (0,), "", "none", owns_mpi=False), 0.0, [b"x"]) == Assembly([b"x"])


def test_the_launch_is_ended_only_if_somebody_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(ending, "break_off", lambda world, text, exit_code: said.append((text, exit_code)))
    world = worlds(3)[0]
    ending.break_off_without(world, frozenset(), {}, 0)
    ending.break_off_without(world, {2}, {}, 0)
    assert said == [(absence({2}, {}), 0)]


def test_who_regroups_hands_the_heir_what_it_holds_once() -> None:
    """Rank 1 had been handed one of these before, in a regrouping that a further loss ended."""
    _, heir, other = worlds(3, 0)
    with ThreadPoolExecutor(2) as pool:
        ends = pool.submit(regroup, heir, 60.0, [b"of 1", b"a"]), pool.submit(regroup, other, 60.0, [b"a", b"of 2"])
        found = [(world.epoch, world.members, held) for world, held in (end.result(10.0) for end in ends)]
    assert found == [(1, (1, 2), [b"of 1", b"a", b"of 2"]), (1, (1, 2), [b"a", b"of 2"])]


@pytest.mark.parametrize(
    ("n_ranks", "flock_size", "ranks_each", "missing", "text"),
    [
        (4, 16, 1, {2}, "no answer from rank 2 at the end"),
        (4, 16, 1, {1, 2}, "no answer from ranks 1, 2 at the end"),
        (7, 2, 1, {4, 5, 6}, "no answer from rank 4, for which ranks 5, 6 wait at the end"),
        (7, 2, 1, {3, 4, 5, 6}, "no answer from ranks 3, 4, for which ranks 5, 6 wait at the end"),
        (5, 16, 2, {1, 2}, "no answer from rank 1, for which rank 2 waits at the end"),
    ],
)
def test_ranks_that_wait_for_a_lost_one_are_not_taken_for_lost(
    n_ranks: int, flock_size: int, ranks_each: int, missing: set[int], text: str
) -> None:
    said = absence(missing, plan(n_ranks, flock_size, ranks_each).superiors)
    assert said == f"{text}; everything is on disk, ending all"
