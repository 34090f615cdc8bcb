"""Be the collecting half of the protocol, shared by the leader (of workers) and the root (of leaders).

Rules
-----
* Every member has a ledger (which deltas were admitted) and a pulse (is it there).
* A gap or a checksum that differs makes the member suspect: it is asked for a word and its kept deltas (Resync),
  once a second, until they come or it is lost. So lost, repeated and overtaken deltas heal. Nothing else is sent twice:
  all other messages rely on MPI, which loses none and keeps the order of a pair.
* A late delta of an older incarnation is a fact: its rows are passed on, its best point merges, it does not steer.
* Whoever says that it is there is told what is durable, so that a sender hears of its collector, too.
* A member has left when it said how many deltas it sent and all of them were admitted: a run ends by counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from osprey_mpi.continuity.events import Action, Log, Send
from osprey_mpi.continuity.health import Awake, Health, Pulse
from osprey_mpi.continuity.ledger import Account, Ledger, Verdict
from osprey_mpi.continuity.messages import Ack, Delta, Farewell, Heartbeat, Hello, Message, Resync, Role

RESYNC_EVERY_S = 1.0  # a suspect is asked again once a second, not once per message


@dataclass(slots=True)
class Member:
    """Hold what a collector knows of one sender."""

    pulse: Pulse
    ledger: Ledger = field(default_factory=Ledger)
    n_sent: int | None = None  # said in its farewell
    joined: bool = False
    durable: tuple[int, int] = (0, 0)  # incarnation and counter of the newest acknowledgement
    resync_at: float = float("-inf")

    @property
    def left(self) -> bool:
        """Tell whether it has said farewell and nothing of it is missing."""
        return self.n_sent is not None and self.ledger.admitted >= self.n_sent

    @property
    def lost(self) -> bool:
        """Tell whether it is lost."""
        return self.pulse.health is Health.LOST

    def renew(self, incarnation: int) -> None:
        """Start a new account when the sender has a new incarnation."""
        if incarnation > self.ledger.account.incarnation:
            self.ledger = Ledger(Account(incarnation=incarnation))
            self.n_sent = None


class Collector:
    """Admit the deltas of the members and watch their health."""

    member_role: Role

    def __init__(
        self, rank: int, members: Iterable[int], now: float, *, suspect_after_s: float, lost_after_s: float
    ) -> None:
        self.rank = rank
        self.members = {member: Member(Pulse(suspect_after_s, lost_after_s, heard_at=now)) for member in members}
        self._awake = Awake(now)
        self._leave_by = float("inf")  # until then farewells are awaited

    def hear(self, source: int, now: float) -> None:
        """Note a sign of life of a member."""
        member = self.members[source]
        if member.pulse.hear(now):
            member.n_sent = None
            self.back(source)

    def back(self, source: int) -> None:
        """Note that a member that was lost is there again."""

    def admit(self, source: int, delta: Delta, now: float) -> tuple[Verdict, list[Action]]:
        """Enter a delta in the ledger; on a gap ask for what is missing."""
        member = self.members[source]
        member.renew(delta.incarnation)
        verdict = member.ledger.admit(delta)
        if verdict is Verdict.ADMITTED:
            if member.pulse.doubted_at is not None and member.pulse.trust():
                self.back(source)
        elif verdict in (Verdict.GAP, Verdict.CORRUPT):
            return verdict, self._ask_again(source, member, now, f"delta {delta.counter} is a {verdict.value}")
        return verdict, []

    def follow(self, source: int, message: Message, now: float) -> list[Action]:
        """Handle what every sender says of itself."""
        member = self.members[source]
        match message:
            case Hello(incarnation, responsive):
                member.joined = True
                member.pulse.responsive = bool(responsive)
                member.renew(incarnation)
            case Heartbeat(incarnation, counter):
                return [*self._catch_up(source, incarnation, counter, now), self.acknowledge(source, *member.durable)]
            case Farewell(incarnation, n_sent):
                actions = self._catch_up(source, incarnation, n_sent, now)
                if incarnation == member.ledger.account.incarnation:
                    member.n_sent = n_sent
                return actions
        return []

    def _catch_up(self, source: int, incarnation: int, counter: int, now: float) -> list[Action]:
        """Compare a member's counter with the ledger; ask for what is missing."""
        member = self.members[source]
        member.renew(incarnation)
        if incarnation < member.ledger.account.incarnation or counter <= member.ledger.admitted:
            return []
        return self._ask_again(source, member, now, f"it sent {counter} deltas")

    def _ask_again(self, source: int, member: Member, now: float, why: str) -> list[Action]:
        member.pulse.doubt(now)
        return self._resync(source, member, now, why)

    def _resync(self, source: int, member: Member, now: float, why: str) -> list[Action]:
        if now - member.resync_at < RESYNC_EVERY_S:
            return []
        member.resync_at = now
        admitted = member.ledger.admitted
        return [
            Log(f"rank {source} is suspect: {why}, {admitted} admitted; asked for the rest"),
            Send(source, self.member_role, Resync(admitted)),
        ]

    def judge(self, now: float) -> tuple[list[Action], list[int]]:
        """Judge all members; return what to do and who is newly lost."""
        actions: list[Action] = []
        lost: list[int] = []
        nap_s = self._awake.nap_s(now)
        self._leave_by += nap_s  # farewells may have come meanwhile, and have not been read
        for rank, member in self.members.items():
            if nap_s > 0.0:
                member.pulse.excuse(nap_s, now)
            if member.left:
                continue
            change = member.pulse.judge(now)
            if change is Health.SUSPECT:
                actions += self._resync(rank, member, now, f"silent for {now - member.pulse.heard_at:.1f} s")
            elif change is Health.LOST:
                doubted_at = member.pulse.doubted_at
                why = f"silent for {now - member.pulse.heard_at:.1f} s"
                if doubted_at is not None:
                    why += f", and delta {member.ledger.admitted + 1} has been missing for {now - doubted_at:.1f} s"
                actions.append(Log(f"rank {rank} is lost: {why}", warning=True))
                lost.append(rank)
        return actions, lost

    def bury(self, rank: int) -> tuple[list[Action], list[int]]:
        """Take note that a rank's process has ended; return what to do and who is newly lost."""
        member = self.members.get(rank)
        if member is None or not member.pulse.end() or member.left:
            return [], []
        return [Log(f"rank {rank} is lost: its process has ended", warning=True)], [rank]

    def acknowledge(self, source: int, incarnation: int, counter: int) -> Send:
        """Tell a member what is durable."""
        self.members[source].durable = (incarnation, counter)
        return Send(source, self.member_role, Ack(incarnation, counter))

    def missing(self) -> list[int]:
        """Return the members that have not left and are not lost."""
        return [rank for rank, member in self.members.items() if not member.left and not member.lost]

    def check(self) -> None:
        """Assert the invariants."""
        for member in self.members.values():
            member.ledger.check()
            assert member.n_sent is None or member.n_sent >= 0
