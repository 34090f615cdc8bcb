"""Notice in a ring of ranks who says nothing any more, and let all others know.

    each member --ask--> those behind it, up to the first that has answered lately; who is asked answers
    heard once, but not for `limit_s` although it was asked all the while: silent
    silent, and vital: lost for good; told to all at once, and again with every ask and answer

After G. Bosilca et al., "Failure detection and propagation in HPC systems" (SC16). There each member sends beats to the
one that watches it; here it answers whoever asks, so that nobody needs to know by whom it is watched, and ranks that
see different losses still hear of each other.

Rules
-----
* Who has never been heard is not judged: a network that lets nothing through makes no losses. So all ask all others
  once, a few at a time.
* The ring closes over whoever does not answer, before it is lost: the one behind it is asked, too.
* Who is silent and not vital is asked on: when it answers it is as if nothing had been. Once it is vital, too, it has
  half of the limit to do so: others wait for it then, but no longer than the limit.
* Time in which this rank did not run does not count.
* What a lost rank says counts nothing. A rank that hears that it is lost itself is out.
* Who says that it leaves is not judged any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from osprey_mpi.continuity.health import Awake

BEATS = 10  # within the limit: nine that get lost in a row are no loss
LONGEST_PERIOD_S = 1.0
LATELY = 1.5  # periods: to the last question but one
MOST_GREETED = 16  # ranks not heard so far that are asked at once, so that thousands of ranks make no storm
N_TELLS = 3  # times that a loss is told to all: the ring repairs what got lost of it, but only from one to the next


class Kind(Enum):
    """Tell what a word between two ranks is."""

    ANSWER = 0
    ASK = 1
    LEAVE = 2


@dataclass(frozen=True, slots=True)
class Say:
    """Tell a rank who is lost; `kind` is why it is told."""

    rank: int
    kind: Kind


class Ring:
    """Turn words and time into words and losses for one rank.

    vital: ranks whose silence is a loss; None: all. limit_s: of silence. lost: ranks that will never count again.
    is_out: the others take this rank for lost.
    """

    def __init__(self, rank: int, members: Sequence[int], limit_s: float, now: float) -> None:
        self.rank, self.members = rank, tuple(members)
        self.limit_s = limit_s
        self.vital: Collection[int] | None = None
        self.lost: frozenset[int] = frozenset()
        self.is_out = False
        self._left: set[int] = set()
        self._heard: set[int] = set()
        self._quiet_since: dict[int, float] = {}  # of those that are asked
        self._new: set[int] = set()  # of those, who has not had the time to answer yet, or does not
        self._n_greeted = 0
        self._n_tells = 0
        self._awake = Awake(now, 1.5 * self.period_s)

    @property
    def period_s(self) -> float:
        """Return the time between two ticks."""
        return min(self.limit_s / BEATS, LONGEST_PERIOD_S)

    @property
    def asked(self) -> list[int]:
        """Return whom this rank watches."""
        return list(self._quiet_since)

    def meet(self, members: Sequence[int]) -> None:
        """Watch over these ranks from now on."""
        self.members = tuple(members)

    def judge(self, vital: Collection[int] | None, now: float) -> None:
        """Take the silence of these ranks, and no others, for a loss from now on; None: of all."""
        spared, self.vital = self.vital, vital
        if spared is None:
            return
        for rank, since in self._quiet_since.items():
            if rank not in spared:
                self._quiet_since[rank] = max(since, now - 0.5 * self.limit_s)

    def hear(self, source: int, kind: Kind, lost: Iterable[int], now: float) -> list[Say]:
        """Take in a word of another rank."""
        answer = [Say(source, Kind.ANSWER)] if kind is Kind.ASK else []
        if source in self.lost:
            return answer
        if kind is Kind.LEAVE:
            self._left.add(source)
            self._quiet_since.pop(source, None)
        self._heard.add(source)
        if source in self._quiet_since:
            self._quiet_since[source] = now
            self._new.discard(source)
        self._lose(lost)
        return answer

    def condemn(self, ranks: Iterable[int]) -> None:
        """Take ranks for lost, which somebody knows by other means; all are told with the next tick."""
        if self._lose(ranks):
            self._n_tells = N_TELLS

    def tick(self, now: float) -> list[Say]:
        """Judge whom this rank watches; return what it says now. Words that have come are taken in before."""
        nap_s = self._awake.nap_s(now)
        for rank, since in self._quiet_since.items():
            self._quiet_since[rank] = min(since + nap_s, now)
        self.condemn(rank for rank in self.silent(now) if self.vital is None or rank in self.vital)
        says = [Say(rank, Kind.ASK) for rank in (*self._watch(now), *self._greet())]
        if self._n_tells:
            self._n_tells -= 1
            told = {say.rank for say in says} | {self.rank} | self._left
            says += [Say(rank, Kind.ANSWER) for rank in self.members if rank not in told]
        return says

    def silent(self, now: float) -> list[int]:
        """Return who does not answer, lost or not."""
        return [rank for rank, since in self._quiet_since.items() if now - since >= self.limit_s]

    def leave(self) -> list[Say]:
        """Return what this rank says when it ends in order."""
        return [Say(rank, Kind.LEAVE) for rank in self._others()]

    def _lose(self, ranks: Iterable[int]) -> bool:
        """Note losses; return whether there is one that is new."""
        known = self.lost
        self.lost = known | frozenset(ranks)
        self.is_out = self.is_out or self.rank in self.lost
        for rank in self.lost - known:
            self._quiet_since.pop(rank, None)
        return self.lost != known

    def _others(self) -> list[int]:
        """Return who is there, beginning with the one behind this rank."""
        at = self.members.index(self.rank)
        behind = (*self.members[at + 1 :], *self.members[:at])
        return [rank for rank in behind if rank not in self.lost and rank not in self._left]

    def _watch(self, now: float) -> list[int]:
        """Go on behind those that do not answer, by as many as these are, up to the first that does."""
        before, self._quiet_since = self._quiet_since, {}
        n_quiet = n_new = 0
        for rank in self._others():
            if rank not in self._heard:
                continue
            if rank not in before:
                self._new.add(rank)
            since = self._quiet_since[rank] = before.get(rank, now)
            is_quiet = now - since >= LATELY * self.period_s
            n_quiet += is_quiet
            n_new += rank in self._new and not is_quiet
            if n_new > n_quiet or not (is_quiet or rank in self._new):
                break
        return list(self._quiet_since)

    def _greet(self) -> list[int]:
        """Return some of those that have never been heard, others each time."""
        unheard = [rank for rank in self._others() if rank not in self._heard]
        at = self._n_greeted % max(1, len(unheard))
        greeted = (unheard[at:] + unheard[:at])[:MOST_GREETED]
        self._n_greeted = at + len(greeted)
        return greeted

    def check(self) -> None:
        """Assert the invariants."""
        assert not self.lost.intersection(self._quiet_since), "who is lost is asked no more"
        assert self.rank not in self._quiet_since and self._heard.issuperset(self._quiet_since)
        assert self.is_out is (self.rank in self.lost)
