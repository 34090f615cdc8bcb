"""Write numbers with their nouns, and what users' code says so that a terminal only shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# All control characters but newline and tab, and halves of characters, which no UTF-8 file takes.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def counted(n: int, noun: str, several: str = "") -> str:
    """Write a number with its noun: 1 rank, 2 ranks. several: the plural where it is not noun + s."""
    return f"{n} {noun}" if n == 1 else f"{n} {several or noun + 's'}"


def ranks_named(ranks: Iterable[int]) -> str:
    """Write ranks with their noun: rank 1, ranks 1, 2."""
    numbers = sorted(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def visible(text: str) -> str:
    """Write what users' code says so that a terminal or a table shows it: control characters as \\x1b and the like."""
    text = text.replace("\r\n", "\n")
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def message_of(error: BaseException) -> str:
    """Return what an exception says, however broken its `__str__` is."""
    try:
        return visible(str(error).strip())
    except BaseException:  # SystemExit too: it must not leave the rank's loop
        return "<its message raised an exception itself>"
