"""Be one rank of a launch that outlives losses: set up a life, be in it, regroup, end; as `drivers/lives.py` does.

    SETUP     the root opens the folder, tells the life; members say what they are at; all begin
    LIFE      the state machines work
    REGROUP   a vital rank is lost: the succession says who goes on; its heir is handed what the others hold
    ENDING    the run is over for this rank: it hands over what it holds, and waits for the root's last word
    OVER      it has left
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from osprey_mpi.comm.tree import Tree
from osprey_mpi.continuity import succession as succeed
from osprey_mpi.continuity.events import Evaluated, PeerLost, Tick
from osprey_mpi.continuity.messages import Order, Role
from osprey_mpi.continuity.rescue import deltas_in, held_by, open_orders, rescue
from osprey_mpi.continuity.succession import Succession, Word
from osprey_mpi.continuity.worker import Worker
from osprey_mpi.errors import ExitCode
from osprey_mpi.simulate.crew import Groups, Machines, Orders, build_leader, build_root, build_worker, is_exact
from osprey_mpi.simulate.folder import Lock

if TYPE_CHECKING:
    from osprey_mpi.simulate.launch import Launch

END = "end"  # I am at the end, and hold this


class Stage(Enum):
    """Tell where a rank is."""

    SETUP = "setup"
    LIFE = "life"
    REGROUP = "regroup"
    ENDING = "ending"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Charter:
    """Tell the members the number of the life that may begin."""

    life: int


@dataclass(frozen=True, slots=True)
class Go:
    """Begin: what was handed over is on disk."""

    running: Orders
    groups: Groups


@dataclass(frozen=True, slots=True)
class Broken:
    """Do not begin: a member is lost."""


@dataclass(slots=True)
class Process:
    """Hold one rank. held, given, rows_back, results: what it takes along from one life to the next."""

    launch: Launch
    rank: int
    placed: Tree = field(default_factory=lambda: Tree((), (), {}, ()))
    vital: frozenset[int] = frozenset()  # whose loss makes the others regroup
    members: tuple[int, ...] = ()
    epoch: int = 0
    stage: Stage = Stage.SETUP
    machines: Machines = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    mailbox: dict[tuple[int, Any], deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    early: list[tuple[int, int, Role, bytes]] = field(default_factory=list)  # of an epoch that has not begun here
    held: list[bytes] = field(default_factory=list)
    given: list[Order] = field(default_factory=list)
    rows_back: int = 0
    results: list[Evaluated] = field(default_factory=list)
    newest_life: int = 0
    lock: Lock | None = None
    exit_code: int | None = None
    will_look: bool = False
    succession: Succession | None = None
    _running: dict[int, list[Order]] = field(default_factory=dict)  # what members are at, as they have told
    _until: float = 0.0
    _missing: set[int] = field(default_factory=set)

    @property
    def now(self) -> float:
        """Return the time."""
        return self.launch.queue.now

    @property
    def root(self) -> int:
        """Return the root of its world."""
        return self.members[0]

    # what happens

    def take_up(self, epoch: int, members: Sequence[int]) -> None:
        """Begin to set up a life."""
        self.stage, self.epoch, self.members = Stage.SETUP, epoch, tuple(members)
        self.placed = self.launch.placed(self.members)
        self.vital = frozenset({self.placed.root, *self.placed.leaders})
        self.machines, self.succession, self._running = {}, None, {}
        times = self.launch.plan.times
        self._until = self.now + (times.lock_wait_s if self.rank == self.root else times.patience_s)
        if self.placed.worker_flock(self.rank) is None or is_exact(self.placed):
            self._close_evaluator()
        self.look()

    def tell_lost(self, rank: int) -> None:
        """Take note that another rank is lost."""
        self.lost.add(rank)
        if self.stage is Stage.LIFE:
            if rank in self.vital:
                self._regroup()
            else:
                for role in list(self.machines):
                    self.launch.give(self, role, PeerLost(rank))
        elif self.stage is Stage.REGROUP:
            assert self.succession is not None
            self._succeed(PeerLost(rank))
        self.look()

    def look(self) -> None:
        """Take in what has come, and what time has brought."""
        match self.stage:
            case Stage.SETUP if self.rank == self.root:
                self._prepare()
            case Stage.SETUP:
                self._obey()
            case Stage.REGROUP:
                self._hear()
            case Stage.ENDING:
                self._part()

    def finish(self, exit_code: int) -> None:
        """End the life as its machines say."""
        if self.stage is not Stage.LIFE:
            return
        self.stage, self.exit_code = Stage.ENDING, exit_code
        self._close_evaluator()
        times = self.launch.plan.times
        self._until = self.now + times.lost_after_s + (0.0 if self.rank == self.root else times.patience_s)
        self._missing = set(self.members[1:])
        if self.rank != self.root:
            self._post(self.root, END, (self.epoch, tuple(held_by(self.machines))))
        self.look()

    def over(self, exit_code: int) -> None:
        """Leave."""
        self.stage, self.exit_code = Stage.OVER, exit_code
        self.launch.folder.close(self.lock)
        self.machines = {}

    # setting up

    def _prepare(self) -> None:
        """Open the folder, put on disk what was handed over, gather what members are at, let them begin."""
        folder = self.launch.folder
        if self.lock is None:
            self.lock = folder.open(self.rank)
            if self.lock is None:
                if self.now > self._until:
                    self.launch.vanish(self.rank, "the folder is in use")
                return
            if 0 < self.newest_life < self.lock.life - 1:
                self.launch.vanish(self.rank, "the others have gone on with it")
                return
            self._say(Charter(self.lock.life))
            self._until = self.now + self.launch.plan.times.patience_s
        for rank in self.members[1:]:
            if rank not in self._running and (orders := self._pop(rank, self.epoch)) is not None:
                self._running[rank] = orders
        if len(self._running) < len(self.members) - 1:
            if self.lost.intersection(self.members) or self.now > self._until:
                self._say(Broken())
                self._regroup()
            return
        self.newest_life = self.lock.life
        if self._rescue() or not folder.begin(self.lock):
            self.launch.vanish(self.rank, "the folder cannot be written")
            return
        go = Go({self.rank: open_orders(self.given, self.rows_back), **self._running}, dict(folder.disk.groups))
        self._say(go)
        self._begin(go)

    def _obey(self) -> None:
        """Follow the root's words."""
        while self.stage is Stage.SETUP and (word := self._pop(self.root, self.epoch)) is not None:
            match word:
                case Charter(life):
                    self.newest_life = life
                    self._post(self.root, self.epoch, open_orders(self.given, self.rows_back))
                case Go():
                    self._begin(word)
                case Broken():
                    self._regroup()
        if self.stage is Stage.SETUP and (self.root in self.lost or self.now > self._until):
            self._regroup()

    def _rescue(self) -> str:
        """Put on disk what is news of all that is held here; return why it cannot be written."""
        folder, n_columns = self.launch.folder, self.launch.plan.space.n_columns
        tally, attempts = self.launch.copy_of(folder.disk.tally), set(folder.attempts)
        return folder.rescue(self.lock, rescue(deltas_in(self.held), tally, attempts, n_columns))

    def _take_over(self, held: tuple[bytes, ...]) -> None:
        """Hold what another rank holds, too: it may be lost before it is on disk."""
        self.held = [*dict.fromkeys((*self.held, *held))]

    def _begin(self, go: Go) -> None:
        plan, placed = self.launch.plan, self.placed
        self.held = []
        if self.rank == placed.root:
            self.machines[Role.ROOT] = build_root(plan, placed, self.launch.folder.disk, go.running, self.now)
        for flock in placed.flocks:
            if flock.leader == self.rank:
                leader = build_leader(plan, placed, flock, go.groups, go.running, self.now)
                self.machines[Role.LEADER] = leader
        flock_here = placed.worker_flock(self.rank)
        if flock_here is not None:
            worker = build_worker(plan, self.rank, flock_here, self.given, self.rows_back)
            self.machines[Role.WORKER] = worker
        self.given, self.rows_back, self.stage = [], 0, Stage.LIFE
        early, self.early = self.early, []
        results, self.results = self.results, []
        for event in results:
            self.launch.give(self, Role.WORKER, event)
        for epoch, source, role, data in early:
            self.launch.arrive(self, epoch, source, role, data)
        for rank in sorted(self.lost.intersection(self.members)):
            if self.stage is Stage.LIFE:
                self.tell_lost(rank)

    # regrouping

    def _regroup(self) -> None:
        """Keep what this rank knows of the run and others may not; ask who goes on."""
        self.held += held_by(self.machines)
        worker = self.machines.get(Role.WORKER)
        if isinstance(worker, Worker):
            if is_exact(self.placed):
                self._close_evaluator()
            else:
                self.given, self.rows_back = list(worker.given), worker.rows_back
        if Role.ROOT in self.machines:
            for append in self.machines[Role.ROOT].books.append():
                self.launch.folder.append(self.lock, append)
        self.launch.folder.close(self.lock)
        self.lock, self.machines, self.stage = None, {}, Stage.REGROUP
        times = self.launch.plan.times
        self.succession = Succession(
            self.rank, self.members, self.epoch, self.now, limit_s=times.join_s, patience_s=times.patience_s,
            lost=self.lost,
        )  # fmt: skip
        self.look()

    def _hear(self) -> None:
        assert self.succession is not None
        for source, kind in self.succession.awaited():
            word = self._pop(source, kind)
            match kind:
                case Word.JOIN if word is not None:
                    epoch, held = word
                    self._take_over(held)
                    self._succeed(succeed.Join(source, epoch))
                case Word.ROSTER if word is not None:
                    self._succeed(succeed.Roster(source, *word))
                case Word.LAST if word is not None:
                    self._succeed(succeed.LastWord(source, word))
        if self.stage is Stage.REGROUP:
            self._succeed(Tick())

    def _succeed(self, event: succeed.Event) -> None:
        assert self.succession is not None
        actions = self.succession.handle(event, self.now)
        self.succession.check()
        for action in actions:
            match action:
                case succeed.PostJoin(rank, epoch):
                    self._post(rank, Word.JOIN, (epoch, tuple(self.held)))
                case succeed.PostRoster(rank, epoch, members):
                    self._post(rank, Word.ROSTER, (epoch, members))
                case succeed.TakeUp(epoch, members):
                    self.launch.witness.took_up(self.rank, epoch, members)
                    self.take_up(epoch, members)
                case succeed.Accept(result):
                    self._close_evaluator()
                    self.over(result)
                case succeed.Leave(why):
                    self.launch.vanish(self.rank, why)

    # ending

    def _part(self) -> None:
        """Once all have handed over what they hold and it is on disk, let them go; go with the root's word."""
        assert self.exit_code is not None
        if self.rank == self.root:
            self._missing -= self.lost
            for rank in sorted(self._missing):
                if (word := self._pop(rank, END) or self._pop(rank, Word.JOIN)) is not None:
                    self._take_over(word[1])
                    self._missing.discard(rank)
            if not self._missing or self.now > self._until:
                self._let_go()
        elif (code := self._pop(self.root, Word.LAST)) is not None:
            self.over(code)
        elif self.root in self.lost or self.now > self._until:
            self.over(int(ExitCode.ENVIRONMENT))

    def _let_go(self) -> None:
        assert self.exit_code is not None
        self._take_over(tuple(held_by(self.machines)))
        if self._rescue():
            self.exit_code = int(ExitCode.ENVIRONMENT)
        if self._missing:
            self.launch.abort(self.exit_code, self._missing)
            return
        for rank in self.members[1:]:
            self._post(rank, Word.LAST, self.exit_code)
        self.over(self.exit_code)

    # words

    def _say(self, word: Any) -> None:
        for rank in self.members[1:]:
            self._post(rank, self.epoch, word)

    def _post(self, rank: int, word: Any, value: Any) -> None:
        if rank not in self.lost:
            self.launch.post(self.rank, rank, word, value)

    def _pop(self, source: int, word: Any) -> Any:
        waiting = self.mailbox.get((source, word))
        return waiting.popleft() if waiting else None

    def _close_evaluator(self) -> None:
        self.given, self.rows_back, self.results = [], 0, []
        self.launch.cancel(self.rank)

