"""Energy of a cluster of Lennard-Jones atoms: many minima, known optima, the usual test of cluster searches."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from osprey_mpi.evaluate.builtin.base import (
    Array,
    Arrays,
    BatchFunction,
    Builtin,
    Layout,
    Option,
    in_chunks,
    problem,
    single_array,
)

# Lowest energies known, in units of the pair well depth (Wales and Doye, J. Phys. Chem. A 101, 5111, 1997; tabulated
# in the Cambridge Cluster Database).
OPTIMA = {
    2: -1.0,
    3: -3.0,
    4: -6.0,
    5: -9.103852,
    6: -12.712062,
    7: -16.505384,
    8: -19.821489,
    9: -24.113360,
    10: -28.422532,
    13: -44.326801,
    19: -72.659782,
    38: -173.928427,
    55: -279.248470,
}

# Squared distance (in units of the pair's zero distance) below which atoms repel no more: keeps costs finite (1e60).
CLOSEST = 1e-10

# Per pair: 3 differences, 5 for the squared distance, a division, 2 + 1 for the powers, 3 for energy and sum.
FLOPS_PER_PAIR = 15


def energy(positions: Array, first: Array, second: Array, xp: ModuleType) -> Array:
    """Compute 4 sum_pairs (r^-12 - r^-6), (n,).

    positions: (n, n_atoms, 3) in units of the pair's zero distance; first, second: (n_pairs,) atoms of each pair.
    """
    # Differences, not |a|^2 + |b|^2 - 2 ab: the cheap form loses the digits of close pairs.
    difference = xp.take(positions, first, axis=1)
    difference -= xp.take(positions, second, axis=1)
    difference *= difference
    square = difference[:, :, 0] + difference[:, :, 1]
    square += difference[:, :, 2]
    xp.maximum(square, CLOSEST, out=square)
    sixth = 1.0 / (square * square * square)
    pair = sixth - 1.0
    pair *= sixth
    return 4.0 * (pair @ xp.ones(pair.shape[1], dtype=pair.dtype))


def _build(layout: Layout, options: Mapping[str, Any], arrays: Arrays) -> BatchFunction:
    n_atoms = options["n_atoms"]
    if n_atoms < 2:
        raise problem("lennard_jones", f"n_atoms is {n_atoms}, must be 2 or more", "objective.options.n_atoms")
    single_array("lennard_jones", layout, 3 * n_atoms, f"x, y, z of each of {n_atoms} atoms")
    pairs = np.triu_indices(n_atoms, 1)
    first, second = (arrays.xp.asarray(side.astype(np.int32)) for side in pairs)

    def evaluate(values: Array) -> Array:
        return energy(values.reshape(values.shape[0], n_atoms, 3), first, second, arrays.xp)

    n_pairs = len(pairs[0])
    return BatchFunction(
        in_chunks(evaluate, 8 * 3 * n_pairs, arrays),
        FLOPS_PER_PAIR * n_pairs,
        8 * (3 * n_atoms + 1),
        optimum=OPTIMA.get(n_atoms),
    )


LENNARD_JONES = Builtin(
    "lennard_jones",
    "energy of a cluster of atoms",
    "one real array parameter of size 3 * n_atoms: x, y, z of each atom in units of the pair's zero distance",
    _build,
    {"n_atoms": Option(int, 13, "number of atoms", most=4096)},
)
