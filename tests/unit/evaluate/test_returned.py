"""What an objective returns, reports and says, wherever it runs: masked numbers, broken messages, control codes."""

from __future__ import annotations

import re
import sys

import pytest

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError

OK, FAILED = Status.OK, Status.FAILED
RANGE = "from 0 to 2**63 - 1"
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


@pytest.mark.parametrize("isolation", WHERE)
@pytest.mark.parametrize(
    "arguments, reason",
    [
        ("'a', 1.0", f"the step given to context.report is 'a', but a whole number {RANGE} is needed"),
        ("10**30, 1.0", f"the step given to context.report is {10**30}, but a whole number {RANGE} is needed"),
        ("-1, 1.0", f"the step given to context.report is -1, but a whole number {RANGE} is needed"),
        ("1.5, 1.0", f"the step given to context.report is 1.5, but a whole number {RANGE} is needed"),
        ("True, 1.0", f"the step given to context.report is True, but a whole number {RANGE} is needed"),
        ("0, None", "the value given to context.report is NoneType, but one real number is needed"),
        ("0, '1'", "the value given to context.report is str, but one real number is needed\nit is '1'"),
        ("0, np.ma.masked", "the value given to context.report is masked, but one real number is needed"),
    ],
)
def test_a_wrong_report_fails_the_evaluation_with_one_sentence_and_its_line(rig, isolation, arguments, reason):
    source = f"import numpy as np\ndef f(p, context):\n    context.report({arguments})\n    return 1.0"
    got = rig(source, isolation=isolation).run(points(0.5))
    assert got.status == [FAILED] and got.progress == []
    said, _, where = got.reasons[0].partition("\n  File")
    assert said == reason
    assert where.endswith(f'user.py", line 3, in f\n    context.report({arguments})') and "context.py" not in where


@pytest.mark.parametrize("isolation", WHERE)
def test_any_number_may_be_reported_at_any_step(rig, isolation):
    source = """
        import numpy as np
        def f(p, context):
            for step, value in ((5, np.float32(1)), (np.int64(2), float("inf")), (2, 3), (2**63 - 1, np.array(-4.0))):
                context.report(step, value)
            return 1.0
    """
    got = rig(source, isolation=isolation).run(points(0.5))
    assert got.status == [OK]
    assert [(p.step, p.value) for p in got.progress] == [(5, 1.0), (2, float("inf")), (2, 3.0), (2**63 - 1, -4.0)]


@pytest.mark.parametrize("isolation", [*WHERE, "none"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_message_that_ends_the_process_when_asked_for_costs_one_evaluation(rig, isolation, batch):
    source = """
        import numpy as np
        class Evil(Exception):
            def __str__(self): raise SystemExit(3)
        class Value:
            def __repr__(self): raise SystemExit(3)
        def f(p):
            if np.min(p["x"]) > 0.7: raise Evil()
            return Value() if np.min(p["x"]) > 0.4 else p["x"]
    """
    got = rig(source, isolation=isolation, batch=batch).run(points(0.75, 0.75, 0.5, 0.5, 0.25, 0.25))
    assert got.status == [FAILED] * 4 + [OK] * 2
    assert got.reasons[0].startswith("Evil: <its message raised an exception itself>\n")
    assert ", whose repr raised SystemExit>" in got.reasons[2]


@pytest.mark.parametrize("isolation", WHERE)
@pytest.mark.parametrize("raised", ["ValueError", "SystemExit"])
def test_an_import_whose_error_has_a_broken_message_is_refused_in_one_sentence(rig, isolation, raised):
    source = f"class E(Exception):\n    def __str__(self): raise {raised}\nraise E()"
    with pytest.raises(ConfigError) as caught:
        rig(source, isolation=isolation)
    said = r"importing user failed: E: <its message raised an exception itself> \(.*user.py:3\)"
    assert re.fullmatch(rf"objective.python is 'user:f': {said}", str(caught.value))


@pytest.mark.parametrize("isolation", WHERE)
def test_control_characters_in_a_reason_are_shown(rig, isolation):
    source = r"def f(p): raise ValueError('a\0b\x1b[31mTAIL\ttab\r\nnext\x9b\ud800')"
    reason = rig(source, isolation=isolation).run(points(0.5)).reasons[0]
    assert reason.startswith("ValueError: a\\x00b\\x1b[31mTAIL\ttab\nnext\\x9b\\ud800\n")


def test_control_characters_of_an_import_a_program_and_a_last_print_are_shown(rig):
    with pytest.raises(ConfigError, match=r"E: a\\x1b\[31m \("):
        rig("class E(Exception): pass\nraise E('a\x1b[31m')")
    got = rig(command=["sh", "-c", r"printf 'red \033[31m\n' >&2; exit 3"]).run(points(0.5))
    head, *_, end = got.reasons[0].splitlines()
    assert (head, end) == ("exit code 3; red \\x1b[31m", "red \\x1b[31m")
    got = rig("import os\ndef f(p): os.write(1, b'last\\0\\x1b[31m'); os._exit(7)").run(points(0.5))
    assert got.reasons[0] == "exit code 7\nend of its output:\nlast\\x00\\x1b[31m"


def test_control_characters_of_a_print_are_shown_in_the_log(rig, caplog):
    caplog.set_level("INFO")
    rig(r"def f(p): print('old\rnew \x1b[31mred\x00'); return 1.0").run(points(0.5))
    assert r"new \x1b[31mred\x00" in caplog.text and "\x1b" not in caplog.text and "\x00" not in caplog.text
