"""The `parameters` section: what the search may change, and between which limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from osprey_mpi.config.section import Choice, Fault, Items, Section, show

# Beyond 2**53 float64, in which positions are computed, no longer holds every integer.
INTEGER_LIMIT = 2**53
# More scalars than this in one parameter are a typing mistake: one position would take more than 8 MB.
SIZE_LIMIT = 1_000_000
# A grid value is met if it is off by less than this part of a step (0.3 / 0.1 is 2.9999999999999996), and a little more
# far from `low`, where rounding grows with the number of steps.
GRID_TOLERANCE, GRID_TOLERANCE_PER_STEP = 1e-9, 1e-12


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


When = dict[str, Annotated[Items[Choice], Field(min_length=1), BeforeValidator(_as_list, json_schema_input_type=Any)]]
Size = Annotated[int, Field(ge=1, le=SIZE_LIMIT)]
Scale = Literal["linear", "log"]


class _Varied(Section):
    size: Size | None = None
    """Makes an array of so many elements; null: a single value."""
    when: When = Field(default_factory=dict)
    """`{other: value}` or `{other: [values]}`: unless all of it holds, this parameter is absent."""


class RealParameter(_Varied):
    """Read a real number between two inclusive bounds."""

    type: Literal["real"] = "real"
    """The kind of the parameter."""
    low: float
    """Lower bound, inclusive."""
    high: float
    """Upper bound, inclusive."""
    scale: Scale = "linear"
    """How the range is searched; `log` for orders of magnitude."""
    step: Annotated[float, Field(gt=0)] | None = None
    """Distance between allowed values, counted from `low`; not with a log scale."""

    def faults(self) -> Iterator[Fault]:
        """Yield bounds out of order, and scales and steps that do not fit them."""
        yield from _bound_faults(self.low, self.high, self.scale)
        if self.step is None:
            return
        if self.scale == "log":
            yield Fault(("step",), f"is {self.step}, but scale is log: equal steps have no meaning on a log scale")
        elif self.low < self.high and self.high - self.low < float("inf"):
            yield from self._grid_faults(self.step)

    def _grid_faults(self, step: float) -> Iterator[Fault]:
        n_steps = (self.high - self.low) / step
        if n_steps >= INTEGER_LIMIT:
            yield Fault(("step",), f"is {step}, but that gives {n_steps:.3g} values from low to high; at most 2**53")
        elif not _is_whole(n_steps) or round(n_steps) < 1:
            last = self.low + int(n_steps) * step
            yield Fault(
                ("step",),
                f"is {step}, but high - low is {self.high - self.low:.6g}, no whole number of steps: "
                f"high {self.high} could not be reached (high {last:.6g} or {last + step:.6g} could)",
            )

    def is_on_grid(self, value: float) -> bool:
        """Tell if a value within the bounds is one of the allowed ones."""
        n_steps = (value - self.low) / self.step if self.step is not None else 0.0
        return _is_whole(n_steps)


class IntegerParameter(_Varied):
    """Read a whole number between two inclusive bounds."""

    type: Literal["integer"] = "integer"
    """The kind of the parameter."""
    low: Annotated[int, Field(ge=-INTEGER_LIMIT, le=INTEGER_LIMIT)]
    """Lower bound, inclusive."""
    high: Annotated[int, Field(ge=-INTEGER_LIMIT, le=INTEGER_LIMIT)]
    """Upper bound, inclusive."""
    scale: Scale = "linear"
    """How the range is searched; `log` for orders of magnitude."""

    def faults(self) -> Iterator[Fault]:
        """Yield bounds out of order or not above zero on a log scale."""
        return _bound_faults(self.low, self.high, self.scale)


class CategoricalParameter(_Varied):
    """Read one of several choices without an order."""

    type: Literal["categorical"] = "categorical"
    """The kind of the parameter."""
    choices: Annotated[Items[Choice], Field(min_length=2)]
    """At least two values, all different: text, numbers, true or false."""

    def faults(self) -> Iterator[Fault]:
        """Yield choices that are equal to an earlier one, as Python and a table of results would see them."""
        first: dict[Choice, int] = {}
        for i, choice in enumerate(self.choices):
            j = first.setdefault(choice, i)
            if j < i:
                same = "" if show(self.choices[j]) == show(choice) else f", which equals {show(self.choices[j])}"
                yield Fault(("choices", i), f"is {show(choice)}{same}: already choice {j + 1}; choices must differ")


class FixedParameter(Section):
    """Read a constant that the objective gets with the others."""

    type: Literal["fixed"] = "fixed"
    """The kind of the parameter."""
    value: Choice
    """The value: text, a number, true or false."""


def _is_whole(n_steps: float) -> bool:
    return abs(n_steps - round(n_steps)) <= GRID_TOLERANCE + GRID_TOLERANCE_PER_STEP * n_steps


def _bound_faults(low: float, high: float, scale: Scale) -> Iterator[Fault]:
    if low >= high:
        hint = "; for a constant use {type: fixed, value: ...}" if low == high else ""
        yield Fault(("high",), f"is {high}, must be above low, which is {low}{hint}")
    elif high - low == float("inf"):
        yield Fault(("high",), f"is {high} and low is {low}: they are further apart than a float64 can hold (1.8e308)")
    if scale == "log" and low <= 0:
        yield Fault(("low",), f"is {low}, must be above 0, because scale is log")


Parameter = Annotated[
    RealParameter | IntegerParameter | CategoricalParameter | FixedParameter, Field(discriminator="type")
]
PARAMETER_MODELS: dict[str, type[Section]] = {
    "real": RealParameter,
    "integer": IntegerParameter,
    "categorical": CategoricalParameter,
    "fixed": FixedParameter,
}
