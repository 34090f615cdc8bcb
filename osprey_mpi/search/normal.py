"""Give the normal distribution's tail and its inverse without SciPy, for one number at a time."""

from __future__ import annotations

import math


def upper_tail(t: float) -> float:
    """Give P(Z > t)."""
    return 0.5 * math.erfc(t / math.sqrt(2.0))


def upper_quantile(p: float) -> float:
    """Give t with P(Z > t) = p for 0 < p <= 1/2, to about 12 digits.

    Starts at the rational approximation 26.2.23 of Abramowitz and Stegun (1964; error < 4.5e-4), then two Newton steps.
    """
    r = math.sqrt(-2.0 * math.log(p))
    t = r - (2.515517 + r * (0.802853 + r * 0.010328)) / (1.0 + r * (1.432788 + r * (0.189269 + r * 0.001308)))
    for _ in range(2):
        density = math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
        error = (upper_tail(t) - p) / density
        t += error / (1.0 - 0.5 * t * error)  # Halley's correction: the tail is curved
    return t
