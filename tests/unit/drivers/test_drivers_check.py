"""What is said of constraints before a run: nothing where some point satisfies them, else which ones are to blame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.comm import tree
from osprey_mpi.config import config_from_mapping
from osprey_mpi.drivers import check
from osprey_mpi.drivers.check import check_objective, constraint_notes
from osprey_mpi.drivers.hosts import spare_notes
from osprey_mpi.errors import ConfigError
from osprey_mpi.search.space import Space

HINT = "; if there are such points, give one under start"


def notes(*constraints: str, start: Any = (), size: int = 1) -> list[str]:
    config = config_from_mapping(
        {
            "name": "checked",
            "objective": {"builtin": "sphere"},
            "parameters": {
                "x": {"type": "real", "low": 0, "high": 1, "size": size},
                "y": {"type": "real", "low": 0, "high": 1},
            },
            "constraints": list(constraints),
            "start": list(start),
            "budget": {"evaluations": 1},
        }
    )
    return constraint_notes(config, Space(config.parameters, config.constraints))


def test_nothing_is_said_where_points_satisfy_the_constraints() -> None:
    assert notes() == []
    assert notes("sum(x) + y <= 1") == []
    assert notes("sum(x) <= 0.01") == [], "one point in a hundred is enough"


def test_each_constraint_that_no_point_satisfies_is_named() -> None:
    assert notes("y <= 0.5", "y >= 2", "sum(x) >= 3") == [
        f"the constraint '{text}' is satisfied by none of 10000 random points of the space (share 0){HINT}"
        for text in ("y >= 2", "sum(x) >= 3")
    ]


def test_constraints_that_exclude_each_other_are_told_of_together() -> None:
    assert notes("y <= 0.25", "y >= 0.75") == [
        f"all 2 constraints together are satisfied by none of 10000 random points of the space (share 0){HINT}"
    ]


def test_the_hint_goes_where_a_start_point_is_given() -> None:
    """Points on a line are never drawn; a start point, which the config has checked, lies on it."""
    assert notes("y == 0.123456789", start=[{"y": 0.123456789}]) == [
        "the constraint 'y == 0.123456789' is satisfied by none of 10000 random points of the space (share 0)"
    ]


def test_wide_spaces_draw_fewer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_NUMBERS", 202)
    assert notes("y >= 2", size=100) == [
        f"the constraint 'y >= 2' is satisfied by none of 2 random points of the space (share 0){HINT}"
    ]
    assert notes("y >= 2", size=1000)[0].count("none of 1 random point of") == 1


def test_an_objective_that_cannot_be_loaded_is_a_config_error(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "model.py").write_text("print('loud'); loss = 3")
    config = config_from_mapping(
        {
            "name": "checked",
            "objective": {"python": "model:loss"},
            "parameters": {"x": {"type": "real", "low": 0, "high": 1}},
            "budget": {"evaluations": 1},
        },
        tmp_path,
    )
    with pytest.raises(ConfigError) as caught:
        check_objective(config, Space(config.parameters))
    assert str(caught.value) == "objective.python (model:loss) is int, but a function is needed"
    assert capfd.readouterr().out == "", "stdout is for results"


def test_ranks_that_fill_no_group_are_named_with_what_would_use_them_all() -> None:
    def said(n_ranks: int, n_each: int) -> list[str]:
        return spare_notes(tree.plan(n_ranks, 16, n_each).spare, n_each, n_ranks)

    assert said(4, 1) == said(2, 2) == said(3, 2) == said(9, 4) == []
    assert said(4, 2) == ["rank 3 fills no group of 2 and will have nothing to do: 3 or 5 ranks would all be used"]
    assert said(8, 4) == [
        "ranks 5, 6, 7 fill no group of 4 and will have nothing to do: 5 or 9 ranks would all be used"
    ]
