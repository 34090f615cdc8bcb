"""When a rank of this host is taken for lost while MPI starts, and when not."""

from __future__ import annotations

import pytest

from osprey_mpi.comm import siblings
from osprey_mpi.comm.siblings import SiblingWatch

ENVIRON = {
    "PMIX_NAMESPACE": "job", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
}  # fmt: skip


def rank(n: int) -> dict[str, str]:
    return {"PMIX_NAMESPACE": "job", "OMPI_COMM_WORLD_RANK": str(n)}


SSH: dict[str, str] = {}  # of the daemon, to another host
OTHER = {**rank(1), "PMIX_NAMESPACE": "other"}
HIDDEN = None
LOST = ({0, 2}, 1)


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        ([[rank(0), rank(1), rank(2)]], None),
        ([[rank(0), SSH, OTHER, rank(2)]], LOST),
        ([[rank(0), rank(1), rank(2)], [rank(0), rank(2)]], LOST),
        ([[rank(0), HIDDEN, HIDDEN]], None),
        ([[rank(0), HIDDEN]], ({0}, 1)),
        ([[rank(0)], [rank(0)], [rank(0)], [rank(0), rank(2)], [rank(0), rank(2)], [rank(0), rank(1), rank(2)]], None),
        ([[rank(0), rank(1), rank(2)], [rank(0), rank(2)], [rank(0), rank(2)], [rank(0), rank(1), rank(2)]], None),
    ],
)
def test_who_is_missed(
    looks: list[list[dict[str, str] | None]], ended: tuple[set[int], int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not whom the daemon is still starting, whom another container hides, or who becomes another program."""
    left = iter([*looks, *[looks[-1]] * 5])
    seen = []
    monkeypatch.setattr(siblings, "ancestor", lambda name: 7)
    monkeypatch.setattr(siblings, "children", lambda pid: next(left, None) or pytest.fail("looks on"))
    monkeypatch.setattr(SiblingWatch, "is_over", lambda self, wait_s: left.__length_hint__() == 0)
    monkeypatch.setattr(SiblingWatch, "_end", lambda self, living, n_lost: seen.append((living, n_lost)))
    SiblingWatch(ENVIRON).watch()
    assert seen == ([] if ended is None else [ended])


def test_where_the_daemon_is_hidden_nobody_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "ancestor", lambda name: None)
    SiblingWatch(ENVIRON).watch()
