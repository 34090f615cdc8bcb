"""Write numbers with their nouns."""

from __future__ import annotations

from collections.abc import Iterable


def counted(n: int, noun: str, several: str = "") -> str:
    """Write a number with its noun: 1 rank, 2 ranks. several: the plural where it is not noun + s."""
    return f"{n} {noun}" if n == 1 else f"{n} {several or noun + 's'}"


def ranks_named(ranks: Iterable[int]) -> str:
    """Write ranks with their noun: rank 1, ranks 1, 2."""
    numbers = sorted(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
