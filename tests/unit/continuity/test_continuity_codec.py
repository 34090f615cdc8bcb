"""Every message survives the wire; anything else raises ValueError."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from osprey_mpi.continuity.codec import decode, encode, pack_arrays, unpack_arrays
from osprey_mpi.continuity.messages import MESSAGES, Delta, Hello, Lease, Message, Order, Trouble
from osprey_mpi.continuity.records import PIECE, RECORD


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    raw = rng.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def _message(kind: type[Message], seed: int) -> Message:
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for item in fields(kind):  # type: ignore[arg-type]
        if "dtype" in item.metadata:
            shape = tuple(int(n) for n in rng.integers(0 if seed % 3 else 1, 5, item.metadata["ndim"]))
            values[item.name] = _array(item.metadata["dtype"], shape, rng)
        elif item.type == "str":
            values[item.name] = "".join(rng.choice(list('aß{"é 漢'), seed % 7))
        elif item.type == "float":
            values[item.name] = float(rng.choice([0.0, -0.0, 1e-308, np.inf, -np.inf, np.nan]))
        else:
            values[item.name] = int(rng.integers(-(2**63), 2**63 - 1))
    return kind(**values)


def _bits(message: Message) -> list[Any]:
    """Return what a message holds, bit for bit; an array without elements has no shape on the wire."""
    found: list[Any] = [type(message)]
    for item in fields(message):  # type: ignore[arg-type]
        value = getattr(message, item.name)
        if isinstance(value, np.ndarray):
            found.append((value.dtype, value.shape, value.tobytes()) if value.size else value.dtype)
        else:
            found.append(np.float64(value).tobytes() if isinstance(value, float) else value)
    return found


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("seed", range(9))
def test_round_trip(kind: type[Message], seed: int) -> None:
    message = _message(kind, seed)
    if any(0 in getattr(message, f.name).shape[1:] for f in fields(message) if "dtype" in f.metadata):  # type: ignore[arg-type]
        return  # rows without columns do not occur
    data = encode(message)
    assert _bits(decode(data)) == _bits(decode(bytearray(data))) == _bits(message)


@pytest.mark.parametrize("kind", MESSAGES)
def test_truncated_and_prolonged_messages_raise(kind: type[Message]) -> None:
    data = encode(_message(kind, 3))
    for n in range(len(data)):
        with pytest.raises(ValueError):
            decode(data[:n])
    with pytest.raises(ValueError, match="should have"):
        decode(data + b"\0")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, len(MESSAGES)))
@example(b"", 0)
def test_garbage_raises_value_error_or_is_a_message(data: bytes, code: int) -> None:
    for candidate in (data, code.to_bytes(8, "little") + data):
        try:
            message = decode(candidate)
        except ValueError:
            continue
        assert encode(message)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1))
def test_a_wrong_header_word_raises_or_changes_a_scalar(word: int, value: int) -> None:
    data = bytearray(encode(_message(Delta, 4)))
    if 8 * word + 8 > len(data):
        return
    data[8 * word : 8 * word + 8] = value.to_bytes(8, "little", signed=True)
    with contextlib.suppress(ValueError):
        decode(data)


def test_unknown_code() -> None:
    with pytest.raises(ValueError, match="unknown message code"):
        decode((len(MESSAGES)).to_bytes(8, "little"))


def test_bad_text_raises() -> None:
    data = encode(Trouble("ab"))
    with pytest.raises(ValueError):
        decode(data[:-2] + b"\xff\xff")


def test_defaults_and_decoded_arrays_are_read_only() -> None:
    assert decode(encode(Hello(3))) == Hello(3, 1)
    lease = decode(encode(Lease(0, -1, np.array([[0, 5]]))))
    assert isinstance(lease, Lease) and lease.ranges.tolist() == [[0, 5]] and lease.positions.size == 0
    order = decode(encode(Order(1, 2, 0, 2, 9, 1, np.ones((2, 3)))))
    assert isinstance(order, Order) and not order.positions.flags.writeable


def test_wire_and_file_rows_have_no_hidden_padding() -> None:
    assert RECORD.itemsize == 8 * 5 + 4 * 3 + 2 + 1 + 1
    assert PIECE.itemsize == 8 * 2 + 4 * 8 + 8


def test_named_arrays_are_packed_without_pickle() -> None:
    arrays = {"a": np.arange(3), "b": np.zeros((0, 2)), "c": np.array(7, np.uint8)}
    back = unpack_arrays(pack_arrays(arrays))
    assert back.keys() == arrays.keys()
    for name, value in arrays.items():
        assert back[name].dtype == value.dtype and back[name].shape == value.shape
        np.testing.assert_array_equal(back[name], value)
    with pytest.raises(ValueError):
        pack_arrays({"o": np.array([{}], dtype=object)})
