"""Options that several verbs share; imports nothing but typer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class TextFormat(StrEnum):
    """Tell how a result is printed."""

    TEXT = "text"
    JSON = "json"


def folder_name(text: str) -> Path:
    """Take the name of a folder; an empty one, of a variable that is not set, would be the current folder."""
    if not text:
        raise typer.BadParameter("is empty, must be the name of a folder (. is the current one)")
    return Path(text)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.", show_default=False, parser=folder_name)]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of an experiment.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace a value of the config, as in budget.evaluations=100. Repeatable."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting of the run, as in objective.time_limit=60. Repeatable."
    ),
]
Format = Annotated[TextFormat, typer.Option("--format", help="How the result is printed.")]
