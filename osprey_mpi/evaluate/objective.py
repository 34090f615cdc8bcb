"""Call the user's function by its signature, and let nothing but finite real numbers through as costs.

What a function may return for one point:
    a number                          its cost
    {"cost": number}                  the same
    {"cost": number, "violation": v}  v >= 0 says how far constraints are broken that only the objective can know,
                                      0 is feasible; "cost" may be left out where v > 0
A number is an int, a float, a NumPy scalar or anything of shape () whose item() is one; bool, None, text, complex,
NaN, infinities and what is masked are failures. For a batch of n points, each number is an array of shape (n,), and a
row that is not finite or is masked fails alone.
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate import StopEvaluation
from osprey_mpi.words import message_of, visible

if TYPE_CHECKING:
    from osprey_mpi.evaluate.context import Context

Function = Callable[..., Any]
TEXT_LIMIT = 2000  # characters of one reason's traceback or output: enough for the frames that matter
HEAD_LIMIT = 200  # characters of a reason's first line: it stands in a table
PARAMETERS_LIMIT = 500  # characters: a 1000-dimensional array must not fill the log


class Failure(Exception):
    """Say why an evaluation has no cost; `reason` as in Reply."""

    def __init__(self, reason: str, status: Status = Status.FAILED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell how one evaluation ended; `reason` is empty if it is OK.

    The first line of a failure's reason is short and says nothing that belongs to this evaluation alone: reports count
    equal ones. What was returned, the traceback and the end of the output follow on further lines.
    """

    status: Status
    cost: float
    violation: float
    reason: str = ""


def number(value: Any, what: str) -> float:
    """Return a finite real number as float, or raise Failure with what it is instead."""
    result = real(value, what)
    if not math.isfinite(result):
        raise Failure(f"{what} is {result}, but a finite number is needed")
    return result


def real(value: Any, what: str) -> float:
    """Return a real number, which may be NaN or infinite, as float, or raise Failure with what it is instead."""
    shape = getattr(value, "shape", None)
    if shape == () and isinstance(value, np.ndarray) and np.ma.is_masked(value):  # its item() is what the mask hides
        raise Failure(f"{what} is masked, but one real number is needed")
    if shape == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = f"an array of shape {tuple(shape)}" if shape else type(value).__name__
        rule = " (an array must have the shape ())" if shape else ""
        detail = "" if shape or value is None else f"\nit is {short(value, 80)}"
        raise Failure(f"{what} is {kind}, but one real number is needed{rule}{detail}")
    return float(value)


def cost_and_violation(result: Any) -> tuple[float, float]:
    """Read what an objective returned for one point: (cost, violation); the cost may be NaN if the violation is > 0."""
    if not isinstance(result, Mapping):
        return number(result, "the returned cost"), 0.0
    _check_keys(result)
    violation = number(result.get("violation", 0.0), 'the returned "violation"')
    if violation < 0:
        raise Failure(f'the returned "violation" is below 0, which is feasible\nit is {violation}')
    if "cost" not in result and violation > 0:
        return math.nan, violation
    return number(result.get("cost"), 'the returned "cost"'), violation


def costs_and_violations(
    result: Any, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[int, str]]:
    """Read what an objective returned for a batch of n points: costs and violations (n,), reasons by row.

    Rows that are not finite stay as they are; those that are masked are NaN, and have a reason.
    """
    if not isinstance(result, Mapping):
        costs, masked = numbers_of(result, n, "the returned costs")
        return costs, np.zeros(n), _masked_reasons(masked, "cost")
    _check_keys(result)
    violations, hidden = np.zeros(n), np.zeros(n, np.bool_)
    if "violation" in result:
        violations, hidden = numbers_of(result["violation"], n, 'the returned "violation"')
    costs, masked = numbers_of(result.get("cost"), n, 'the returned "cost"')
    return costs, violations, _masked_reasons(masked, "cost") | _masked_reasons(hidden, "violation")


def numbers_of(value: Any, n: int, what: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return real numbers as float64 (n,) and which are masked, or raise Failure with what they are instead."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise Failure(f"{what} are of type {array.dtype}, but real numbers are needed\nthey are {short(value, 80)}")
    if array.shape != (n,):
        raise Failure(f"{what} have shape {array.shape}, but one number for each of {n} points, ({n},), is needed")
    masked = _masked(value, n)
    return np.where(masked, np.nan, array.astype(np.float64)), masked


def _masked(value: Any, n: int) -> NDArray[np.bool_]:
    """Return which of n numbers are masked: `asarray` would show what a mask hides."""
    if isinstance(value, list | tuple):
        return np.array([item is np.ma.masked for item in value])
    is_masked = type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray)
    return np.ma.getmaskarray(value) if is_masked else np.zeros(n, np.bool_)


def _masked_reasons(masked: NDArray[np.bool_], what: str) -> dict[int, str]:
    return dict.fromkeys(np.flatnonzero(masked).tolist(), f"the returned {what} is masked, but a number is needed")


def _check_keys(result: Mapping[Any, Any]) -> None:
    unknown = [key for key in result if key not in ("cost", "violation")]
    if unknown or not result:
        raise Failure(f'a returned mapping holds "cost" and "violation", but this one holds {short(list(result), 80)}')


def short(value: object, limit: int = PARAMETERS_LIMIT) -> str:
    """Write a value into a message, however long or broken its repr is."""
    try:
        text = visible(repr(value))
    except BaseException as error:  # SystemExit too: it must not leave the rank's loop
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def name_parameters(parameters: Mapping[str, Any]) -> str:
    """Write parameters into a message, arrays and NumPy scalars in full precision as plain numbers."""
    return short({k: v.tolist() if isinstance(v, np.ndarray | np.generic) else v for k, v in parameters.items()})


def describe(error: BaseException) -> str:
    """Write an exception as a reason: type and first line of the message, its rest, the user's part of the traceback.

    Text, because an exception that crosses a process must not need its class on the other side. A Failure is ours, and
    has a sentence instead of a type.
    """
    message = message_of(error)
    ours = Path(__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    while frames and Path(frames[0].filename).parent == ours:  # our own calls say nothing to the user
        del frames[0]
    while frames and isinstance(error, Failure) and Path(frames[-1].filename).parent == ours:
        del frames[-1]
    head, _, rest = message.partition("\n")
    if not isinstance(error, Failure):
        head = f"{type(error).__name__}: {head}" if head else type(error).__name__
    if len(head) > HEAD_LIMIT:
        head, rest = head[: HEAD_LIMIT - 3] + "...", message
    parts = head.rstrip(), rest[:TEXT_LIMIT], "".join(traceback.format_list(frames))[-TEXT_LIMIT:]
    return "\n".join(part for part in parts if part).rstrip()


def without_scratch(reason: str, context: Context | None) -> str:
    """Write {scratch} for the scratch folder in a reason's first line, and name the folder below."""
    folder = "" if context is None else str(context.scratch_path or "")
    head, _, rest = reason.partition("\n")
    if not folder or folder not in head:
        return reason
    return f"{head.replace(folder, '{scratch}')}\nscratch folder {folder}\n{rest}".rstrip()


class Objective:
    """Hold the user's function, its options and whether it takes a context.

    The signatures are f(parameters) and f(parameters, context), each with `options` as keyword arguments. The context
    is given to an argument named `context`, or to a second argument without default that no option names.
    """

    def __init__(self, function: Function, options: Mapping[str, Any], label: str) -> None:
        """Raises ConfigError if the function cannot be called that way; `label` names it in messages."""
        if not callable(function):
            raise ConfigError(f"{label} is {type(function).__name__}, but a function is needed")
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"{label} is an async function, but a plain function is needed")
        self.function = function
        self.options = dict(options)
        self.takes_context, self._by_name = _find_context(function, self.options, label)
        self._pid = os.getpid()

    def call(self, parameters: Mapping[str, Any], context: object) -> Any:
        """Call the function and return what it returns.

        A process that the function forked ends where it leaves the function: it must not go on as a second one of us.
        """
        try:
            result = self._called(parameters, context)
        except BaseException as error:
            if os.getpid() != self._pid:
                _end_copy(error)
            raise
        if os.getpid() != self._pid:
            _end_copy(None)
        return result

    def _called(self, parameters: Mapping[str, Any], context: object) -> Any:
        if not self.takes_context:
            return self.function(parameters, **self.options)
        if self._by_name:
            return self.function(parameters, context=context, **self.options)
        return self.function(parameters, context, **self.options)

    def evaluate(self, parameters: Mapping[str, Any], context: Context | None) -> Reply:
        """Evaluate one point; whatever happens in the function becomes a Reply."""
        try:
            cost, violation = cost_and_violation(self.call(parameters, context))
        except StopEvaluation:
            return _stopped(None if context is None else context.reported)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: they end the evaluation, not the run
            return Reply(Status.FAILED, math.nan, 0.0, without_scratch(describe(error), context))
        if context is not None and context.told_to_stop:
            return Reply(Status.STOPPED, cost, violation, "stopped early")
        return Reply(Status.OK, cost, violation)

    def evaluate_batch(self, parameters: Mapping[str, Any], n: int, context: Context | None) -> list[Reply]:
        """Evaluate a batch of n points in one call: an exception fails them all, a bad number its own row."""
        try:
            costs, violations, reasons = costs_and_violations(self.call(parameters, context), n)
        except BaseException as error:
            return [Reply(Status.FAILED, math.nan, 0.0, without_scratch(describe(error), context))] * n
        rows = zip(costs.tolist(), violations.tolist(), strict=True)
        return [_batch_reply(cost, violation, reasons.get(row)) for row, (cost, violation) in enumerate(rows)]


def _end_copy(error: BaseException | None) -> NoReturn:
    """End a forked process as Python would: a traceback and 1 after an exception, the code given to sys.exit."""
    code: Any = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    os._exit(code if isinstance(code, int) else 1)


def _batch_reply(cost: float, violation: float, reason: str | None) -> Reply:
    infeasible = violation > 0 and math.isnan(cost)
    is_sound = 0 <= violation < math.inf
    if (math.isfinite(cost) or infeasible) and is_sound:
        return Reply(Status.OK, cost, violation)
    return Reply(Status.FAILED, math.nan, 0.0, reason or unusable(cost, violation))


def unusable(cost: float, violation: float) -> str:
    """Write what is wrong with one row of a batch."""
    if -math.inf < violation < 0:
        return f'the returned "violation" is below 0, which is feasible\nit is {violation}'
    what, number = ("cost", cost) if math.isfinite(violation) else ("violation", violation)
    return f"the returned {what} is {number}, but a finite number is needed"


def _stopped(reported: tuple[int, float] | None) -> Reply:
    if reported is None or not math.isfinite(reported[1]):
        return Reply(Status.FAILED, math.nan, 0.0, "stopped before it reported a finite value")
    step, value = reported
    return Reply(Status.STOPPED, value, 0.0, f"stopped early at step {step} with {value}")


def _find_context(function: Function, options: Mapping[str, Any], label: str) -> tuple[bool, bool]:
    """Return (takes a context, takes it by name); raises ConfigError if no call fits."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some functions written in C have none
        return False, False
    arguments = list(signature.parameters.values())
    positional = [a for a in arguments if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD)]
    by_name = any(
        a.name == "context" and a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY)
        for a in arguments
        if a is not (positional[0] if positional else None)
    )
    second = positional[1] if len(positional) > 1 else None
    required = second is not None and second.default is second.empty and second.name not in options
    takes = (by_name and "context" not in options) or required
    try:
        if takes and by_name:
            signature.bind({}, context=None, **options)
        else:
            signature.bind(*([{}, None] if takes else [{}]), **options)
    except TypeError as error:
        named = f" and the options {', '.join(options)}" if options else ""
        raise ConfigError(
            f"{label} has the signature {signature}, but is called with (parameters) or (parameters, context)"
            f"{named}: {error}"
        ) from None
    return takes, by_name and takes
