"""What an objective prints in its child process: in the log of the rank, whole up to a bound, and never on stdout."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.printed import GOES_ON, Printed


def points(*numbers):
    return [{"x": number} for number in numbers]


def test_output_of_the_objective_never_reaches_stdout(rig, capfd, caplog):
    caplog.set_level("INFO")
    rig("import os\nprint('at import')\ndef f(p):\n    print('hello'); os.system('echo shell'); return 1.0").run(
        points(0.5)
    )
    out, _ = capfd.readouterr()
    assert out == ""
    assert "at import" in caplog.text and "hello" in caplog.text and "shell" in caplog.text


def test_what_is_printed_is_logged_line_by_line_with_its_evaluation(rig, caplog):
    """Whatever writes it, in its order, and complete when the evaluation's result is; native output has no mark."""
    caplog.set_level("INFO")
    source = """
        import logging, os, sys
        logging.basicConfig(format="%(message)s")
        print("imported")
        def f(p):
            if p["x"] == 0.25:
                print("two\\nlines", end="")
                print(", \u00e9\\udc00", file=sys.stderr)
                logging.warning("warned")
                os.system("echo native")
                print(" 10%\\r 90%\\r100%", flush=True)
                print("no end", end="")
            elif p["x"] == 0.75:
                print("next")
            return p["x"]
    """
    rig(source).run(points(0.5, 0.25, 0.75), first=7)
    assert "\n".join(record.message for record in caplog.records).splitlines() == [
        "imported", "evaluation 8: two", "evaluation 8: lines, \u00e9\\udc00", "evaluation 8: warned", "native",
        "evaluation 8: 100%", "evaluation 8: no end", "evaluation 9: next",
    ]  # fmt: skip


def test_what_is_printed_fills_no_disk(rig, caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr("osprey_mpi.evaluate.printed.LOG_BYTES", 100)
    r = rig("import os\ndef f(p):\n    print('x' * 50)\n    if p['x'] > 0.5: os.abort()\n    return 1.0")
    for first in range(9):
        r.run(points(0.5), first=first)
    assert caplog.messages[:-1] == [f"evaluation {id}: {'x' * 50}" for id in (0, 1)]
    assert caplog.messages[-1] == "what the objective prints is not logged any further: it was more than 100 bytes"
    assert f"evaluation 9: {'x' * 50}" in r.run(points(0.75), first=9).reasons[9], "a crash shows its own last lines"


CRASHING = """
    import faulthandler, os, time
    def f(p):
        print("x is", p["x"])
        os.system(f"echo native {p['x']}")
        if p["x"] > 0.5: os.abort()
        time.sleep(0.05)
        return 1.0
"""


def test_the_reason_of_a_crash_has_its_own_output_and_the_users_part_of_the_trace_once(rig, caplog):
    caplog.set_level("INFO")
    reason = rig(CRASHING).run(points(0.25, 0.5, 0.75)).reasons[2].splitlines()
    assert reason[0] == "killed by SIGABRT" and reason[1] == "Fatal Python error: Aborted"
    assert reason[2].startswith("Current thread") and reason[3].endswith(" in f")
    assert reason[4:] == ["end of its output:", "evaluation 2: x is 0.75", "native 0.75"]
    assert "Fatal Python error" not in caplog.text, "the log has it with the reason"


def test_of_quick_evaluations_the_marks_tell_whose_output_it_is(rig):
    source = "import os\ndef f(p):\n    print(p['x'])\n    if p['x'] > 0.5: os.abort()\n    return 1.0"
    assert rig(source).run(points(0.25, 0.5, 0.75)).reasons[2].splitlines()[4:] == [
        "end of its output:", "evaluation 2: 0.75"
    ]  # fmt: skip


def test_a_crash_at_import_shows_its_trace(rig):
    with pytest.raises(ConfigError, match=r"(?s)\(killed by SIGABRT\)\nFatal Python error: Aborted\n.* in <module>"):
        rig("import os\nos.abort()\ndef f(p): return 1.0").evaluator.check()


def logged(caplog):
    """Join what was logged, the parts of a line too."""
    return "\n".join(caplog.messages).replace(f"{GOES_ON}\n", "")


def test_a_long_line_is_logged_whole_with_its_mark(rig, caplog):
    """It comes in several reads, and may end one within a character."""
    caplog.set_level("INFO")
    line = "begin" + "\u00e9" * 150_000 + "end"
    rig("def f(p):\n    print('begin' + '\u00e9' * 150_000 + 'end')\n    return 1.0").run(points(0.5, 0.25))
    assert logged(caplog).splitlines() == [f"evaluation {id}: {line}" for id in (0, 1)]


def test_what_is_printed_at_import_waits_for_the_log_whole(rig, caplog):
    log = logging.getLogger("osprey_mpi.rank2.objective")
    log.hasHandlers = lambda: False
    try:
        r = rig("for i in range(9999): print(f'line {i}')\ndef f(p): return 1.0")
        assert caplog.messages == []
    finally:
        del log.hasHandlers
    caplog.set_level("INFO")
    r.run(points(0.5))
    r.evaluator.close()
    assert logged(caplog).splitlines() == [f"line {i}" for i in range(9999)]


def test_a_line_that_never_ends_is_logged_in_parts_that_say_so(caplog, monkeypatch):
    monkeypatch.setattr("osprey_mpi.evaluate.printed.PART_BYTES", 10)
    caplog.set_level("INFO")
    printed = Printed(2)
    for data in (b"one\ntwo", b" 3 4 5 6 7", b" 8\n", b"9\r10\r", b"11 12 13 14\xc3", b"\xa9\n", b"end\xc3"):
        printed.add(data)
    printed.end()
    assert caplog.messages == [
        "one", f"two 3 4 5 6 7{GOES_ON}", " 8", f"11 12 13 14{GOES_ON}", "\u00e9", "end\ufffd",
    ]  # fmt: skip


def test_the_end_of_the_log_is_told_whenever_it_is_met(caplog, monkeypatch):
    """Also before there is a log, and within a line."""
    monkeypatch.setattr("osprey_mpi.evaluate.printed.LOG_BYTES", 8)
    caplog.set_level("INFO")
    printed = Printed(2)
    printed._log = SimpleNamespace(hasHandlers=lambda: False)
    printed.add(b"one\ntwo three")
    printed.add(b"lost\n")
    printed._log = logging.getLogger("osprey_mpi.rank2.objective")
    for _ in range(2):
        printed.add(b"lost\n")
    printed.end()
    assert caplog.messages == [
        "one\ntwo three",
        "what the objective prints is not logged any further: it was more than 8 bytes",
    ]


def test_a_chatty_objective_is_drained(rig):
    got = rig("def f(p):\n    print('x' * 1_000_000)\n    return 1.0").run(points(0.5, 0.5, 0.5))
    assert got.status == [Status.OK] * 3
