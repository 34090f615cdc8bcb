"""External programs: placeholders, templates, strict numbers, exit codes, time limits, scratch folders."""

from __future__ import annotations

import math
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.placeholders import fill_arguments, fill_text
from osprey_mpi.search.streams import evaluation_seed

OK, FAILED, TIMEOUT = Status.OK, Status.FAILED, Status.TIMEOUT
MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
COST = {"pattern": r"cost = (\S+)"}


def points(*numbers):
    return [{"x": number} for number in numbers]


def sh(text: str) -> list[str]:
    return ["sh", "-c", textwrap.dedent(text).strip()]


@pytest.fixture
def program(tmp_path):
    """Write an executable into the config's folder."""

    def write(text: str, name: str = "prog") -> Path:
        path = tmp_path / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + textwrap.dedent(text).strip() + "\n")
        path.chmod(0o755)
        return path

    return write


def test_placeholders_are_filled_in_full_precision_and_other_braces_stay():
    values = {"x": 0.1 + 0.2, "n": 3, "b": True, "v": np.array([1.5, 2.0]), "id": 7}
    names = [*values, "off"]
    assert fill_text("{x} {n} {b} {v} {v[1]} {x:.2f} {v[0]:8.1e} {id}", values, names) == (
        "0.30000000000000004 3 true 1.5 2.0 2.0 0.30  1.5e+00 7"
    )
    assert fill_text('{"a": {n}, {other} ${HOME} {{n}}} {off}|', values, names) == '{"a": 3, {other} ${HOME} {3}} |'
    assert fill_text("{x} {lit}", {**values, "lit": "{x}"}, [*names, "lit"]) == "0.30000000000000004 {x}"
    assert fill_arguments(["p", "--off={off}", "{x:.1f}", "{off}"], values, names) == ["p", "0.3"]


def test_a_program_of_the_configs_folder_runs_in_its_own_scratch_folder(rig, program, tmp_path):
    program('echo banner; echo "cost = $1 "; echo "$@ $PWD" >> ../seen; echo done')
    r = rig(command=["./prog", "{x}", "{id}", "{seed}", "{scratch}"], result=COST)
    got = r.run(points(0.1, 0.25), first=4)
    assert got.status == [OK, OK] and got.costs == [0.1, 0.25]
    scratch = tmp_path / "scratch"
    folders = [scratch / f"evaluation-{i:08d}-rank-0002" for i in (4, 5)]
    seen = (scratch / "seen").read_text().splitlines()
    rows = zip((0.1, 0.25), (4, 5), folders, strict=True)
    assert seen == [f"{x} {i} {evaluation_seed(3, i)} {f} {f}" for x, i, f in rows]
    assert [p.name for p in scratch.iterdir()] == ["seen"], "folders of good evaluations are removed by default"


def test_the_last_match_is_the_result_and_noise_around_it_does_not_matter(rig):
    command = sh('echo "*** solver 1.5 ***"; echo "value = 3.0 mm"; echo "value = 1.5 mm"; echo "bye 7"')
    got = rig(command=command, result={"pattern": r"^value = (\S+)"}).run(points(0.5))
    assert got.costs == [1.5] and got.status == [OK]


@pytest.mark.parametrize("text", ["1.5mm", "nan", "inf", "1_0", "0x10", "", "1,5", "True", "1.5 2"])
def test_what_is_no_finite_number_is_a_failure_with_the_raw_text(rig, text):
    command = sh(f'echo noise; echo "cost = <{text}>"')
    got = rig(command=command, result={"pattern": "cost = <(.*)>"}).run(points(0.5), first=3)
    assert got.status == [FAILED] and math.isnan(got.costs[0])
    reason = got.reasons[3]
    assert reason.splitlines()[0] == "the result is no finite number", "what reports group by"
    assert f"it is {text!r}\n" in reason
    assert "noise\n" in reason and f"cost = <{text}>" in reason


@pytest.mark.parametrize(("text", "cost"), [("-1.5e-3", -1.5e-3), ("+.5", 0.5), ("7.", 7), (" 3 ", 3), ("1E5", 1e5)])
def test_numbers_are_read_as_written(rig, text, cost):
    assert rig(command=sh(f"echo 'cost = <{text}>'"), result={"pattern": "<(.*)>"}).run(points(0.5)).costs == [cost]


def test_a_result_may_lie_in_a_file_and_both_may_be_missing(rig):
    command = sh("""
        case {x} in
        0.25) mkdir out; echo "cost = 2.5" > out/result ;;
        0.5) mkdir out; echo "nothing" > out/result ;;
        *) echo "no file today" ;;
        esac
    """)
    got = rig(command=command, result={**COST, "file": "out/result"}).run(points(0.25, 0.5, 0.75))
    assert got.status == [OK, FAILED, FAILED] and got.costs[0] == 2.5
    assert "result has no match of 'cost = (\\\\S+)'" in got.reasons[1] and "nothing" in got.reasons[1]
    assert "the program wrote no file 'out/result'" in got.reasons[2] and "no file today" in got.reasons[2]


@pytest.mark.parametrize("keep", ["never", "failed", "always"])
@pytest.mark.parametrize("result", [None, {**COST, "file": "out"}])
def test_a_program_that_removes_its_scratch_folder_or_its_output_fails(rig, keep, result):
    command = sh("""
        echo 1
        case {x} in
        0.25) rm -r "$PWD" ;;
        0.5) rm -r "$PWD"; exit 3 ;;
        *) rm stdout.txt ;;
        esac
    """)
    got = rig(command=command, result=result, keep_scratch=keep).run(points(0.25, 0.5, 0.75))
    assert got.status == [FAILED] * 3
    assert got.reasons[0] == "the program removed its scratch folder, and its output with it"
    assert got.reasons[1] == "exit code 3"
    last = "the program wrote no file 'out'" if result else "the program removed stdout.txt, its output"
    assert got.reasons[2].splitlines()[0] == last and ("kept scratch folder" in got.reasons[2]) is (keep != "never")


def test_an_exit_code_fails_with_the_end_of_stderr(rig):
    command = sh('echo "cost = 1"; echo "first problem" >&2; echo "last problem" >&2; exit 3')
    got = rig(command=command, result=COST).run(points(0.5))
    assert got.status == [FAILED]
    assert got.reasons[0].startswith("exit code 3; last problem\n")
    assert got.reasons[0].endswith("end of stderr:\nfirst problem\nlast problem")


def test_a_killed_program_names_its_signal(rig):
    got = rig(command=sh("kill -SEGV $$"), result=COST).run(points(0.5))
    assert got.reasons[0].startswith("killed by SIGSEGV\n")


def test_a_program_that_cannot_start_fails_one_evaluation(rig, program):
    path = program("echo cost = 1")
    r = rig(command=["./prog"], result=COST)
    path.write_text("#!/nonexistent/interpreter\n")
    got = r.run(points(0.5))
    assert got.status == [FAILED] and "FileNotFoundError" in got.reasons[0]


def test_a_time_limit_kills_the_whole_group_and_keeps_what_was_said(rig, tmp_path, processes):
    command = sh("""
        case {x} in 0.25) echo "cost = 1"; exit ;; esac
        echo working
        sh -c 'trap "" TERM; echo $$ > ../pid; sleep 60; sleep 60' &
        sleep 60
    """)
    r = rig(command=command, result=COST, time_limit=0.4)
    begin_s = time.monotonic()
    got = r.run(points(0.75, 0.25))
    assert time.monotonic() - begin_s < 6
    assert got.status == [TIMEOUT, OK] and got.costs[1] == 1.0
    assert got.reasons[0].splitlines()[0] == "ended by the time limit of 0.4 s"
    assert "end of stdout:\nworking" in got.reasons[0]
    pid = int((tmp_path / "scratch" / "pid").read_text())
    processes.wait_until(lambda: not processes.alive(pid))


def test_background_processes_end_with_the_program(rig, tmp_path, processes):
    got = rig(command=sh("sleep 60 & echo $! > ../pid; echo cost = 1"), result=COST).run(points(0.5))
    assert got.status == [OK]
    pid = int((tmp_path / "scratch" / "pid").read_text())
    processes.wait_until(lambda: not processes.alive(pid))


@pytest.mark.parametrize(("keep", "kept"), [("never", []), ("failed", [1]), ("always", [0, 1])])
def test_scratch_folders_are_kept_as_asked(rig, tmp_path, keep, kept):
    command = sh("echo cost = 1; case {x} in 0.75) exit 1 ;; esac")
    got = rig(command=command, result=COST, keep_scratch=keep).run(points(0.25, 0.75))
    assert got.status == [OK, FAILED]
    folders = sorted((tmp_path / "scratch").iterdir())
    assert [f.name for f in folders] == [f"evaluation-{i:08d}-rank-0002" for i in kept]
    assert all((f / "stdout.txt").read_text() == "cost = 1\n" for f in folders)
    assert got.reasons[1].splitlines()[0] == "exit code 1"
    assert (f"\nkept scratch folder {tmp_path / 'scratch'}" in got.reasons[1]) == (1 in kept)


def test_equal_failures_have_equal_first_lines(rig, tmp_path):
    """Whatever scratch folder, parameters and output the evaluation had."""
    command = sh('echo "{x}" >&2; echo "no mesh in $PWD/mesh" >&2; exit 7')
    got = rig(command=command, result=COST, keep_scratch="failed").run(points(0.25, 0.75))
    heads = {reason.splitlines()[0] for reason in got.reasons.values()}
    assert heads == {"exit code 7; no mesh in {scratch}/mesh"}
    assert str(tmp_path / "scratch") in got.reasons[0] and "0.25" in got.reasons[0]


def test_a_format_that_does_not_fit_fails_one_evaluation(rig):
    r = rig(
        command=sh("echo cost = {k:.2f}"),
        result=COST,
        parameters={"x": {"type": "real", "low": 0, "high": 1}, "k": {"type": "categorical", "choices": ["a", 1]}},
    )
    got = r.run([{"x": 0.5, "k": "a"}, {"x": 0.5, "k": 1}])
    assert got.status == [FAILED, OK] and "ValueError: Unknown format code 'f'" in got.reasons[0]


def test_templates_are_written_into_the_scratch_folder(rig, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "in.json").write_text('{"x": {x}, "half": {x:.1f}, "keep": {y}}')
    template = [{"source": "in.json", "target": "sub/in.json"}]
    r = rig(command=sh("test -s sub/in.json && echo cost = 1"), template=template, result=COST, keep_scratch="always")
    assert r.run(points(0.25)).status == [OK]
    (folder,) = (tmp_path / "scratch").iterdir()
    assert (folder / "sub" / "in.json").read_text() == '{"x": 0.25, "half": 0.2, "keep": {y}}'


def test_much_output_is_not_held_in_memory(rig):
    """The child may take 50 MB more than it has, and the program writes 100 MB into one line."""
    command = sh('echo "cost = 4"; head -c 100000000 /dev/zero | tr "\\0" "x"; echo; echo "cost = 5"')
    r = rig(command=command, result={"pattern": r"^cost = (\S+)"})
    child = r.evaluator._child.pid
    status = Path(f"/proc/{child}/status").read_text()
    data_bytes = 1024 * int(next(line for line in status.splitlines() if line.startswith("VmData")).split()[1])
    resource.prlimit(child, resource.RLIMIT_DATA, (data_bytes + 50_000_000, resource.RLIM_INFINITY))
    assert r.run(points(0.5)).costs == [5.0]


def test_cancel_and_close_end_the_program(rig, tmp_path, processes):
    r = rig(command=sh("echo $$ > ../pid.{id}; sleep 60"), result=COST)
    for first, end in ((0, r.evaluator.cancel), (1, r.evaluator.close)):
        r.evaluator.submit(r.task(points(0.5), first))
        path = tmp_path / "scratch" / f"pid.{first}"
        processes.wait_until(
            lambda path=path: (r.evaluator.poll(), path.exists() and path.read_text().strip() != "")[1]
        )
        pid = int(path.read_text())
        assert processes.alive(pid)
        end()
        processes.wait_until(lambda pid=pid: not processes.alive(pid))
        assert r.evaluator.idle
    assert processes.children() == []


def test_the_program_ends_when_the_rank_is_killed(tmp_path, processes):
    script = f"""
import time, numpy as np
from pathlib import Path
from osprey_mpi.config import config_from_mapping
from osprey_mpi.evaluate import Task, make_evaluator
from osprey_mpi.search.space import Space
folder = Path({str(tmp_path)!r})
c = config_from_mapping({{"name": "t", "budget": {{"evaluations": 1}},
    "objective": {{"command": ["sh", "-c", "echo $$ > ../pid; sleep 60"], "result": {{"pattern": "(.)"}}}},
    "parameters": {{"x": {{"type": "real", "low": 0, "high": 1}}}}}}, base_dir=folder)
s = Space(c.parameters, c.constraints)
e = make_evaluator(c, s, rank=0, clock=time.monotonic, record_all=True, device=None, scratch_root=folder / "scratch")
e.check()
e.submit(Task(0, 1, 0, 1, -1, 0, np.array([[0.5]]), None))
print(e._child.pid, flush=True)
time.sleep(60)
"""
    rank = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert rank.stdout is not None
    child = int(rank.stdout.readline())
    path = tmp_path / "scratch" / "pid"
    processes.wait_until(lambda: path.exists() and "\n" in path.read_text(), 10)
    program = int(path.read_text())
    rank.kill()
    rank.wait(5)
    rank.stdout.close()
    processes.wait_until(lambda: not processes.alive(program) and not processes.alive(child))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["./nosuch"], "nosuch'?: no such file"),
        (["./" + "a" * 300], "aaa'?: no such file"),
        (["nosuchprogram"], "found in no folder of PATH"),
        (["/tmp"], "^objective.command starts /tmp, which is a folder, must be a program$"),
        (["./"], "config, which is a folder, must be a program$"),
    ],
)
def test_check_refuses_what_cannot_work(rig, command, message):
    with pytest.raises(ConfigError, match=message):
        rig(command=command, result=COST)


def test_check_refuses_a_program_that_is_not_executable(rig, program):
    program("echo").chmod(0o644)
    with pytest.raises(ConfigError, match=r"prog, which is not executable \(chmod \+x\)"):
        rig(command=["./prog"], result=COST)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("no.txt", "a", r"\[1\]\.source: is .*/no\.txt, which does not exist or cannot be read: No such file.*"),
        ("a" * 300, "a", r"\[1\]\.source: is .*a, which does not exist or cannot be read: File name too long"),
        (".", "a", r"\[1\]\.source: is .*, which is a folder, must be a text file"),
        ("/dev/zero", "a", r"\[1\]\.source: is /dev/zero, which is no regular file"),
        ("latin.txt", "a", r"\[1\]\.source: is .*/latin\.txt, which is not UTF-8: byte 2 is 0xe9"),
        ("good.txt", "./stdout.txt", r"\[1\]\.target: is \./stdout\.txt, but the program's own output goes there"),
    ],
)
def test_check_refuses_a_template_that_no_evaluation_could_write(rig, program, source, target, message):
    folder = program("echo").parent
    (folder / "good.txt").write_text("fine")
    (folder / "latin.txt").write_bytes(b"\xc3\xa9\xe9")
    template = [{"source": "good.txt", "target": "b"}, {"source": source, "target": target}]
    with pytest.raises(ConfigError, match=f"^objective\\.template{message}$"):
        rig(command=["sh"], result=COST, template=template)


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
def test_a_program_may_start_mpi_itself(rig, monkeypatch):
    """As under a launcher whose variables would make the inner mpirun or mpi4py take itself for one of our ranks."""
    for name, value in {
        "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-x@1",
        "PMIX_SERVER_URI2": "prterun-x@0.0;tcp4://127.0.0.1:1", "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9",
        "SLURM_JOB_ID": "1", "SLURM_JOBID": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; s = c.allreduce(c.rank + 1)\nif c.rank == 0: print('cost =', s)"
    r = rig(command=[str(MPIRUN), "-n", "2", sys.executable, "-c", code], result=COST, time_limit=20)
    got = r.run(points(0.5), limit_s=30)
    assert got.costs == [3.0], got.reasons
