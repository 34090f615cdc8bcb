"""Judge whether a sender is there: HEALTHY -> SUSPECT -> LOST by silence, back to HEALTHY by a word.

    HEALTHY   heard within suspect_after_s
    SUSPECT   silent for longer, or its deltas have a gap: it is asked for its state
    LOST      silent for lost_after_s: its open work is given to others; when it comes back it starts a new incarnation

Slow is not dead: a sender that cannot answer while it evaluates (`responsive` False) is never judged by silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """Give the state of a sender in its collector's eyes."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    LOST = "lost"


@dataclass(slots=True)
class Pulse:
    """Follow one sender's signs of life. Times are seconds of any one clock."""

    suspect_after_s: float
    lost_after_s: float
    heard_at: float
    responsive: bool = True
    health: Health = Health.HEALTHY

    def hear(self, now: float) -> bool:
        """Note a sign of life; return True when the sender had been lost."""
        was_lost = self.health is Health.LOST
        self.heard_at = max(now, self.heard_at)
        self.health = Health.HEALTHY
        return was_lost

    def doubt(self) -> None:
        """Suspect a sender whose deltas do not follow on each other."""
        if self.health is Health.HEALTHY:
            self.health = Health.SUSPECT

    def judge(self, now: float) -> Health | None:
        """Return the new state when silence has changed it, else None."""
        if not self.responsive or self.health is Health.LOST:
            return None
        silence = now - self.heard_at
        if silence >= self.lost_after_s:
            self.health = Health.LOST
        elif silence >= self.suspect_after_s and self.health is Health.HEALTHY:
            self.health = Health.SUSPECT
        else:
            return None
        return self.health
