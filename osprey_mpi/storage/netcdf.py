"""Write one variable so that netCDF, xarray and plain HDF5 readers all understand it."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from osprey_mpi.storage.schema import chunk_rows

TEXT = h5py.string_dtype("utf-8")
_CHUNK_BYTES = 1 << 20  # HDF5's own cache holds one chunk of this size


def write_variable(group: Any, name: str, data: NDArray[Any], dims: tuple[str, ...] = (), **attributes: Any) -> Any:
    """Write an array with checksums and attach the scale of each dimension; object arrays are strings.

    dims: names of scales in `group`, one an axis; empty for a scale itself.
    """
    is_text = data.dtype == object
    options: dict[str, Any] = {}
    if data.size:
        row_bytes = data.dtype.itemsize * int(np.prod(data.shape[1:], dtype=np.int64))
        options["chunks"] = (min(len(data), chunk_rows(row_bytes, _CHUNK_BYTES)), *data.shape[1:])
        # Of strings the chunk holds the addresses only: a checksum would not cover them, and netCDF refuses filters.
        options["fletcher32"] = not is_text
    dataset = group.create_dataset(name, data.shape, TEXT if is_text else data.dtype, data=data, **options)
    for axis, dimension in enumerate(dims):
        dataset.dims[axis].attach_scale(group[dimension])
    dataset.attrs.update(attributes)
    return dataset


def write_scale(group: Any, name: str, data: NDArray[Any], **attributes: Any) -> None:
    """Write the coordinate of a dimension."""
    write_variable(group, name, data, **attributes).make_scale(name)


def texts(values: Any) -> NDArray[Any]:
    """Return an object array of strings; NUL, which HDF5 cannot hold, is written out: a program may print it."""
    values = [value.replace("\0", "\\x00") for value in values]
    data = np.full(len(values), "", dtype=object)
    data[:] = values
    return data
