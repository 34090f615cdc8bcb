"""Be the collecting half of the protocol, shared by the leader (of workers) and the root (of leaders).

Rules
-----
* Every member has a ledger (which deltas were admitted) and a pulse (is it there).
* A gap or a checksum that differs makes the member suspect: it is asked for its state and its kept deltas (Resync).
* A late delta of an older incarnation is a fact: its rows are passed on, its best point merges, it does not steer.
* A member has left when it said how many deltas it sent and all of them were admitted: a run ends by counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from osprey_mpi.continuity.events import Action, Log, Send
from osprey_mpi.continuity.health import Health, Pulse
from osprey_mpi.continuity.ledger import Account, Ledger, Verdict
from osprey_mpi.continuity.messages import Ack, Delta, Resync, Role

RESYNC_EVERY_S = 1.0  # a suspect is asked again once a second, not once per message


@dataclass(slots=True)
class Member:
    """Hold what a collector knows of one sender."""

    pulse: Pulse
    ledger: Ledger = field(default_factory=Ledger)
    n_sent: int | None = None  # said in its farewell
    joined: bool = False
    resync_at: float = float("-inf")

    @property
    def left(self) -> bool:
        """Tell whether it has said farewell and nothing of it is missing."""
        return self.n_sent is not None and self.ledger.admitted >= self.n_sent


class Collector:
    """Admit the deltas of the members and watch their health."""

    member_role: Role

    def __init__(
        self, rank: int, members: Iterable[int], now: float, *, suspect_after_s: float, lost_after_s: float
    ) -> None:
        self.rank = rank
        self.members = {
            member: Member(Pulse(suspect_after_s, lost_after_s, heard_at=now)) for member in members
        }

    def hear(self, source: int, now: float) -> Member | None:
        """Note a sign of life of a member; None for a stranger."""
        member = self.members.get(source)
        if member is not None and member.pulse.hear(now):
            member.n_sent = None
        return member

    def welcome(self, source: int, incarnation: int, responsive: bool) -> None:
        """Take in a sender's hello."""
        member = self.members[source]
        member.joined = True
        member.pulse.responsive = responsive
        if incarnation > member.ledger.account.incarnation:
            member.ledger = Ledger(Account(incarnation=incarnation))

    def admit(self, source: int, delta: Delta, now: float) -> tuple[Verdict, list[Action]]:
        """Enter a delta in the ledger; on a gap ask for what is missing."""
        member = self.members[source]
        verdict = member.ledger.admit(delta)
        if verdict in (Verdict.GAP, Verdict.CORRUPT):
            member.pulse.doubt()
            return verdict, self._ask_again(source, member, now, f"delta {delta.counter} is a {verdict.value}")
        return verdict, []

    def catch_up(self, source: int, counter: int, now: float) -> list[Action]:
        """Compare a member's counter with the ledger; ask for what is missing."""
        member = self.members[source]
        if counter <= member.ledger.admitted:
            return []
        return self._ask_again(source, member, now, f"it sent {counter} deltas")

    def _ask_again(self, source: int, member: Member, now: float, why: str) -> list[Action]:
        if now - member.resync_at < RESYNC_EVERY_S:
            return []
        member.resync_at = now
        admitted = member.ledger.admitted
        return [
            Log(f"rank {source} is suspect: {why}, {admitted} admitted; asked for the rest"),
            Send(source, self.member_role, Resync(admitted)),
        ]

    def judge(self, now: float) -> tuple[list[Action], list[int]]:
        """Judge all members by their silence; return what to do and who is newly lost."""
        actions: list[Action] = []
        lost: list[int] = []
        for rank, member in self.members.items():
            if member.left:
                continue
            change = member.pulse.judge(now)
            if change is Health.SUSPECT:
                actions.append(Log(f"rank {rank} is suspect: silent for {now - member.pulse.heard_at:.1f} s"))
                actions += self._ask_again(rank, member, now, "it is silent")
            elif change is Health.LOST:
                silent_s = now - member.pulse.heard_at
                actions.append(Log(f"rank {rank} is lost: silent for {silent_s:.1f} s", warning=True))
                lost.append(rank)
        return actions, lost

    def acknowledge(self, source: int, incarnation: int, counter: int) -> Send:
        """Tell a member what is durable."""
        return Send(source, self.member_role, Ack(incarnation, counter))

    def missing(self) -> list[int]:
        """Return the members that have not left and are not lost."""
        return [
            rank
            for rank, member in self.members.items()
            if not member.left and member.pulse.health is not Health.LOST
        ]

    def check(self) -> None:
        """Assert the invariants."""
        for member in self.members.values():
            member.ledger.check()
            assert member.n_sent is None or member.n_sent >= 0
