"""osprey schema: print the JSON Schema of a config."""

from __future__ import annotations


def schema_command() -> None:
    """Print the JSON Schema of config files, for editors and checkers."""
    from osprey_mpi.cli.output import write_json
    from osprey_mpi.config import json_schema

    write_json(json_schema())
