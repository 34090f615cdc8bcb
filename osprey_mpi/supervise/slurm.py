"""Find out which nodes of a Slurm allocation live, and what is left of it for the next launch.

A lost node is known to Slurm only after SlurmdTimeout, five minutes at many sites. So after a lost launch every node is
called: one task on each says its name, and who has not said it in time is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from osprey_mpi.supervise.programs import beside_python, output

ASK_LIMIT_S = 30.0
CALL_LIMIT_S = 20.0  # for the first answer: Slurm may be busy with the lost step
QUIET_S = 3.0  # after one answer the others come within moments
_END_S = 1.0
_LOOK_S = 0.05
# What sinfo says of a node that cannot run ranks; with a `*` behind any state it does not respond.
_DEAD = ("down", "error", "unknown", "powered_down", "powering_down", "reboot", "no_respond")
# They go on telling of the allocation as it was, and srun and mpirun take them for orders.
_COUNTS = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_DISTRIBUTION")


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hold the nodes of a launch and how many ranks each takes."""

    ranks: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the nodes' names."""
        return tuple(self.ranks)

    @property
    def n_ranks(self) -> int:
        """Return how many ranks there are on all nodes."""
        return sum(self.ranks.values())

    def __str__(self) -> str:
        return ",".join(f"{name}:{n}" for name, n in self.ranks.items())

    def on(self, living: Sequence[str], n_ranks: int | None) -> Hosts:
        """Return the ranks of a launch on the nodes that live. n_ranks: on all nodes, None for `ranks` of each."""
        left = Hosts({name: n for name, n in self.ranks.items() if name in living})
        return left if n_ranks is None else left.shared(max(1, n_ranks * left.n_ranks // max(1, self.n_ranks)))

    def shared(self, n_ranks: int) -> Hosts:
        """Return so many ranks, shared among the nodes as these are; a node may get none."""
        total, before, given = max(1, self.n_ranks), 0, 0
        ranks: dict[str, int] = {}
        for name, n in self.ranks.items():
            before += n
            upto = -(-n_ranks * before // total)
            ranks[name], given = upto - given, upto
        return Hosts({name: n for name, n in ranks.items() if n})

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment that tells of no other nodes: mpirun and srun read from it what they may use."""
        kept = {name: value for name, value in environ.items() if name not in _COUNTS}
        names, n = ",".join(self.ranks), str(len(self.ranks))
        return {
            **kept,
            "SLURM_JOB_NODELIST": names,
            "SLURM_NODELIST": names,
            "SLURM_JOB_NUM_NODES": n,
            "SLURM_NNODES": n,
            "SLURM_TASKS_PER_NODE": ",".join(map(str, self.ranks.values())),
            "SLURM_OVERLAP": "1",  # a lost step may keep its cores booked for a while
        }


class Allocation:
    """Know the nodes of the job that we are in. n_ranks: on all of them, None for what Slurm was asked for."""

    def __init__(self, environ: Mapping[str, str], n_ranks: int | None, say: Callable[[str], None]) -> None:
        self._environ, self._n_ranks, self._say = environ, n_ranks, say
        self._job = environ["SLURM_JOB_ID"]
        names = expand(environ.get("SLURM_JOB_NODELIST", ""))
        tasks = tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", ""))
        self.whole = Hosts(dict(zip(names, tasks if len(tasks) == len(names) else [1] * len(names), strict=True)))

    def left(self, *, call: bool) -> Hosts | None:
        """Return what is left of the allocation, None where that is all of it. call: ask the nodes, not Slurm alone."""
        living = self._living(call=call)
        if len(living) == len(self.whole.ranks):
            return None
        hosts = self.whole.on(living, self._n_ranks)
        gone = ",".join(name for name in self.whole.names if name not in living)
        self._say(f"no answer from {gone}: the next launch is {hosts.n_ranks} ranks on {','.join(hosts.names)}")
        return hosts

    def _living(self, *, call: bool) -> list[str]:
        """Return the nodes that live; all where Slurm answers nothing: then the next launch shows it."""
        queue = output(["squeue", "-h", "-j", self._job, "-o", "%N"], ASK_LIMIT_S) or ""
        names = [name for name in self.whole.names if name in expand(queue.strip())] or list(self.whole.names)
        states = output(["sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N %T"], ASK_LIMIT_S) or ""
        dead = dead_nodes(states)
        names = [name for name in names if name not in dead] or names
        return (self._called(names) if call else []) or names

    def _called(self, names: Sequence[str]) -> list[str]:
        """Return which nodes start a task within the limit."""
        line = [
            beside_python("srun") or "srun", f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1",
            f"--nodelist={','.join(names)}", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mpi=none",
            "--unbuffered", "--quiet", "printenv", "SLURMD_NODENAME",
        ]  # fmt: skip
        environ = Hosts(dict.fromkeys(names, 1)).environment(self._environ)
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    line, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL
                )
            except OSError:
                return []
            answers: set[str] = set()
            deadline = time.monotonic() + CALL_LIMIT_S
            while len(answers) < len(names) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
                heard = set(os.pread(said.fileno(), 1 << 24, 0).decode(errors="replace").split())
                if len(heard) > len(answers):
                    answers, deadline = heard, time.monotonic() + QUIET_S
            _end(process)
            answers = set(os.pread(said.fileno(), 1 << 24, 0).decode(errors="replace").split())
        return [name for name in names if name in answers]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step; srun takes its tasks with it unless it waits for a node that is gone."""
    for end in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
        end()
    process.wait()


def expand(text: str) -> list[str]:
    """Return the names in a list as Slurm writes it: `n[1-2,05],login` are n1, n2, n05 and login."""
    names: list[str] = []
    for item in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names += _expanded(item)
    return names


def _expanded(item: str) -> list[str]:
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    ranges, _, tail = rest.partition("]")
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdigit() and last.isdigit()):
            return [item]
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return [f"{head}{number}{end}" for number in numbers for end in (_expanded(tail) if tail else [""])]


def tasks_per_node(text: str) -> list[int]:
    """Return the numbers in SLURM_TASKS_PER_NODE, one per node: `16(x2),8` are 16, 16 and 8; [] if it is none."""
    tasks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            return []
        tasks += [int(found[1])] * int(found[2] or 1)
    return tasks


def dead_nodes(states: str) -> set[str]:
    """Return the nodes that cannot run ranks, from lines `NAME STATE` of `sinfo -N -o '%N %T'`."""
    dead = set()
    for line in states.splitlines():
        name, _, state = line.strip().partition(" ")
        if state.endswith("*") or state.strip().lower().startswith(_DEAD):
            dead.add(name)
    return dead
