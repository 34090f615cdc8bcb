"""The inline evaluator: what it draws, keeps and sends back, and what failing objectives cost."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config.parameters import CategoricalParameter, FixedParameter, IntegerParameter, RealParameter
from osprey_mpi.continuity.records import Status
from osprey_mpi.device import Backend, select
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate import draws
from osprey_mpi.evaluate.builtin import prepare
from osprey_mpi.evaluate.context import Context
from osprey_mpi.evaluate.inline import NAMED, InlineEvaluator
from osprey_mpi.evaluate.task import Outcome, Task
from osprey_mpi.search import osprey, streams
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.space import Space

N = 300


def strict_device() -> Backend:
    path = Path(__file__).parents[1] / "device" / "strict_arrays.py"
    spec = importlib.util.spec_from_file_location("strict_arrays", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Backend(module.xp, "strict", module.to_host, "stands in for a GPU")


def distribution(space: Space, seed: int = 0) -> Distribution:
    rng, d = np.random.default_rng(seed), space.n_numeric
    tables = np.concatenate([np.full(k, 1 / k) for k in space.n_choices]) if space.n_choices else np.empty(0)
    return Distribution(4, rng.uniform(0.3, 0.7, d), 0.2, rng.uniform(0.5, 1.0, d), tables)


class Bench:
    """Hold an evaluator and what a test compares it with."""

    def __init__(
        self,
        parameters: dict[str, Any],
        builtin: str | None = None,
        function: Callable[..., Any] | None = None,
        constraints: tuple[str, ...] = (),
        record_all: bool = False,
        device: Backend | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        batch: int = N,
        retries: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        objective = SimpleNamespace(builtin=builtin, python=None, batch=batch, options=options or {}, retries=retries)
        self.config = SimpleNamespace(objective=objective, parameters=parameters, seed=7, base_dir=None)
        self.space = Space(parameters, constraints)
        self.evaluator = InlineEvaluator(
            self.config, self.space, rank=3, clock=clock, record_all=record_all, device=device or select("cpu"),
            scratch_root=Path("nowhere"), function=function,
        )  # fmt: skip
        self.evaluator.start()
        self.evaluator.check()
        self.distribution = distribution(self.space)

    def task(self, first: int = 1000, n: int = N, start: int = 0, stop: int | None = None) -> Task:
        return Task(first, n, start, n if stop is None else stop, 4, 2, None, self.distribution)

    def run(self, task: Task | None = None) -> Outcome:
        self.evaluator.submit(task or self.task())
        for _ in range(1000):
            outcomes = self.evaluator.poll()
            if outcomes:
                assert len(outcomes) == 1 and isinstance(outcomes[0], Outcome)
                return outcomes[0]
        raise AssertionError("no outcome")


BOX = {"x": RealParameter(low=-5, high=5, size=6)}


def test_draws_are_normal_and_uniform_and_keyed_by_the_evaluation() -> None:
    space = SimpleNamespace(n_numeric=5, n_categorical=2)
    z = draws.latent(11, 40, 100_000, space)
    normals, uniforms = z[:, :5], z[:, 5:]
    assert abs(normals.mean()) < 0.005 and normals.std() == pytest.approx(1, abs=0.004)
    assert (normals**4).mean() == pytest.approx(3, abs=0.05) and np.abs(normals).max() < 6.8
    assert np.abs(np.corrcoef(z.T) - np.eye(7)).max() < 0.015
    assert (
        uniforms.min() >= 0
        and uniforms.max() < 1
        and np.histogram(uniforms, 10, (0, 1))[0] == pytest.approx(20000, rel=0.03)
    )
    assert np.array_equal(draws.latent(11, 90, 10, space), z[50:60])
    assert np.array_equal(draws.latent_of(11, np.array([139, 41]), space), z[[99, 1]])
    assert not np.array_equal(draws.latent(12, 90, 10, space), z[50:60])


def test_draws_start_with_the_published_numbers_of_splitmix64() -> None:
    # The first outputs of SplitMix64 from state 0 (the reference C code): the state is advanced before each.
    assert [draws.mix(k * draws.GAMMA & draws.WORD) for k in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_draws_are_the_same_on_a_device() -> None:
    space, device = SimpleNamespace(n_numeric=7, n_categorical=1), strict_device()
    on_device = draws.latent(5, 123, 50, space, device.xp)
    assert np.array_equal(device.to_host(on_device), draws.latent(5, 123, 50, space))


def test_a_batch_keeps_costs_captures_and_survivors() -> None:
    bench = Bench(BOX, "rastrigin")
    outcome = bench.run()
    z = draws.latent(7, 1000, N, bench.space)
    positions = osprey.hover(bench.distribution, z, bench.space)
    values = bench.space.decode(positions)
    costs = prepare("rastrigin", BOX).evaluate(values)
    np.testing.assert_allclose(outcome.costs, costs, rtol=1e-12)
    assert not outcome.violations.any() and outcome.reasons == {}
    best = np.minimum.accumulate(costs)
    rows = np.flatnonzero(np.diff(np.concatenate([[math.inf], best])) < 0)
    assert outcome.records["id"].tolist() == (1000 + rows).tolist()
    np.testing.assert_array_equal(outcome.positions, positions[rows])
    np.testing.assert_array_equal(outcome.values, values[rows])
    assert set(outcome.records["rank"]) == {3} and set(outcome.records["attempt"]) == {2}
    assert set(outcome.records["generation"]) == {4} and set(outcome.records["status"]) == {Status.OK}
    assert bench.evaluator.best_cost == outcome.records["cost"][-1] == outcome.costs.min()
    assert outcome.survivors is not None
    indices, latent = outcome.survivors
    n_kept = osprey.n_survivors(N, 6)
    assert indices.tolist() == np.argsort(outcome.costs, kind="stable")[:n_kept].tolist()
    np.testing.assert_array_equal(latent, z[indices])


def test_captures_are_measured_against_what_others_found() -> None:
    bench = Bench(BOX, "rastrigin")
    bench.evaluator.best_cost = 0.0
    outcome = bench.run()
    assert len(outcome.records) == len(outcome.values) == len(outcome.positions) == 0
    assert outcome.values.shape == (0, 6) and outcome.costs.shape == (N,) and bench.evaluator.best_cost == 0.0


def test_record_all_draws_what_the_search_draws_again() -> None:
    bench = Bench(BOX, "levy", record_all=True)
    outcome = bench.run()
    positions = osprey.hover(bench.distribution, streams.latent(7, 1000, N, bench.space), bench.space)
    np.testing.assert_array_equal(outcome.positions, positions)
    assert outcome.records["id"].tolist() == list(range(1000, 1000 + N)) and outcome.survivors is None
    np.testing.assert_array_equal(outcome.records["cost"], outcome.costs)


def test_single_points_always_have_their_records() -> None:
    outcome = Bench(BOX, "sphere", batch=1).run(Task(5, 1, 0, 1, 4, 0, None, distribution(Space(BOX))))
    assert len(outcome.records) == 1 and outcome.survivors is None


@pytest.mark.parametrize("record_all", [True, False])
def test_parts_of_a_block_are_rows_of_the_whole(record_all: bool) -> None:
    bench = Bench(BOX, "ackley", record_all=record_all)
    whole = bench.run().costs
    parts = [bench.run(bench.task(start=a, stop=b)) for a, b in ((0, 1), (1, 120), (120, N))]
    np.testing.assert_allclose(np.concatenate([part.costs for part in parts]), whole, rtol=1e-12)
    assert [(part.row_start, part.row_stop) for part in parts] == [(0, 1), (1, 120), (120, N)]


def test_explicit_points() -> None:
    bench = Bench(BOX, "sphere")
    points = np.vstack([np.full(6, 0.5), np.zeros(6), np.linspace(0, 1, 6)])
    outcome = bench.run(Task(20, 3, 1, 3, -1, 0, points, None))
    np.testing.assert_allclose(outcome.costs, [150.0, 70.0])
    assert outcome.survivors is None and outcome.records["id"].tolist() == [21, 22]


def test_constraints_rank_before_costs() -> None:
    parameters = {"a": RealParameter(low=0, high=1), "b": RealParameter(low=0, high=1)}
    bench = Bench(parameters, "sphere", constraints=("a + b >= 1.2",))
    outcome = bench.run()
    assert (outcome.violations > 0).any() and (outcome.violations == 0).any()
    assert (outcome.records["violation"] == 0).all() and len(outcome.records)
    assert outcome.survivors is not None and (outcome.violations[outcome.survivors[0]] == 0).all()
    assert bench.evaluator.best_cost == outcome.costs[outcome.violations == 0].min()
    nowhere = Bench(parameters, "sphere", constraints=("a + b >= 3",)).run()
    assert nowhere.survivors is not None and len(nowhere.records) == 0
    kept = nowhere.violations[nowhere.survivors[0]]
    assert kept.max() <= np.sort(nowhere.violations)[len(kept) - 1]


def test_a_long_batch_is_left_after_a_slice_and_taken_up_again() -> None:
    ticks = iter(range(1000))
    bench = Bench(BOX, "sphere", clock=lambda: next(ticks) * 0.004)
    bench.evaluator.submit(bench.task(n=30_000))
    n_empty = 0
    while not (outcomes := bench.evaluator.poll()):
        n_empty += 1
        assert not bench.evaluator.idle
    assert n_empty >= 3 and bench.evaluator.idle and bench.evaluator.responsive
    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    ends = set(outcome.records["t_end_s"])
    assert set(outcome.records["t_start_s"]) == {0.0} and len(ends) == 1 and ends.pop() > 0.02
    np.testing.assert_array_equal(outcome.costs, Bench(BOX, "sphere").run(bench.task(n=30_000)).costs)


def test_cancelled_tasks_give_nothing() -> None:
    bench = Bench(BOX, "sphere")
    bench.evaluator.submit(bench.task())
    bench.evaluator.cancel()
    assert bench.evaluator.idle and bench.evaluator.poll() == [] and bench.evaluator.filenos() == []
    bench.evaluator.close()


def test_a_thousand_dimensions() -> None:
    bench = Bench({"x": RealParameter(low=-1, high=1, size=1000)}, "ackley")
    outcome = bench.run(bench.task(n=50))
    assert np.isfinite(outcome.costs).all() and np.abs(outcome.values).max() <= 1


MIXED = {
    "x": RealParameter(low=0, high=1, size=2),
    "k": IntegerParameter(low=1, high=9),
    "mode": CategoricalParameter(choices=(10, 20, 30)),
    "c": FixedParameter(value=0.5),
}


def test_a_python_function_gets_one_array_per_parameter() -> None:
    seen: dict[str, Any] = {}

    def objective(parameters: dict[str, Any], scale: float) -> Any:
        seen.update({k: v.copy() for k, v in parameters.items()})
        cost = scale * parameters["x"].sum(axis=1) + parameters["k"]
        parameters["x"][:] = -1.0  # an objective may do so
        return cost

    bench = Bench(MIXED, function=objective, record_all=True, options={"scale": 2.0})
    outcome = bench.run()
    assert seen["x"].shape == (N, 2) and seen["k"].dtype == np.int64 and seen["k"].shape == (N,)
    assert set(seen["mode"]) == {10, 20, 30} and set(seen["c"]) == {0.5}
    np.testing.assert_array_equal(outcome.costs, 2 * seen["x"].sum(axis=1) + seen["k"])
    np.testing.assert_array_equal(outcome.values[:, :2], seen["x"])
    assert not bench.evaluator.responsive


def test_a_python_function_is_called_with_no_more_points_than_it_takes() -> None:
    sizes: list[int] = []

    def objective(parameters: dict[str, Any]) -> Any:
        sizes.append(len(parameters["x"]))
        return parameters["x"].sum(axis=1)

    bench = Bench(BOX, function=objective, batch=128)
    bench.evaluator.submit(bench.task())
    while not bench.evaluator.poll():
        pass
    assert sizes == [128, 128, 44]


def exit_now(parameters: dict[str, Any]) -> Any:
    raise SystemExit(3)


FAILURES: list[tuple[Callable[..., Any], str]] = [
    (lambda parameters: 1 / 0, "ZeroDivisionError: division by zero"),
    (exit_now, "SystemExit: 3"),
    (lambda parameters: np.zeros((N, 1)), r"shape \(300, 1\), but one number for each of 300 points"),
    (lambda parameters: np.zeros(N - 1), r"shape \(299,\)"),
    (lambda parameters: None, "real numbers are needed"),
    (lambda parameters: {"loss": np.zeros(N)}, "holds"),
    (lambda parameters: np.full(N, "a"), "real numbers are needed"),
]


@pytest.mark.parametrize(("function", "reason"), FAILURES)
def test_a_failing_call_costs_its_evaluations_only(function: Callable[..., Any], reason: str) -> None:
    calls: list[int] = []

    def objective(parameters: dict[str, Any]) -> Any:
        calls.append(1)
        return function(parameters) if len(calls) == 1 else np.ones(N)

    bench = Bench(BOX, function=objective, record_all=True)
    failed = bench.run()
    assert np.isnan(failed.costs).all() and set(failed.records["status"]) == {Status.FAILED}
    assert list(failed.reasons) == list(range(1000, 1000 + N))
    import re

    assert re.search(reason, failed.reasons[1000])
    fine = bench.run()
    assert (fine.costs == 1).all() and fine.reasons == {}


def test_single_bad_numbers_fail_alone() -> None:
    def objective(parameters: dict[str, Any]) -> Any:
        costs = parameters["x"].sum(axis=1)
        costs[[3, 5]] = math.nan, -math.inf
        return costs

    outcome = Bench(BOX, function=objective).run()
    assert np.flatnonzero(np.isnan(outcome.costs)).tolist() == [3, 5] and list(outcome.reasons) == [1003, 1005]
    assert "cost is nan" in outcome.reasons[1003] and "cost is -inf" in outcome.reasons[1005]
    assert outcome.survivors is not None and not {3, 5} & set(outcome.survivors[0].tolist())
    assert np.isfinite(outcome.records["cost"]).all()


def test_failures_without_a_row_name_their_parameters_the_first_of_a_call() -> None:
    seen: list[Any] = []

    def objective(parameters: dict[str, Any]) -> Any:
        seen.append(parameters["x"].copy())
        return np.full(N, math.nan)

    reasons = Bench(BOX, function=objective).run().reasons
    named = {id: text.partition("\nparameters ")[2] for id, text in reasons.items()}
    assert named == {1000 + row: f"{{'x': {x.tolist()}}}" if row < NAMED else "" for row, x in enumerate(seen[0])}
    rows = Bench(BOX, function=objective, record_all=True).run()
    assert len(rows.records) == N and not any("parameters" in text for text in rows.reasons.values()), "rows say it"


def test_a_function_may_report_violations() -> None:
    def objective(parameters: dict[str, Any]) -> Any:
        cost = parameters["x"].sum(axis=1)
        return {"cost": np.where(cost < 0, np.nan, cost), "violation": np.maximum(-cost, 0)}

    outcome = Bench(BOX, function=objective, record_all=True).run()
    infeasible = outcome.violations > 0
    assert infeasible.any() and not infeasible.all() and outcome.reasons == {}
    assert np.isnan(outcome.costs[infeasible]).all() and set(outcome.records["status"]) == {Status.OK}


SQUARE = {"a": RealParameter(low=0, high=1), "b": RealParameter(low=0, high=1)}


@pytest.mark.parametrize("device", [None, strict_device()], ids=["host", "device"])
def test_a_function_is_not_called_at_points_that_break_the_configs_constraints(device: Backend | None) -> None:
    """Their violation alone ranks them: no failure, and no reason, whatever the function would have said there."""
    seen: list[Any] = []

    def objective(parameters: dict[str, Any], context: Context) -> Any:
        seen.append((context.id, len(parameters["a"])))
        return {"cost": (0.25 - parameters["a"]) ** 0.5, "violation": 1.0 * (parameters["b"] > 0.75)}

    bench = Bench(SQUARE, function=objective, constraints=("a <= 0.25",), record_all=True, batch=6, device=device)
    points = np.array([[0.5, 0.0], [0.25, 0.0], [1.0, 1.0], [0.0, 1.0], [0.3125, 0.0], [0.1875, 0.0]])
    outcome = bench.run(Task(40, 6, 0, 6, -1, 0, points, None))
    assert seen == [(41, 3)] and outcome.reasons == {}
    np.testing.assert_array_equal(outcome.costs, [math.nan, 0.0, math.nan, 0.5, math.nan, 0.25])
    assert outcome.violations.tolist() == [0.25, 0.0, 0.75, 1.0, 0.0625, 0.0]
    assert outcome.records["id"].tolist() == list(range(40, 46)) and not outcome.records["status"].any()
    nowhere = bench.run(Task(50, 2, 0, 2, -1, 0, points[[0, 2]], None))
    assert len(seen) == 1 and np.isnan(nowhere.costs).all() and nowhere.violations.tolist() == [0.25, 0.75]


def test_what_fails_among_points_that_break_constraints_is_named_by_its_own_id() -> None:
    """Also where a call is made again in halves, each with the id of its first point."""
    seen: list[int] = []

    def objective(parameters: dict[str, Any], context: Context) -> Any:
        seen.append(context.id)
        if len(parameters["a"]) > 2:
            raise MemoryError("full")
        return np.where(parameters["b"] == 1.0, np.nan, parameters["b"])

    device = replace(select("cpu"), is_out_of_memory=lambda error: isinstance(error, MemoryError))
    bench = Bench(SQUARE, function=objective, constraints=("a <= 0.5",), record_all=True, batch=5, device=device)
    points = np.array([[1.0, 0.0], [0.0, 0.25], [1.0, 0.0], [0.0, 0.5], [0.0, 1.0]])
    outcome = bench.run(Task(40, 5, 0, 5, -1, 0, points, None))
    assert seen == [41, 41, 44] and list(outcome.reasons) == [44]
    np.testing.assert_array_equal(outcome.costs, [math.nan, 0.25, math.nan, 0.5, math.nan])
    assert outcome.records["status"].tolist() == [0, 0, 0, 0, Status.FAILED]


def test_retries() -> None:
    calls: list[int] = []

    def objective(parameters: dict[str, Any]) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("not yet")
        return np.ones(N)

    assert (Bench(BOX, function=objective, retries=2).run().costs == 1).all() and len(calls) == 3


class Memory:
    """A function whose device holds `limit` points; it counts what was given back."""

    def __init__(self, limit: int) -> None:
        self.limit, self.n_freed = limit, 0
        self.sizes: list[int] = []
        self.device = replace(select("cpu"), free=self.free)

    def free(self) -> None:
        self.n_freed += 1

    def __call__(self, parameters: dict[str, Any]) -> Any:
        self.sizes.append(len(parameters["x"]))
        if self.sizes[-1] > self.limit:
            raise MemoryError("Out of memory allocating 1 bytes")
        return parameters["x"][:, 0]


def test_out_of_memory_is_tried_again_with_half_the_batch() -> None:
    memory = Memory(N // 2)
    bench = Bench(BOX, function=memory, device=memory.device)
    outcome = bench.run()
    assert memory.sizes == [N, N // 2, N // 2] and memory.n_freed >= 1 and outcome.reasons == {}
    np.testing.assert_array_equal(outcome.costs, Bench(BOX, function=lambda p: p["x"][:, 0]).run().costs)


def test_out_of_memory_twice_fails_and_the_next_call_works() -> None:
    memory = Memory(10)
    bench = Bench(BOX, function=memory, device=memory.device)
    failed = bench.run()
    assert len(failed.reasons) == N and "again with half the batch" in failed.reasons[1000]
    assert memory.sizes == [N, N // 2, N // 2] and memory.n_freed >= 3
    assert np.isfinite(bench.run(bench.task(first=5000, n=10)).costs).all()


def test_everything_runs_on_device_arrays() -> None:
    for builtin in ("rastrigin", "levy"):
        on_device, on_host = (Bench(BOX, builtin, device=device).run() for device in (strict_device(), None))
        np.testing.assert_allclose(on_device.costs, on_host.costs, rtol=1e-12)
        assert on_device.survivors is not None and on_host.survivors is not None
        for a, b in zip(on_device.survivors, on_host.survivors, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(on_device.values, on_host.values)


@pytest.mark.parametrize("record_all", [True, False])
def test_mixed_parameters_on_device_arrays(record_all: bool) -> None:
    def objective(parameters: dict[str, Any]) -> Any:
        return parameters["x"].sum(axis=1) + parameters["k"] * parameters["mode"] - parameters["c"]

    outcomes = [
        Bench(MIXED, function=objective, device=device, record_all=record_all, constraints=("k <= 6",)).run()
        for device in (strict_device(), None)
    ]
    np.testing.assert_allclose(outcomes[0].costs, outcomes[1].costs)
    np.testing.assert_array_equal(outcomes[0].violations, outcomes[1].violations)


def test_what_cannot_be_an_array_is_refused() -> None:
    text = {"x": RealParameter(low=0, high=1), "kind": CategoricalParameter(choices=("a", "b"))}
    Bench(text, function=lambda p: p["x"])
    with pytest.raises(ConfigError, match=r"parameters\.kind: text has no place"):
        Bench(text, function=lambda p: p["x"], device=strict_device())
    conditional = {"k": IntegerParameter(low=0, high=1), "x": RealParameter(low=0, high=1, when={"k": [1]})}
    with pytest.raises(ConfigError, match="conditional"):
        Bench(conditional, function=lambda p: p["x"])
