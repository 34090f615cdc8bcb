"""The config: one frozen model per section, read strictly, with the place of every problem."""

from osprey_mpi.config.advice import advice
from osprey_mpi.config.loader import config_from_mapping, load_config, with_overrides
from osprey_mpi.config.objective import EarlyStop, Objective, Result, Template
from osprey_mpi.config.parameters import (
    CategoricalParameter,
    FixedParameter,
    IntegerParameter,
    Parameter,
    RealParameter,
)
from osprey_mpi.config.reference import reference
from osprey_mpi.config.running import Budget, Checkpoint, Continuity, Device, Output, Search, Swarm
from osprey_mpi.config.schema import Config, json_schema

__all__ = [
    "Budget",
    "CategoricalParameter",
    "Checkpoint",
    "Config",
    "Continuity",
    "Device",
    "EarlyStop",
    "FixedParameter",
    "IntegerParameter",
    "Objective",
    "Output",
    "Parameter",
    "RealParameter",
    "Result",
    "Search",
    "Swarm",
    "Template",
    "advice",
    "config_from_mapping",
    "json_schema",
    "load_config",
    "reference",
    "with_overrides",
]
