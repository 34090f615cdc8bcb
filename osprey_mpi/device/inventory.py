"""Describe the GPUs of this machine as NVML tells them; what cannot be read is None, with the reason, never 0.

A GPU is known by its UUID: indices change with the driver's order, with the environment and after a reset. A query of
a GPU that is lost can hang in the driver, so `read_in_child` asks in a process that can be left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

LIMIT_S = 10.0  # a whole node of eight GPUs answers in well under a second, the first time in a few

# What the kernel shows where an NVIDIA driver is loaded; the last one is that of WSL.
DRIVER_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")

# NVML counts clocks in MHz and power in mW; here everything is in Hz, W and bytes.
REASONS = {
    0x1: "idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t


@dataclass(frozen=True, slots=True)
class Gpu:
    """Hold what NVML said about one GPU. `unknown` names the error for every field that is None."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    compute_capability: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_max_hz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    temperature_c: int | None = None
    utilization: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    mig_mode: bool | None = None
    compute_mode: str | None = None
    mig_uuids: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Hold all GPUs of the machine in NVML's order; `error` says why there are none, or which part is missing."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    error: str | None = None


class _Unknown(Exception):
    """Say that an answer is no answer."""


def _positive(value: int) -> int:
    # Virtual machines and containers report links of width 0 and memories of 0 bytes.
    if value <= 0:
        raise _Unknown(f"reported as {value}")
    return value


def _clock(nvml: Any, handle: Any, kind: int) -> int:
    return int(nvml.nvmlDeviceGetClockInfo(handle, kind)) * 1_000_000


def _clock_max(nvml: Any, handle: Any, kind: int) -> int:
    return _positive(nvml.nvmlDeviceGetMaxClockInfo(handle, kind)) * 1_000_000


def _throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # the name before driver 535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    named = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return (*named, f"0x{rest:x}") if rest else tuple(named)


def _capability(nvml: Any, handle: Any) -> str:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{_positive(major)}.{minor}"


def _compute_mode(nvml: Any, handle: Any) -> str:
    mode = int(nvml.nvmlDeviceGetComputeMode(handle))
    return COMPUTE_MODES.get(mode, str(mode))


QUERIES: dict[str, Callable[[Any, Any], Any]] = {
    "uuid": lambda n, h: n.nvmlDeviceGetUUID(h),
    "name": lambda n, h: n.nvmlDeviceGetName(h),
    "pci_bus_id": lambda n, h: _text(n.nvmlDeviceGetPciInfo(h).busId),
    "compute_capability": _capability,
    "memory_total_bytes": lambda n, h: _positive(n.nvmlDeviceGetMemoryInfo(h).total),
    "memory_used_bytes": lambda n, h: int(n.nvmlDeviceGetMemoryInfo(h).used),
    "sm_clock_hz": lambda n, h: _clock(n, h, SM),
    "sm_clock_max_hz": lambda n, h: _clock_max(n, h, SM),
    "memory_clock_hz": lambda n, h: _clock(n, h, MEMORY),
    "memory_clock_max_hz": lambda n, h: _clock_max(n, h, MEMORY),
    "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000,
    "power_limit_w": lambda n, h: _positive(n.nvmlDeviceGetPowerManagementLimit(h)) / 1000,
    "power_limit_default_w": lambda n, h: _positive(n.nvmlDeviceGetPowerManagementDefaultLimit(h)) / 1000,
    "temperature_c": lambda n, h: int(n.nvmlDeviceGetTemperature(h, 0)),
    "utilization": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu / 100,
    "throttle_reasons": _throttle_reasons,
    "pcie_generation": lambda n, h: _positive(n.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    "pcie_generation_max": lambda n, h: _positive(n.nvmlDeviceGetMaxPcieLinkGeneration(h)),
    "pcie_width": lambda n, h: _positive(n.nvmlDeviceGetCurrPcieLinkWidth(h)),
    "pcie_width_max": lambda n, h: _positive(n.nvmlDeviceGetMaxPcieLinkWidth(h)),
    "mig_mode": lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0]),
    "compute_mode": _compute_mode,
}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _ask(query: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """Return (answer, None) or (None, name of the error): a field that is missing is data, not a failure."""
    try:
        answer = query(*arguments)
        if answer is None or answer == "":  # some drivers answer so on MIG slices
            return None, "no answer"
        return answer, None
    except _Unknown as reason:
        return None, str(reason)
    except Exception as error:
        return None, type(error).__name__.removeprefix("NVMLError_")


def _mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    names = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        slice_handle, error = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if error is None:  # instances come and go, their places need not be contiguous
            name, _ = _ask(nvml.nvmlDeviceGetUUID, slice_handle)
            names += [_text(name)] if name is not None else []
    return tuple(names)


def _gpu(nvml: Any, index: int) -> Gpu:
    handle, failure = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if failure is not None:
        return Gpu(index, unknown=dict.fromkeys(QUERIES, failure))
    answers: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, query in QUERIES.items():
        answer, failure = _ask(query, nvml, handle)
        answers[name] = _text(answer) if isinstance(answer, bytes) else answer
        if failure is not None:
            unknown[name] = failure
    mig_uuids, _ = _ask(_mig_uuids, nvml, handle) if answers["mig_mode"] else ((), None)
    return Gpu(index, **answers, mig_uuids=mig_uuids or (), unknown=unknown)


def read() -> Inventory:
    """Ask NVML in this process; never raises, but may take as long as a broken driver takes."""
    try:
        import pynvml as nvml
    except Exception as error:
        return Inventory(error=f"NVML's Python module cannot be imported: {type(error).__name__}: {error}")
    _, failure = _ask(lambda: nvml.nvmlInit() or True)
    if failure is not None:
        return Inventory(error=f"NVML cannot be used: {failure}")
    try:
        driver_version, _ = _ask(nvml.nvmlSystemGetDriverVersion)
        number, _ = _ask(lambda: _positive(nvml.nvmlSystemGetCudaDriverVersion()))
        cuda_version = None if number is None else f"{number // 1000}.{number % 1000 // 10}"
        n_gpus, failure = _ask(nvml.nvmlDeviceGetCount)
        gpus = tuple(_gpu(nvml, index) for index in range(n_gpus or 0))
        reason = None if failure is None else f"NVML cannot count GPUs: {failure}"
        return Inventory(gpus, None if driver_version is None else _text(driver_version), cuda_version, reason)
    finally:
        _ask(lambda: nvml.nvmlShutdown() or True)


def read_in_child(limit_s: float = LIMIT_S) -> Inventory:
    """Ask NVML in a child process, and leave it behind after `limit_s` seconds."""
    command = [sys.executable, "-m", "osprey_mpi.device.inventory"]
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment())
    except OSError as error:
        return Inventory(error=f"no process to ask NVML in: {error}")
    try:
        output, complaint = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.kill()  # and no wait: a process that hangs inside the driver does not end
        return Inventory(error=f"NVML did not answer within {limit_s:g} s")
    try:
        return from_json(output)
    except (ValueError, KeyError, TypeError):
        last = complaint.strip().splitlines()[-1:] or ["no output"]
        return Inventory(error=f"the process that asks NVML ended with {child.returncode}: {last[0]}")


def inventory(limit_s: float = LIMIT_S) -> list[dict[str, Any]]:
    """Return one row per GPU of this host, as JSON values; [] where there is no driver, without a process."""
    if not any(Path(sign).exists() for sign in DRIVER_SIGNS):
        return []
    found = read_in_child(limit_s)
    shared = {"driver_version": found.driver_version, "cuda_version": found.cuda_version}
    rows = [{**asdict(gpu), **shared} for gpu in found.gpus]
    for row in rows:
        # A GPU whose UUID cannot be read is known by its address, which at least no other of this host has.
        row["uuid"] = row["uuid"] or f"unknown-{row['pci_bus_id'] or row['index']}"
        row["memory_bytes"] = row["memory_total_bytes"]
    return rows


def _environment() -> dict[str, str]:
    """Make the child find this package, however this process found it."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}


def to_json(inventory: Inventory) -> str:
    """Write an inventory as one line of JSON."""
    return json.dumps(asdict(inventory))


def from_json(text: str) -> Inventory:
    """Read what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
    data = json.loads(text)
    tuples = {f.name for f in fields(Gpu) if "tuple" in str(f.type)}
    gpus: list[dict[str, Any]] = data.pop("gpus")
    for gpu in gpus:
        gpu.update({key: tuple(gpu[key]) for key in tuples if gpu[key] is not None})
    return Inventory(gpus=tuple(Gpu(**gpu) for gpu in gpus), **data)


if __name__ == "__main__":
    sys.stdout.write(to_json(read()) + "\n")
