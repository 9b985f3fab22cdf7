"""Shapes and element types of arrays in a device's memory."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.errors import ArrayLayoutError, DtypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.runtime.interface import Array

__all__ = ["checked_host_array", "checked_part", "element_dtype", "shape_of"]


def shape_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple of ints.

    Raises
    ------
    ArrayLayoutError
        An extent is negative or not an integer.
    """
    try:
        extents = (operator.index(shape),)  # type: ignore[arg-type]  # the except takes sequences
    except TypeError:
        try:
            extents = tuple(operator.index(extent) for extent in shape)  # type: ignore[union-attr, assignment]
        except TypeError as error:
            raise ArrayLayoutError(f"{shape!r} is no shape: {error}") from error
    if any(extent < 0 for extent in extents):
        raise ArrayLayoutError(f"the shape {extents} has a negative extent")
    return extents


def element_dtype(dtype: object) -> np.dtype[Any]:
    """A dtype that may lie in a device's memory.

    Raises
    ------
    DtypeError
        It is none, holds Python objects, or is in the other byte order.
    """
    try:
        result: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise DtypeError(f"{dtype!r} is no dtype: {error}") from error
    if result.hasobject or not result.isnative or result.itemsize == 0:
        raise DtypeError(
            f"elements of {result} cannot lie in a GPU's memory",
            "use a numeric dtype in the machine's byte order",
        )
    return result


def checked_host_array(array: Array, host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A host array that fits an array of a device, C-contiguous.

    Raises
    ------
    DtypeError, ArrayLayoutError
        It has another dtype or shape.
    """
    host = np.asarray(host)
    if host.dtype != array.dtype:
        raise DtypeError(
            f"the host array holds {host.dtype}, the device array {array.dtype}",
            f"convert it: x.astype(numpy.{array.dtype})",
        )
    if host.shape != array.shape:
        raise ArrayLayoutError(
            f"the host array has shape {host.shape}, the device array {array.shape}"
        )
    return np.ascontiguousarray(host)


def checked_part(array: Array, offset: int, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of a part of an array that begins at an element.

    Raises
    ------
    ArrayLayoutError
        It does not lie within the array.
    """
    extents = shape_of(shape)
    count = math.prod(extents)
    if not 0 <= offset <= offset + count <= array.size:
        raise ArrayLayoutError(
            f"a part of {count} elements from element {offset} on does not lie within "
            f"{array.size} elements"
        )
    return extents
