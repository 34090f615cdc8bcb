"""Say when something else fits a config better than this program: a sentence each, with the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from osprey_mpi.config.builtin_names import BUILTIN_BATCH
from osprey_mpi.config.checks import unused_parameters
from osprey_mpi.config.parameters import (
    CategoricalParameter,
    FixedParameter,
    IntegerParameter,
    Parameter,
    RealParameter,
)
from osprey_mpi.config.schema import Config
from osprey_mpi.words import counted

# Below these, a model of the whole objective (Gaussian process) pays: its cost grows with the cube of the evaluations.
BAYES_DIMENSIONS, BAYES_EVALUATIONS_PER_DIMENSION, BAYES_EVALUATIONS = 20, 50, 500
# Fewer ranks gain little from a search without barriers.
FEW_RANKS = 8
FEW_EVALUATIONS = 1000
# Above, a smooth objective is cheap enough for line searches along gradients, by differences if need be.
CHEAP_EVALUATIONS_PER_DIMENSION = 1000
# One shared distribution gains from more samples per step up to about six per dimension.
RANKS_PER_DIMENSION = 6
# A search that adapts needs some samples per dimension before it differs from random sampling.
LEAST_EVALUATIONS_PER_DIMENSION = 10
# From here on the calls of a cheap built-in take seconds; MANY_POINTS a call took a fifth of the time of BUILTIN_BATCH
# (Rastrigin in 20 dimensions, 200,000 evaluations on one rank).
MANY_EVALUATIONS, MANY_POINTS = 100_000, 256


@dataclass(frozen=True, slots=True)
class _Facts:
    """Count what the rules look at; `n_points` is None where there are infinitely many."""

    n_dims: int
    n_categorical: int
    n_points: int | None
    is_real: bool
    is_plain: bool
    is_builtin: bool
    evaluations: int | None


def advice(config: Config, n_ranks: int | None = None) -> list[str]:
    """List advice on a valid config; empty if this program fits it as far as can be seen."""
    facts = _facts(config)
    return [*_other_methods(facts, n_ranks), *_ranks(facts, n_ranks, config), *_oversights(config, facts)]


def _facts(config: Config) -> _Facts:
    varied = [p for p in config.parameters.values() if not isinstance(p, FixedParameter)]
    counts = [_n_values(parameter) for parameter in varied]
    is_real = all(isinstance(p, RealParameter) and p.step is None for p in varied)
    return _Facts(
        n_dims=sum(p.size or 1 for p in varied),
        n_categorical=sum(p.size or 1 for p in varied if isinstance(p, CategoricalParameter)),
        n_points=None if None in counts else prod(count for count in counts if count is not None),
        is_real=is_real,
        is_plain=is_real and not any(p.when for p in varied) and not config.constraints,
        is_builtin=config.objective.kind == "builtin",
        evaluations=config.budget.evaluations,
    )


def _n_values(parameter: Parameter) -> int | None:
    size = 1 if isinstance(parameter, FixedParameter) else parameter.size or 1
    if isinstance(parameter, CategoricalParameter):
        return int(len(parameter.choices) ** min(size, 64))
    if isinstance(parameter, IntegerParameter):
        return int((parameter.high - parameter.low + 1) ** min(size, 64))
    if isinstance(parameter, RealParameter) and parameter.step is not None:
        return int((round((parameter.high - parameter.low) / parameter.step) + 1) ** min(size, 64))
    return None


def _other_methods(facts: _Facts, n_ranks: int | None) -> Iterator[str]:
    n, d = facts.evaluations, facts.n_dims
    if n is None:
        return
    if facts.n_points is not None and facts.n_points <= n:
        yield (
            f"There are {facts.n_points} different points and {counted(n, 'evaluation')}: trying every point finds "
            "the best for certain."
        )
        return
    few = n <= BAYES_EVALUATIONS_PER_DIMENSION * d
    n_bayes = max(BAYES_EVALUATIONS_PER_DIMENSION * d, BAYES_EVALUATIONS)
    if facts.is_real and not facts.is_builtin and d < BAYES_DIMENSIONS and n <= n_bayes:
        yield (
            f"With {counted(d, 'real dimension')} (below {BAYES_DIMENSIONS}) and {counted(n, 'evaluation')} (at most "
            f"{n_bayes}), Bayesian optimisation needs fewer evaluations if "
            "the objective is smooth: BoTorch, or Optuna's GPSampler."
        )
    elif few and 2 * facts.n_categorical > d:
        yield (
            f"{facts.n_categorical} of {counted(d, 'dimension')} {'is' if facts.n_categorical == 1 else 'are'} "
            f"categorical and the budget is {counted(n, 'evaluation')} (at most "
            f"{BAYES_EVALUATIONS_PER_DIMENSION} per dimension): tree-based models (SMAC3, "
            "Optuna's TPESampler) use them better."
        )
    if facts.is_plain and n >= CHEAP_EVALUATIONS_PER_DIMENSION * d:
        yield (
            f"{n} evaluations are {n // d} per dimension: if the objective is that cheap, smooth and without many "
            "minima, a gradient method (SciPy's L-BFGS-B, with automatic differentiation if possible) needs far fewer."
        )
    if d > 1 and n < LEAST_EVALUATIONS_PER_DIMENSION * d:
        yield (
            f"{counted(n, 'evaluation')} for {d} dimensions {'is' if n == 1 else 'are'} fewer than "
            f"{LEAST_EVALUATIONS_PER_DIMENSION} per dimension: no search without gradients or a model can be expected "
            "to get far from its start points."
        )


def _ranks(facts: _Facts, n_ranks: int | None, config: Config) -> Iterator[str]:
    n, d, each = facts.evaluations, facts.n_dims, config.objective.ranks
    other = "plain pycma" if facts.is_real and d > 1 else "Optuna in one process"
    if n_ranks is None:
        if each > 1:
            yield (
                f"Each evaluation takes {each} ranks: start {each + 1}, {2 * each + 1}, {3 * each + 1}, ... of them, "
                "for rank 0 coordinates, and ranks that fill no group have nothing to do."
            )
        if n is not None and n <= FEW_EVALUATIONS and (facts.n_points is None or facts.n_points > n):
            yield (
                f"Below {FEW_RANKS} workers, random search or {other} may be all that a budget of "
                f"{counted(n, 'evaluation')} needs."
            )
        return
    if n_ranks < FEW_RANKS and n is not None and n <= FEW_EVALUATIONS:
        yield (
            f"With {counted(n_ranks, 'rank')} (below {FEW_RANKS}) and {counted(n, 'evaluation')}, random search or "
            f"{other} may be enough: there is little waiting to save."
        )
    n_at_once = n_ranks // each
    if n is not None and n_at_once * config.objective.batch > n:
        batch = f", {config.objective.batch} points a call," if config.objective.batch > 1 else ""
        yield (
            f"{counted(n_ranks, 'rank')}{batch} can evaluate more at once than the budget's "
            f"{counted(n, 'evaluation')}: some will have nothing to do."
        )
    elif min(n_at_once, config.swarm.flock_size) > RANKS_PER_DIMENSION * d:
        yield (
            f"Flocks of {min(n_at_once, config.swarm.flock_size)} for {counted(d, 'dimension')}: a shared search gains "
            f"little beyond {RANKS_PER_DIMENSION} evaluations at once per dimension; fewer ranks cost less for the "
            "same."
        )


def _oversights(config: Config, facts: _Facts) -> Iterator[str]:
    n = facts.evaluations
    if facts.is_builtin and config.objective.batch == BUILTIN_BATCH and n is not None and n >= MANY_EVALUATIONS:
        yield (
            f"{n} evaluations of a built-in with {BUILTIN_BATCH} points a call: a cheap one is several times faster "
            f"with objective.batch: {MANY_POINTS}, and the search then steps less often."
        )
    unused = unused_parameters(config.objective, config.parameters)
    if unused:
        yield (
            f"The command has no placeholder for {', '.join(unused)} and no template: the program never sees "
            "what is searched."
        )
    if facts.is_real and any("==" in text for text in config.constraints):
        yield (
            "A constraint with == between real parameters holds almost nowhere: compute one of them from the others in "
            "the objective, or allow a margin with <=."
        )
    if config.budget.evaluations is None and config.budget.walltime_s is None:
        yield (
            "The budget has neither evaluations nor walltime: the run ends only when target or stagnation is met, "
            "maybe never."
        )
