"""Built-ins: values from the literature, known optima, errors of configs, and one code for every array namespace."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config.builtin_names import BUILTIN_NAMES
from osprey_mpi.config.parameters import CategoricalParameter, FixedParameter, IntegerParameter, RealParameter
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.builtin import BUILTIN, Arrays, prepare
from osprey_mpi.evaluate.builtin.antenna import chebyshev_weights

ANALYTIC = BUILTIN_NAMES[:8]


def strict_arrays() -> Any:
    path = Path(__file__).parents[1] / "device" / "strict_arrays.py"
    spec = importlib.util.spec_from_file_location("strict_arrays", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def box(size: int, low: float = -5.0, high: float = 5.0) -> dict[str, RealParameter]:
    return {"x": RealParameter(low=low, high=high, size=size)}


def cost(name: str, point: list[float], **options: Any) -> float:
    function = prepare(name, box(len(point), -500.0, 500.0), options)
    return float(function.evaluate(np.array([point]))[0])


def reference(name: str, x: list[float]) -> float:
    """Write each function as in its source, one point, plain Python."""
    d, pi = len(x), math.pi
    if name == "sphere":
        return sum(v * v for v in x)
    if name == "ellipsoid":
        return sum(10 ** (6 * i / (d - 1)) * v * v for i, v in enumerate(x))
    if name == "rosenbrock":
        return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(d - 1))
    if name == "rastrigin":
        return 10 * d + sum(v * v - 10 * math.cos(2 * pi * v) for v in x)
    if name == "ackley":
        radius = math.sqrt(sum(v * v for v in x) / d)
        return -20 * math.exp(-0.2 * radius) - math.exp(sum(math.cos(2 * pi * v) for v in x) / d) + 20 + math.e
    if name == "griewank":
        return 1 + sum(v * v for v in x) / 4000 - math.prod(math.cos(v / math.sqrt(i + 1)) for i, v in enumerate(x))
    if name == "schwefel":
        return 418.9828872724338 * d - sum(v * math.sin(math.sqrt(abs(v))) for v in x)
    w = [1 + (v - 1) / 4 for v in x]
    middle = sum((v - 1) ** 2 * (1 + 10 * math.sin(pi * v + 1) ** 2) for v in w[:-1])
    return math.sin(pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + math.sin(2 * pi * w[-1]) ** 2)


def test_the_registry_has_the_names_that_configs_know() -> None:
    assert tuple(BUILTIN) == BUILTIN_NAMES


@pytest.mark.parametrize("name", ANALYTIC)
@pytest.mark.parametrize("d", [2, 7])
def test_functions_agree_with_their_definitions(name: str, d: int) -> None:
    points = np.random.default_rng(d).uniform(-5, 5, (50, d))
    costs = prepare(name, box(d)).evaluate(points)
    assert costs.shape == (50,)
    np.testing.assert_allclose(costs, [reference(name, list(row)) for row in points], rtol=1e-12, atol=1e-12)


def test_single_values_by_hand() -> None:
    assert cost("rosenbrock", [-1.2, 1.0]) == pytest.approx(24.2, abs=1e-12)  # the start point of Rosenbrock 1960
    assert cost("rastrigin", [0.5]) == 20.25
    assert cost("ellipsoid", [1.0, 1.0]) == pytest.approx(1e6 + 1)
    assert cost("levy", [1.0]) == pytest.approx(0.0, abs=1e-30)


@pytest.mark.parametrize("name", ANALYTIC)
@pytest.mark.parametrize("options", [{}, {"shift": 0.75}, {"shift": -0.5, "rotation_seed": 4}])
def test_known_optima_are_reached_and_are_minima(name: str, options: dict[str, Any]) -> None:
    reach = 499.0 if name == "schwefel" else 10.0
    if name == "schwefel" and "rotation_seed" in options:
        with pytest.raises(ConfigError, match="without rotation"):
            prepare(name, box(5, -reach, reach), options)
        return
    function = prepare(name, box(5, -reach, reach), options)
    assert function.optimum == 0.0 and function.optimum_values is not None
    assert function.evaluate(function.optimum_values[None])[0] == pytest.approx(0.0, abs=1e-9)
    nearby = function.optimum_values + np.random.default_rng(0).normal(0, 0.01, (200, 5))
    assert function.evaluate(nearby).min() > 0


def test_an_optimum_outside_the_bounds_is_not_claimed() -> None:
    assert prepare("sphere", box(3, 1.0, 2.0)).optimum is None


def test_schwefel_refuses_bounds_that_hold_a_deeper_minimum() -> None:
    with pytest.raises(ConfigError, match="<= 500"):
        prepare("schwefel", box(2, -600, 600))


def test_integer_and_fixed_parameters_are_numbers_like_others() -> None:
    parameters = {
        "a": IntegerParameter(low=-3, high=3),
        "b": FixedParameter(value=2.5),
        "c": RealParameter(low=-1, high=1),
    }
    # A value row holds the code 0 for a fixed parameter.
    assert prepare("sphere", parameters).evaluate(np.array([[2.0, 0.0, 1.0]]))[0] == 4 + 6.25 + 1


def test_parameters_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"parameters\.kernel: objective\.builtin sphere: type categorical"):
        prepare("sphere", {"kernel": CategoricalParameter(choices=("a", "b"))})
    with pytest.raises(ConfigError, match="conditional"):
        prepare("sphere", {"x": RealParameter(low=0, high=1, when={"y": [1]}), "y": IntegerParameter(low=0, high=1)})
    with pytest.raises(ConfigError, match="needs at least 2"):
        prepare("rosenbrock", box(1))


def test_options_are_checked_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        prepare("lennard_jones", box(6), {"n_atom": 2, "n_atoms": True})
    assert [problem.where for problem in caught.value.problems] == [
        "objective.options.n_atom",
        "objective.options.n_atoms",
    ]
    assert "did you mean n_atoms?" in str(caught.value)
    with pytest.raises(ConfigError, match="did you mean rastrigin"):
        prepare("rastrigen", box(2))


def icosahedron(radii: np.ndarray) -> np.ndarray:
    golden = (1 + math.sqrt(5)) / 2
    corners = [(0, a, b * golden) for a in (1, -1) for b in (1, -1)]
    vertices = np.array([corner[shift:] + corner[:shift] for corner in corners for shift in range(3)], dtype=float)
    vertices /= np.linalg.norm(vertices[0])
    atoms = np.concatenate([np.zeros((1, 3)), vertices])
    return (radii[:, None, None] * atoms).reshape(len(radii), 39)


def truncated_octahedron(shape: np.ndarray) -> np.ndarray:
    """Place 38 atoms of full octahedral symmetry: orbits of (a, 0, 0), (b, b, b) and (c, d, 0); shape is (n, 4)."""
    signs = np.array(list(itertools.product((1, -1), repeat=3)))
    a, b, c, d = shape.T[:, :, None, None]
    axes = np.unique(np.concatenate([signs * np.roll([1, 0, 0], k) for k in range(3)]), axis=0)
    edges = np.array(list(itertools.permutations((0, 1, 2))))
    first = np.unique(np.concatenate([signs * (order == 1) + 2 * signs * (order == 2) for order in edges]), axis=0)
    big, small = first * (np.abs(first) == 2) / 2, first * (np.abs(first) == 1)
    atoms = np.concatenate([a * axes, b * signs, c * big + d * small], axis=1)
    return atoms.reshape(len(shape), -1)


def test_lennard_jones_small_clusters() -> None:
    r = 2 ** (1 / 6)
    pair = prepare("lennard_jones", box(6), {"n_atoms": 2})
    assert pair.evaluate(np.array([[0, 0, 0, r, 0, 0]]))[0] == pytest.approx(-1.0, abs=1e-14) and pair.optimum == -1.0
    triangle = [0, 0, 0, r, 0, 0, r / 2, r * math.sqrt(0.75), 0]
    assert prepare("lennard_jones", box(9), {"n_atoms": 3}).evaluate(np.array([triangle]))[0] == pytest.approx(-3.0)
    assert np.isfinite(pair.evaluate(np.zeros((1, 6)))[0])  # two atoms on one place: huge, not infinite


def test_lennard_jones_13_is_the_icosahedron() -> None:
    function = prepare("lennard_jones", box(39))
    energies = function.evaluate(icosahedron(np.linspace(1.0, 1.2, 20001)))
    assert energies.min() == pytest.approx(-44.326801, abs=1e-6) and function.optimum == -44.326801


def test_lennard_jones_38_is_the_truncated_octahedron() -> None:
    function = prepare("lennard_jones", box(114), {"n_atoms": 38})
    rng, shape, step = np.random.default_rng(1), np.array([0.78, 0.78, 1.56, 0.78]), 0.03
    for _ in range(120):  # the symmetry leaves four lengths to find
        trial = shape + np.concatenate([np.zeros((1, 4)), rng.normal(0, step, (39, 4))])
        shape, step = trial[function.evaluate(truncated_octahedron(trial)).argmin()], step * 0.88
    assert function.evaluate(truncated_octahedron(shape[None]))[0] == pytest.approx(-173.928427, abs=1e-5)
    assert function.optimum == -173.928427


def test_lennard_jones_checks_its_size() -> None:
    with pytest.raises(ConfigError, match="size is 38, must be 39"):
        prepare("lennard_jones", box(38))
    with pytest.raises(ConfigError, match="one array parameter"):
        prepare("lennard_jones", {"x": RealParameter(low=0, high=1), "y": RealParameter(low=0, high=1)})


def antenna(sizes: dict[str, int], **options: Any) -> Any:
    high = {"amplitude": 1.0, "phase": math.pi, "position": 20.0}
    low = {"amplitude": 0.0, "phase": -math.pi, "position": 0.0}
    parameters = {name: RealParameter(low=low[name], high=high[name], size=size) for name, size in sizes.items()}
    return prepare("antenna_array", parameters, options)


def test_dolph_chebyshev_weights_as_published() -> None:
    # scipy.signal.windows.chebwin(10, 26), SciPy 1.17: the right half, relative to the outermost element.
    weights = chebyshev_weights(10, 26.0)
    expected = [2.76947841, 2.47870917, 1.96792513, 1.35548164, 1.0]
    np.testing.assert_allclose(weights[5:] / weights[-1], expected, atol=1e-8)
    np.testing.assert_allclose(weights, weights[::-1], atol=1e-14)


@pytest.mark.parametrize("size", [16, 8])
def test_dolph_chebyshev_has_all_side_lobes_at_its_level(size: int) -> None:
    function = antenna({"amplitude": size})
    assert function.optimum == pytest.approx(-30.0, abs=1e-9)
    assert function.evaluate(function.optimum_values[None])[0] == pytest.approx(-30.0, abs=5e-4)
    rng = np.random.default_rng(0)
    others = np.clip(function.optimum_values + rng.normal(0, 0.02, (500, size)), 0, 1)
    assert function.evaluate(others).min() > -30.0


def test_uniform_array_has_its_first_side_lobe_where_the_sine_ratio_has_it() -> None:
    first_null_deg = math.degrees(math.asin(2 / 16))
    u = np.linspace(2 / 16, 1, 200001)
    psi = math.pi * u
    expected = 20 * math.log10(np.abs(np.sin(8 * psi) / (16 * np.sin(psi / 2))).max())
    function = antenna({"amplitude": 16}, main_lobe_deg=2 * first_null_deg, n_angles=4001)
    assert function.evaluate(np.ones((1, 16)))[0] == pytest.approx(expected, abs=1e-3)
    assert expected == pytest.approx(-13.15, abs=0.01)


def test_the_three_forms_of_the_antenna_agree() -> None:
    rng = np.random.default_rng(2)
    amplitude = rng.uniform(0.1, 1, (20, 16))
    places = np.tile(np.arange(16) / 2, (20, 1))
    zeros = np.zeros((20, 16))
    plain = antenna({"amplitude": 16}).evaluate(amplitude)
    with_phase = antenna({"amplitude": 16, "phase": 16}).evaluate(np.hstack([amplitude, zeros]))
    with_places = antenna({"amplitude": 16, "position": 16}).evaluate(np.hstack([amplitude, places]))
    np.testing.assert_allclose(with_phase, plain, atol=1e-9)
    np.testing.assert_allclose(with_places, plain, atol=1e-9)
    half = rng.uniform(0.1, 1, (20, 8))
    mirrored = antenna({"amplitude": 8, "position": 8}).evaluate(
        np.hstack([half, np.tile(np.arange(8) / 2 + 0.25, (20, 1))])
    )
    np.testing.assert_allclose(
        mirrored, antenna({"amplitude": 16}).evaluate(np.hstack([half[:, ::-1], half])), atol=1e-9
    )


def test_phases_turn_the_beam_away() -> None:
    steered = -math.pi * 0.5 * np.arange(16)[None]  # to sin(theta) = 0.5: broadside gets next to nothing
    assert antenna({"phase": 16}).evaluate(np.remainder(steered + math.pi, 2 * math.pi) - math.pi)[0] > 10


def test_a_dark_antenna_is_no_optimum() -> None:
    assert antenna({"amplitude": 16}).evaluate(np.zeros((1, 16)))[0] == 0.0


def test_the_antenna_checks_names_and_sizes() -> None:
    with pytest.raises(ConfigError, match="must be of amplitude, phase, position"):
        prepare("antenna_array", box(16))
    with pytest.raises(ConfigError, match="size is 5, must be n_elements = 16, or half of it"):
        antenna({"amplitude": 5})
    with pytest.raises(ConfigError, match="main lobe ends"):
        antenna({"amplitude": 16}, spacing=0.05)


def test_tour_around_a_circle() -> None:
    function = prepare("travelling_salesman", box(12, 0, 1), {"n_cities": 12, "cities": "circle", "cities_seed": 5})
    assert function.optimum == pytest.approx(24 * math.sin(math.pi / 12)) and function.optimum_values is not None
    assert function.evaluate(function.optimum_values[None])[0] == pytest.approx(function.optimum, abs=1e-12)
    assert function.evaluate(np.random.default_rng(0).random((2000, 12))).min() > function.optimum


def test_tour_visits_cities_in_the_order_of_their_keys() -> None:
    cities = [[0, 0], [0, 1], [3, 1], [3, 0], [1, 5], [2, 2]]
    function = prepare("travelling_salesman", box(6, 0, 1), {"cities": cities})
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 31):
        length = sum(math.dist(cities[order[i]], cities[order[i - 1]]) for i in range(6))
        keys = np.argsort(order)[None] / 6
        assert function.evaluate(keys)[0] == pytest.approx(length, abs=1e-12)


def test_tours_are_checked() -> None:
    for cities, message in (([[0, 0], [1]], "city 1"), ([[0, 0], [1, 1]], "3 or more"), ("ring", "must be random")):
        with pytest.raises(ConfigError, match=message):
            prepare("travelling_salesman", box(20, 0, 1), {"cities": cities})


CASES: list[tuple[str, int, dict[str, Any]]] = [
    *((name, 6, {}) for name in ANALYTIC),
    ("rastrigin", 6, {"shift": 1.0, "rotation_seed": 1}),
    ("lennard_jones", 15, {"n_atoms": 5}),
    ("travelling_salesman", 9, {"n_cities": 9}),
]


@pytest.mark.parametrize(("name", "d", "options"), CASES)
def test_chunks_and_device_arrays_change_nothing(name: str, d: int, options: dict[str, Any]) -> None:
    values = np.random.default_rng(3).uniform(-2, 2, (37, d))
    before = values.copy()
    whole = prepare(name, box(d), options, Arrays(chunk_bytes=1 << 24)).evaluate(values)
    assert np.array_equal(values, before)
    chunked = prepare(name, box(d), options, Arrays(chunk_bytes=1)).evaluate(values)
    np.testing.assert_allclose(chunked, whole, rtol=1e-13)
    strict = strict_arrays()
    on_device = prepare(name, box(d), options, Arrays(strict.xp, 1 << 10)).evaluate(strict.xp.asarray(values))
    np.testing.assert_allclose(strict.to_host(on_device), whole, rtol=1e-13)


@pytest.mark.parametrize("names", [("amplitude",), ("phase",), ("position",), ("amplitude", "phase", "position")])
@pytest.mark.parametrize("size", [8, 4])
def test_antenna_on_device_arrays(names: tuple[str, ...], size: int) -> None:
    strict = strict_arrays()
    parameters = {name: RealParameter(low=0, high=3, size=size) for name in names}
    values = np.random.default_rng(4).uniform(0, 3, (11, size * len(names)))
    options = {"n_elements": 8, "n_angles": 31}
    host = prepare("antenna_array", parameters, options).evaluate(values)
    device = prepare("antenna_array", parameters, options, Arrays(strict.xp, 1 << 12)).evaluate(
        strict.xp.asarray(values)
    )
    np.testing.assert_allclose(strict.to_host(device), host, rtol=1e-12)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_work_per_evaluation_is_declared(name: str) -> None:
    sizes = {"lennard_jones": 39, "travelling_salesman": 20}
    parameters = (
        {"amplitude": RealParameter(low=0, high=1, size=16)} if name == "antenna_array" else box(sizes.get(name, 10))
    )
    function = prepare(name, parameters)
    assert function.flops >= 2 * 10 and function.bytes >= 8 * 11
