"""Judge whether a sender is there: HEALTHY -> SUSPECT -> LOST by silence, back to HEALTHY by a word.

    HEALTHY   heard within suspect_after_s
    SUSPECT   silent for longer, or its deltas have a gap: it is asked for what is missing
    LOST      silent for lost_after_s, or its deltas have had a gap for that long: its open work is given to others

A sender that comes back goes on where it was: what it did meanwhile are facts, and it gets new orders. One that is lost
because its deltas do not follow on each other comes back when the next one does. One whose process has ended never
comes back.

Slow is not dead: a sender that cannot answer while it evaluates (`responsive` False) is never judged. Nor does the time
count in which the judge itself did not run: stopped by its batch system, or held up by a file system.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NAP_S = 0.1  # a turn of the loop that takes longer than five ticks: the judge was not there to listen
# A collector that writes says nothing meanwhile, and a parallel file system whose server failed may take a quarter of
# an hour to come back. A longer silence has no such reason.
PATIENCE_S = 900.0


class Health(Enum):
    """Give the state of a sender in its collector's eyes."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    LOST = "lost"


class Awake:
    """Know how long its owner did not run between two looks; longest_s: that is nothing unusual between them."""

    def __init__(self, now: float, longest_s: float = NAP_S) -> None:
        self._looked_at, self._longest_s = now, longest_s

    def nap_s(self, now: float) -> float:
        """Return the time since the last look beyond what is usual."""
        slept_s = max(0.0, now - self._looked_at - self._longest_s)
        self._looked_at = now
        return slept_s


class Patience:
    """Measure how long a sender has waited, awake, for a word of its collector."""

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self._heard_at = now
        self._awake = Awake(now)

    def hear(self, now: float) -> None:
        """Note a word of the collector."""
        self._heard_at = max(now, self._heard_at)

    def waited_s(self, now: float) -> float:
        """Return for how long it has waited."""
        self._heard_at = min(self._heard_at + self._awake.nap_s(now), now)
        return now - self._heard_at

    def is_over(self, now: float) -> bool:
        """Tell whether the wait has lasted too long."""
        return self.waited_s(now) >= self.limit_s


@dataclass(slots=True)
class Pulse:
    """Follow one sender's signs of life. Times are seconds of any one clock."""

    suspect_after_s: float
    lost_after_s: float
    heard_at: float
    responsive: bool = True
    health: Health = Health.HEALTHY
    doubted_at: float | None = None  # since when its deltas have a gap
    gone: bool = False  # its process has ended: what still comes of it are facts, no signs of life

    def hear(self, now: float) -> bool:
        """Note a sign of life; return True when the sender had been lost and is back."""
        self.heard_at = max(now, self.heard_at)
        if self.doubted_at is not None or self.gone:
            return False
        was_lost = self.health is Health.LOST
        self.health = Health.HEALTHY
        return was_lost

    def doubt(self, now: float) -> None:
        """Suspect a sender whose deltas do not follow on each other."""
        if self.doubted_at is None:
            self.doubted_at = now
        if self.health is Health.HEALTHY:
            self.health = Health.SUSPECT

    def trust(self) -> bool:
        """End the doubt: the next delta in order has come; return True when the sender had been lost and is back."""
        self.doubted_at = None
        if self.gone:
            return False
        was_lost = self.health is Health.LOST
        self.health = Health.HEALTHY
        return was_lost

    def end(self) -> bool:
        """Note that the sender's process has ended; return whether it was not lost before."""
        was_lost = self.health is Health.LOST
        self.gone, self.health = True, Health.LOST
        return not was_lost

    def excuse(self, nap_s: float, now: float) -> None:
        """Do not count a time in which nobody listened."""
        self.heard_at = min(self.heard_at + nap_s, now)
        if self.doubted_at is not None:
            self.doubted_at = min(self.doubted_at + nap_s, now)

    def judge(self, now: float) -> Health | None:
        """Return the new state when silence or a gap has changed it, else None."""
        if not self.responsive or self.health is Health.LOST:
            return None
        silence = now - self.heard_at
        gap = 0.0 if self.doubted_at is None else now - self.doubted_at
        if max(silence, gap) >= self.lost_after_s:
            self.health = Health.LOST
        elif silence >= self.suspect_after_s and self.health is Health.HEALTHY:
            self.health = Health.SUSPECT
        else:
            return None
        return self.health
