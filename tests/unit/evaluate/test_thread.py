"""Functions that no other process can import, in a thread of the rank."""

from __future__ import annotations

import select
import threading
import time

import pytest

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.task import Progress

OK, FAILED, STOPPED = Status.OK, Status.FAILED, Status.STOPPED


def points(*numbers):
    return [{"x": number} for number in numbers]


def test_a_closure_is_evaluated_off_the_main_thread_in_order(rig):
    seen = []

    def f(p):
        seen.append(threading.current_thread() is threading.main_thread())
        if p["x"] == 0.5:
            raise ValueError("half")
        return p["x"]

    r = rig(function=f)
    numbers = [i / 200 for i in range(200)]
    got = r.run(points(*numbers), first=10)
    assert seen == [False] * 200
    assert got.status == [FAILED if x == 0.5 else OK for x in numbers]
    assert [c for c in got.costs if c == c] == [x for x in numbers if x != 0.5]
    assert got.reasons[110].startswith("ValueError: half\n")
    assert got.records["id"].tolist() == list(range(10, 210))
    assert r.evaluator.responsive


def test_the_rank_stays_responsive_and_is_woken(rig):
    r = rig(function=lambda p: time.sleep(0.3) or 1.0)
    r.evaluator.submit(r.task(points(0.5)))
    begin_s = time.monotonic()
    assert r.evaluator.poll() == [] and time.monotonic() - begin_s < 0.1
    assert select.select(r.evaluator.filenos(), [], [], 5)[0] == r.evaluator.filenos()
    assert time.monotonic() - begin_s >= 0.29
    assert r.drain().costs == [1.0]


def test_reports_and_early_stop(rig):
    def f(p, context):
        for step in range(2000):
            context.report(step, 5.0 - step)
            time.sleep(0.005)
        return 0.0

    r = rig(function=f)
    r.evaluator.submit(r.task(points(0.5), first=3))
    progress = []
    while len(progress) < 2:
        progress += r.evaluator.poll()
    assert progress[:2] == [Progress(3, 0, 5.0), Progress(3, 1, 4.0)]
    r.evaluator.stop(3)
    got = r.drain()
    assert got.status == [STOPPED] and got.costs[0] == 5.0 - len(progress + got.progress) + 1


def test_what_is_cancelled_is_not_heard(rig):
    release = threading.Event()
    r = rig(function=lambda p: release.wait(5) and p["x"])
    r.evaluator.submit(r.task(points(0.5, 0.25)))
    r.evaluator.cancel()
    assert r.evaluator.idle
    release.set()
    assert r.run(points(0.125), first=9).records["id"].tolist() == [9]


def test_retries_and_batches(rig):
    calls = []

    def f(p):
        calls.append(p["x"].tolist())
        if len(calls) == 1:
            raise OSError("once")
        return p["x"]

    got = rig(function=f, batch=2, retries=1).run(points(0.5, 0.25, 0.125))
    assert got.costs == [0.5, 0.25, 0.125] and calls == [[0.5, 0.25], [0.5, 0.25], [0.125]]


@pytest.mark.parametrize("batch", [1, 2])
def test_isolation_none_leaves_the_rank_to_listen(rig, batch):
    seen = []

    def f(p):
        seen.append(threading.current_thread() is threading.main_thread())
        time.sleep(0.2)
        return p["x"]

    r = rig(function=f, isolation="none", batch=batch)
    r.evaluator.submit(r.task(points(0.5, 0.25)))
    begin_s = time.monotonic()
    assert r.evaluator.poll() == [] and time.monotonic() - begin_s < 0.1
    assert r.evaluator.responsive and not r.evaluator.idle
    assert select.select(r.evaluator.filenos(), [], [], 5)[0] == r.evaluator.filenos()
    assert r.drain().costs == [0.5, 0.25] and True not in seen


def test_batches_in_the_rank_that_are_cancelled_are_not_heard(rig):
    entered, release = threading.Event(), threading.Event()

    def f(p):
        entered.set()
        return (release.wait(5) and 1.0) * p["x"]

    r = rig(function=f, isolation="none", batch=2)
    r.evaluator.submit(r.task(points(0.5, 0.25), first=1))
    r.evaluator.submit(r.task(points(0.5, 0.25), first=3))
    assert entered.wait(5)
    r.evaluator.cancel()
    assert r.evaluator.idle
    release.set()
    assert r.run(points(0.125), first=9).records["id"].tolist() == [9]


def test_what_ends_the_thread_of_a_batch_comes_to_the_rank(rig, monkeypatch):
    r = rig(function=lambda p: p["x"], isolation="none", batch=2)
    monkeypatch.setattr(r.evaluator._inner, "poll", lambda: 1 // 0)
    r.evaluator.submit(r.task(points(0.5, 0.25)))
    with pytest.raises(ZeroDivisionError):
        r.drain()


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda: 1, {}, r"has the signature \(\), but is called with \(parameters\)"),
        (lambda p, context, other: 1, {}, "missing a required argument: 'other'"),
        (lambda p: 1, {"alpha": 2}, r"and the options alpha: got an unexpected keyword argument 'alpha'"),
        (3, {}, "is int, but a function is needed"),
    ],
)
def test_check_refuses_signatures_that_cannot_be_called(rig, function, options, message):
    with pytest.raises(ConfigError, match=message):
        rig(function=function, options=options)


async def _coroutine(p):
    return 1.0


def test_check_refuses_async_functions(rig):
    with pytest.raises(ConfigError, match="async function"):
        rig(function=_coroutine)


class _Callable:
    def __call__(self, parameters, context):
        return float(context.id)


@pytest.mark.parametrize(
    ("function", "options", "cost"),
    [
        (lambda p: 1.0, {}, 1.0),
        (lambda p, context: float(context.id), {}, 7.0),
        (lambda p, c: float(c.id), {}, 7.0),
        (lambda p, *, context: float(context.id), {}, 7.0),
        (lambda p, alpha=2.0: alpha, {}, 2.0),
        (lambda p, alpha: alpha, {"alpha": 3.0}, 3.0),
        (lambda p, alpha, context: alpha + context.id, {"alpha": 3.0}, 10.0),
        (lambda p, context=None: float(context.id), {}, 7.0),
        (lambda p, **options: options["a"], {"a": 4.0}, 4.0),
        (_Callable(), {}, 7.0),
        (max, {}, None),
    ],
)
def test_the_context_goes_where_the_signature_asks_for_it(rig, function, options, cost):
    got = rig(function=function, options=options).run(points(0.5), first=7)
    assert got.costs == [cost] if cost is not None else got.status == [FAILED]
