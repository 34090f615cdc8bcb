"""Stand in for CuPy on machines without a GPU: NumPy arithmetic behind arrays that never turn into host arrays.

What CuPy refuses is refused: host arrays as operands, `numpy.asarray` of a device array, functions CuPy 14 has not.
What CuPy allows but what would wait for the device unseen is refused, too: float(), int(), bool() and iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# All of them checked to exist in CuPy 14.2.
_FUNCTIONS = """
abs arange argsort ascontiguousarray asarray ceil clip concatenate cos cumsum empty equal exp expm1 floor fmax fmin full
hypot isfinite isnan log log10 logical_and logical_or matmul maximum minimum multiply ones ones_like power prod
right_shift rint roll searchsorted sign sin sqrt stack sum take where zeros zeros_like
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
VALUES = {"float64", "float32", "int64", "int32", "uint64", "uint32", "nan", "inf", "pi", "bool_"}
_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_COMPARISONS = "lt le gt ge eq ne"
METHODS = {"reshape", "sum", "max", "min", "astype", "copy", "view", "any", "all", "argsort"}


class DeviceArray:
    """Hold an array that is out of the host's reach."""

    __array_ufunc__ = None  # numpy_array * device_array is a TypeError, as with CuPy

    def __init__(self, host: Any) -> None:
        self._host = np.asarray(host)

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("implicit conversion to a host array is not allowed")

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "ndim", "dtype", "size"):
            return getattr(self._host, name)
        if name == "T":
            return DeviceArray(self._host.T)
        if name in METHODS:
            return lambda *args, **kwargs: DeviceArray(getattr(self._host, name)(*map(_plain, args), **kwargs))
        raise AttributeError(f"a device array has no {name} here")

    def __getitem__(self, index: Any) -> DeviceArray:
        return DeviceArray(self._host[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._host[_index(index)] = _plain(value)

    def __bool__(self) -> bool:
        raise TypeError("truth of a device array: the host would wait for it")

    __int__ = __float__ = __index__ = __iter__ = __bool__  # type: ignore[assignment]  # all of them only raise

    def __len__(self) -> int:
        return len(self._host)

    def __neg__(self) -> DeviceArray:
        return DeviceArray(-self._host)

    def __invert__(self) -> DeviceArray:
        return DeviceArray(~self._host)


def _binary(name: str) -> Any:
    def operate(self: DeviceArray, other: Any) -> Any:
        result = getattr(self._host, name)(_plain(other))
        if result is NotImplemented:
            return result
        return self if result is self._host else DeviceArray(result)

    return operate


for _name in _ARITHMETIC.split():
    setattr(DeviceArray, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(DeviceArray, f"__r{_name}__", _binary(f"__r{_name}__"))
    if _name != "matmul":
        setattr(DeviceArray, f"__i{_name}__", _binary(f"__i{_name}__"))
for _name in _COMPARISONS.split():
    setattr(DeviceArray, f"__{_name}__", _binary(f"__{_name}__"))


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return value


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_index(item) for item in index)
    return index._host if isinstance(index, DeviceArray) else index  # CuPy takes NumPy arrays as indices


class StrictNamespace:
    """Offer those functions of NumPy that CuPy has, for device arrays only."""

    __name__ = "strict"

    def __getattr__(self, name: str) -> Any:
        if name in VALUES:
            return getattr(np, name)
        if name not in FUNCTIONS:
            raise AttributeError(f"{name} is not known to exist on the device")
        function = getattr(np, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "asarray":
                host = args[0]._host if isinstance(args[0], DeviceArray) else np.asarray(args[0])
                if host.dtype == object:
                    raise ValueError("Unsupported dtype object")
                return DeviceArray(host.copy())
            result = function(*map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})
            return kwargs["out"] if "out" in kwargs else DeviceArray(result)

        return call


def to_host(array: DeviceArray) -> Any:
    """Copy to the host, openly."""
    if not isinstance(array, DeviceArray):
        raise TypeError(f"{type(array).__name__} is no device array")
    return array._host.copy()


xp = StrictNamespace()
