"""Peak side lobe of a linear antenna array whose amplitudes, phases or element positions are searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.evaluate.builtin.base import (
    ELEMENTARY,
    Array,
    Arrays,
    BatchFunction,
    Builtin,
    Layout,
    Option,
    in_chunks,
    problem,
)

NAME = "antenna_array"
PARAMETERS = ("amplitude", "phase", "position")

# Added to both powers of the ratio: an array that radiates nothing costs 0 dB, not the logarithm of 0.
DARK = 1e-30


def chebyshev_edge(n_elements: int, level_db: float) -> float:
    """Return x0 > 1 with T_{N-1}(x0) = 10^(level / 20): where the main lobe's peak lies (Dolph 1946, eq. 17)."""
    return float(np.cosh(np.arccosh(10.0 ** (level_db / 20.0)) / (n_elements - 1)))


def chebyshev_weights(n_elements: int, level_db: float) -> NDArray[np.float64]:
    """Return the Dolph-Chebyshev amplitudes (n_elements,), largest 1: all side lobes `level_db` below the main one."""
    psi = 2 * np.pi * np.arange(n_elements) / n_elements
    argument = chebyshev_edge(n_elements, level_db) * np.cos(psi / 2)
    pattern = np.polynomial.chebyshev.chebval(argument, [0.0] * (n_elements - 1) + [1.0])
    places = np.arange(n_elements) - (n_elements - 1) / 2
    weights = np.cos(np.outer(places, psi)) @ pattern
    return np.asarray(weights / weights.max(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Array:
    """Hold the geometry, on the device.

    columns: for each searched parameter its columns among the values; spread: for it (n_columns, n_elements), which
    value belongs to which element (mirrored ones twice, for positions with a sign).
    waves: (n_angles,) 2 pi sin(theta) of the side lobe region; places: (n_elements,) wavelengths.
    """

    columns: Mapping[str, slice]
    spread: Mapping[str, Array]
    waves: Array
    places: Array
    xp: ModuleType

    def of(self, name: str, values: Array) -> Array | None:
        """Return one searched quantity per element, (n, n_elements), None where it is not searched."""
        return values[:, self.columns[name]] @ self.spread[name] if name in self.columns else None


def _ratio_db(peak: Array, forward: Array, xp: ModuleType) -> Array:
    return 10.0 * xp.log10((peak + DARK) / (forward + DARK))


def _peak(real: Array, imaginary: Array | None) -> Array:
    """Return the largest power over the last axis; overwrites both parts."""
    real *= real
    if imaginary is not None:
        imaginary *= imaginary
        real += imaginary
    return real.max(axis=1)


def _amplitudes_only(array: _Array, cosines: Array, sines: Array | None, values: Array) -> Array:
    """Compute costs where positions are fixed and phases zero: one or two matrix products."""
    searched = values[:, array.columns["amplitude"]]
    forward = searched @ array.spread["amplitude"].sum(axis=1)
    peak = _peak(searched @ cosines, None if sines is None else searched @ sines)
    return _ratio_db(peak, forward * forward, array.xp)


def _fixed_places(array: _Array, cosines: Array, sines: Array, values: Array) -> Array:
    """Compute costs where positions are fixed: complex weights times the steering matrix, in real arithmetic."""
    xp, amplitude, phase = array.xp, array.of("amplitude", values), array.of("phase", values)
    assert phase is not None, "without phases the pattern needs amplitudes only"
    real, imaginary = xp.cos(phase), xp.sin(phase)
    if amplitude is not None:
        real *= amplitude
        imaginary *= amplitude
    forward = real.sum(axis=1) ** 2 + imaginary.sum(axis=1) ** 2
    peak = _peak(real @ cosines - imaginary @ sines, real @ sines + imaginary @ cosines)
    return _ratio_db(peak, forward, xp)


def _free_places(array: _Array, values: Array) -> Array:
    """Compute costs where positions are searched; temporaries are (n, n_angles, n_elements)."""
    xp = array.xp
    amplitude, phase, places = (array.of(name, values) for name in PARAMETERS)
    assert places is not None, "positions are searched here"
    weights = xp.ones_like(places) if amplitude is None else amplitude
    turned = xp.zeros_like(places) if phase is None else phase
    turns = places[:, None, :] * array.waves[None, :, None]
    turns += turned[:, None, :]
    real = (xp.cos(turns) @ weights[:, :, None])[:, :, 0]
    imaginary = (xp.sin(turns) @ weights[:, :, None])[:, :, 0]
    forward = (weights * xp.cos(turned)).sum(axis=1) ** 2 + (weights * xp.sin(turned)).sum(axis=1) ** 2
    return _ratio_db(_peak(real, imaginary), forward, xp)


def _spread(name: str, given: int, n_elements: int) -> NDArray[np.float64]:
    """Return (given, n_elements): the identity, or for half the elements their mirror images from the centre out."""
    if given == n_elements:
        return np.eye(n_elements)
    if 2 * given != n_elements:
        raise problem(
            NAME, f"size is {given}, must be n_elements = {n_elements}, or half of it (mirrored)", f"parameters.{name}"
        )
    half = np.eye(given)
    return np.hstack([half[:, ::-1] * (-1.0 if name == "position" else 1.0), half])


def _check(layout: Layout, options: Mapping[str, Any]) -> float:
    """Return sin(theta) where the side lobes begin."""
    unknown = [name for name in layout.sizes if name not in PARAMETERS]
    if unknown or not layout.sizes:
        raise problem(NAME, f"parameters are {', '.join(layout.sizes)}, must be of {', '.join(PARAMETERS)}")
    n, spacing, design_db, main_lobe_deg = (
        options[key] for key in ("n_elements", "spacing", "design_db", "main_lobe_deg")
    )
    for key, value, low in (
        ("n_elements", n, 2),
        ("spacing", spacing, 0.01),
        ("design_db", design_db, 1),
        ("n_angles", options["n_angles"], 2),
    ):
        if not value >= low:
            raise problem(NAME, f"{key} is {value}, must be {low} or more", f"objective.options.{key}")
    edge = float(np.arccos(1.0 / chebyshev_edge(n, design_db)) / (np.pi * spacing))
    if main_lobe_deg is not None:
        edge = float(np.sin(np.radians(main_lobe_deg / 2.0)))
    if not 0.0 < edge < 1.0:
        raise problem(
            NAME, f"the main lobe ends at sin(theta) = {edge:.3g}, must be between 0 and 1", "objective.options"
        )
    return edge


def _optimum(
    layout: Layout, options: Mapping[str, Any], spread: Mapping[str, NDArray[np.float64]], edge: float
) -> tuple[float | None, NDArray[np.float64] | None]:
    """Return the known optimum: no weights do better than Dolph's at half a wavelength, for their main lobe width."""
    n = options["n_elements"]
    if options["spacing"] != 0.5 or "position" in spread or "amplitude" not in spread:
        return None, None
    level_db = float(20.0 * np.log10(np.cosh((n - 1) * np.arccosh(1.0 / np.cos(np.pi * 0.5 * edge)))))
    weights = chebyshev_weights(n, level_db)[-spread["amplitude"].shape[0] :]
    values = np.zeros(layout.n_columns)
    values[layout.columns("amplitude")] = weights * layout.highs[layout.columns("amplitude")].min()
    inside = bool(np.all((layout.lows <= values) & (values <= layout.highs)))
    return (-level_db, values) if inside else (None, None)


def _build(layout: Layout, options: Mapping[str, Any], arrays: Arrays) -> BatchFunction:
    edge, n, m, xp = _check(layout, options), options["n_elements"], options["n_angles"], arrays.xp
    spread = {name: _spread(name, size, n) for name, size in layout.sizes.items()}
    waves = 2 * np.pi * np.linspace(edge, 1.0, m)
    symmetric = set(spread) <= {"amplitude"} or all(2 * len(matrix) == n for matrix in spread.values())
    if not symmetric:  # real weights, or mirrored ones, radiate alike to both sides
        waves = np.concatenate([-waves[::-1], waves])
    places = options["spacing"] * (np.arange(n) - (n - 1) / 2)
    columns = {name: layout.columns(name) for name in spread}
    array = _Array(columns, {k: xp.asarray(v) for k, v in spread.items()}, xp.asarray(waves), xp.asarray(places), xp)
    evaluate, per_row, flops = _kernel(array, np.outer(places, waves), spread, len(waves))
    optimum = _optimum(layout, options, spread, edge)
    return BatchFunction(in_chunks(evaluate, 8 * per_row, arrays), flops, 8 * (layout.n_columns + 1), *optimum)


def _kernel(
    array: _Array, turns: NDArray[np.float64], spread: Mapping[str, NDArray[np.float64]], n_angles: int
) -> tuple[Callable[[Array], Array], int, float]:
    """Choose the cheapest form; returns it, the numbers in its largest temporary and its operations per row."""
    n, xp = turns.shape[0], array.xp
    if "position" in spread:
        return partial(_free_places, array), n * n_angles, float((2 * ELEMENTARY + 6) * n * n_angles)
    cosines, sines = np.cos(turns), np.sin(turns)
    if "phase" in spread:
        return partial(_fixed_places, array, xp.asarray(cosines), xp.asarray(sines)), n_angles, 8.0 * n * n_angles
    fold = spread["amplitude"]
    mirrored = len(fold) < n  # the sines of mirror images cancel
    folded = xp.asarray(fold @ cosines), None if mirrored else xp.asarray(fold @ sines)
    flops = (2.0 if mirrored else 4.0) * len(fold) * n_angles
    return partial(_amplitudes_only, array, *folded), n_angles, flops


ANTENNA_ARRAY = Builtin(
    NAME,
    "peak side lobe of a linear antenna array in dB below the main lobe, broadside",
    "real array parameters named amplitude, phase (radians) or position (wavelengths from the centre), one or more of "
    "them, each of size n_elements, or n_elements / 2 for mirrored elements from the centre out",
    _build,
    {
        "n_elements": Option(int, 16, "number of elements", most=4096),
        "spacing": Option((int, float), 0.5, "distance of neighbours in wavelengths, where positions are not searched"),
        "design_db": Option((int, float), 30.0, "main lobe as wide as a Dolph-Chebyshev array of this level has it"),
        "main_lobe_deg": Option((int, float, type(None)), None, "full main lobe width in degrees; null: by design_db"),
        "n_angles": Option(
            int, 361, "angles per side, uniform in sin(theta), from the main lobe's edge to 90 degrees", most=16384
        ),
    },
)
