"""Agree on who goes on, and with which epoch, when a rank is lost that the others cannot do without.

    every survivor --Join(epoch)--> the heir: the lowest rank that is not known to be lost
    the heir, once all have joined or the time is up --Roster(epoch, members)--> every member

Rules
-----
* Each rank is told of every loss, sooner or later, so all come to have the same heir. When it is lost in the middle of
  this they join the next.
* A roster's epoch is higher than all that its members have seen. One that is not, or that names others, counts nothing.
* The heir waits `limit_s` after the newest loss for the others; who has not joined by then (it is stopped) is left out.
* The others wait for the heir as long as it is not lost, but no longer than `patience_s` more from when they asked it:
  that some of them give up is no news of the heir, and gives the rest no more time.
* A root that has ended the run meanwhile answers a join with its last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from osprey_mpi.continuity.events import PeerLost, Tick


class Word(Enum):
    """Tell what a message between survivors is."""

    JOIN = "join"
    ROSTER = "roster"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Join:
    """A survivor goes on with this rank as the root; `epoch` is the newest that it has seen."""

    source: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Roster:
    """A root says who goes on."""

    source: int
    epoch: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LastWord:
    """A root has ended the run, with this result."""

    source: int
    result: Any


Event = PeerLost | Join | Roster | LastWord | Tick


@dataclass(frozen=True, slots=True)
class PostJoin:
    """Tell a rank that this one goes on with it."""

    rank: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PostRoster:
    """Tell a rank who goes on."""

    rank: int
    epoch: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Go on in this world; its first member is the root."""

    epoch: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """End with the result of the run."""

    result: Any


@dataclass(frozen=True, slots=True)
class Leave:
    """End this rank: the others have left it out."""

    why: str


Action = PostJoin | PostRoster | TakeUp | Accept | Leave


class Succession:
    """Turn events into actions for one survivor, until it takes up a world, accepts a result or leaves.

    members: of the world that has lost a rank, ascending; epoch: its own.
    """

    def __init__(
        self, rank: int, members: Sequence[int], epoch: int, now: float, *, limit_s: float, patience_s: float,
        lost: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self.rank, self.epoch = rank, epoch
        self._limit_s, self._patience_s = limit_s, patience_s
        lost = set(lost) - {rank}
        self.alive = [member for member in members if member not in lost]
        self._joined: dict[int, int] = {}  # who wants to go on with this rank as root, and the newest epoch it has seen
        self._deadline = now + limit_s
        self._asked: int | None = None
        self._asked_at = now
        self.is_over = False

    @property
    def heir(self) -> int:
        """Return the rank that all survivors will come to go on with."""
        return self.alive[0]

    def awaited(self) -> list[tuple[int, Word]]:
        """Return whose messages are to be taken in now; all others wait until this rank has use for them."""
        if self.is_over:
            return []
        if self.heir == self.rank:
            return [(rank, Word.JOIN) for rank in self.alive[1:]]
        return [(self.heir, Word.LAST), (self.heir, Word.ROSTER)]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        if self.is_over:
            return []
        match event:
            case PeerLost(rank):
                self._deadline = now + self._limit_s
                if rank in self.alive and rank != self.rank:
                    self.alive.remove(rank)
            case Join(source, epoch):
                self._joined[source] = epoch
            case Roster(source, epoch, members) if source == self.heir and self._counts(epoch, members):
                return self._end(TakeUp(epoch, members))
            case LastWord(source, result) if source == self.heir:
                return self._end(Accept(result))
            case Tick():
                return self._lead(now) if self.heir == self.rank else self._follow(now)
        return []

    def _counts(self, epoch: int, members: tuple[int, ...]) -> bool:
        return epoch > self.epoch and self.rank in members

    def _lead(self, now: float) -> list[Action]:
        others = [rank for rank in self.alive[1:] if rank in self._joined]
        if now <= self._deadline and len(others) < len(self.alive) - 1:
            return []
        epoch = 1 + max([self.epoch, *(self._joined[rank] for rank in others)])
        members = (self.rank, *others)
        return [*(PostRoster(rank, epoch, members) for rank in others), *self._end(TakeUp(epoch, members))]

    def _follow(self, now: float) -> list[Action]:
        if self._asked != self.heir:
            self._asked, self._asked_at = self.heir, now
            return [PostJoin(self.heir, self.epoch)]
        most_s = self._limit_s + self._patience_s
        if now <= self._asked_at + most_s:
            return []
        return self._end(Leave(f"rank {self.heir} has said nothing for {most_s:g} s"))

    def _end(self, action: Action) -> list[Action]:
        self.is_over = True
        return [action]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.rank in self.alive and self.alive == sorted(set(self.alive))
        assert self._asked is None or self._asked <= self.heir, "it asks those first that are lost first"
        assert self.rank not in self._joined
