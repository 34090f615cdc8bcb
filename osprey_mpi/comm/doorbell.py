"""Wake ranks of the same host that sleep: MPI has no way to wait for a message that lets the core go.

After each message its sender rings: an empty datagram to the receiver's socket in the abstract namespace, which a
`poll` can wait for. Nothing depends on a ring: who cannot be reached looks for messages now and then, and one ring too
many costs one look.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

Address = tuple[str, bytes]  # of a host and network namespace, and the socket's name there

MOST_RINGS = 1024  # more than a socket queues by default (net.unix.max_dgram_qlen)
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/net")


class Doorbell:
    """Be woken by other ranks, and wake them. Where the system has no such sockets nobody can reach this rank."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.address: Address | None = None
        self._others: dict[int, bytes] = {}
        try:
            host = f"{_BOOT.read_text().strip()} {_NAMESPACE.readlink()}"
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.bind("")  # Linux chooses a free name
            self.address = host, self._socket.getsockname()
        except OSError:
            self.close()

    def meet(self, addresses: Mapping[int, Address | None]) -> None:
        """Learn the addresses of all ranks, by rank."""
        if self.address is not None:
            here = self.address[0]
            self._others = {rank: a[1] for rank, a in addresses.items() if a is not None and a[0] == here}

    def reaches(self, ranks: Iterable[int]) -> bool:
        """Tell whether all these ranks and this one can ring each other."""
        return all(rank in self._others for rank in ranks)

    def ring(self, rank: int) -> None:
        """Wake a rank if it can be reached."""
        name = self._others.get(rank)
        if name is None or self._socket is None:
            return
        with contextlib.suppress(OSError):  # it is gone, or has been rung ten times and has not looked yet
            self._socket.sendto(b"", name)

    def filenos(self) -> list[int]:
        """Return what a poll must wait for."""
        return [] if self._socket is None else [self._socket.fileno()]

    def silence(self) -> None:
        """Forget the rings so far, however fast new ones come; a look for messages must follow."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # BlockingIOError: that was all
                for _ in range(MOST_RINGS):
                    self._socket.recv(1)

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self.address = None, None
