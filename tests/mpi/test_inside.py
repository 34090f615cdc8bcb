"""The MPI edge from inside: `mpirun -n 4 python -m pytest --only-mpi tests/mpi/test_inside.py`.

Every rank gathers what all ranks have seen before anybody asserts, so that no rank waits for one whose test failed.
The last test starts this file on four ranks when pytest itself runs alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch import launch

N = 4
SIZES = (0, 1, 255, 256, 257, 4096, 16_384, 16_385, 100_000, 1 << 20)
LIMIT_S = 20.0

inside = pytest.mark.mpi(min_size=N)


@pytest.fixture
def comm() -> Any:
    """Return a communicator of four ranks; what one test leaves behind is not seen by the next."""
    from mpi4py import MPI

    own = MPI.COMM_WORLD.Dup()
    yield own
    own.Barrier()
    own.Free()


def until(condition: Callable[[], bool]) -> bool:
    """Ask until it holds, for a bounded time."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def is_open_mpi() -> bool:
    """Tell whether the library is Open MPI."""
    from mpi4py import MPI

    return "Open MPI" in MPI.Get_library_version()


def pattern(source: int, number: int, size: int) -> bytes:
    """Return bytes that tell who sent them and when."""
    return bytes([(source * 31 + number * 7 + 1) % 256]) * size


@inside
def test_messages_arrive_whole_in_order_and_once(comm: Any) -> None:
    """All ranks send to all others at once, 0 B to 1 MB, more than there are slots."""
    from osprey_mpi.comm.channel import MpiChannel

    channel = MpiChannel(comm)
    others = [rank for rank in range(N) if rank != comm.rank]
    for number, size in enumerate(SIZES):
        for rank in others:
            channel.send(rank, number % 3, pattern(comm.rank, number, size))
    seen: dict[int, list[tuple[int, bytes]]] = {rank: [] for rank in others}

    def complete() -> bool:
        for source, tag, data in channel.poll():
            seen[source].append((tag, bytes(data)))
        return all(len(found) == len(SIZES) for found in seen.values())

    arrived = until(complete)
    left = until(channel.idle)
    time.sleep(0.02)
    more = channel.poll()
    right = all(
        found == [(number % 3, pattern(source, number, size)) for number, size in enumerate(SIZES)]
        for source, found in seen.items()
    )
    truth = comm.allgather((arrived, left, right, len(more)))
    assert truth == [(True, True, True, 0)] * N


@inside
def test_a_receiver_that_does_not_listen_stops_its_sender_and_nobody_else(comm: Any) -> None:
    """Backpressure: large messages fill the slots, sendable() says so, nothing blocks; other receivers get theirs."""
    from osprey_mpi.comm.channel import SLOTS, MpiChannel

    channel = MpiChannel(comm)
    n_messages, size = SLOTS + 3, 1 << 20
    seen: list[tuple[int, int]] = []
    facts: dict[str, Any] = {}
    if comm.rank == 0:
        began = time.monotonic()
        facts["before"] = channel.sendable(1)
        for number in range(n_messages):
            channel.send(1, 0, pattern(0, number, size))
        facts["after"] = channel.sendable(1)
        channel.send(2, 5, b"past it")
        facts["other"] = until(lambda: channel.sendable(2))
        facts["quick"] = time.monotonic() - began < 5.0
        for _ in range(100):
            channel.poll()
            time.sleep(0.001)
        facts["still"], facts["idle"] = channel.sendable(1), channel.idle()
    if comm.rank == 2:
        facts["heard"] = until(lambda: any(tag == 5 for _, tag, _ in channel.poll()))
    request = comm.Ibarrier()  # rank 1 takes no message in before rank 2 has heard its own
    if comm.rank != 0:
        until(request.Test)
    else:
        until(lambda: bool(request.Test()))

    def listen() -> bool:
        if comm.rank == 1:
            seen.extend((data.nbytes, data[0]) for _, _, data in channel.poll())
            return len(seen) == n_messages
        return channel.idle() if comm.rank == 0 else True

    facts["end"] = until(listen)
    facts["right"] = comm.rank != 1 or seen == [(size, pattern(0, number, 1)[0]) for number in range(n_messages)]
    truth = comm.allgather(facts)
    assert truth[0] == {
        "before": True, "after": False, "other": True, "quick": True, "still": False, "idle": False, "end": True,
        "right": True,
    }  # fmt: skip
    assert truth[1] == {"end": True, "right": True}
    assert truth[2] == {"heard": True, "end": True, "right": True}


@inside
def test_a_large_message_from_a_sender_that_is_busy_holds_nobody_else_up(comm: Any) -> None:
    """What comes in parts is waited for beside the others; what its sender sent after it comes after it."""
    from osprey_mpi.comm.channel import MpiChannel

    channel = MpiChannel(comm)
    seen: list[tuple[int, int]] = []
    small_after_s = 0.0
    comm.Barrier()
    began = time.monotonic()
    if comm.rank == 1:
        channel.send(0, 0, pattern(1, 0, 1 << 22))
        channel.send(0, 1, b"after it")
        time.sleep(1.0)  # evaluates: MPI gets no help from here
    if comm.rank == 2:
        time.sleep(0.2)
        channel.send(0, 2, b"small")

    def complete() -> bool:
        nonlocal small_after_s
        for _, tag, data in channel.poll():
            seen.append((tag, data.nbytes))
            small_after_s = time.monotonic() - began if tag == 2 else small_after_s
        return comm.rank != 0 or len(seen) == 3

    arrived, left = until(complete), until(channel.idle)
    in_order = [item for item in seen if item[0] != 2]
    truth = comm.allgather((arrived, left, in_order, small_after_s < 0.9))
    assert truth == [(True, True, [(0, 1 << 22), (1, 8)], True), *[(True, True, [], True)] * 3]


@inside
def test_a_bell_wakes_a_rank_that_sleeps(comm: Any) -> None:
    """A message to a rank of this host wakes its poll; after a hundred rings one silence is enough."""
    import select

    from osprey_mpi.comm.channel import MpiChannel
    from osprey_mpi.comm.doorbell import Doorbell

    bell = Doorbell()
    bell.meet(dict(enumerate(comm.allgather(bell.address))))
    facts: dict[str, Any] = {"reaches": bell.reaches(range(N)), "beyond": bell.reaches([N])}
    channel = MpiChannel(comm, bell)
    poller = select.poll()
    for fileno in bell.filenos():
        poller.register(fileno, select.POLLIN)
    for _ in range(100 if comm.rank == 0 else 0):
        bell.ring(1)
    comm.Barrier()
    if comm.rank == 1:
        facts["rung"] = bool(poller.poll(1000.0))
        bell.silence()
        facts["silent"] = not poller.poll(0)
    comm.Barrier()
    if comm.rank == 0:
        time.sleep(0.3)
        channel.send(1, 0, b"wake up")
        channel.ring()
    if comm.rank == 1:
        began = time.monotonic()
        facts["woken"] = bool(poller.poll(5000.0)) and 0.1 < time.monotonic() - began < 2.0
        seen = [bytes(data) for _, _, data in channel.poll()]
        facts["one look"] = seen if is_open_mpi() else [b"wake up"]
        seen or until(lambda: bool(channel.poll()))
    until(channel.idle)
    truth = comm.allgather(facts)
    bell.close()
    bell.ring(0)  # nothing, as when nobody is there any more
    every = {"reaches": True, "beyond": False}
    woken = every | {"rung": True, "silent": True, "woken": True, "one look": [b"wake up"]}
    assert truth == [every, woken, every, every]


@inside
def test_the_last_word_reaches_all_or_its_absence_is_said(comm: Any) -> None:
    """Every rank gets rank 0's value; where rank 0 does not come, the others do not wait for ever."""
    from osprey_mpi.comm.channel import drain
    from osprey_mpi.comm.ending import share
    from osprey_mpi.comm.failures import Failures
    from osprey_mpi.comm.mail import Mail, Tag
    from osprey_mpi.comm.startup import World
    from osprey_mpi.errors import RunLost

    mail = Mail(comm, Failures(comm, tolerant=False))
    world = World(comm, comm.rank, tuple(range(N)), "", "none", owns_mpi=False, mail=mail)
    value = {"text": "x" * 100_000} if comm.rank == 0 else None
    heard = share(world, value, 10.0) == {"text": "x" * 100_000}
    comm.Barrier()
    said = ""
    if comm.rank == 0:
        time.sleep(1.0)
    try:
        share(world, value, 0.2)
    except RunLost as error:
        said = str(error)
    truth = comm.allgather((heard, said))
    came = comm.rank == 0 or until(lambda: bool(comm.iprobe(source=0, tag=Tag.RESULT)))
    drain(comm)
    assert came, "what nobody waited for any more"
    late = "rank 0 has said nothing for 0.4 s at the end"
    assert truth == [(True, ""), *[(True, late)] * 3]


@inside
def test_small_messages_leave_though_nobody_listens(comm: Any) -> None:
    """A worker that evaluates does not hold its leader up: what a delta or an order weighs completes by itself."""
    from osprey_mpi.comm.channel import MpiChannel

    channel = MpiChannel(comm)
    left = True
    if comm.rank == 0:
        for _ in range(3):
            channel.send(1, 0, bytes(2500))
        left = until(channel.idle)
    comm.Barrier() if comm.rank != 1 else _sleep_then_enter(comm)
    n_seen = 0
    if comm.rank == 1:
        deadline = time.monotonic() + LIMIT_S
        while n_seen < 3 and time.monotonic() < deadline:
            n_seen += len(channel.poll())
    left = left or not is_open_mpi()  # with MPICH they leave once the receiver looks
    assert comm.allgather((left, n_seen)) == [(True, 0), (True, 3), (True, 0), (True, 0)]


def _sleep_then_enter(comm: Any) -> None:
    time.sleep(0.5)
    comm.Barrier()


@inside
@pytest.mark.parametrize(
    ("flock_size", "ranks_each", "flocks", "leaders", "groups"),
    [
        (16, 1, [(4, 0), (4, 1), (4, 2), (4, 3)], [(1, 0), None, None, None], [None] * 4),
        (1, 1, [None, (2, 0), (2, 1), (1, 0)], [(3, 0), (3, 1), None, (3, 2)], [None] * 4),
        (16, 2, [(2, 0), (2, 1), None, None], [(1, 0), None, None, None], [None, (2, 0), (2, 1), None]),
        (16, 4, [(1, 0), None, None, None], [(1, 0), None, None, None], [(4, 0), (4, 1), (4, 2), (4, 3)]),
    ],
)
def test_split(comm: Any, flock_size: int, ranks_each: int, flocks: Any, leaders: Any, groups: Any) -> None:
    """Each communicator holds its members and nobody else, in the order of the ranks: (size, rank) for each rank."""
    from osprey_mpi.comm import tree

    made = tree.split(comm, tree.plan(N, flock_size, ranks_each), comm.rank)
    mine = [None if part is None else (part.size, part.rank) for part in (made.flock, made.leaders, made.group)]
    sums = [None if part is None else part.allreduce(1) for part in (made.flock, made.leaders, made.group)]
    truth = comm.allgather((mine, sums))
    tree.free(made)
    for kind, expected in enumerate((flocks, leaders, groups)):
        assert [found[kind] for found, _ in truth] == expected
        assert [total[kind] for _, total in truth] == [None if part is None else part[0] for part in expected]


@inside
def test_agreement(comm: Any) -> None:
    """An error on one rank is raised on all; only rank 0 has the words and the class."""
    from osprey_mpi.comm.startup import World
    from osprey_mpi.drivers.agree import everywhere, on_root
    from osprey_mpi.errors import ConfigError, EnvironmentFault, OspreyError

    world = World(comm, comm.rank, tuple(range(comm.size)), "", "none", owns_mpi=False)

    def refuse(rank: int, error: OspreyError) -> Callable[[], None]:
        def task() -> None:
            if comm.rank == rank:
                raise error

        return task

    caught = []
    for attempt in (
        lambda: on_root(world, refuse(0, ConfigError("first"))),
        lambda: everywhere(world, refuse(2, EnvironmentFault("second"))),
        lambda: everywhere(world, refuse(-1, ConfigError("never"))),
    ):
        try:
            attempt()
            caught.append(None)
        except OspreyError as error:
            caught.append((type(error).__name__, str(error), int(error.exit_code)))
    truth = comm.allgather(caught)
    assert truth == [[("ConfigError", "first", 2), ("EnvironmentFault", "rank 2: second", 4), None]] * N


@inside
def test_a_world_made_anew_talks_from_rank_to_rank(comm: Any) -> None:
    """Regrouping without a loss keeps everybody; what is done together there comes to what MPI's collectives give."""
    from osprey_mpi.comm import collectives
    from osprey_mpi.comm.failures import Failures
    from osprey_mpi.comm.mail import Mail
    from osprey_mpi.comm.regroup import regroup
    from osprey_mpi.comm.startup import World

    mail = Mail(comm, Failures(comm, tolerant=False))
    before = World(comm, comm.rank, tuple(range(N)), "", "none", owns_mpi=False, mail=mail)
    worlds = [regroup(before, 10.0)[0]]
    worlds.append(regroup(worlds[0], 10.0)[0])
    rank = comm.rank
    found = [
        [
            world.epoch, world.members, collectives.broadcast(world, {"of": rank}),
            collectives.gather(world, rank * "x"), collectives.allgather(world, rank),
            collectives.scatter(world, [10 * i for i in range(N)] if rank == 0 else None),
            collectives.local_place(world),
        ]
        for world in (before, *worlds)
    ]  # fmt: skip
    for rank, parts in enumerate(comm.allgather(found)):
        gathered = ["", "x", "xx", "xxx"] if rank == 0 else None
        rest = [(0, 1, 2, 3), {"of": 0}, gathered, [0, 1, 2, 3], 10 * rank, (rank, N)]
        assert parts == [[epoch, *rest] for epoch in range(3)]


@inside
def test_who_regroups_when_the_run_is_over_gets_its_result(comm: Any) -> None:
    """A rank that loses its leader after the root's goodbye is no reason to wait, and misses nothing.

    What it holds is handed over as well as what the others hold, however large it is.
    """
    from osprey_mpi.comm.ending import assemble, share
    from osprey_mpi.comm.failures import Failures, RunIsOver
    from osprey_mpi.comm.mail import Mail
    from osprey_mpi.comm.regroup import regroup
    from osprey_mpi.comm.startup import World

    mail = Mail(comm, Failures(comm, tolerant=False))
    world = World(comm, comm.rank, tuple(range(N)), "", "none", owns_mpi=False, mail=mail)
    got, began_s = None, time.monotonic()
    held = [bytes([comm.rank]) * size for size in SIZES]
    if comm.rank == 3:
        try:
            regroup(world, 10.0, held)
        except RunIsOver as over:
            got = over.result
    else:
        assembly = assemble(world, 10.0, held)
        everybodys = sorted(bytes([rank]) * size for rank in range(N) for size in SIZES)
        assert (sorted(assembly.held), assembly.missing) == ([] if comm.rank else everybodys, frozenset())
        got = share(world, "the result" if comm.rank == 0 else None, 10.0)
    assert comm.allgather((got, time.monotonic() - began_s < 5.0)) == [("the result", True)] * N


@inside
def test_mail_arrives_whole_in_order_and_is_waited_for_by_nobody(comm: Any) -> None:
    """Values of any size; a large one whose sender does not help yet is not there, and nobody waits for it."""
    from osprey_mpi.comm.failures import Failures
    from osprey_mpi.comm.mail import Mail

    mail, values = Mail(comm, Failures(comm, tolerant=False)), [b"x" * size for size in SIZES]
    late_s, got = 0.0, []
    if comm.rank == 0:
        for value in values:
            mail.post(1, value, 7)
        time.sleep(0.3)
        mail.flush(LIMIT_S)
    elif comm.rank == 1:
        deadline = time.monotonic() + LIMIT_S
        while len(got) < len(values) and time.monotonic() < deadline:
            began_s = time.monotonic()
            word = mail.receive(0, 7)
            late_s = max(late_s, time.monotonic() - began_s)
            got += [] if word is None else [word[0]]
            time.sleep(0.001)
    truth = comm.allgather((got == values, late_s < 0.2))
    assert truth == [(False, True), (True, True), (False, True), (False, True)]


@inside
def test_what_was_sent_in_another_world_is_dropped(comm: Any) -> None:
    from osprey_mpi.comm.channel import MpiChannel

    old, new = MpiChannel(comm), MpiChannel(comm, epoch=3)
    if comm.rank == 0:
        old.send(1, 2, b"old")
        new.send(1, 2, b"new")
    got: list[tuple[int, int, bytes]] = []

    def arrived() -> bool:
        got.extend((source, tag, bytes(data)) for source, tag, data in new.poll())
        return comm.rank != 1 or bool(got)

    assert until(arrived)
    assert comm.allgather(got) == [[], [(0, 2, b"new")], [], []]


@inside
def test_a_message_that_is_half_in_keeps_nobody_at_the_end(comm: Any) -> None:
    """Neither its receiver, whose run is over, nor its sender, whom the receiver must help."""
    import logging

    from osprey_mpi.comm.channel import MpiChannel
    from osprey_mpi.drivers.loop import Loop
    from osprey_mpi.drivers.signals import Signals

    channel = MpiChannel(comm)
    if comm.rank == 0:
        channel.send(1, 0, bytes(1 << 22))
        time.sleep(0.5)  # for the others it hangs
    begun = comm.rank != 1 or until(lambda: bool(channel.poll() or channel._receiving))
    began_s = time.monotonic()
    Loop(comm.rank, {}, channel, Signals(launched=False), logging.getLogger("osprey_mpi"))._drain()
    drained_s = time.monotonic() - began_s
    until(comm.Ibarrier().Test)  # asleep: who spins takes the core from those that are not there yet
    assert comm.allgather((begun, drained_s < 3.0, channel.idle())) == [(True, True, True)] * N


@pytest.mark.launch
@pytest.mark.parametrize(
    ("chosen", "env", "n_passed"),
    [
        ([], {}, 16),
        (["-k", "half_in"], {"OMPI_MCA_smsc": "^cma,xpmem,knem"}, 1),  # large messages in parts, as between hosts
    ],
)
def test_this_file_on_four_ranks(tmp_path: Path, chosen: list[str], env: dict[str, str], n_passed: int) -> None:
    argv = [sys.executable, "-m", "pytest", "--only-mpi", "-q", "-p", "no:cacheprovider", "--timeout", "60"]
    done = launch(
        N,
        [*argv, "--timeout-method", "thread", "--rootdir", Path(__file__).parents[2], *chosen, __file__],
        cwd=tmp_path,
        env=env,
        timeout_s=90,
    )
    assert done.rc == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count(f"{n_passed} passed") == N, done.stdout[-6000:]
