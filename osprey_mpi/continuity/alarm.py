"""Say once that nothing works: a mistake in the objective would spend the whole budget before anybody looks."""

from __future__ import annotations

from collections import Counter

from osprey_mpi.continuity.events import Log
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import NO_ID, NO_ROW, Status
from osprey_mpi.continuity.sender import parse_reasons
from osprey_mpi.continuity.tally import Tally

_FAILURES = (Status.FAILED, Status.TIMEOUT)


class Alarm:
    """Watch the failures of this life until there is a first result, or as many failures as are enough."""

    def __init__(self, tally: Tally, n_enough: int | None) -> None:
        """n_enough: None for never."""
        self._tally = tally
        self._n_enough = n_enough
        self._n_before = self._n_failed()
        self._kinds: Counter[str] = Counter()

    def hear(self, delta: Delta) -> list[Log]:
        """Take a delta that has been tallied; return the warning if it is time for it."""
        if self._n_enough is None or not delta.reasons:
            return []
        if self._tally.best.id != NO_ID:
            self._n_enough = None
            return []
        # Rows that were lost, cut off or stopped early have reasons as well; a failure in a batch may have no row.
        for _, attempt, status, text in parse_reasons(delta.reasons):
            if status in _FAILURES or (attempt, status) == NO_ROW:
                self._kinds[text.partition("\n")[0]] += 1
        n_failed = self._n_failed() - self._n_before
        if n_failed < self._n_enough:
            return []
        self._n_enough = None
        (kind, _), *more = self._kinds.most_common(2)
        why = "most often for this reason" if more else "all for one reason"
        return [
            Log(
                f"no result yet, and {n_failed} evaluations failed, {why}: {kind}; the run goes on, Ctrl-C saves and "
                "stops it, and `osprey validate CONFIG --try` shows one evaluation in full",
                warning=True,
            )
        ]

    def _n_failed(self) -> int:
        return sum(self._tally.counts[status] for status in _FAILURES)
