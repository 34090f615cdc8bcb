"""Hear that other ranks are there, in a thread with a UDP socket: MPI does not see a rank that is stopped, and without
ULFM none that has ended.

The thread answers while the rank itself evaluates, writes or waits in MPI; only a process that is stopped, or whose
interpreter is held, is silent. The rules are those of `continuity/ring.py`. Whoever is lost must never write again: it
leaves when it hears of it, and the ranks of its host end it at once, because a process that is stopped keeps the lock
of the run's folder, and its launcher waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from osprey_mpi.continuity.ring import Kind, Ring, Say
from osprey_mpi.processes import is_running, started_at
from osprey_mpi.waiting import readable

Place = tuple[str, int]  # host and port of a socket

_HEAD = struct.Struct("!8sBI")  # the receiver's token, kind, the sender's rank; the ranks that are lost follow
_SIOCGIFADDR = 0x8915  # of Linux: the IPv4 address of an interface
_LARGEST_BYTES = 65507
_MARKS = ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/net", "/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Address:
    """Tell where a rank listens, and which process it is.

    name: of its host. host: the same for those that share its loopback and see its processes, '' where that cannot be
    known. token: what comes for it begins so; anything else is not for it. started_at: tells its process from a later
    one of its number.
    """

    name: str
    host: str
    places: tuple[str, ...]
    port: int
    token: bytes
    pid: int
    started_at: int


class Heart:
    """Answer other ranks, watch the next ones. lost: ranks that are lost for good.

    leave: ends this process, which the others take for lost; gets the reason. Without a socket nobody hears of this
    rank, and nobody judges it.
    """

    def __init__(self, rank: int, leave: Callable[[str], NoReturn]) -> None:
        self.rank, self._leave = rank, leave
        self.lost: frozenset[int] = frozenset()
        self.address: Address | None = None
        self._ring: Ring | None = None
        self._lock = threading.Lock()
        self._is_over = False
        self._others: dict[int, Address] = {}  # of this world and of earlier ones: those must hear that they are lost
        self._heard_at: dict[int, Place] = {}  # whence they were heard: the way that works
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            self._socket.setblocking(False)
            self._socket.bind(("", 0))
            port, pid = self._socket.getsockname()[1], os.getpid()
            self.address = Address(
                socket.gethostname(), _host(), _places(), port, os.urandom(8), pid, started_at(pid)
            )

    def meet(self, addresses: Mapping[int, Address | None], limit_s: float) -> None:
        """Watch over these ranks from now on, by rank; all of them are judged."""
        with self._lock:
            members = {rank: address for rank, address in addresses.items() if address is not None}
            self._others |= members
            if self.rank not in members:
                return
            if self._ring is None:
                self._ring = Ring(self.rank, (), limit_s, time.monotonic())
                self._ring.condemn(self.lost)
            self._ring.meet(sorted(members))
        if not self._thread.is_alive():
            self._thread.start()

    def judge(self, vital: Collection[int] | None) -> None:
        """Take the silence of these ranks, and no others, for a loss; None: of all."""
        with self._lock:
            if self._ring is not None:
                self._ring.judge(vital, time.monotonic())

    def condemn(self, ranks: Iterable[int]) -> None:
        """Take ranks for lost that somebody knows to be; all others hear of it."""
        with self._lock:
            if self._ring is None:
                self.lost |= frozenset(ranks)
            else:
                self._ring.condemn(ranks)

    def processes(self, ranks: Iterable[int]) -> set[tuple[str, int]]:
        """Return hosts and process ids of ranks, as far as they are known."""
        known = (self._others.get(rank) for rank in ranks)
        return {(address.name, address.pid) for address in known if address is not None}

    def close(self) -> None:
        """Leave the others in order: they do not take this rank for lost."""
        with self._lock:
            self._is_over = True
            if self._ring is not None:
                self._say(self._ring.leave())
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                self._socket.sendto(b"", ("127.0.0.1", self._socket.getsockname()[1]))  # it may sleep
            self._thread.join()
        self._socket.close()

    # in the thread

    def _beat(self) -> None:
        due = time.monotonic()
        while not self._is_over:
            readable([self._socket.fileno()], max(0.0, due - time.monotonic()))
            with self._lock:
                assert self._ring is not None
                if self._is_over:
                    return
                self._take_in(self._ring)
                now = time.monotonic()
                if now >= due:
                    due = now + self._ring.period_s
                    self._ring.condemn(rank for rank in self._ring.asked if not self._is_there(rank))
                    self._say(self._ring.tick(now))
                self._reckon(self._ring)

    def _take_in(self, ring: Ring) -> None:
        assert self.address is not None
        with contextlib.suppress(OSError):  # BlockingIOError: that was all
            while True:
                data, place = self._socket.recvfrom(_LARGEST_BYTES)
                if len(data) < _HEAD.size or (len(data) - _HEAD.size) % 4:
                    continue
                token, kind, source = _HEAD.unpack_from(data)
                if token != self.address.token or source not in self._others or kind not in _KINDS:
                    continue
                self._heard_at[source] = place
                lost = struct.unpack_from(f"!{(len(data) - _HEAD.size) // 4}I", data, _HEAD.size)
                self._say(ring.hear(source, Kind(kind), lost, time.monotonic()))

    def _reckon(self, ring: Ring) -> None:
        """Do what new losses ask for."""
        if ring.is_out:
            self._leave(f"it was silent for more than {ring.limit_s:g} s")
        new, self.lost = ring.lost - self.lost, self.lost | ring.lost
        for rank in new:
            if self._is_near(rank) and self._is_there(rank):
                with contextlib.suppress(OSError):
                    os.kill(self._others[rank].pid, signal.SIGKILL)

    def _say(self, says: Sequence[Say]) -> None:
        if self._ring is None:
            return
        lost = struct.pack(f"!{len(self._ring.lost)}I", *self._ring.lost)
        for say in says:
            address = self._others.get(say.rank)
            if address is None:
                continue
            data = _HEAD.pack(address.token, say.kind.value, self.rank) + lost
            for place in self._ways(say.rank, address):
                with contextlib.suppress(OSError):
                    self._socket.sendto(data, place)

    def _ways(self, rank: int, address: Address) -> list[Place]:
        if rank in self._heard_at:
            return [self._heard_at[rank]]
        places = ("127.0.0.1",) if self._is_near(rank) else address.places
        return [(place, address.port) for place in places]

    def _is_near(self, rank: int) -> bool:
        """Tell whether a rank is on this host."""
        assert self.address is not None
        return rank in self._others and self.address.host == self._others[rank].host != ""

    def _is_there(self, rank: int) -> bool:
        """Tell whether the process of a rank exists, as far as this host can know."""
        address = self._others[rank]
        return not self._is_near(rank) or is_running(address.pid, address.started_at)


@contextlib.contextmanager
def judging(heart: Heart | None, vital: Collection[int]) -> Iterator[None]:
    """Take within a block the silence of these ranks alone for a loss: any other that is slow is not lost."""
    if heart is not None:
        heart.judge(vital)
    try:
        yield
    finally:
        if heart is not None:
            heart.judge(None)


_KINDS = frozenset(kind.value for kind in Kind)


def _host() -> str:
    """Return what ranks have in common that share their loopback and their processes."""
    try:
        boot, *spaces = _MARKS
        return " ".join([Path(boot).read_text().strip(), *(str(Path(space).readlink()) for space in spaces)])
    except OSError:
        return ""


def _places() -> tuple[str, ...]:
    """Return the IPv4 addresses of this host's networks."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return tuple(place for place in found if not place.startswith("127."))
