"""The child process: results in order, every kind of bad result, crash, hang, stop, cancel and close."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from osprey_mpi.continuity.records import RECORD, Status
from osprey_mpi.evaluate.task import Progress, Task
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.osprey import hover
from osprey_mpi.search.streams import evaluation_seed, latent

OK, FAILED, TIMEOUT, STOPPED = Status.OK, Status.FAILED, Status.TIMEOUT, Status.STOPPED


def points(*numbers):
    return [{"x": number} for number in numbers]


def test_every_row_comes_back_in_order_with_its_record(rig):
    r = rig("def f(p): return 2 * p['x']")
    got = r.run(points(0.0, 0.25, 1.0), first=100)
    assert got.costs == [0.0, 0.5, 2.0]
    records = got.records
    assert records.dtype == RECORD
    assert records["id"].tolist() == [100, 101, 102]
    assert got.status == [OK, OK, OK] and got.reasons == {}
    assert (records["t_start_s"] >= 0).all() and (records["t_start_s"] <= records["t_end_s"]).all()
    assert (np.diff(records["t_start_s"]) >= 0).all()
    assert (records["t_end_s"] <= time.monotonic() - r.started_s).all()
    assert got.outcomes[0].row_start == 0 and got.outcomes[-1].row_stop == 3
    assert np.concatenate([o.values for o in got.outcomes]).tolist() == [[0.0], [0.25], [1.0]]
    assert all(outcome.survivors is None for outcome in got.outcomes)


def test_rows_of_a_drawn_block_are_rows_of_the_whole_block(rig):
    r = rig("def f(p): return p['x']")
    distribution = Distribution(7, np.array([0.5]), 0.1, np.array([1.0]), np.empty(0))
    r.evaluator.submit(Task(40, 10, 3, 6, 7, 2, None, distribution))
    got = r.drain()
    whole = r.space.decode(hover(distribution, latent(3, 40, 10, r.space), r.space))[:, 0]
    assert got.costs == whole[3:6].tolist()
    assert got.records["id"].tolist() == [43, 44, 45]
    assert got.records["generation"].tolist() == [7] * 3 and got.records["attempt"].tolist() == [2] * 3
    assert [(o.row_start, o.row_stop) for o in got.outcomes][-1][1] == 6


def test_parameters_are_real_python_types(rig):
    parameters = {
        "r": {"type": "real", "low": 0, "high": 1},
        "n": {"type": "integer", "low": 1, "high": 9},
        "k": {"type": "categorical", "choices": ["a", True, 2, 2.5]},
        "v": {"type": "integer", "low": 0, "high": 3, "size": 2},
        "c": {"type": "fixed", "value": "text"},
        "d": {"type": "real", "low": 0, "high": 1, "when": {"k": "a"}},
    }
    source = """
        import numpy as np
        def f(p):
            print("types", {k: (type(v).__name__, str(v)) for k, v in p.items()})
            assert type(p["r"]) is float and type(p["n"]) is int and "abcdefghij"[p["n"]] == "e", p
            assert isinstance(p["v"], np.ndarray) and p["v"].dtype == np.int64 and p["v"].tolist() == [0, 3]
            assert p["c"] == "text" and list(p) == ["r", "n", "k", "v", "c"] + ["d"] * (p["k"] == "a"), p
            return {"str": 0, "bool": 1, "int": 2, "float": 3}[type(p["k"]).__name__]
    """
    r = rig(source, parameters)
    base = {"r": 0.5, "n": 4, "v": [0, 3], "d": 0.5, "c": "text"}
    got = r.run([{**base, "k": k} for k in ("a", True, 2, 2.5)])
    assert got.costs == [0.0, 1.0, 2.0, 3.0], got.reasons


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ("None", "the returned cost is NoneType, but"),
        ("True", "the returned cost is bool, but one real number is needed\nit is True"),
        ("np.bool_(True)", "bool"),
        ("'1.0'", "the returned cost is str, but one real number is needed\nit is '1.0'"),
        ("1j", "complex"),
        ("[1.0]", "list, but one real number is needed\nit is [1.0]"),
        ("np.ones(1)", "array of shape (1,), but one real number is needed (an array must have the shape ())"),
        ("np.ones((2, 3))", "an array of shape (2, 3)"),
        ("float('nan')", "the returned cost is nan"),
        ("np.float32('inf')", "the returned cost is inf"),
        ("{'cost': 1.0, 'violations': 1}", "this one holds ['cost', 'violations']"),
        ("{}", "this one holds []"),
        ("{'violation': 0}", 'the returned "cost" is NoneType'),
        ("{'cost': 1.0, 'violation': -1}", 'the returned "violation" is below 0, which is feasible\nit is -1.0'),
        ("{'cost': 1.0, 'violation': None}", 'the returned "violation" is NoneType'),
    ],
)
def test_what_is_no_finite_real_number_is_a_failed_evaluation(rig, result, what):
    r = rig(function=eval(f"lambda p: {result} if p['x'] > 0.5 else 1"))
    got = r.run(points(0.25, 0.75, 0.125), first=16)
    assert got.status == [OK, FAILED, OK]
    assert got.costs[::2] == [1.0, 1.0] and math.isnan(got.costs[1])
    assert list(got.reasons) == [17]
    assert what in got.reasons[17]


@pytest.mark.parametrize(
    ("result", "cost", "violation"),
    [
        ("3", 3.0, 0.0),
        ("np.float32(0.5)", 0.5, 0.0),
        ("np.array(7)", 7.0, 0.0),
        ("{'cost': np.int8(3)}", 3.0, 0.0),
        ("{'cost': 2.5, 'violation': 0.5}", 2.5, 0.5),
    ],
)
def test_numbers_and_mappings_are_costs(rig, result, cost, violation):
    got = rig(function=eval(f"lambda p: {result}")).run(points(0.5))
    assert (got.status, got.costs, got.outcomes[0].violations.tolist()) == ([OK], [cost], [violation])


def test_a_violation_needs_no_cost(rig):
    got = rig("def f(p): return {'violation': 2}").run(points(0.5))
    assert got.status == [OK] and math.isnan(got.costs[0]) and got.outcomes[0].violations.tolist() == [2.0]


def test_points_that_break_the_configs_constraints_are_not_evaluated(rig, tmp_path):
    source = "def f(p):\n    open('calls', 'a').write('x')\n    return p['x']"
    got = rig(source, more={"constraints": ["x <= 0.5"]}).run(points(0.25, 0.75, 0.5))
    assert got.costs[::2] == [0.25, 0.5] and math.isnan(got.costs[1])
    assert np.concatenate([o.violations for o in got.outcomes]).tolist() == [0.0, 0.25, 0.0]
    assert got.status == [OK] * 3
    assert (tmp_path / "config" / "calls").read_text() == "xx"


def test_an_exception_that_cannot_be_pickled_arrives_as_text(rig):
    source = """
        class E(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")
        def inner(): raise E(1, 2)
        def f(p):
            if p["x"] > 0.5: inner()
            return 1.0
    """
    got = rig(source).run(points(0.75, 0.25))
    assert got.status == [FAILED, OK]
    reason = got.reasons[0]
    assert reason.startswith("E: 1 and 2\n")
    assert 'user.py", line 5, in inner' in reason and "osprey_mpi" not in reason


def test_equal_exceptions_have_equal_first_lines(rig, tmp_path):
    """Whatever scratch folder they name; what follows the first line of a message stands below."""
    source = """
        def f(p, context):
            if p["x"] == 1: raise ValueError("x" * 1000)
            if p["x"] > 0.5: raise KeyError("gone")
            if p["x"] > 0.2: raise ValueError(f"\\nbad\\nit was {p['x']}")
            open(context.scratch / "none")
    """
    got = rig(source).run(points(0.75, 0.875, 0.25, 0.375, 0.0, 0.125, 1.0))
    heads = [reason.splitlines()[0] for reason in got.reasons.values()]
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '{scratch}/none'"
    assert heads[:6] == ["KeyError: 'gone'"] * 2 + ["ValueError: bad"] * 2 + [missing] * 2
    assert len(heads[6]) == 200 and "x" * 1000 in got.reasons[6]
    assert got.reasons[2].splitlines()[1] == "it was 0.25"
    assert got.reasons[4].splitlines()[1].startswith(f"scratch folder {tmp_path / 'scratch'}")
    assert all('user.py", line' in reason for reason in got.reasons.values())


def test_sys_exit_and_a_broken_message_fail_one_evaluation(rig):
    source = """
        import sys
        class Broken(Exception):
            def __str__(self): raise ValueError
        def f(p):
            if p["x"] > 0.9: raise Broken
            if p["x"] > 0.5: sys.exit(3)
            return 1.0
    """
    got = rig(source).run(points(0.75, 1.0, 0.25))
    assert got.status == [FAILED, FAILED, OK]
    assert "SystemExit: 3" in got.reasons[0] and "Broken: <its message raised" in got.reasons[1]


def test_finished_rows_do_not_wait_for_a_slow_one(rig):
    r = rig("import time\ndef f(p): time.sleep(1.5 if p['x'] > 0.5 else 0); return p['x']")
    r.evaluator.submit(r.task(points(0.0, 0.25, 0.75, 0.5)))
    begin_s = time.monotonic()
    early = []
    while sum(o.row_stop - o.row_start for o in early) < 2:
        early += r.evaluator.poll()
        assert time.monotonic() - begin_s < 1.0
        time.sleep(0.002)
    assert [c for o in early for c in o.costs] == [0.0, 0.25]
    assert r.drain().costs == [0.75, 0.5]


def test_reports_arrive_and_an_early_stop_keeps_the_last_value(rig):
    source = """
        import time
        def f(p, context):
            for step in range(2000):
                context.report(step, 10.0 - step)
                time.sleep(0.005)
                if p["x"] < 0.5 and step == 2: break
            return 5.0
    """
    r = rig(source)
    r.evaluator.submit(r.task(points(0.25, 0.75, 0.375), first=8))
    seen, outcomes = [], []
    while sum(isinstance(i, Progress) and i.id == 9 for i in seen) < 3:
        seen += r.evaluator.poll()
        time.sleep(0.002)
    r.evaluator.stop(10)  # does not run yet: ignored
    r.evaluator.stop(9)
    got = r.drain()
    outcomes = [i for i in seen if not isinstance(i, Progress)] + got.outcomes
    records = np.concatenate([o.records for o in outcomes])
    assert [Status(s) for s in records["status"]] == [OK, STOPPED, OK]
    last = [i for i in [*seen, *got.progress] if isinstance(i, Progress) and i.id == 9][-1]
    assert records["cost"].tolist() == [5.0, last.value, 5.0] and last.value == 10.0 - last.step
    assert [i for i in seen if isinstance(i, Progress)][:3] == [Progress(8, s, 10.0 - s) for s in range(3)]
    assert got.reasons[9] == f"stopped early at step {last.step} with {last.value}"


def test_a_function_may_end_by_itself_when_told_to_stop(rig):
    source = """
        import time
        def f(p, context):
            context.report(0, 1.0)
            while not context.should_stop(): time.sleep(0.002)
            return 0.5
    """
    r = rig(source)
    r.evaluator.submit(r.task(points(0.5)))
    while not r.evaluator.poll():
        time.sleep(0.002)
    r.evaluator.stop(0)
    got = r.drain()
    assert got.status == [STOPPED] and got.costs == [0.5]


def test_context_gives_seed_and_scratch_and_options_are_keywords(rig, tmp_path):
    source = """
        def f(p, context, *, factor, offset=0):
            folder = context.scratch
            assert list(folder.iterdir()) == [] and folder.is_absolute() and folder == context.scratch
            (folder / "file").write_text("x")
            print(context.id, context.seed, folder.name)
            open("seen", "a").write(f"{context.id} {context.seed} {folder.name} {factor} {offset}\\n")
            return 1.0
    """
    got = rig(source, options={"factor": 2}).run(points(0.5, 0.5), first=5)
    assert got.status == [OK, OK], got.reasons
    seen = (tmp_path / "config" / "seen").read_text().splitlines()
    assert seen == [f"{i} {evaluation_seed(3, i)} evaluation-{i:08d}-rank-0002 2 0" for i in (5, 6)]
    assert list((tmp_path / "scratch").iterdir()) == [], "scratch folders are removed"


def test_a_batch_gets_one_array_per_parameter(rig):
    parameters = {
        "x": {"type": "real", "low": 0, "high": 1, "size": 2},
        "n": {"type": "integer", "low": 0, "high": 9},
        "k": {"type": "categorical", "choices": ["a", "b"]},
    }
    source = """
        import numpy as np
        def f(p):
            n = len(p["n"])
            assert p["x"].shape == (n, 2) and p["n"].dtype == np.int64 and set(p["k"]) <= {"a", "b"}
            cost = p["x"].sum(axis=1) + p["n"] + 10 * (p["k"] == "b") + 100 * n
            return np.where(p["n"] == 5, np.nan, cost)
    """
    r = rig(source, parameters, batch=2)
    got = r.run([{"x": [0.25, 0.5], "n": n, "k": k} for n, k in [(1, "a"), (2, "b"), (5, "a")]])
    assert got.costs[:2] == [201.75, 212.75] and got.status == [OK, OK, FAILED]
    assert got.reasons[2] == "the returned cost is nan, but a finite number is needed"


def test_a_failure_without_a_row_names_its_parameters_below(rig):
    r = rig("def f(p): return 1 / (p['x'] - 0.5)", batch=2, record_all=False)
    got = r.run(points(0.25, 0.5, 0.75), first=4)
    assert got.records["id"].tolist() == [4]
    assert got.reasons == {5: "the returned cost is inf, but a finite number is needed\nparameters {'x': 0.5}"}


def test_a_batch_of_wrong_shape_or_with_an_exception_fails_whole(rig):
    source = """
        import os
        def f(p):
            if p["x"][0] > 0.9: os.abort()
            if p["x"][0] > 0.5: raise ValueError("no")
            return p["x"][:1] if p["x"][0] > 0.2 else p["x"]
    """
    got = rig(source, batch=2).run(points(0.0, 0.1, 0.25, 0.1, 0.75, 0.1, 1.0, 0.1, 0.0))
    assert got.status == [OK] * 2 + [FAILED] * 6 + [OK]
    assert "shape (1,)" in got.reasons[3] and "ValueError: no" in got.reasons[5]
    assert got.reasons[7].startswith("killed by SIGABRT\n")


def test_captures_only_records_what_improved_and_names_survivors(rig):
    r = rig("def f(p): return p['x']", batch=4, record_all=False)
    r.evaluator._jobs.best_cost = 0.5
    got = r.run(points(0.75, 0.25, 0.375, 0.125))
    assert got.records["id"].tolist() == [1, 3] and got.costs == [0.75, 0.25, 0.375, 0.125]
    assert r.evaluator._jobs.best_cost == 0.125
    distribution = Distribution(0, np.array([0.5]), 0.1, np.array([1.0]), np.empty(0))
    r.evaluator.submit(Task(0, 4, 0, 4, 0, 0, None, distribution))
    (outcome,) = r.drain().outcomes
    indices, z = outcome.survivors
    assert indices.tolist() == np.argsort(outcome.costs).tolist()[: len(indices)]
    assert np.array_equal(z, latent(3, 0, 4, r.space)[indices])


def test_where_nothing_is_feasible_the_least_infeasible_survive(rig):
    """Nothing of it is evaluated, so violations are all that the search can learn from."""
    r = rig("def f(p): return p['x']", batch=4, record_all=False, more={"constraints": ["x >= 2"]})
    distribution = Distribution(0, np.array([0.5]), 0.1, np.array([1.0]), np.empty(0))
    r.evaluator.submit(Task(0, 4, 0, 4, 0, 0, None, distribution))
    (outcome,) = r.drain().outcomes
    assert np.isnan(outcome.costs).all() and len(outcome.records) == 0 and not outcome.reasons
    rows, _ = outcome.survivors
    assert rows.tolist() == np.argsort(outcome.violations).tolist()[: len(rows)] and len(rows) > 0


def test_the_child_imports_nothing_heavy(rig, tmp_path):
    source = """
        import sys
        def f(p):
            heavy = {"mpi4py", "h5py", "pydantic", "ruamel", "rich", "typer", "multiprocessing", "logging"}
            return float(len(heavy & set(sys.modules)))
    """
    assert rig(source).run(points(0.5)).costs == [0.0]


def test_a_fast_function_reaches_8000_evaluations_per_second(rig):
    parameters = {f"x{i}": {"type": "real", "low": -1, "high": 1} for i in range(20)}
    r = rig("def f(p): return sum(v * v for v in p.values())", parameters)
    distribution = Distribution(0, np.full(20, 0.5), 0.1, np.ones(20), np.empty(0))
    n, rates = 8192, []
    for attempt in range(4):  # the best of four: others use this machine too
        begin_s = time.monotonic()
        for first in range(0, n, 512):
            r.evaluator.submit(Task(first, 512, 0, 512, 0, attempt, None, distribution))
        got = r.drain()
        rates.append(n / (time.monotonic() - begin_s))
        assert len(got.costs) == n
        if rates[-1] > 8000:
            break
    assert max(rates) > 8000, rates


def test_a_10_ms_function_loses_little(rig):
    r = rig("import time\ndef f(p):\n    time.sleep(0.01)\n    return 1.0")
    r.run(points(0.5))
    losses_s = []
    for _ in range(4):  # the best of four: others use this machine too
        r.evaluator.submit(r.task(points(*[0.5] * 30)))
        r.evaluator.submit(r.task(points(*[0.5] * 30), first=30))
        records = r.drain().records
        losses_s.append(float(np.median(records["t_start_s"][1:] - records["t_end_s"][:-1])))
        if losses_s[-1] < 0.0002:
            break
    assert min(losses_s) < 0.0002, losses_s
