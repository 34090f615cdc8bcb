"""Random streams and the hover of one osprey."""

from __future__ import annotations

import numpy as np
import pytest
from search_helpers import box, category, integer, real

from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.osprey import batch_population, hover, n_survivors, survivors
from osprey_mpi.search.space import Space
from osprey_mpi.search.streams import evaluation_seed, latent

SPACE = Space({"x": real(-5, 5, size=3), "k": category("a", "b", "c", "d")})


def test_draws_the_same_numbers_for_the_same_key_only() -> None:
    block = latent(1, 40, 8, SPACE)
    assert block.shape == (8, 4)
    latent(9, 9, 9, SPACE)
    np.testing.assert_array_equal(latent(1, 40, 8, SPACE), block)
    for other in (latent(2, 40, 8, SPACE), latent(1, 41, 8, SPACE), latent(1, 48, 8, SPACE)):
        assert not np.isin(other, block).any()


def test_pins_the_numbers_of_a_key() -> None:
    # Philox 4x64-10, key (1, 40): a change here breaks the resume of every stored run.
    generator = np.random.Generator(np.random.Philox(key=1 + (40 << 64)))
    np.testing.assert_array_equal(latent(1, 40, 8, box(3)), generator.standard_normal((8, 3)))


def test_draws_normals_and_uniforms() -> None:
    block = latent(3, 0, 100_000, SPACE)
    np.testing.assert_allclose(block[:, :3].mean(axis=0), 0.0, atol=0.015)
    np.testing.assert_allclose(np.cov(block[:, :3].T), np.eye(3), atol=0.02)
    assert block[:, 3].min() >= 0.0
    assert block[:, 3].max() < 1.0
    assert abs(block[:, 3].mean() - 0.5) < 0.005


def test_gives_each_evaluation_its_seed() -> None:
    seeds = [evaluation_seed(1, i) for i in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert evaluation_seed(1, 5) == seeds[5]
    assert evaluation_seed(2, 5) != seeds[5]


@pytest.mark.parametrize("sigma", [1e-3, 0.2, 1e3, 1e300, np.inf, np.nan])
def test_never_leaves_the_box(sigma: float) -> None:
    space = Space({"x": real(0.001, 0.5, size=20)})
    distribution = Distribution(0, np.linspace(-1, 2, 20), sigma, np.ones(20), np.empty(0))
    with np.errstate(all="ignore"):
        positions = hover(distribution, latent(1, 0, 100_000 // 20, space), space)
        values = space.decode(positions)
    assert ((positions >= 0.0) & (positions <= 1.0)).all()
    assert ((values >= 0.001) & (values <= 0.5)).all()


def test_survives_a_thousand_dimensions() -> None:
    space = box(1000)
    distribution = Distribution(0, np.full(1000, 0.5), 0.5, np.ones(1000), np.empty(0))
    positions = hover(distribution, latent(1, 0, 50, space), space)
    assert positions.shape == (50, 1000)
    assert ((positions >= 0.0) & (positions <= 1.0)).all()


def test_reflects_at_the_walls() -> None:
    distribution = Distribution(0, np.array([0.9, 0.1, 0.5]), 1.0, np.ones(3), np.empty(0))
    positions = hover(distribution, np.array([[0.3, -0.3, 2.0]]), box(3))
    np.testing.assert_allclose(positions, [[0.8, 0.2, 0.5]], atol=1e-9)


def test_puts_a_hair_beside_a_wall_on_it() -> None:
    distribution = Distribution(0, np.array([1.0, 0.0]), 1e-11, np.ones(2), np.empty(0))
    positions = hover(distribution, np.array([[2.0, -2.0], [-2.0, 2.0]]), box(2))
    assert positions.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_uses_the_whole_factor() -> None:
    factor = np.array([[1.0, 2.0], [0.0, 3.0]])
    distribution = Distribution(0, np.array([0.5, 0.5]), 0.01, factor, np.empty(0))
    positions = hover(distribution, np.array([[1.0, 2.0]]), box(2))
    np.testing.assert_allclose(positions, [[0.55, 0.56]], atol=1e-9)


def test_draws_categories_by_their_tables() -> None:
    space = Space({"k": category("a", "b", "c"), "m": category(1, 2), "n": integer(0, 1)})
    distribution = Distribution(0, np.array([0.5]), 0.2, np.ones(1), np.array([0.5, 0.25, 0.25, 0.0, 1.0]))
    uniforms = np.array([[0.0, 0.0, 0.0], [0.0, 0.49, 0.5], [0.0, 0.5, 0.999], [0.0, 0.75, 0.3]])
    assert hover(distribution, uniforms, space)[:, 1:].tolist() == [[0, 1], [0, 1], [1, 1], [2, 1]]


@pytest.mark.parametrize("k", [1, 3, 60, 4096])
def test_keeps_the_best_of_a_block(k: int) -> None:
    costs = np.random.default_rng(0).integers(0, 500, 4096).astype(np.float64)
    costs[::7] = np.nan
    kept = survivors(costs, np.zeros(4096), k)
    expected = np.argsort(costs, kind="stable")[: np.count_nonzero(~np.isnan(costs))][:k]
    assert kept.tolist() == expected.tolist()
    assert survivors(np.full(5, np.nan), np.zeros(5), 3).size == 0


def test_ranks_what_breaks_a_constraint_by_its_violation() -> None:
    """Behind all that break none; it needs no cost, because it may not have been evaluated."""
    nan = float("nan")
    costs = np.array([nan, 5.0, nan, 1.0, nan, 4.0])
    violations = np.array([0.2, 0.0, 0.0, 0.1, 0.1, 0.0])
    assert survivors(costs, violations, 9).tolist() == [5, 1, 3, 4, 0], "the third one failed"
    assert survivors(costs[[0, 4]], violations[[0, 4]], 1).tolist() == [1]


def test_sizes_populations_by_dimension() -> None:
    assert [batch_population(batch, 20) for batch in (1, 64, 4096)] == [12, 64, 120]
    assert [n_survivors(batch, 20) for batch in (64, 120, 4096)] == [64, 120, 60]
    assert n_survivors(4096, 1000) * 1000 <= 2**17
