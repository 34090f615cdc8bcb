"""Find the key or value that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# difflib's own default: below it, suggestions are noise (`enable` is no misspelt `interval`).
CUTOFF = 0.6
# More would hide the message itself.
_MOST_LISTED = 15


def nearest(word: str, known: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """Return the most similar known word, None if none is as similar as `cutoff` (0 to 1)."""
    words = list(known)
    by_lower = {other.lower(): other for other in words}
    match = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[match[0]] if match else None


def listed(words: Sequence[str]) -> str:
    """Write words with commas, the first few of many."""
    more = f", ... ({len(words)} in all)" if len(words) > _MOST_LISTED else ""
    return ", ".join(words[:_MOST_LISTED]) + more


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" or, without a similar word, "; known are a, b, c"."""
    words = list(known)
    match = nearest(word, words) if isinstance(word, str) else None
    if match is not None:
        return f"; did you mean '{match}'?"
    return f"; known are {listed(words)}" if words else ""
