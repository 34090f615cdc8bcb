"""Say to callers of minimize() in Python's terms what messages say in those of the command line."""

from __future__ import annotations

import re

_TERMS = (
    (r"`osprey resume --max-evaluations`", "resume=True and a larger budget.evaluations"),
    (r"`osprey resume --set KEY=VALUE`", "resume=True with other values"),
    (r"`osprey resume` the run", "resume the run"),
    (r"`osprey resume( [^`]*)?`", "resume=True"),
    (r", and `osprey validate CONFIG --try` shows one evaluation in full", ""),
    (r"(?<!\S)with --max-evaluations\b", "with a larger budget.evaluations"),
    (r"(?<!\S)--max-evaluations\b", "budget.evaluations"),
    (r"(?<!\S)--overwrite\b", "overwrite=True"),
)


def in_python(text: str) -> str:
    """Return a message with the arguments of minimize() in the place of commands and options."""
    for pattern, term in _TERMS:
        text = re.sub(pattern, term, text)
    return text
