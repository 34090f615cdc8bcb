"""The share of a space that its constraints leave: the same for the same seed, near the truth, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from search_helpers import category, integer, real

from osprey_mpi.search import feasible
from osprey_mpi.search.feasible import feasible_share
from osprey_mpi.search.space import Space

N = 20_000


@pytest.mark.parametrize(
    ("parameters", "constraints", "share"),
    [
        ({"x": real(0, 1)}, (), 1.0),
        ({"x": real(0, 1)}, ("x >= 2",), 0.0),
        ({"x": real(0, 1)}, ("x <= 0.25",), 0.25),
        ({"x": real(0, 1), "y": real(0, 1)}, ("x + y <= 1",), 0.5),
        ({"x": real(0, 1), "y": real(0, 1)}, ("x <= 0.5", "y <= 0.5"), 0.25),
        ({"n": integer(1, 10)}, ("n <= 3",), 0.3),
        ({"k": category(1, 2, 3, 4)}, ("k <= 3",), 0.75),
        ({"x": real(1e-4, 1, scale="log")}, ("x <= 0.01",), 0.5),
        ({"k": category(0, 1), "x": real(0, 1, when={"k": 1})}, ("x >= 2",), 0.5),
    ],
)
def test_the_share_is_near_the_truth(parameters: dict[str, object], constraints: tuple[str, ...], share: float) -> None:
    found = feasible_share(Space(parameters, constraints), N, 3)
    error = np.sqrt(share * (1 - share) / N)
    assert abs(found - share) <= 4 * error, "four standard errors; 0 and 1 are exact"


def test_the_seed_alone_decides() -> None:
    space = Space({"x": real(0, 1)}, ("x <= 0.3",))
    shares = [feasible_share(space, 1000, seed) for seed in (1, 1, 2)]
    assert shares[0] == shares[1] != shares[2]


def test_points_are_drawn_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space({"x": real(0, 1, size=3)}, ("sum(x) <= 1",))
    whole = feasible_share(space, 1000, 5)
    seen: list[int] = []
    decode = space.decode

    def watched(positions: np.ndarray) -> np.ndarray:
        seen.append(len(positions))
        return decode(positions)

    monkeypatch.setattr(feasible, "CHUNK_NUMBERS", 900)
    monkeypatch.setattr(space, "decode", watched)
    assert feasible_share(space, 1000, 5) == whole, "the same points, however they are cut"
    assert seen == [300, 300, 300, 100]
    monkeypatch.setattr(feasible, "CHUNK_NUMBERS", 1)
    assert feasible_share(space, 2, 5) in (0.0, 0.5, 1.0), "a point at least, however many dimensions it has"
