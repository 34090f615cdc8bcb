"""osprey validate: check a config without MPI and without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from osprey_mpi.cli.options import ConfigFile, Format, Overrides, TextFormat

if TYPE_CHECKING:
    from osprey_mpi.config import Config
    from osprey_mpi.search.space import Space


def validate_command(
    config_file: ConfigFile,
    overrides: Overrides = None,
    format: Format = TextFormat.TEXT,
    no_import: Annotated[bool, typer.Option("--no-import", help="Do not import or look for the objective.")] = False,
    try_once: Annotated[bool, typer.Option("--try", help="Evaluate one point, as a run would.")] = False,
) -> None:
    """Check a config and its objective, and say what the run would be.

    All problems are reported at once, with file and line. With --try, an evaluation without a usable result gives the
    exit code 3.
    """
    from osprey_mpi.drivers.hosts import limit_threads

    limit_threads()  # before anything imports NumPy, whose BLAS looks once
    from osprey_mpi.cli.output import keep_stdout, write_json, write_text
    from osprey_mpi.config import advice, load_config
    from osprey_mpi.continuity.records import Status
    from osprey_mpi.drivers.check import check_objective, constraint_notes, template_notes
    from osprey_mpi.drivers.trial import try_objective
    from osprey_mpi.errors import ExitCode, UsageError
    from osprey_mpi.search.space import Space

    if try_once and no_import:
        raise UsageError("--try evaluates the objective, --no-import leaves it alone: give one of them")
    keep_stdout()
    config = load_config(config_file, overrides or ())
    space = Space(config.parameters, config.constraints)
    trial = try_objective(config, space) if try_once else None
    if not try_once and not no_import:
        check_objective(config, space)
    facts = summary(config, space)
    hints, warnings = [*template_notes(config), *advice(config)], constraint_notes(config, space)
    if format is TextFormat.JSON:
        tried = {} if trial is None else {"trial": trial.to_mapping()}
        said = {"objective_imported": not no_import, **tried, "warnings": warnings, "advice": hints}
        write_json({"valid": True, **facts, **said})
    else:
        lines = [f"{config_file} is valid" + (" (objective not imported)" if no_import else "")]
        lines += [f"{key.replace('_', ' ')}: {_text(value)}" for key, value in facts.items()]
        lines += [] if trial is None else trial.to_text()
        lines += [f"warning: {warning}" for warning in warnings]
        lines += [f"advice: {hint}" for hint in hints]
        write_text(f"{line}\n" for line in lines)
    if trial is not None and trial.status is not Status.OK:
        raise typer.Exit(ExitCode.NO_RESULT)


def summary(config: Config, space: Space) -> dict[str, Any]:
    """Return what the run would be, as JSON values."""
    objective, budget = config.objective, config.budget
    target = {"builtin": objective.builtin, "python": objective.python, "command": objective.command}[objective.kind]
    limits = {
        "evaluations": budget.evaluations,
        "walltime_s": budget.walltime_s,
        "target": budget.target,
        "stagnation": budget.stagnation,
    }
    return {
        "name": config.name,
        "objective": f"{objective.kind} {' '.join(target) if isinstance(target, list | tuple) else target}",
        "points_per_call": objective.batch,
        "ranks_per_evaluation": objective.ranks,
        "parameters": len(config.parameters),
        "dimensions": space.n_dims,
        "numeric": space.n_numeric,
        "categorical": space.n_categorical,
        "constraints": len(config.constraints),
        "start_points": len(config.start),
        "budget": {key: value for key, value in limits.items() if value is not None},
        "seed": config.seed,
        "deterministic": config.swarm.deterministic,
        "device": config.device.kind,
        "output": str(config.output_dir),
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {item:g}" if isinstance(item, float) else f"{key} {item}" for key, item in value.items()
        )
    return str(value)
