"""CUDA_VISIBLE_DEVICES in all its forms."""

from __future__ import annotations

import pytest

from osprey_mpi.device.inventory import Gpu
from osprey_mpi.device.visible import order_is_certain, visible_uuids

A, B, C, D = (f"GPU-{start}-aaaa-bbbb-cccc-00000000000{i}" for i, start in enumerate(("10ab", "10cd", "2000", "3000")))
SLICE = "MIG-77aa-1111-2222-3333-444444444444"
GPUS = [Gpu(0, uuid=A), Gpu(1, uuid=B, mig_uuids=(SLICE,)), Gpu(2, uuid=C), Gpu(3, uuid=D)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (A, B, C, D)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("3,1", (D, B)),
        (" 2 , 0 ", (C, A)),
        ("1,7,2", (B,)),
        ("0,x,1", (A,)),
        ("0,-1,1", (A,)),
        ("1,1", ()),
        (f"0,{A}", ()),
        (C, (C,)),
        (f"{D},{A}", (D, A)),
        ("GPU-3", (D,)),
        ("GPU-10", ()),
        ("GPU-10c,0", (B, A)),
        ("GPU-", ()),
        ("GPU-ffff,1", ()),
        (SLICE, (SLICE,)),
        ("MIG-77", (SLICE,)),
        ("MIG-99", ()),
        (f"MIG-{B}/1/0", (f"MIG-{B}/1/0",)),
        (f"MIG-{B}/1", ()),
        ("MIG-GPU-ffff/1/0", ()),
        ("³", ()),
        ("0;1", ()),
    ],
)
def test_forms(value: str | None, expected: tuple[str, ...]) -> None:
    assert visible_uuids(value, GPUS) == expected


def test_gpus_without_a_readable_uuid_keep_their_place() -> None:
    assert visible_uuids("1,0", [Gpu(0), Gpu(1)]) == (None, None)


def test_an_index_is_certain_only_where_both_orders_agree() -> None:
    assert order_is_certain({}, ["H200", "H200"]) and not order_is_certain({}, ["H200", "T4"])
    assert order_is_certain({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["H200", "T4"])
