"""The collecting half: new incarnations, gaps, and what every sender says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from protocol_helpers import delta_of, piece, sends

from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.health import Health
from osprey_mpi.continuity.ledger import Verdict
from osprey_mpi.continuity.messages import Ack, Farewell, Heartbeat, Hello, Resync, Role
from osprey_mpi.continuity.sender import Sender


class Plain(Collector):
    member_role = Role.WORKER


def _make() -> Plain:
    return Plain(0, [1], 0.0, suspect_after_s=2.0, lost_after_s=10.0)


def _resyncs(actions: list[Any]) -> list[Any]:
    return sends(actions, Resync)


def test_a_gap_is_asked_for_once_a_second() -> None:
    collector, sender = _make(), Sender(1, 2, 2)
    made = [delta_of(sender, piece(id)) for id in range(4)]
    assert _resyncs(collector.admit(1, made[1], 0.0)[1]) == [Resync(0)]
    assert _resyncs(collector.admit(1, made[2], 0.5)[1]) == []
    assert _resyncs(collector.admit(1, made[3], 1.0)[1]) == [Resync(0)]
    assert collector.members[1].pulse.health is Health.SUSPECT
    for delta in made:
        assert collector.admit(1, delta, 1.1)[0] is Verdict.ADMITTED
    assert collector.members[1].pulse.health is Health.HEALTHY
    collector.check()


def test_a_new_incarnation_heals_whichever_of_its_words_comes_first() -> None:
    old = [delta_of(sender, piece(id)) for sender in [Sender(1, 2, 2)] for id in range(5)]
    for word in ("delta", "heartbeat", "hello", "farewell"):
        collector, young = _make(), Sender(2, 2, 2)
        for delta in old:
            collector.admit(1, delta, 0.0)
        collector.follow(1, Farewell(1, 5), 0.0)
        assert collector.members[1].left
        made = [delta_of(young, piece(10 + id)) for id in range(2)]
        if word == "delta":
            verdict, actions = collector.admit(1, made[1], 5.0)
            assert verdict is Verdict.GAP
        elif word == "hello":
            actions = collector.follow(1, Hello(2), 5.0) + collector.follow(1, Heartbeat(2, 2), 5.0)
        else:
            message = {"heartbeat": Heartbeat(2, 2), "farewell": Farewell(2, 2)}[word]
            actions = collector.follow(1, message, 5.0)
        assert _resyncs(actions) == [Resync(0)], word
        assert not collector.members[1].left
        assert [collector.admit(1, delta, 5.0)[0] for delta in made] == [Verdict.ADMITTED] * 2
        assert collector.admit(1, old[4], 5.0)[0] is Verdict.LATE
        assert collector.follow(1, Heartbeat(1, 99), 9.0) == [collector.acknowledge(1, 0, 0)], "of the past"
        collector.follow(1, Farewell(1, 99), 9.0)
        assert collector.members[1].n_sent in (None, 2)


def test_a_farewell_counts_when_everything_has_come() -> None:
    collector, sender = _make(), Sender(1, 2, 2)
    made = [delta_of(sender, piece(id)) for id in range(2)]
    collector.admit(1, made[0], 0.0)
    assert _resyncs(collector.follow(1, Farewell(1, 2), 0.0)) == [Resync(1)]
    assert not collector.members[1].left and collector.missing() == [1]
    collector.admit(1, made[1], 0.0)
    assert collector.members[1].left and collector.missing() == []
    assert collector.judge(1e6) == ([], []), "who has left is not judged"


def test_a_heartbeat_is_answered_with_what_is_durable() -> None:
    collector = _make()
    collector.acknowledge(1, 1, 7)
    assert sends(collector.follow(1, Heartbeat(1, 0), 0.0)) == [Ack(1, 7)]


def test_silence_and_a_gap_that_stays() -> None:
    collector, sender = _make(), Sender(1, 2, 2)
    made = [delta_of(sender, piece(id)) for id in range(2)]
    collector.admit(1, made[1], 0.0)
    lost: list[int] = []
    now, logs = 0.0, []
    while not lost:
        now = round(now + 0.1, 6)
        collector.hear(1, now)
        actions, lost = collector.judge(now)
        logs += actions
    assert lost == [1] and np.isclose(now, 10.0, atol=0.15)
    assert "delta 1 has been missing" in logs[-1].text
    collector.hear(1, now)
    assert collector.members[1].lost, "words do not heal a gap"
    collector.admit(1, made[0], now)
    assert not collector.members[1].lost
