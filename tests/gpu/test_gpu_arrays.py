"""The same inputs on NumPy and on CuPy: built-ins, random numbers, decoding, whole evaluators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config.parameters import CategoricalParameter, FixedParameter, IntegerParameter, RealParameter
from osprey_mpi.device import Backend, select
from osprey_mpi.evaluate import draws
from osprey_mpi.evaluate.builtin import BUILTIN, Arrays, prepare
from osprey_mpi.evaluate.inline import InlineEvaluator
from osprey_mpi.evaluate.task import Outcome, Task
from osprey_mpi.search import osprey
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.space import Space

SIZES = {"lennard_jones": 39, "travelling_salesman": 20}
MIXED = {
    "x": RealParameter(low=1e-4, high=10, scale="log", size=3),
    "w": RealParameter(low=0, high=1, step=0.25),
    "n": IntegerParameter(low=1, high=1000, scale="log"),
    "mode": CategoricalParameter(choices=(10, 20, 30)),
    "c": FixedParameter(value=0.5),
}


def parameters_of(name: str) -> dict[str, Any]:
    if name == "antenna_array":
        return {key: RealParameter(low=0, high=1, size=16) for key in ("amplitude", "phase", "position")}
    return {"x": RealParameter(low=-2, high=2, size=SIZES.get(name, 20))}


def evaluator(parameters: dict[str, Any], device: Backend, constraints: tuple[str, ...] = (), **objective: Any) -> Any:
    given = {"builtin": None, "python": None, "batch": 5000, "options": {}, "retries": 0, **objective}
    function = given.pop("function", None)
    config = SimpleNamespace(objective=SimpleNamespace(**given), parameters=parameters, seed=7, base_dir=None)
    space = Space(parameters, constraints)
    made = InlineEvaluator(
        config, space, rank=0, clock=lambda: 0.0, record_all=False, device=device, scratch_root=Path("nowhere"),
        function=function,
    )  # fmt: skip
    made.check()
    return made


def outcome_of(made: Any, task: Task) -> Outcome:
    made.submit(task)
    for _ in range(1000):
        if outcomes := made.poll():
            return outcomes[0]  # type: ignore[no-any-return]  # inline evaluators give outcomes only
    raise AssertionError("no outcome")


@pytest.mark.parametrize("name", list(BUILTIN))
def test_builtins(gpu: Backend, name: str) -> None:
    parameters = parameters_of(name)
    d = sum(parameter.size or 1 for parameter in parameters.values())
    values = np.random.default_rng(1).uniform(0 if name == "antenna_array" else -2, 1, (3000, d))
    on_host = prepare(name, parameters).evaluate(values)
    for chunk_bytes in (gpu.chunk_bytes, 1 << 20):
        on_device = prepare(name, parameters, {}, Arrays(gpu.xp, chunk_bytes)).evaluate(gpu.xp.asarray(values))
        assert on_device.dtype == np.float64
        np.testing.assert_allclose(gpu.to_host(on_device), on_host, rtol=1e-9, atol=1e-9)


def test_random_numbers(gpu: Backend) -> None:
    space = SimpleNamespace(n_numeric=7, n_categorical=2)
    on_host, on_device = (draws.latent(3, 12345, 4000, space, xp) for xp in (np, gpu.xp))
    on_device = gpu.to_host(on_device)
    np.testing.assert_array_equal(on_device[:, 7:], on_host[:, 7:])
    np.testing.assert_allclose(
        on_device[:, :7], on_host[:, :7], rtol=1e-4, atol=1e-5
    )  # sin and log in single precision
    ids = np.array([12350, 12346])
    np.testing.assert_array_equal(gpu.to_host(draws.latent_of(3, ids, space, gpu.xp)), on_device[[5, 1]])


def test_hover_and_decode(gpu: Backend) -> None:
    space = Space(MIXED, ("n + c >= 3",))
    rng, d = np.random.default_rng(2), space.n_numeric
    latent = np.hstack([rng.standard_normal((2000, d)), rng.random((2000, space.n_categorical))])
    for factor in (np.full(d, 0.7), np.eye(d) + 0.1):
        distribution = Distribution(0, rng.uniform(0, 1, d), 0.5, factor, np.array([0.2, 0.5, 0.3]))
        host = osprey.hover(distribution, latent, space)
        device = osprey.hover(distribution, gpu.xp.asarray(latent), space, gpu.xp)
        np.testing.assert_allclose(gpu.to_host(device), host, rtol=1e-12, atol=1e-12)
        values = space.decode(gpu.xp.asarray(host), gpu.xp)
        np.testing.assert_allclose(gpu.to_host(values), space.decode(host), rtol=1e-12)
        violation = gpu.to_host(space.violation(values, gpu.xp))
        np.testing.assert_array_equal(violation, space.violation(space.decode(host)))


@pytest.mark.parametrize("name", ["rastrigin", "lennard_jones"])
def test_whole_evaluators(gpu: Backend, name: str) -> None:
    parameters = parameters_of(name)
    space = Space(parameters)
    points = np.random.default_rng(3).random((5000, space.n_dims))
    explicit = Task(0, 5000, 0, 5000, -1, 0, points, None)
    host, device = (outcome_of(evaluator(parameters, b, builtin=name), explicit) for b in (select("cpu"), gpu))
    np.testing.assert_allclose(device.costs, host.costs, rtol=1e-9)
    assert device.records["id"].tolist() == host.records["id"].tolist()
    np.testing.assert_allclose(device.values, host.values, rtol=1e-12)
    spread = Distribution(0, np.full(space.n_dims, 0.5), 0.1, np.ones(space.n_dims), np.empty(0))
    drawn = outcome_of(evaluator(parameters, gpu, builtin=name), Task(0, 5000, 0, 5000, 0, 0, None, spread))
    assert drawn.survivors is not None and isinstance(drawn.costs, np.ndarray)
    again = space.decode(osprey.hover(spread, drawn.survivors[1], space))
    costs = prepare(name, parameters).evaluate(again)
    np.testing.assert_allclose(drawn.costs[drawn.survivors[0]], costs, rtol=1e-6)


def test_python_functions_on_cupy_arrays(gpu: Backend) -> None:
    seen: list[type] = []

    def objective(parameters: dict[str, Any]) -> Any:
        seen.extend(type(value) for value in parameters.values())
        return {
            "cost": parameters["x"].sum(axis=1) * parameters["mode"] - parameters["c"],
            "violation": parameters["w"],
        }

    space = Space(MIXED)
    points = np.random.default_rng(4).random((500, space.n_dims))
    task = Task(0, 500, 0, 500, -1, 0, points, None)
    device = outcome_of(evaluator(MIXED, gpu, batch=500, function=objective), task)
    assert set(seen) == {gpu.xp.ndarray}
    host = outcome_of(evaluator(MIXED, select("cpu"), batch=500, function=objective), task)
    np.testing.assert_allclose(device.costs, host.costs, rtol=1e-12)
    np.testing.assert_array_equal(device.violations, host.violations)
