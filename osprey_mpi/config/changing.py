"""Say which settings of a run that has begun may change: those that leave what its points mean as it is."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from osprey_mpi.errors import UsageError

if TYPE_CHECKING:
    from osprey_mpi.config.schema import Config

# What is done keeps its cost and status, and can be compared with what comes, whatever these are from now on.
CHANGEABLE = (
    "budget.*",  # when the run is over; `evaluations` not below what is done, which only the run's rows tell
    "objective.time_limit",  # when the next calls are ended
    "objective.retries",  # how often the next failures are tried again at once
    "objective.on_failure",  # what the next failures do
    "objective.penalty",  # what they cost in the eyes of the search: their rows hold NaN with any penalty
    "objective.keep_scratch",  # which of the next scratch folders stay
    "continuity.*",  # how soon silence is noticed and late results no longer steer: only what is fast enough decides
    "checkpoint.*",  # how often the search is saved; rows are on disk long before
    "output.results_interval",  # how often rows are written
)


def allowed_changes(former: Config, wanted: Config, what: object) -> list[str]:
    """Return what differs in the config that is wanted, as `Config.differences` does.

    what: names the run. Raises UsageError if any of it may not change.
    """
    changes = former.differences(wanted)
    if refused := [text for text in changes if not is_changeable(text.partition(": ")[0])]:
        raise UsageError(
            f"{what} cannot be resumed with another config: {'; '.join(refused)}; what may change is "
            f"{', '.join(CHANGEABLE)}"
        )
    return changes


def is_changeable(key: str) -> bool:
    """Tell whether a key, such as "budget.target", may change in a run that has begun."""
    return any(fnmatchcase(key, pattern) for pattern in CHANGEABLE)
