"""A real Slurm on one machine: every node has namespaces of its own (network, host name, processes, /dev/shm).

All of it lives in one outer namespace, whose end is the end of every daemon, mount and link. Needs root, and Debian's
packages slurm-wlm, munge and iproute2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "ip", "unshare", "nsenter")
_NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")
_UNSHARE = ("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", "bash", "-c")
_START_S = _STOP_S = 20.0

# A requeued job waits for cred_expire, at least 5 s; a node is down about 15 s after its last sign of life.
_CONF = """\
ClusterName=osprey
SlurmctldHost=control(198.18.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
PriorityType=priority/basic
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=6
MessageTimeout=5
TCPTimeout=1
KillWait=3
NodeName=n[1-{n}] NodeAddr=198.18.0.[1-{n}] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=n[1-{n}] Default=YES MaxTime=INFINITE State=UP
"""
_CONTROL = """\
hostname control; mount --bind "$1/hosts" /etc/hosts
ip link set lo up; ip link add br0 type bridge; ip addr add 198.18.0.254/24 dev br0; ip link set br0 up
munged --key-file="$1/munge.key" --socket="$1/munge.sock" --pid-file="$1/munged.pid" --log-file="$1/munged.log" \\
    --seed-file="$1/munge.seed" --num-threads=4 --force || exit 1
slurmctld -c -D & touch "$1/ready"
trap 'exit 0' TERM; wait
"""
# Slurm's PMIx plugin opens libpmix.so, a name that Debian has in libpmix-dev alone: the nodes see it, nobody else.
_PMIX = next(Path("/usr/lib").glob("*/pmix2/lib"), None)
_NODE = """\
[ ! -d "$1/pmix" ] || mount --bind "$1/pmix" "$3"
hostname "n$2"; mount --bind "$1/hosts" /etc/hosts; mount -t tmpfs tmpfs /dev/shm; ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip addr add "198.18.0.$2/24" dev eth0; ip link set eth0 up
mkdir -p "$1/spool-n$2" "$1/tmp-n$2"
slurmd -D -N "n$2"
"""


def lacking() -> str:
    """Return why there can be no cluster here, '' if there can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (slurm-wlm, munge, iproute2)" if missing else ""


class Cluster:
    """Run slurmctld and `n_nodes` nodes n1, n2, ...; use it in a `with`."""

    def __init__(self, folder: Path, n_nodes: int) -> None:
        self.folder, self.n_nodes = folder, n_nodes
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._control: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        self.folder.mkdir(mode=0o755)
        names = "".join(f"198.18.0.{i} n{i}\n" for i in range(1, self.n_nodes + 1))
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n198.18.0.254 control\n{names}")
        (self.folder / "slurm.conf").write_text(_CONF.format(folder=self.folder, n=self.n_nodes))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        (self.folder / "state").mkdir()
        if _PMIX is not None and not (_PMIX / "libpmix.so").exists():
            shutil.copytree(_PMIX, self.folder / "pmix", symlinks=True)
            (self.folder / "pmix" / "libpmix.so").symlink_to("libpmix.so.2")
        try:
            # It ends with this process, however that ends, and all the rest with it.
            outer = ["setpriv", "--pdeathsig", "KILL", *_UNSHARE, _CONTROL, "_", str(self.folder)]
            self._control = self._start("control", outer)
            deadline = time.monotonic() + _START_S
            while not (self.folder / "ready").exists():
                assert time.monotonic() < deadline, self.logs()
                time.sleep(0.02)
            for i in range(1, self.n_nodes + 1):
                self.boot(f"n{i}")
            self.wait_until_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._nodes.values(), self._control):
            if process is not None:
                _cut(process)

    def boot(self, node: str) -> None:
        """Start a node."""
        inside = [*_UNSHARE, _NODE, "_", str(self.folder), node[1:], str(_PMIX)]
        process = self._nodes[node] = self._start(node, [*self._enter(), *inside])
        # nsenter -> unshare -> the first process of the node
        first = _child(_child(process.pid))
        # A lost node's link goes with its namespace, but only when the kernel finds the time.
        self._link("del", f"veth-{node}", check=False)
        self._link("add", f"veth-{node}", "type", "veth", "peer", "name", "eth0", "netns", str(first))
        self._link("set", f"veth-{node}", "master", "br0", "up")

    def kill(self, node: str) -> None:
        """Cut a node's power: all of its processes are gone at once."""
        _cut(self._nodes.pop(node))

    def cut_power(self, node: str) -> None:
        """Cut a node's power as the others see it: no connection is closed, it just says nothing more."""
        self.set_link(node, "down")
        self.kill(node)

    def set_link(self, node: str, state: str) -> None:
        """Take a node off the network ("down"), silently, while it runs on; or bring it back ("up")."""
        self._link("set", f"veth-{node}", state)

    def run(self, *command: object, timeout_s: float = 20.0, environment: dict[str, str] | None = None) -> str:
        """Run a client of Slurm and return its output."""
        done = subprocess.run(
            [*self._enter(), *map(str, command)], env={**self.environment, **(environment or {})},
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def wait_until_idle(self, timeout_s: float = 30.0) -> None:
        """Boot what was killed, and wait until every node is idle."""
        for i in range(1, self.n_nodes + 1):
            if f"n{i}" not in self._nodes:
                self.boot(f"n{i}")
        deadline = time.monotonic() + timeout_s
        states: list[str] = []
        while states != ["idle"] * self.n_nodes:
            assert time.monotonic() < deadline, (states, self.logs())
            time.sleep(0.1)
            line = [*self._enter(), "sinfo", "-h", "-N", "-o", "%T"]
            done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=20, check=False)
            states = done.stdout.split()

    def logs(self) -> str:
        """Return the ends of all logs of the daemons."""
        return "\n".join(f"{path.name}:\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))

    def _start(self, name: str, line: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out.log").open("ab") as log:
            return subprocess.Popen(
                line, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _link(self, *words: str, check: bool = True) -> None:
        into = ["nsenter", "-t", str(self._first()), "--net", "ip", "link"]
        subprocess.run([*into, *words], check=check, capture_output=True, timeout=10)

    def _first(self) -> int:
        assert self._control is not None
        return _child(self._control.pid)

    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self._first()), *_NAMESPACES]


def _child(pid: int, timeout_s: float = 10.0) -> int:
    """Return the only child of a process, once it is there."""
    deadline = time.monotonic() + timeout_s
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < deadline, f"process {pid} has no child"
        time.sleep(0.01)
    return int(children[0])


def _cut(process: subprocess.Popen[bytes]) -> None:
    """End the process, and its descendants down to the first process of a namespace, with which all others end."""
    pids = [process.pid]
    while len(pids) < 3:
        children = Path(f"/proc/{pids[-1]}/task/{pids[-1]}/children")
        found = children.read_text().split() if children.exists() else []
        if not found:
            break
        pids.append(int(found[0]))
    for pid in reversed(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(_STOP_S)
