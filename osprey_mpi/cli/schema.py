"""osprey schema: say what a config may hold."""

from __future__ import annotations

from typing import Annotated

import typer

from osprey_mpi.cli.options import TextFormat


def schema_command(
    format: Annotated[
        TextFormat, typer.Option("--format", help="JSON Schema, or YAML with comments for people.")
    ] = TextFormat.JSON,
) -> None:
    """Print every key of config files, with its default, its range and what it is for.

    JSON Schema, for editors and checkers, unless --format text is given.
    """
    from osprey_mpi.cli.output import write_json, write_text
    from osprey_mpi.config import json_schema, reference

    if format is TextFormat.TEXT:
        write_text([reference(json_schema())])
    else:
        write_json(json_schema())
