"""What an objective returns, reports and says, wherever it runs: masked numbers, broken messages, control codes."""

from __future__ import annotations

import sys

import pytest

from osprey_mpi.continuity.records import Status

OK, FAILED = Status.OK, Status.FAILED
WHERE = ["process", "thread"]


@pytest.fixture(autouse=True)
def fresh_module(monkeypatch):
    """Let each test import a `user` of its own, in this process too."""
    monkeypatch.delitem(sys.modules, "user", raising=False)
    yield
    sys.modules.pop("user", None)


def points(*numbers):
    return [{"x": number} for number in numbers]


@pytest.mark.parametrize("isolation", WHERE)
@pytest.mark.parametrize(
    "result, what",
    [
        ("np.ma.masked", "the returned cost"),
        ("np.ma.mean(np.ma.array([1.0, 2.0], mask=True))", "the returned cost"),
        ("np.ma.array(3.0, mask=True)", "the returned cost"),
        ("{'cost': np.ma.masked}", 'the returned "cost"'),
        ("{'cost': 1.0, 'violation': np.ma.masked}", 'the returned "violation"'),
    ],
)
def test_a_masked_number_is_a_failed_evaluation(rig, isolation, result, what):
    source = f"import numpy as np\ndef f(p): return {result} if p['x'] else np.ma.array(3.0, mask=False)"
    got = rig(source, isolation=isolation).run(points(0.0, 0.5))
    assert got.status == [OK, FAILED] and got.costs[0] == 3.0
    assert got.reasons == {1: f"{what} is masked, but one real number is needed"}


@pytest.mark.parametrize("isolation", ["process", "thread", "none"])
@pytest.mark.parametrize("integers", [False, True])
def test_masked_rows_of_a_batch_fail_alone(rig, isolation, integers):
    source = f"""
        import numpy as np
        def f(p):
            costs = np.ma.array([1, 2, 3, 4, 5], mask=[0, 1, 0, 0, 0], dtype={'int' if integers else 'float'})
            return {{"cost": costs, "violation": np.ma.array([0.0, 0.0, 7.0, 0.5, -9.0], mask=[0, 0, 1, 0, 1])}}
    """
    got = rig(source, isolation=isolation, batch=5).run(points(*[i / 8 for i in range(5)]))
    assert got.status == [OK, FAILED, FAILED, OK, FAILED]
    assert got.costs[0] == 1.0 and got.costs[3] == 4.0
    assert [reason.partition("\n")[0] for _, reason in sorted(got.reasons.items())] == [
        'the returned cost is masked, but a number is needed',
        'the returned violation is masked, but a number is needed',
        'the returned violation is masked, but a number is needed',
    ]


@pytest.mark.parametrize("isolation", ["process", "thread", "none"])
@pytest.mark.parametrize("result", ["np.ma.array([1.0, 2.0], mask=[1, 0])", "[np.ma.masked, 2.0]"])
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
def test_masked_rows_without_a_mapping_and_in_a_list(rig, isolation, result):
    source = f"import numpy as np\ndef f(p): return {result}"
    got = rig(source, isolation=isolation, batch=2).run(points(0.0, 0.5))
    assert got.status == [FAILED, OK] and got.costs[1] == 2.0
    assert got.reasons == {0: "the returned cost is masked, but a number is needed"}
