"""The names of the built-in objectives: known here, so that a config can be checked without loading them."""

from __future__ import annotations

# `osprey_mpi.evaluate.builtin` registers exactly these; a test compares the two.
BUILTIN_NAMES = (
    "sphere",
    "ellipsoid",
    "rosenbrock",
    "rastrigin",
    "ackley",
    "griewank",
    "schwefel",
    "levy",
    "lennard_jones",
    "antenna_array",
    "travelling_salesman",
)

# Points per call where `objective.batch` is not given: built-ins are vectorised, this many hide the call's own cost.
BUILTIN_BATCH = 32
