"""Hold what a run gives back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osprey_mpi.errors import ExitCode
from osprey_mpi.storage.status import NOT_CALLED, not_called_lines, plain, violation_remark
from osprey_mpi.words import counted

if TYPE_CHECKING:
    from osprey_mpi.continuity.root import Root
    from osprey_mpi.storage.status import RunStatus

MUCH = 0.2  # of the evaluations: from here on the search spends its budget on points that nobody wants


@dataclass(frozen=True, slots=True)
class RunResult:
    """Hold the result of a run. cost and parameters are those of the best point, None where there is none.

    violation: 0 where the best point satisfies all constraints. wall_s: over all lives, of which there are n_lives.
    n_ranks: of the last one. out: the run's folder.
    n_infeasible: how many points violate constraints; n_not_called: how many of them broke those of the config, so that
    the objective was not called; None: not known, for batches record captures only.
    """

    cost: float | None
    parameters: Mapping[str, Any] | None
    violation: float
    n_evaluations: int
    reason: str
    wall_s: float
    n_ranks: int
    out: Path
    exit_code: int
    n_infeasible: int | None = 0
    n_not_called: int | None = 0
    n_lives: int = 1

    @classmethod
    def of(cls, status: RunStatus, root: Root, out: Path, exit_code: int) -> RunResult:
        """Build the result from the last status."""
        best, n_infeasible = status.best, status.n_infeasible
        if best is None and n_infeasible is None:  # what ended well without a cost violates them
            n_infeasible = status.counts.get("ok", 0)
        return cls(
            cost=None if best is None else best.cost,
            parameters=None if best is None else dict(best.parameters),
            violation=0.0 if best is None else best.violation,
            n_evaluations=status.n_evaluations,
            reason=root.detail,
            wall_s=status.wall_s,
            n_ranks=status.n_ranks,
            out=out,
            exit_code=exit_code,
            n_infeasible=n_infeasible,
            n_not_called=status.n_not_called,
            n_lives=status.life,
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values."""
        best = None
        if self.parameters is not None:
            best = {"cost": self.cost, "parameters": plain(self.parameters)}
            if self.violation > 0.0:
                best["violation"] = self.violation
        return {
            "best": best, "n_evaluations": self.n_evaluations, "n_infeasible": self.n_infeasible,
            "n_not_called": self.n_not_called, "reason": self.reason, "wall_s": round(self.wall_s, 3),
            "n_ranks": self.n_ranks, "n_lives": self.n_lives, "out": str(self.out),
        }  # fmt: skip

    def to_json(self) -> str:
        """Return one JSON object on one line."""
        return json.dumps(self.to_mapping(), ensure_ascii=False)

    def _why(self) -> str:
        """Say why there is no best point, as far as constraints are the reason: such points end well, without cost."""
        n, points = self.n_infeasible, counted(self.n_evaluations, "point")
        if not n:
            return ""
        return f": none of {points} satisfied the constraints" if n == self.n_evaluations else f": {n} of {points} " + (
            "violated the constraints, the others failed"
        )

    def _not_called(self) -> list[str]:
        """Say for how many points the objective was not called, and what helps where they are many."""
        n = self.n_not_called
        if n is None or n <= MUCH * self.n_evaluations:
            return not_called_lines(n)
        return [
            f"{NOT_CALLED.format(n)}, {n / self.n_evaluations:.0%} of the evaluations: give such a constraint as bounds"
            " of the parameters where it can be, or a point inside under start"
        ]

    def to_text(self) -> str:
        """Return a few lines for a person."""
        if self.parameters is None:
            lines = [f"no usable evaluation{self._why()}"]
        else:
            lines = [f"best cost {self.cost!r}{violation_remark(self.violation)}"]
            for name, value in plain(self.parameters).items():
                text = repr(value)
                lines.append(f"  {name} = {text if len(text) <= 200 else text[:200] + ' ...'}")
        done, ranks = counted(self.n_evaluations, "evaluation"), counted(self.n_ranks, "rank")
        where = f"on {ranks}" if self.n_lives == 1 else f"of {self.n_lives} lives, the last on {ranks}"
        lines.append(f"{done} in {self.wall_s:.1f} s {where}, ended by: {self.reason}")
        lines += self._not_called()
        lines.append(f"results in {self.out}")
        if self.exit_code == ExitCode.STOPPED:
            lines.append(f"it is saved; to go on: osprey resume {self.out}")
        return "\n".join(lines)
