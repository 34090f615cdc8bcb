"""Cross-validate a support vector machine on scikit-learn's handwritten digits (1797 images of 8 x 8 pixels)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC


@cache
def samples(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Give the same n_samples digits in every process: pixels (n_samples, 64) and labels (n_samples,)."""
    data = load_digits()
    chosen = np.random.default_rng(0).permutation(len(data.target))[:n_samples]
    return data.data[chosen], data.target[chosen]


def error_rate(parameters: dict[str, Any], n_samples: int) -> float:
    """Give the share of digits that a machine with these parameters takes for another."""
    pixels, labels = samples(n_samples)
    machine = SVC(**parameters)  # gamma and degree are absent where the kernel does not use them
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return 1.0 - float(cross_val_score(machine, pixels, labels, cv=folds).mean())
