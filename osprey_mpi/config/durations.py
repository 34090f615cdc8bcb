"""Durations as people and batch systems write them."""

from __future__ import annotations

import re

# [days-]hours:minutes:seconds. Slurm also takes MM:SS and plain minutes; both are refused: they are easily misread.
DURATION_PATTERN = r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)"
_DURATION = re.compile(DURATION_PATTERN)


def parse_duration(value: object) -> object:
    """Turn "12:30:45" or "1-00:00:00" into seconds; numbers pass as they are.

    Raises ValueError for any other text; other types are left to the caller's type check.
    """
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError("must be seconds (a number) or HH:MM:SS or D-HH:MM:SS")
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 24 + int(hours)) * 3600.0 + int(minutes) * 60 + float(seconds)
