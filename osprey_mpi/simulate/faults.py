"""Draw a schedule of faults from a seed, and find the smallest one that still breaks something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

WINDOW_S = 1.2  # of faults: a launch of 40 ranks without any takes half of it
SHORT_S, LONG_S = 0.4, 4.0  # a pause that nobody minds, and one after which a rank counts as lost


class Kind(Enum):
    """Tell what befalls ranks."""

    KILL = "kill"  # they are gone
    PAUSE = "pause"  # they stand still, as after SIGSTOP
    FENCE = "fence"  # they stand still, the others are told that they are lost, and the folder's lock runs out
    CUT = "cut"  # what they and the others send to each other arrives when it is over
    CRASH = "crash"  # all are gone; the run is resumed from a checkpoint that is `for_s` old


@dataclass(frozen=True, slots=True)
class Fault:
    """Say what befalls which ranks, when and for how long."""

    at_s: float
    kind: Kind
    ranks: tuple[int, ...] = ()
    for_s: float = 0.0


def draw(seed: int, n_ranks: int, vital: Sequence[int]) -> list[Fault]:
    """Draw a schedule: one to four bursts of one to four faults. vital: root and leaders, hit in half of the cases."""
    rng = np.random.default_rng([seed, 77])
    faults = []
    for _ in range(int(rng.integers(1, 5))):
        began = float(rng.uniform(0.0, WINDOW_S))
        for _ in range(int(rng.integers(1, 5))):
            began += float(rng.exponential(0.05))
            faults.append(_fault(rng, round(began, 4), n_ranks, vital))
    return sorted(faults, key=lambda fault: fault.at_s)


def _fault(rng: np.random.Generator, at_s: float, n_ranks: int, vital: Sequence[int]) -> Fault:
    kind = rng.choice([*Kind], p=[0.6, 0.15, 0.1, 0.12, 0.03])
    if kind is Kind.CRASH:
        return Fault(at_s, kind, (), float(rng.choice([0.0, 0.3])))
    if rng.random() < 0.5:
        ranks = {int(rng.choice(vital))}
    else:
        ranks = {int(rank) for rank in rng.integers(n_ranks, size=rng.integers(1, 4))}
    if kind is Kind.KILL:
        return Fault(at_s, kind, tuple(sorted(ranks)))
    longest_s = LONG_S if kind is Kind.FENCE or rng.random() < 0.2 else SHORT_S
    return Fault(at_s, kind, tuple(sorted(ranks)), round(float(rng.uniform(0.3, 1.0)) * longest_s, 3))


def shrink(faults: Sequence[Fault], fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """Return a schedule from which nothing can be left out without `fails` becoming false (Zeller's ddmin, 1999)."""
    smallest, n_parts = list(faults), 2
    while len(smallest) > 1:
        size = -(-len(smallest) // n_parts)
        rests = [smallest[:at] + smallest[at + size :] for at in range(0, len(smallest), size)]
        found = next((rest for rest in rests if fails(rest)), None)
        if found is not None:
            smallest, n_parts = found, max(n_parts - 1, 2)
        elif n_parts >= len(smallest):
            break
        else:
            n_parts = min(2 * n_parts, len(smallest))
    for index, fault in enumerate(smallest):  # and of what is left, the ranks
        for rank in fault.ranks if len(fault.ranks) > 1 else ():
            fewer = Fault(fault.at_s, fault.kind, tuple(r for r in smallest[index].ranks if r != rank), fault.for_s)
            without = [*smallest[:index], fewer, *smallest[index + 1 :]]
            if fewer.ranks and fails(without):
                smallest = without
    return smallest
