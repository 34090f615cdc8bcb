"""Translate between the protocol's messages and the evaluators' and the search's objects."""

from __future__ import annotations

from osprey_mpi.continuity.events import Evaluate, Evaluated, Reported
from osprey_mpi.continuity.messages import Order
from osprey_mpi.continuity.records import EXPLICIT
from osprey_mpi.continuity.steering import distribution_of
from osprey_mpi.evaluate.task import Outcome, Progress, Task


def task_of(action: Evaluate) -> Task:
    """Return the task of an order."""
    order = action.order
    explicit = order.positions.size > 0
    assert explicit or action.steer is not None, "a worker is steered before its first order"
    distribution = None if explicit or action.steer is None else distribution_of(action.steer)
    generation = EXPLICIT if distribution is None else distribution.generation
    positions = order.positions if explicit else None
    return Task(
        first=order.first,
        n=order.n,
        row_start=order.row_start,
        row_stop=order.row_stop,
        generation=generation,
        attempt=order.attempt,
        positions=positions,
        distribution=distribution,
    )


def reported(item: Progress) -> Reported:
    """Return the event of an intermediate value."""
    return Reported(item.id, item.step, item.value)


def evaluated(item: Outcome, order: Order) -> Evaluated:
    """Return the event of what became of rows of an order."""
    return Evaluated(
        order,
        generation=item.task.generation,
        row_start=item.row_start,
        row_stop=item.row_stop,
        records=item.records,
        values=item.values,
        positions=item.positions,
        costs=item.costs,
        violations=item.violations,
        elapsed_s=item.elapsed_s,
        survivors=item.survivors,
        reasons=item.reasons,
    )
