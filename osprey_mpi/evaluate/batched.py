"""Make one call of a batched objective out of value rows, on the device, and bring back costs only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.builtin import Arrays, prepare
from osprey_mpi.evaluate.context import Context, Silent, scratch_name
from osprey_mpi.evaluate.loading import load_function
from osprey_mpi.evaluate.objective import Failure, Objective, costs_and_violations, describe, unusable
from osprey_mpi.search.columns import Layout, arrays_of, choice_table

# An array of the device's namespace.
Array = Any
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


class Device(Protocol):
    """Say where arrays live; `osprey_mpi.device.Backend` is one."""

    @property
    def xp(self) -> ModuleType:
        """The array namespace."""
        ...

    @property
    def chunk_bytes(self) -> int:
        """Size of an array that the device works through best."""
        ...

    def use(self) -> None:
        """Make it the device of the calling thread."""

    def to_host(self, array: Array) -> NDArray[Any]:
        """Copy an array to a NumPy array (NumPy's own: as it is)."""
        ...

    def free(self) -> None:
        """Give unused device memory back."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Tell whether an exception says that the device's memory is full."""
        ...


@dataclass(frozen=True, slots=True)
class Costs:
    """Give what one call returned, on the host: costs (n,), violations (n,) or None (all 0), row -> reason."""

    costs: Floats
    violations: Floats | None = None
    reasons: dict[int, str] = field(default_factory=dict)


class BatchCall(Protocol):
    """Evaluate value rows (n, n_columns) in one call; exceptions of the objective pass through."""

    rows_per_call: int
    sliceable: bool  # rows do not know of each other: a call may be cut anywhere
    feasible_only: bool  # it is not for points that break the config's constraints

    def __call__(self, values: Array, first: int) -> Costs:
        """Evaluate; `first` is the id of the first row."""
        ...


class BuiltinCall:
    """Call a built-in on as many rows as stay in the cache (CPU) or fill the device (GPU)."""

    sliceable = True
    feasible_only = False  # a built-in has a cost everywhere

    def __init__(self, config: Any, device: Device, n_columns: int) -> None:
        objective, arrays = config.objective, Arrays(device.xp, device.chunk_bytes)
        self.function = prepare(objective.builtin, config.parameters, objective.options, arrays)
        self.rows_per_call = arrays.chunk_rows(8 * n_columns)
        self._to_host = device.to_host

    def __call__(self, values: Array, first: int) -> Costs:
        """Evaluate rows of values."""
        return Costs(self._to_host(self.function.evaluate(values)))


class PythonCall:
    """Call the user's function with one array per parameter: (n,) for a scalar, (n, size) for an array parameter."""

    sliceable = False
    feasible_only = True

    def __init__(
        self,
        config: Any,
        device: Device,
        layouts: tuple[Layout, ...],
        rank: int,
        scratch_root: Path,
        function: Any = None,
    ) -> None:
        objective, self._device = config.objective, device
        self.rows_per_call = objective.batch
        target = objective.python or "function"
        found = function if function is not None else load_function(target, config.base_dir or Path.cwd())
        self._objective = Objective(found, objective.options, f"objective.python ({target})")
        self._layouts, self._tables = layouts, {x.name: _table(x, device.xp) for x in layouts if x.choices is not None}
        self._seed, self._rank, self._scratch_root = config.seed, rank, scratch_root

    def __call__(self, values: Array, first: int) -> Costs:
        """Evaluate rows of values; raises Failure for what is no cost per row."""
        context = Context(first, self._seed, self._scratch_root, scratch_name(first, self._rank), Silent())
        try:
            result = self._objective.call(arrays_of(self._layouts, values, self._tables), context)
        finally:
            context.close()
        host = {k: self._host(v) for k, v in result.items()} if isinstance(result, Mapping) else self._host(result)
        costs, violations, reasons = costs_and_violations(host, values.shape[0])
        return Costs(costs, violations if isinstance(result, Mapping) else None, reasons)

    def _host(self, value: Any) -> Any:
        """Bring an array of the device to the host; what is there stays as it is, with its mask."""
        return value if isinstance(value, np.ndarray | list | tuple) else self._device.to_host(value)


def _table(layout: Layout, xp: ModuleType) -> Array:
    """Return the choices as an array of the device. Raises ConfigError where it takes no such values."""
    table = choice_table(layout.choices or ())
    try:
        return xp.asarray(table)
    except (TypeError, ValueError):
        is_text = any(isinstance(choice, str) for choice in layout.choices or ())
        what = "text" if is_text else "a mixture of truth values and numbers"
        raise ConfigError(
            f"parameters.{layout.name}: {what} has no place in a {xp.__name__} array; use numbers as choices"
        ) from None


def guarded(call: BatchCall, values: Array, ids: Sequence[int] | Ids, retries: int, device: Device) -> Costs:
    """Call, and turn whatever goes wrong into failed rows with a reason. ids: (n,), of the rows.

    Out of memory: unused memory is given back and the call made again in two halves; then its rows have failed.
    Another failure is tried again `retries` times.
    """
    n = values.shape[0]
    for left in range(retries, -1, -1):
        try:
            return _checked(call(values, int(ids[0])), n)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: they end the call, not the run
            reason, full = describe(error), device.is_out_of_memory(error)
        if full:  # outside the except block, where the traceback still holds the arrays of the call
            return _halved(call, values, ids, reason, device)
        if left == 0:
            break
    return _failed(n, reason)


def _halved(call: BatchCall, values: Array, ids: Sequence[int] | Ids, reason: str, device: Device) -> Costs:
    n = values.shape[0]
    device.free()
    if n == 1:
        return _failed(n, f"out of memory\n{reason}")
    parts, middle = [], (n + 1) // 2
    for start, stop in ((0, middle), (middle, n)):
        try:
            part = _checked(call(values[start:stop], int(ids[start])), stop - start)
        except BaseException as error:
            text = describe(error)
            part = _failed(stop - start, f"out of memory, and again with half the batch\n{reason}\nthen {text}")
        parts.append(part)
        device.free()
    reasons = {
        row + shift: text for part, shift in zip(parts, (0, middle), strict=True) for row, text in part.reasons.items()
    }
    violations = [np.zeros(len(part.costs)) if part.violations is None else part.violations for part in parts]
    return Costs(np.concatenate([part.costs for part in parts]), np.concatenate(violations), reasons)


def _failed(n: int, reason: str) -> Costs:
    return Costs(np.full(n, np.nan), None, dict.fromkeys(range(n), reason))


def _checked(answer: Costs, n: int) -> Costs:
    """Make what is not finite NaN, with a reason; a NaN of a row that breaks constraints is no failure."""
    costs = answer.costs
    if costs.shape != (n,):
        raise Failure(f"the costs have shape {costs.shape}, but ({n},) is needed")
    # One pass: a sum is finite unless a term is not, or it overflows, which the next line then finds out.
    if math.isfinite(float(costs.sum())) and answer.violations is None:
        return answer
    violations = np.zeros(n) if answer.violations is None else answer.violations
    sound = np.isfinite(violations) & (violations >= 0)
    usable = sound & (np.isfinite(costs) | (np.isnan(costs) & (violations > 0)))
    if usable.all():
        return answer
    reasons = {}
    for row in np.flatnonzero(~usable).tolist():
        reasons[row] = answer.reasons.get(row) or unusable(float(costs[row]), float(violations[row]))
    return Costs(np.where(usable, costs, np.nan), np.where(usable, violations, 0.0), reasons)
