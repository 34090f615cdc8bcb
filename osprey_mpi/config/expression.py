"""Constraints between parameters: parsed once, then computed for whole batches on any array module."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from osprey_mpi.config.syntax import Call, Comparison, Name, Node, read

# NumPy's or CuPy's; CuPy has no stubs.
Array = Any

# Two sides count as equal if they differ by less than this part of the larger (of 1 for small ones): 0.1 + 0.2 is 0.3.
EQUALITY_TOLERANCE = 1e-9
# What `a < b` is broken by where a equals b: positive, and smaller than any real difference.
SMALLEST = sys.float_info.min


@dataclass(frozen=True, slots=True)
class Expression:
    """Hold one constraint; `names` are its parameters in order of appearance."""

    text: str
    names: tuple[str, ...]
    comparisons: tuple[Comparison, ...]

    def violation(self, values: Mapping[str, Array], xp: Any = np) -> Array:
        """Compute how far each row breaks the constraint: (n,), 0 where it holds.

        values: (n,) float64 for each scalar parameter, (n, size) for each array parameter, on `xp`'s device. A relation
        between arrays must hold for every element; the amounts are added. Where a parameter is NaN (inactive) the
        constraint does not apply: 0. Where a side has no value (the root of -1) the amount is infinite.
        """
        total: Array = 0.0
        with np.errstate(all="ignore"):
            for comparison in self.comparisons:
                amount = _amount(comparison, values, xp)
                total = total + (xp.sum(amount, axis=-1) if amount.ndim == 2 else amount)
        inactive: Array = False
        for name in self.names:
            missing = xp.isnan(values[name])
            inactive = inactive | (xp.any(missing, axis=-1) if missing.ndim == 2 else missing)
        return xp.where(inactive, 0.0, total)

    def check(self, sizes: Mapping[str, int | None]) -> None:
        """Refuse what does not fit the parameters; `sizes` gives each one's number of elements, None for a scalar.

        Raises ValueError with one sentence: an index out of range, or arrays of different sizes in one operation.
        """
        for comparison in self.comparisons:
            _joined([_size(comparison.smaller, sizes), _size(comparison.larger, sizes)])


def parse(text: str) -> Expression:
    """Parse a constraint such as "a + sum(x) <= 1".

    Raises ValueError with one sentence if it is none, or if it names no parameter.
    """
    comparisons = read(text)
    names = dict.fromkeys(name for c in comparisons for side in (c.smaller, c.larger) for name in _names(side))
    if not names:
        raise ValueError("names no parameter, so it is always true or never")
    for comparison in comparisons:
        if isinstance(comparison.smaller, float) and isinstance(comparison.larger, float):
            raise ValueError("compares two numbers, which is always true or never")
    return Expression(text, tuple(names), comparisons)


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _names(argument)


def _amount(comparison: Comparison, values: Mapping[str, Array], xp: Any) -> Array:
    smaller, larger = _aligned([_compute(comparison.smaller, values, xp), _compute(comparison.larger, values, xp)])
    excess = smaller - larger
    if comparison.is_equal:
        excess = abs(excess)
        scale = xp.maximum(xp.maximum(abs(smaller), abs(larger)), 1.0)
        amount = xp.where(excess <= EQUALITY_TOLERANCE * scale, 0.0, excess)
    elif comparison.is_strict:
        amount = xp.where(smaller < larger, 0.0, xp.maximum(excess, SMALLEST))
    else:
        amount = xp.where(smaller <= larger, 0.0, excess)
    return xp.where(xp.isnan(amount), xp.inf, amount)


def _compute(node: Node, values: Mapping[str, Array], xp: Any) -> Array:
    if isinstance(node, float):
        return node
    if isinstance(node, Name):
        return values[node.name] if node.index is None else values[node.name][:, node.index]
    arguments = [_compute(argument, values, xp) for argument in node.arguments]
    if node.over_elements:
        (argument,) = arguments
        return getattr(xp, node.function)(argument, axis=-1)
    return getattr(xp, node.function)(*_aligned(arguments))


def _aligned(sides: list[Array]) -> list[Array]:
    """Let a value per row, (n,), meet the elements of an array parameter, (n, size)."""
    n_axes = max(getattr(side, "ndim", 0) for side in sides)
    return [side[:, None] if n_axes == 2 and getattr(side, "ndim", 0) == 1 else side for side in sides]


def _size(node: Node, sizes: Mapping[str, int | None]) -> int | None:
    """Work out the number of elements of a part, None for one value per row."""
    if isinstance(node, float):
        return None
    if isinstance(node, Name):
        size = sizes[node.name]
        if node.index is None:
            return size
        if size is None:
            raise ValueError(f"contains {node.name}[{node.index}], but {node.name} is no array: it has no size")
        if node.index >= size:
            raise ValueError(f"contains {node.name}[{node.index}], but its elements are 0 to {size - 1}")
        return None
    size = _joined([_size(argument, sizes) for argument in node.arguments])
    if not node.over_elements:
        return size
    if size is None:
        raise ValueError(
            f"calls {node.function} with one value; it takes an array parameter"
            + ("" if node.function == "sum" else " or several arguments")
        )
    return None


def _joined(sizes: list[int | None]) -> int | None:
    found = sorted({size for size in sizes if size is not None})
    if len(found) > 1:
        raise ValueError(f"combines arrays of {found[0]} and {found[1]} elements")
    return found[0] if found else None
