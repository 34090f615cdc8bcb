"""What is said of constraints before a run: nothing where some point satisfies them, else which ones are to blame."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from osprey_mpi.comm import tree
from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.drivers import check
from osprey_mpi.drivers.check import check_objective, constraint_notes, template_notes
from osprey_mpi.drivers.hosts import spare_notes
from osprey_mpi.drivers.opening import open_run
from osprey_mpi.drivers.request import Request
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


def template_config(folder: Path, text: str, argument: str = "input.txt") -> Config:
    (folder / "input.txt").write_text(text)
    mapping = {
        "name": "checked",
        "objective": {"command": ["cat", argument], "template": [{"source": "input.txt", "target": "input.txt"}]},
        "parameters": {name: {"type": "real", "low": 0, "high": 1} for name in ("width", "height")},
        "budget": {"evaluations": 1},
    }
    return config_from_mapping(mapping, base_dir=folder)


def template_notes_of(folder: Path, text: str, argument: str = "input.txt") -> list[str]:
    return template_notes(template_config(folder, text, argument))


def test_braces_that_may_be_meant_as_placeholders_are_named_once(tmp_path: Path) -> None:
    text = 'w = {width:.3f}\n{"a": {b}}\nh = {hieght}, {hieght} {height} {id}\n{t:1} {y:.2f} \\begin{document} {s:8.1e}'
    assert template_notes_of(tmp_path, text) == [
        "input.txt line 3 has {hieght}, which is no parameter and stays as it is; did you mean {height}?",
        "input.txt line 4 has {y:.2f}, which is no parameter and stays as it is",
        "input.txt line 4 has {s:8.1e}, which is no parameter and stays as it is",
    ]


def test_a_parameter_that_neither_arguments_nor_templates_use_is_named(tmp_path: Path) -> None:
    assert template_notes_of(tmp_path, "{width[0]}", "{height}") == []
    (note,) = template_notes_of(tmp_path, "{width}")
    assert note == "no argument and no template has a placeholder for height: the program never sees it"
    (note,) = template_notes_of(tmp_path, "")
    assert note == "no argument and no template has a placeholder for width, height: the program never sees them"


def test_a_run_says_so_at_its_start_and_a_template_that_cannot_be_read_is_another_matter(tmp_path: Path) -> None:
    config = template_config(tmp_path, "{width} {heigth}", "{height}")
    with closing(open_run(Request(load=lambda: config, out=tmp_path / "run"))) as opened:
        assert len(opened.notes) == 1 and opened.notes == template_notes(config)
    (tmp_path / "input.txt").unlink()
    assert template_notes(config) == []
