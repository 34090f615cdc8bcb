"""Say which GPUs a process sees, and in which order, from CUDA_VISIBLE_DEVICES and the list of all GPUs.

NVML numbers all GPUs of the machine, CUDA those that the variable names: an index means nothing without it, so the
result is a list of UUIDs (CUDA C++ Programming Guide, "CUDA Environment Variables").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Identity(Protocol):
    """Name a GPU and the MIG instances on it."""

    @property
    def uuid(self) -> str | None: ...

    @property
    def mig_uuids(self) -> tuple[str, ...]: ...


def visible_uuids(value: str | None, gpus: Sequence[Identity]) -> tuple[str | None, ...]:
    """Return the UUIDs of the visible devices in CUDA's order.

    value: what CUDA_VISIBLE_DEVICES holds; None: it is not set, all GPUs are visible; "" and "-1" mean none.
    gpus: all GPUs in NVML's order. A UUID that could not be read is None.
    Tokens are indices, UUIDs, beginnings of UUIDs that fit one device only, or MIG instances (MIG-<uuid>,
    MIG-<gpu>/<instance>/<instance>). As in CUDA, everything after the first token that fits nothing is ignored, and
    naming a device twice makes none visible.
    """
    if value is None:
        return tuple(gpu.uuid for gpu in gpus)
    places: list[int | str] = []
    for token in value.split(","):
        place = _place(token.strip(), gpus)
        if place is None:
            break
        if place in places:
            return ()
        places.append(place)
    return tuple(gpus[place].uuid if isinstance(place, int) else place for place in places)


def _place(token: str, gpus: Sequence[Identity]) -> int | str | None:
    """Return a GPU's place in NVML's order or a MIG instance's name, None for a token that fits nothing."""
    if token.isascii() and token.isdigit():
        index = int(token)
        return index if index < len(gpus) else None
    if token.startswith("MIG-GPU-"):
        return token if _parent(token, gpus) is not None else None
    if token.startswith("MIG-") and len(token) > len("MIG-"):
        names = [name for gpu in gpus for name in gpu.mig_uuids if name.startswith(token)]
        return names[0] if len(names) == 1 else None
    if token.startswith("GPU-") and len(token) > len("GPU-"):
        found = [place for place, gpu in enumerate(gpus) if gpu.uuid is not None and gpu.uuid.startswith(token)]
        return found[0] if len(found) == 1 else None
    return None


def _parent(token: str, gpus: Sequence[Identity]) -> int | None:
    """Return the GPU of a MIG instance named the old way, MIG-GPU-<uuid>/<gpu instance>/<compute instance>."""
    name, *instances = token.removeprefix("MIG-").split("/")
    if len(instances) != 2 or not all(instance.isdigit() for instance in instances):
        return None
    found = [place for place, gpu in enumerate(gpus) if gpu.uuid == name]
    return found[0] if found else None


def order_is_certain(environment: Mapping[str, str], names: Sequence[str | None]) -> bool:
    """Tell whether an index means the same GPU to CUDA and to NVML.

    CUDA puts the fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID; among equal GPUs the two orders agree.
    """
    return environment.get("CUDA_DEVICE_ORDER", "") == "PCI_BUS_ID" or len(set(names)) <= 1
