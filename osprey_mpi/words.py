"""Write numbers with their nouns."""

from __future__ import annotations


def counted(n: int, noun: str, several: str = "") -> str:
    """Write a number with its noun: 1 rank, 2 ranks. several: the plural where it is not noun + s."""
    return f"{n} {noun}" if n == 1 else f"{n} {several or noun + 's'}"
