"""The loop between an evaluator and the state machines of a rank."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from osprey_mpi.comm.channel import NoChannel
from osprey_mpi.continuity.events import Evaluate, Evaluated
from osprey_mpi.continuity.messages import Order, Role
from osprey_mpi.continuity.records import RECORD
from osprey_mpi.drivers.loop import Loop
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.evaluate.task import Outcome, Task


class Evaluator:
    """Hold tasks until a test lets the first one end."""

    responsive, depth = True, 2

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.done: list[Outcome] = []

    @property
    def idle(self) -> bool:
        return not (self.tasks or self.done)

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def end_first(self) -> None:
        """Let the first task end."""
        task, n = self.tasks.pop(0), 1
        one, row = np.zeros((n, 1)), np.zeros(n)
        self.done.append(Outcome(
            task, row_start=0, row_stop=n, records=np.zeros(n, RECORD), values=one, positions=one, costs=row,
            violations=row,
        ))  # fmt: skip

    def poll(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def filenos(self) -> list[int]:
        return []


class Machine:
    """Give orders to the evaluator, and note what comes back."""

    def __init__(self, *orders: Order) -> None:
        self.orders, self.back = list(orders), []  # type: ignore[var-annotated]

    def handle(self, event: Any, now: float) -> list[Any]:
        if isinstance(event, Evaluated):
            self.back.append(event.order)
        orders, self.orders = self.orders, []
        return [Evaluate(order, None) for order in orders]

    def slack_s(self) -> float:
        return 0.0


def test_a_worker_may_hold_the_same_evaluation_twice() -> None:
    """It was given up, its evaluation went back to the pool, it came back and was given that again."""
    point = np.zeros((1, 1))
    old, new = Order(7, 1, 0, 1, 0, 0, point), Order(7, 1, 0, 1, 3, 0, point)
    evaluator, machine = Evaluator(), Machine(old, new)
    with Signals(launched=False) as signals:
        log = logging.getLogger("loop")
        loop = Loop(0, {Role.WORKER: machine}, NoChannel(), signals, log, evaluator=evaluator)  # type: ignore[arg-type]
        loop._turn()
        for _ in range(2):
            evaluator.end_first()
            loop._turn()
    assert [order is known for order, known in zip(machine.back, (old, new), strict=True)] == [True, True]
