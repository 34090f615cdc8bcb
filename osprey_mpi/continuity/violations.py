"""Count the points that violate constraints, and those of them that the objective was not called for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


def not_called(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows break a constraint of the config, so that no call was made: no cost, and no time."""
    is_empty = (records["t_end_s"] == records["t_start_s"]) & np.isnan(records["cost"])
    return np.asarray(is_empty & (records["violation"] > 0.0))


@dataclass(frozen=True, slots=True)
class Violations:
    """Hold counts of evaluations.

    n_infeasible: with a violation above 0. n_not_called: of these, without a call. n_rowless: without a row, of which
    neither is known.
    """

    n_infeasible: int = 0
    n_not_called: int = 0
    n_rowless: int = 0

    @classmethod
    def of(cls, records: NDArray[Any], n_rowless: int = 0) -> Self:
        """Count the rows of evaluations that count, one row an id."""
        if not (records["violation"] > 0.0).any():
            return cls(0, 0, n_rowless)
        return cls(int((records["violation"] > 0.0).sum()), int(not_called(records).sum()), n_rowless)

    def __add__(self, other: Violations) -> Violations:
        return Violations(
            self.n_infeasible + other.n_infeasible,
            self.n_not_called + other.n_not_called,
            self.n_rowless + other.n_rowless,
        )

    def known(self, *, has_constraints: bool, is_builtin: bool) -> tuple[int | None, int | None]:
        """Return (n_infeasible, n_not_called); None for what is not known, because evaluations without a row may be so.

        Only a config's constraints keep points from being called, and built-ins, which are always called, have no
        violation of their own.
        """
        may_violate, may_lack = has_constraints or not is_builtin, has_constraints and not is_builtin
        return (
            None if self.n_rowless and may_violate else self.n_infeasible,
            None if self.n_rowless and may_lack else self.n_not_called,
        )
