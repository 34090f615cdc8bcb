"""The small parts: environment, frames, board, schema, imports, scratch folders, rows and their order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.board import Board, Running
from osprey_mpi.evaluate.context import Context, Silent, make_scratch, remove_scratch, scratch_name
from osprey_mpi.evaluate.environment import clean_environment
from osprey_mpi.evaluate.frames import FrameReader, Kind, pack_frame
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.search import columns, osprey
from osprey_mpi.search.space import Space


def test_launcher_variables_go_and_the_users_own_stay():
    launchers = [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_UNIVERSE_SIZE",
        "OMPI_MCA_num_procs",
        "OMPI_MCA_ess_base_jobid",
        "OMPI_MCA_mpi_ft_enable",
        "OMPI_FILE_LOCATION",
        "PMIX_RANK",
        "PMIX_SERVER_URI41",
        "PMIX_NAMESPACE",
        "PRTE_LAUNCHED",
        "PMI_RANK",
        "PMI_FD",
        "PMI_SIZE",
        "HYDI_CONTROL_FD",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "MPIEXEC_HOSTNAME",
        "SLURM_PROCID",
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "SLURM_STEP_ID",
        "SLURM_NTASKS",
        "SLURM_NODELIST",
        "SLURM_MPI_TYPE",
    ]
    users = [
        "PATH",
        "HOME",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_btl",
        "OMPI_MCA_btl_tcp_if_include",
        "PRTE_MCA_rmaps_default_mapping_policy",
        "SLURM_TMPDIR",
        "SLURM_CPUS_PER_TASK",
        "CUDA_VISIBLE_DEVICES",
        "MPI4PY_RC_THREAD_LEVEL",
        "MPICH_OFI_STARTUP_CONNECT",
        "OMP_NUM_THREADS",
        "PMICRO",
    ]
    assert sorted(clean_environment(dict.fromkeys(launchers + users, "1"))) == sorted(users)


def test_frames_survive_any_cut():
    frames = [(Kind.DONE, b"12345678"), (Kind.REASON, b""), (Kind.READY, "Grüße".encode() * 100)]
    stream = b"".join(pack_frame(kind, payload) for kind, payload in frames)
    for step in (1, 3, 7, 8, 9, len(stream)):
        reader = FrameReader()
        got = [f for i in range(0, len(stream), step) for f in reader.feed(stream[i : i + step])]
        assert got == frames


def test_a_board_shows_what_the_other_side_wrote():
    mine = Board.create(4, 3, b'{"a": 1}')
    theirs = Board(os.dup(mine.fd), 4, 3)
    assert theirs.instructions == b'{"a": 1}' and theirs.running() == Running(-1, 0, 0.0) and theirs.group() == 0
    mine.values[1][2] = [1.0, 2.0, 3.0]
    mine.results[1]["id"][2] = 77
    theirs.set_result(1, 2, 0.5, 0.25, 10.0, 11.0, 4)
    theirs.set_running(9, 2, 123.5)
    theirs.set_group(4321)
    assert theirs.values[1][2].tolist() == [1.0, 2.0, 3.0]
    assert mine.results[1][2].tolist() == (77, 0.5, 0.25, 10.0, 11.0, 4)
    assert mine.results[1][1].tolist() == mine.results[0][2].tolist() == (0, 0.0, 0.0, 0.0, 0.0, 0)
    assert mine.running() == Running(9, 2, 123.5) and mine.group() == 4321
    theirs.close()
    mine.close()


def test_the_schema_gives_what_the_space_gives_also_after_its_journey():
    parameters = {
        "a": {"type": "real", "low": -1, "high": 1},
        "v": {"type": "real", "low": 0, "high": 1, "size": 3},
        "w": {"type": "integer", "low": 0, "high": 9, "size": 2},
        "k": {"type": "categorical", "choices": ["x", 1, 2.0, False]},
        "s": {"type": "categorical", "choices": [1, 2, 4], "size": 2},
        "c": {"type": "fixed", "value": True},
        "n": {"type": "integer", "low": 1, "high": 2**53, "scale": "log", "when": {"k": [1, "x"]}},
        "u": {"type": "real", "low": 0, "high": 1, "size": 1},
    }
    config = config_from_mapping(
        {"name": "t", "objective": {"python": "m:f"}, "parameters": parameters, "budget": {"evaluations": 1}}
    )
    space = Space(config.parameters, ())
    schema = Schema.from_json(Schema(space.layouts).to_json())
    rng = np.random.default_rng(5)
    positions = rng.random((200, space.n_dims))
    positions[:, space.n_numeric :] = rng.integers(0, 3, (200, 1))
    n_absent = 0
    for row in space.decode(positions):
        mine, theirs = schema.parameters(row), space.parameters(row)
        assert list(mine) == list(theirs)
        n_absent += "n" not in mine
        for name, value in theirs.items():
            assert type(mine[name]) is type(value)
            if isinstance(value, np.ndarray):
                assert mine[name].dtype == value.dtype and mine[name].tolist() == value.tolist()
            else:
                assert mine[name] == value
    assert 0 < n_absent < 200


def test_captures_are_better_than_all_before():
    nan = float("nan")
    assert osprey.captures(np.array([5.0, nan, 3.0, 3.0, 4.0, 1.0]), np.inf).tolist() == [0, 2, 5]
    assert osprey.captures(np.array([5.0, nan, 3.0, 3.0, 4.0, 1.0]), 3.0).tolist() == [5]
    assert osprey.captures(np.array([nan, nan]), np.inf).tolist() == []


def test_scratch_folders_never_meet(tmp_path):
    root = tmp_path / "deep" / "root"
    name = scratch_name(12, 3)
    folders = [make_scratch(root, name) for _ in range(3)]
    assert [f.name for f in folders] == ["evaluation-00000012-rank-0003" + end for end in ("", ".1", ".2")]
    other = make_scratch(root, scratch_name(12, 4))
    remove_scratch(root, name)
    assert list(root.iterdir()) == [other]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "no:f", r"objective.python is 'no:f': no module named 'no' \(looked in .*/config and on sys.path\)$"),
        ("def loss(p): pass", "user:los", r"user.py has no attribute 'los'; did you mean 'loss'\?$"),
        ("import absent_thing", "user:f", r"importing user failed: ModuleNotFoundError: .* 'absent_thing'"),
        ("x = 1\ny = undefined", "user:f", r"user failed: NameError: name 'undefined' is not defined \(.*user.py:2\)$"),
        ("def f(:", "user:f", r"importing user failed: SyntaxError: invalid syntax \(.*user.py:1\)$"),
        ("import sys; sys.exit(2)", "user:f", "importing user failed: SystemExit: 2"),
        ("import os; print('bye'); os._exit(2)", "user:f", r"import ended its process \(exit code 2\)\nend.*:\nbye$"),
        ("f = 3", "user:f", r"objective.python \(user:f\) is int, but a function is needed"),
        ("def f(): pass", "user:f", r"objective.python \(user:f\) has the signature \(\), but is called with"),
    ],
)  # fmt: skip
def test_check_says_in_one_sentence_why_the_objective_cannot_be_used(rig, source, target, message):
    with pytest.raises(ConfigError, match=message):
        rig(source, python=target)


def test_the_configs_folder_comes_first_and_stays_when_the_objective_moves(rig, tmp_path, monkeypatch):
    """A module beside the config is found from another folder, and by a late import after a change of folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder, value in ((tmp_path / "config", 1), (elsewhere, 2), (tmp_path / "shadow", 3)):
        folder.mkdir(exist_ok=True)
        (folder / "helper.py").write_text(f"value = {value}")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    source = """
        import os, sys
        def f(p):
            os.chdir("/")
            import helper
            assert "" not in sys.path and all(os.path.isabs(entry) for entry in sys.path)
            return helper.value
    """
    assert rig(source).run([{"x": 0.5}]).costs == [1.0]


def test_the_users_python_path_is_passed_on_as_it_was(rig, monkeypatch):
    source = """
        import os
        def f(p): return float(os.environ.get("PYTHONPATH", "none") == "/some/folder:/other")
    """
    monkeypatch.setenv("PYTHONPATH", "/some/folder:/other")
    assert rig(source).run([{"x": 0.5}]).costs == [1.0]


def test_importing_evaluate_and_its_child_is_light():
    code = (
        "import sys, osprey_mpi.evaluate.child;"
        "print(sorted(set(sys.modules) & {'mpi4py', 'h5py', 'pydantic', 'cupy', 'rich', 'ruamel', 'scipy', 'logging'}))"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=root, check=True)
    assert done.stdout == "[]\n"


def test_whether_to_stop_is_asked_anew_as_a_condition_and_as_a_call(tmp_path):
    class Link(Silent):
        def stopping(self, id):
            return stops

    context = Context(0, 1, tmp_path, "name", Link())
    stops, question = False, context.should_stop
    assert not context.should_stop and not context.should_stop() and not question and str(question) == "False"
    stops = True
    assert context.should_stop and context.should_stop() is True and question
    stops = False
    assert context.should_stop, "once told, always told"


def test_fixed_numbers_and_numeric_choices_are_numbers_in_a_batch() -> None:
    layouts = [
        columns.Layout("k", columns.Kind.FIXED, 0, 1, False, (3,)),
        columns.Layout("c", columns.Kind.CATEGORICAL, 1, 2, False, (1, 2.5)),
        columns.Layout("b", columns.Kind.CATEGORICAL, 2, 3, False, (False, True)),
        columns.Layout("t", columns.Kind.CATEGORICAL, 3, 4, False, ("a", 1)),
    ]
    batch = Schema(layouts).batch(np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    assert [batch[name].dtype for name in "kcbt"] == [np.dtype(int), np.dtype(float), np.dtype(bool), np.dtype(object)]
    assert batch["k"].tolist() == [3, 3] and batch["c"].tolist() == [2.5, 1.0] and batch["t"].tolist() == ["a", 1]
