"""The thread that answers other ranks, between processes of this host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from osprey_mpi.comm import heartbeat
from osprey_mpi.comm.heartbeat import Address, Heart

LIMIT_S = 2.0  # a process that has its turn after a second is no stopped one
PEER = """
import pickle, sys, time
from osprey_mpi.comm import heartbeat
rank, is_apart = int(sys.argv[1]), sys.argv[2] == "apart"
if is_apart:
    heartbeat._host = lambda: str(rank)
    heartbeat._places = lambda: ("127.0.0.1",)
def leave(why):
    sys.stderr.write(why)
    sys.stderr.flush()
    import os
    os._exit(9)
heart = heartbeat.Heart(rank, leave)
sys.stdout.buffer.write(pickle.dumps(heart.address).hex().encode() + b"\\n")
sys.stdout.flush()
heart.meet(pickle.loads(bytes.fromhex(sys.stdin.readline())), float(sys.argv[3]))
if sys.stdin.readline() == "close\\n":
    heart.close()
    time.sleep(60.0)
"""


class Peer:
    """Be another rank's process."""

    def __init__(self, rank: int, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, str(rank), how, str(LIMIT_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        import pickle

        assert self.process.stdout is not None
        self.address: Address = pickle.loads(bytes.fromhex(self.process.stdout.readline()))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@pytest.fixture
def together() -> Any:
    """Return a function that makes this process rank 0 beside others."""
    made: list[Any] = []

    def make(n: int, how: str = "near") -> tuple[Heart, dict[int, Peer]]:
        import pickle

        heart = Heart(0, lambda why: pytest.fail(why))  # type: ignore[arg-type, return-value]
        made.append(heart)
        peers = {rank: Peer(rank, how) for rank in range(1, n)}
        made.extend(peer.process for peer in peers.values())
        addresses = {0: heart.address} | {rank: peer.address for rank, peer in peers.items()}
        for peer in peers.values():
            peer.say(pickle.dumps(addresses).hex())
        heart.meet(addresses, LIMIT_S)
        assert until(lambda: len(heart._heard_at) == n - 1)
        return heart, peers

    yield make
    for item in reversed(made):
        if isinstance(item, Heart):
            item.close()
        else:
            item.kill()
            item.communicate()


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_a_process_that_has_ended_is_lost_at_once(together: Any) -> None:
    heart, peers = together(3)
    peers[1].process.kill()
    began = time.monotonic()
    assert until(lambda: heart.lost == {1}) and time.monotonic() - began < LIMIT_S


def test_a_process_of_this_host_that_is_stopped_is_ended(together: Any) -> None:
    """Though it is not the one that judges it which can see that: all do."""
    heart, peers = together(3)
    os.kill(peers[2].process.pid, signal.SIGSTOP)
    assert until(lambda: heart.lost == {2}) and peers[2].process.wait(20.0) == -signal.SIGKILL


def test_a_process_of_another_host_leaves_when_it_goes_on(together: Any) -> None:
    heart, peers = together(3, "apart")
    os.kill(peers[1].process.pid, signal.SIGSTOP)
    assert until(lambda: heart.lost == {1})
    time.sleep(0.5)
    assert peers[1].process.poll() is None
    os.kill(peers[1].process.pid, signal.SIGCONT)
    assert peers[1].process.wait(20.0) == 9
    assert peers[1].process.communicate()[1] == "it was silent for more than 2 s"
    assert heart.processes([0, 1, 7]) == {(socket.gethostname(), os.getpid()), (socket.gethostname(), pid_of(peers[1]))}


def pid_of(peer: Peer) -> int:
    return peer.process.pid


def test_who_closes_is_neither_lost_nor_ended(together: Any) -> None:
    heart, peers = together(3)
    peers[2].say("close")
    time.sleep(2.0 * LIMIT_S)
    assert heart.lost == frozenset() and peers[2].process.poll() is None


def test_foreign_datagrams_are_nothing(together: Any) -> None:
    """Without the token, of an unknown rank or cut off: no rank is lost for them."""
    heart, _ = together(2)
    assert heart.address is not None
    token = heart.address.token
    head = heartbeat._HEAD
    place = ("127.0.0.1", heart.address.port)
    lost = (1).to_bytes(4, "big")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (
            b"", b"hello", head.pack(b"x" * 8, 0, 1) + lost, head.pack(token, 0, 7) + lost,
            head.pack(token, 9, 1) + lost, head.pack(token, 0, 1) + lost[:3],
        ):  # fmt: skip
            stranger.sendto(data, place)
        time.sleep(0.5)
        assert heart.lost == frozenset()
        stranger.sendto(head.pack(token, 0, 1) + (3).to_bytes(4, "big"), place)
    assert until(lambda: heart.lost == {3})


def test_a_rank_without_a_socket_is_judged_by_nobody() -> None:
    heart = Heart(0, lambda why: pytest.fail(why))  # type: ignore[arg-type, return-value]
    heart.meet({0: None, 1: None}, LIMIT_S)
    heart.condemn([1])
    assert heart.lost == {1} and not heart._thread.is_alive()
    heart.close()
