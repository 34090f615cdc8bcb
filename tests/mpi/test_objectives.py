"""What user code may do to a run: each failure costs one evaluation, and the user is told why."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from launch import launch, osprey
from problem import BASE, Problem

pytestmark = pytest.mark.launch

OK, FAILED, TIMEOUT = 0, 1, 2

TROUBLE = """\
import os, signal, time

class Picky(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")

def f(p, context):
    if context.id == 1:
        return undefined_name
    if context.id == 2:
        raise Picky("salt", "pepper")
    if context.id == 3:
        return None
    if context.id == 4:
        time.sleep(30)
    if context.id == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    if context.id == 6:
        return float("nan")
    if context.id == 7:
        os._exit(3)
    if context.id == 8:
        raise SystemExit("enough")
    if context.id == 9:
        os.write(1, b"noise from the objective\\n")
        print("more noise")
    if context.id == 10:
        raise KeyboardInterrupt
    return p["x"] ** 2
"""


def test_every_kind_of_failure_costs_one_evaluation(case: Problem) -> None:
    """Failed and timeout are apart. O3 to O8: the reason is on rank 0's stderr, in the log and in the file."""
    config = BASE.replace('"case:f"', '"case:f", time_limit: 1').replace("evaluations: 8", "evaluations: 24")
    case.write(TROUBLE, config)
    done = case.run(3)
    assert done.rc == 0 and done.json()["n_evaluations"] == 24, done.stderr
    assert done.json()["wall_s"] < 15.0
    counts = case.status()["counts"]
    assert (counts["ok"], counts["failed"], counts["timeout"], counts["lost"], counts["cancelled"]) == (15, 8, 1, 0, 0)
    columns = case.columns("status", "reason", "cost")
    assert np.flatnonzero(columns["status"] == FAILED).tolist() == [1, 2, 3, 5, 6, 7, 8, 10]
    assert np.flatnonzero(columns["status"] == TIMEOUT).tolist() == [4]
    assert np.array_equal(np.isnan(columns["cost"]), columns["status"] != OK)
    expected = {
        1: "NameError: name 'undefined_name' is not defined", 2: "Picky: salt and pepper", 3: "NoneType", 4: "1",
        5: "SIGSEGV", 6: "nan", 7: "3", 8: "SystemExit: enough", 10: "KeyboardInterrupt",
    }  # fmt: skip
    for id, text in expected.items():
        assert text in columns["reason"][id], (id, columns["reason"][id])
    assert expected[1] in done.stderr and expected[2] in done.stderr
    logs = "".join(case.log(rank) for rank in range(3))
    assert "evaluation 9: more noise\n" in logs and "noise from the objective\n" in logs
    assert "noise" not in done.stdout + done.stderr
    assert all(f"evaluation {id} on rank" in logs for id in expected)
    assert all(re.search(rf"evaluation {id} on rank \d, parameters \{{'x': \S+, 'n': \d\}}: ", logs) for id in expected)
    assert not any("parameters" in reason for reason in columns["reason"]), "the row has them"


@pytest.mark.parametrize("where", ["isolation: thread", "ranks: 2"])
def test_what_is_printed_in_the_rank_itself_goes_to_stderr(where: str, case: Problem) -> None:
    case.write("def f(p):\n    print('said')\n    return p['x']", BASE.replace('"case:f"', f'"case:f", {where}'))
    done = case.run(2)
    assert done.rc == 0 and done.json()["n_evaluations"] == 8, done.stderr
    assert done.stderr.count("said\n") == (16 if where == "ranks: 2" else 8)


def test_a_child_that_cannot_be_replaced_ends_the_run_with_a_sentence(case: Problem) -> None:
    """The objective takes its rank's right to open files, and its own process ends."""
    case.write(
        "import os, resource\ndef f(p):\n    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (4, 4))\n"
        "    os._exit(1)\n"
    )
    done = case.run(2)
    assert (done.rc, done.stdout) == (4, ""), done
    assert "Too many open files (errno 24)" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_on_failure_stop(case: Problem) -> None:
    """The run stops with the reason and 3, so that no batch system starts it again; mended, it can be resumed."""
    code = "def f(p, context):\n    if context.id == 6:\n        raise ValueError('boiler too hot')\n    return p['x']"
    config = BASE.replace('"case:f"', '"case:f", on_failure: stop')
    case.write(code, config.replace("evaluations: 8", "evaluations: 5000"))
    done = case.run(3)
    assert done.rc == 3, done
    status = case.status()
    assert (status["state"], status["exit_code"]) == ("failed", 3)
    assert "boiler too hot" in status["reason"] and "boiler too hot" in done.json()["reason"]
    assert done.stderr.count("Traceback") == 0
    assert status["counts"]["failed"] == 1
    case.write("def f(p):\n    return p['x']", config.replace("evaluations: 8", "evaluations: 5000"))
    more = case.resume(2)
    assert (more.rc, more.json()["n_evaluations"], case.status()["counts"]["failed"]) == (0, 5000, 1), more.stderr


def test_no_usable_result_is_exit_code_3(case: Problem) -> None:
    """And nobody needs to wait for the end of the budget to learn why."""
    case.write("def f(p):\n    raise ValueError('never')")
    done = case.run(2, "--set", "budget.evaluations=40")
    assert (done.rc, done.json()["best"], done.json()["n_evaluations"]) == (3, None, 40), done.stderr
    assert (case.status()["state"], case.status()["exit_code"]) == ("failed", 3)
    said = r"osprey: no result yet, and (\d+) evaluations failed, all for one reason: ValueError: n"
    alarm = re.findall(said, done.stderr)
    assert len(alarm) == 1 and 10 <= int(alarm[0]) <= 40, done.stderr


def test_modules_are_found_from_any_folder(case: Problem, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Beside the config, on every rank, and still after the objective changed its folder."""
    case.write(
        "import os\ndef f(p, context):\n    os.chdir(context.scratch)\n    from helper import cost\n    return cost(p)"
    )
    (case.folder / "helper.py").write_text("def cost(p):\n    return p['x'] + p['n']")
    done = case.run(3, cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.rc == 0, done.stderr
    assert case.status()["counts"]["ok"] == 8


def test_noise_belongs_to_the_evaluation_not_to_the_rank(case: Problem) -> None:
    """The same id draws the same numbers on two ranks and on four."""
    case.write("import random\ndef f(p, context):\n    return random.Random(context.seed).random()")
    seen = []
    for n in (2, 4):
        assert case.run(n, "--overwrite", "--set", "budget.evaluations=40").rc == 0
        seen.append(case.columns("cost", "seed"))
    assert len(set(seen[0]["cost"].tolist())) == 40
    assert np.array_equal(seen[0]["cost"], seen[1]["cost"])
    assert np.array_equal(seen[0]["seed"], seen[1]["seed"])


def test_an_objective_that_starts_mpirun_itself(case: Problem) -> None:
    """An external solver may be an MPI program, from Python as well as as a command."""
    code = """\
import subprocess
def f(p):
    done = subprocess.run(["mpirun", "-n", "2", "hostname"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return float(len(done.stdout.split()))
"""
    case.write(code, BASE.replace("evaluations: 8", "evaluations: 2"))
    done = case.run(2)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 2), done.stderr
    assert done.json()["best"]["cost"] == 2.0, case.columns("reason")
    script = "mpirun -n 2 hostname | wc -l | sed 's/^/cost = /'"
    command = f'{{command: [sh, -c, "{script}"], result: {{pattern: "cost = (\\\\S+)"}}}}'
    config = BASE.replace('{python: "case:f"}', command)
    case.write("", config.replace("evaluations: 8", "evaluations: 2"))
    done = case.run(2, "--overwrite")
    assert (done.rc, done.json()["best"]["cost"]) == (0, 2.0), done.stderr


GROUP = """\
def f(p, context):
    comm = context.comm
    total = comm.allreduce(comm.rank + 1)
    if context.id == 4:
        raise ValueError("all of the group")
    return p["x"] ** 2 + total
"""


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_objective_that_needs_two_ranks(n: int, case: Problem) -> None:
    case.write(GROUP, BASE.replace('"case:f"', '"case:f", ranks: 2'))
    done = case.run(n)
    assert (done.rc, done.json()["n_evaluations"]) == (0, 8), done.stderr
    assert 3.0 <= done.json()["best"]["cost"] < 4.0
    assert case.columns("status")["status"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    assert done.stderr.count("osprey: rank 3 fills no group of 2") == (n == 4), done.stderr
    workers = {2: {0}, 3: {1}, 4: {1}, 5: {1, 3}}[n]
    assert set(case.columns("rank")["rank"].tolist()) <= workers


def test_objective_that_needs_more_ranks_than_there_are(case: Problem) -> None:
    case.write(GROUP, BASE.replace('"case:f"', '"case:f", ranks: 4'))
    for n in (1, 3):
        done = launch(n, osprey("run", "case.yaml", "--out", f"out-{n}"), cwd=case.folder)
        assert (done.rc, done.stdout) == (2, ""), done.stderr
        assert done.stderr.count("objective.ranks is 4") == 1 and "Traceback" not in done.stderr


def test_console_script_and_module_are_the_same(case: Problem) -> None:
    assert launch(1, osprey("--version"), cwd=Path.cwd()).stdout.startswith(("osprey", "0."))


def test_a_group_whose_worker_has_no_device_ends_at_once(case: Problem) -> None:
    """Its other rank, which needs none, does not wait for it."""
    case.write(GROUP, BASE.replace('"case:f"', '"case:f", ranks: 2') + "device: cuda\n")
    done = launch(4, osprey("run", "case.yaml", "--out", "out"), cwd=case.folder, env={"CUDA_VISIBLE_DEVICES": ""})
    assert (done.rc, done.stdout) == (4, ""), done.stderr
    assert done.stderr.count("device is cuda, but") == 1, done.stderr
