"""The end of a child process: crash, time limit, cancel, close, and the end of its rank."""

from __future__ import annotations

import math
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate import pool

OK, FAILED, TIMEOUT = Status.OK, Status.FAILED, Status.TIMEOUT


def points(*numbers):
    return [{"x": number} for number in numbers]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_a_crash_costs_the_evaluation_that_crashed(rig, name):
    source = f"""
        import os, signal
        def f(p):
            if p["x"] > 0.5:
                print("about to crash")
                os.kill(os.getpid(), signal.{name})
            return p["x"]
    """
    r = rig(source)
    got = r.run(points(0.0, 0.25, 0.75, 0.5, 1.0, 0.125))
    assert got.status == [OK, OK, FAILED, OK, FAILED, OK]
    assert [c for c in got.costs if not math.isnan(c)] == [0.0, 0.25, 0.5, 0.125]
    assert got.reasons[2].startswith(f"killed by {name}")
    assert "about to crash" in got.reasons[2] and list(got.reasons) == [2, 4]
    assert got.records["id"].tolist() == list(range(6)), "no row is doubled or lost"


def test_an_exit_code_is_named_and_a_crash_is_tried_again(rig, tmp_path):
    source = """
        import os, pathlib
        def f(p):
            if p["x"] > 0.5:
                with open("tries", "a") as file: file.write("x")
                if len(open("tries").read()) < 3: os._exit(9)
            return p["x"]
    """
    got = rig(source, retries=1).run(points(0.75, 0.25))
    assert got.status == [FAILED, OK] and got.reasons[0].startswith("exit code 9")
    (tmp_path / "config" / "tries").unlink()
    got = rig(source, retries=2).run(points(0.75, 0.25))
    assert got.status == [OK, OK] and got.costs == [0.75, 0.25]


def test_a_failure_is_tried_again(rig):
    source = """
        n = 0
        def f(p):
            global n
            n += 1
            return n if n == 3 else None
    """
    got = rig(source, retries=2).run(points(0.5))
    assert got.status == [OK] and got.costs == [3.0]


def test_a_time_limit_ends_one_evaluation_and_all_that_it_started(rig, tmp_path, processes):
    source = """
        import subprocess, time
        def f(p, context):
            if p["x"] > 0.5:
                (context.scratch / "file").write_text("x")
                sleeper = subprocess.Popen(["sleep", "60"])
                open("pid", "w").write(str(sleeper.pid))
                time.sleep(60)
            return p["x"]
    """
    r = rig(source, time_limit=0.3)
    begin_s = time.monotonic()
    got = r.run(points(0.0, 0.75, 0.25))
    assert time.monotonic() - begin_s < 5
    assert got.status == [OK, TIMEOUT, OK]
    assert got.reasons[1].startswith("ended by the time limit of 0.3 s")
    assert 0.3 < got.records[1]["t_end_s"] - got.records[1]["t_start_s"] < 2
    pid = int((tmp_path / "config" / "pid").read_text())
    processes.wait_until(lambda: not processes.alive(pid))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_time_limit_ends_who_ignores_sigterm(rig):
    source = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def f(p): time.sleep(60 if p["x"] > 0.5 else 0); return 1.0
    """
    got = rig(source, time_limit=0.2).run(points(0.75, 0.25))
    assert got.status == [TIMEOUT, OK]


def test_signals_that_the_rank_ignores_end_user_code_as_usual(rig):
    source = """
        import signal
        def f(p): return float(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and not signal.pthread_sigmask(0, ()))
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert rig(source).run(points(0.5)).costs == [1.0]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_sigterm_from_outside_is_not_the_evaluations_fault(rig, tmp_path):
    """As Slurm sends it to every process of a job whose time is up: the row is done again, or cancelled by the rank."""
    source = """
        import os, signal
        def f(p):
            open("calls", "a").write("x")
            if p["x"] > 0.5 and (p["x"] > 0.9 or os.path.getsize("calls") == 1): os.kill(os.getpid(), signal.SIGTERM)
            return p["x"]
    """
    got = rig(source).run(points(0.75, 1.0, 0.25))
    assert got.status == [OK, FAILED, OK], "and a function that ends itself so does not go round for ever"
    assert got.reasons[1].startswith("killed by SIGTERM")


def test_cancel_kills_what_runs_and_the_evaluator_goes_on(rig, processes):
    r = rig("import time\ndef f(p): time.sleep(60 if p['x'] > 0.5 else 0); return p['x']")
    r.evaluator.submit(r.task(points(0.75, 0.25)))
    time.sleep(0.2)
    r.evaluator.cancel()
    assert r.evaluator.idle and r.evaluator.poll() == []
    assert r.run(points(0.125)).costs == [0.125]
    processes.wait_until(lambda: (r.evaluator.poll(), len(processes.children()) == 1)[1])


def test_close_ends_a_running_evaluation(rig, processes):
    r = rig("import time\ndef f(p): time.sleep(60)")
    r.evaluator.submit(r.task(points(0.75)))
    time.sleep(0.2)
    begin_s = time.monotonic()
    r.evaluator.close()
    assert time.monotonic() - begin_s < 3 and processes.children() == []


def test_a_child_that_always_dies_does_not_stall_the_run(rig, tmp_path):
    r = rig("def f(p): return 1.0")
    (tmp_path / "config" / "user.py").write_text("import os; print('gone'); os._exit(4)")
    shutil.rmtree(tmp_path / "config" / "__pycache__", ignore_errors=True)
    r.evaluator._child.kill()
    got = r.run(points(0.5, 0.25))
    assert got.status == [FAILED, FAILED]
    assert "exit code 4 before it evaluated anything" in got.reasons[0] and "gone" in got.reasons[0]


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_a_forked_copy_that_leaves_the_function_ends_there(rig, tmp_path, processes, isolation):
    source = """
        import os, sys
        def f(p):
            here = os.getpid()
            copy = os.fork()
            if copy == 0:
                if p["x"] == 0.25: raise ValueError("in the copy")
                if p["x"] == 0.5: sys.exit(7)
                return -1.0
            code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
            return {0.0: 0, 0.25: 1, 0.5: 7}[p["x"]] - code + p["x"]
    """
    got = rig(source, isolation=isolation).run(points(0.0, 0.25, 0.5) * 8)
    assert got.status == [OK] * 24 and got.costs == [0.0, 0.25, 0.5] * 8, "each code is as Python would end the copy"
    assert got.records["id"].tolist() == list(range(24))


def test_forked_workers_and_threads_that_ask_to_stop_take_nothing_from_the_rank(rig):
    source = """
        import os, threading, time
        def ask(context):
            while True:
                context.should_stop()
                time.sleep(0.0005)
        def f(p, context):
            if p["x"] == 0.0:
                if os.fork() == 0:
                    ask(context)
                for _ in range(4):
                    threading.Thread(target=ask, args=(context,), daemon=True).start()
            return p["x"]
    """
    r = rig(source)
    for first in range(100):
        assert r.run(points(first / 100), first=first).costs == [first / 100]


def test_a_child_that_no_longer_hears_its_rank_is_replaced(rig, monkeypatch, caplog):
    monkeypatch.setattr(pool, "DEAF_S", 0.3)
    source = """
        import os
        def f(p):
            if p["x"] == 1.0:
                control = int(open("/proc/self/cmdline").read().split(chr(0))[3])
                os.dup2(os.pipe()[0], control)
            return p["x"]
    """
    r = rig(source)
    assert r.run(points(0.5, 1.0)).costs == [0.5, 1.0]
    assert r.run(points(0.25, 0.75), first=2).costs == [0.25, 0.75]
    told = "the child process of rank 2 has not begun evaluation 2, given to it 0.3 s ago, and is replaced"
    assert told in caplog.messages
    assert r.run(points(0.125), first=4).costs == [0.125]


def test_a_child_that_takes_long_to_import_hears_its_rank(rig, monkeypatch, caplog):
    monkeypatch.setattr(pool, "DEAF_S", 0.3)
    source = """
        import os, time
        time.sleep(1.0)
        def f(p):
            if p["x"] == 1.0: os._exit(1)
            return p["x"]
    """
    got = rig(source).run(points(0.5, 1.0, 0.25, 1.0, 0.75))
    assert got.status == [OK, FAILED, OK, FAILED, OK] and "has not begun" not in caplog.text


def test_a_child_that_cannot_be_started_leaves_nothing_open(rig):
    """Descriptors run out at each step of it in turn."""

    def held():
        return sorted(Path("/proc/self/fd").iterdir()), Path("/proc/self/maps").read_text().count("osprey-board")

    r = rig("def f(p): return p['x']", check=False)
    limits, before, failures = resource.getrlimit(resource.RLIMIT_NOFILE), held(), 0
    while r.evaluator._child is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (failures, limits[1]))
        try:
            r.evaluator.start()
        except OSError:
            failures += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert r.evaluator._child is not None or held() == before
    assert failures > 10 and r.run(points(0.5)).costs == [0.5]


def test_the_child_dies_with_its_rank(tmp_path, processes):
    (tmp_path / "user.py").write_text("import time\ndef f(p):\n    while True: pass\n")
    script = f"""
import time, numpy as np
from osprey_mpi.config import config_from_mapping
from osprey_mpi.evaluate import Task, make_evaluator
from osprey_mpi.search.space import Space
from pathlib import Path
c = config_from_mapping({{"name": "t", "objective": {{"python": "user:f"}}, "budget": {{"evaluations": 1}},
    "parameters": {{"x": {{"type": "real", "low": 0, "high": 1}}}}}}, base_dir=Path({str(tmp_path)!r}))
s = Space(c.parameters, c.constraints)
e = make_evaluator(c, s, rank=0, clock=time.monotonic, record_all=True, device=None, scratch_root=Path("/nowhere"))
e.check()
e.submit(Task(0, 1, 0, 1, -1, 0, np.array([[0.5]]), None))
print(e._child.pid, flush=True)
time.sleep(60)
"""
    rank = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert rank.stdout is not None
    child = int(rank.stdout.readline())
    time.sleep(0.2)
    assert processes.alive(child)
    rank.send_signal(signal.SIGKILL)
    rank.wait(5)
    rank.stdout.close()
    processes.wait_until(lambda: not processes.alive(child))
