"""Objectives of known cost for the benchmarks: a shifted sphere that takes no, a fixed, or a log-normal time."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np

SHIFT = 1.25
_random = np.random.default_rng([7, os.getpid()])


def free(parameters: dict[str, Any]) -> float:
    """Return the sphere at once."""
    z = parameters["x"] - SHIFT
    return float(z @ z)


def sleep(parameters: dict[str, Any], mean_s: float = 0.01) -> float:
    """Return the sphere after a fixed time."""
    time.sleep(mean_s)
    return free(parameters)


def lognormal(parameters: dict[str, Any], mean_s: float = 0.01, sigma: float = 1.0) -> float:
    """Return the sphere after a log-normal time."""
    time.sleep(float(_random.lognormal(math.log(mean_s) - 0.5 * sigma**2, sigma)))
    return free(parameters)
