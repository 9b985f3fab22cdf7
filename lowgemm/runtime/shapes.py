"""What arrays in a device's memory are asked for with: shapes, element types, contents."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.errors import ArgumentTypeError, ArgumentValueError, ArrayLayoutError, DtypeError
from lowgemm.runtime.interface import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "array_layout",
    "checked_byte",
    "checked_host_array",
    "checked_part",
    "element_dtype",
    "element_of",
    "host_array",
    "shape_of",
    "shown",
    "whole_number",
    "whole_numbers",
]

# What numpy can address: no host array is larger, so no larger one could be downloaded.
_MOST_BYTES = 2**63 - 1
# bool, integers, floats, complex numbers; V: records, and number formats of the package ml_dtypes.
_KINDS = "biufcV"
_MOST_CHARACTERS = 60
_MOST_BYTES_OF_A_PART = 8  # a GPU has no number wider than float64: not numpy's longdouble


def shown(value: object) -> str:
    """A value in an error's text: short, whatever it is."""
    if isinstance(value, np.ndarray):
        return f"shape {value.shape}, {value.dtype}"
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python writes, or the object's own code
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def whole_number(value: object) -> int | None:
    """A Python or numpy integer as an int; None for all else, a bool too."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # the except takes what is none
    except TypeError:
        return None


def whole_numbers(value: object) -> tuple[int, ...] | None:
    """An integer, or a sequence of them, as a tuple; None for all else."""
    one = whole_number(value)
    if one is not None:
        return (one,)
    if isinstance(value, (str, bytes, bytearray, memoryview, set, frozenset, dict)):
        return None
    try:
        numbers = [whole_number(item) for item in value]  # type: ignore[attr-defined]
    except TypeError:
        return None
    whole = tuple(number for number in numbers if number is not None)
    return whole if len(whole) == len(numbers) else None


def shape_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple of ints.

    Raises
    ------
    ArrayLayoutError
        An extent is negative or not an integer.
    """
    extents = whole_numbers(shape)
    if extents is None:
        raise ArrayLayoutError(
            f"{shown(shape)} is no shape", "give the number of elements, or a tuple of extents"
        )
    if any(extent < 0 for extent in extents):
        raise ArrayLayoutError(f"the shape {shown(extents)} has a negative extent")
    return extents


def element_dtype(dtype: object) -> np.dtype[Any]:
    """A dtype that may lie in a device's memory.

    Raises
    ------
    DtypeError
        It is none, holds what is no number (objects, texts, times), or is in the other byte order.
    """
    try:
        if dtype is None:  # numpy means float64 by it, and the default here is float32
            raise TypeError("None names none")
        result: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise DtypeError(
            f"{shown(dtype)} is no dtype: {error}", "use one such as float32"
        ) from error
    if result.subdtype is not None:
        raise DtypeError(
            f"the dtype {result} is an array of {result.base}",
            "put its extents at the end of the shape",
        )
    if not _may_lie_on_a_device(result) or result.itemsize == 0:
        raise DtypeError(
            f"elements of {result} cannot lie in a GPU's memory",
            "use a numeric dtype in the machine's byte order",
        )
    return result


def _may_lie_on_a_device(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _may_lie_on_a_device(dtype.base)
    if dtype.fields is not None:
        return all(_may_lie_on_a_device(field[0]) for field in dtype.fields.values())
    if dtype.kind in "fc" and dtype.itemsize > _MOST_BYTES_OF_A_PART * (1 + (dtype.kind == "c")):
        return False
    return dtype.kind in _KINDS and dtype.isnative


def array_layout(
    shape: int | Sequence[int], dtype: object
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the dtype of a new array.

    Raises
    ------
    ArrayLayoutError
        It is no shape, or one that numpy cannot have: of too many dimensions, or too large.
    DtypeError
        It is no dtype for a device's memory; see :func:`element_dtype`.
    """
    extents, element = shape_of(shape), element_dtype(dtype)
    if math.prod(max(extent, 1) for extent in extents) * element.itemsize > _MOST_BYTES:
        raise ArrayLayoutError(
            f"an array of shape {shown(extents)}, {element} has more bytes than can be addressed",
            "choose smaller extents",
        )
    try:
        np.broadcast_to(np.empty((), np.uint8), extents)
    except ValueError as error:
        raise ArrayLayoutError(f"numpy has no array of shape {shown(extents)}: {error}") from error
    return extents, element


def host_array(host: object) -> np.ndarray[Any, Any]:
    """What numpy makes of a host array, a number or a sequence of them.

    Raises
    ------
    ArrayLayoutError
        It is ragged, masked, or in a device's memory.
    """
    if isinstance(host, Array):
        raise ArrayLayoutError(f"{host!r} is no host array", "download it first: x.download()")
    if isinstance(host, np.ma.MaskedArray):
        raise ArrayLayoutError(
            "the host array is masked; a device sees no mask", "fill it first: x.filled(0)"
        )
    try:
        return np.asarray(host)
    except Exception as error:  # other libraries' arrays convert themselves
        raise ArrayLayoutError(
            f"numpy makes no array of a {type(host).__name__}: {error}",
            "give a numpy array, or rows of the same length",
        ) from error


def checked_host_array(array: Array, host: object) -> np.ndarray[Any, Any]:
    """A host array that fits an array of a device, C-contiguous.

    Raises
    ------
    DtypeError, ArrayLayoutError
        It is none, or has another dtype or shape.
    """
    given = host_array(host)
    if given.dtype != array.dtype:
        raise DtypeError(
            f"the host array holds {given.dtype}, the device array {array.dtype}",
            f"convert it: numpy.asarray(x, '{array.dtype}')",
        )
    if given.shape != array.shape:
        raise ArrayLayoutError(
            f"the host array has shape {given.shape}, the device array {array.shape}"
        )
    return np.ascontiguousarray(given)


def checked_part(
    array: Array, offset: int, shape: int | Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """The first element and the shape of a part of an array.

    Raises
    ------
    ArrayLayoutError
        It does not lie within the array, or the offset is not an integer.
    """
    extents, first = shape_of(shape), whole_number(offset)
    if first is None:
        raise ArrayLayoutError(
            f"the offset {shown(offset)} is no number of elements", "give it as an int"
        )
    count = math.prod(extents)
    if not 0 <= first <= first + count <= array.size:
        raise ArrayLayoutError(
            f"a part of {shown(count)} elements from element {shown(first)} on does not lie "
            f"within {array.size} elements"
        )
    return first, array_layout(extents, array.dtype)[0]


# ---- what an array is filled with


def checked_byte(value: object) -> int:
    """A byte's value.

    Raises
    ------
    ArgumentTypeError
        It is not an integer.
    ArgumentValueError
        It is not in 0 to 255.
    """
    number = whole_number(value)
    if number is None:
        raise ArgumentTypeError(f"a byte cannot be {shown(value)}", "give an int from 0 to 255")
    if not 0 <= number <= 255:
        raise ArgumentValueError(f"a byte cannot be {shown(number)}: it takes 0 to 255")
    return number


def element_of(value: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A number as one element of a dtype, an array of no dimension.

    A floating-point element is rounded; an integer takes what it holds exactly.

    Raises
    ------
    ArgumentTypeError
        It is no number (for a record: not its values).
    ArgumentValueError
        The dtype cannot hold it.
    """
    if dtype.kind == "V":
        return _record(value, dtype)
    number = _number(value)
    if number is None:
        raise ArgumentTypeError(
            f"an element of {dtype} cannot be {shown(value)}", "give an int, a float or a complex"
        )
    try:
        element = _integral(number, dtype) if dtype.kind in "biu" else _rounded(number, dtype)
    except (OverflowError, ValueError):  # no int is infinite or a NaN, no float has 400 digits
        element = None
    if element is None:
        raise ArgumentValueError(
            f"an element of {dtype} cannot hold {shown(number)}",
            "give a value in its range; convert it first if loss is meant",
        )
    return element


def _record(value: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        element = np.asarray(value, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"an element of {dtype} cannot be {shown(value)}: {error}", "give a tuple of its values"
        ) from error
    if element.shape != ():
        raise ArgumentTypeError(f"{shown(value)} is not one element of {dtype}", "upload an array")
    return element


def _number(value: object) -> complex | None:
    if value is np.ma.masked:
        return None
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    return value if isinstance(value, (int, float, complex)) else None


def _real(number: complex) -> float | None:
    if isinstance(number, complex):
        return None if number.imag else number.real
    return number


def _integral(number: complex, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    real = _real(number)
    if real is None or int(real) != real:
        return None
    if dtype.kind == "b":
        low, high = 0, 1
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.asarray(int(real), dtype) if low <= real <= high else None


def _rounded(number: complex, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    given = number if dtype.kind == "c" else _real(number)
    if given is None:
        return None
    with np.errstate(all="ignore"):
        element = np.asarray(given, dtype)
    return element if bool(np.isfinite(element)) == bool(np.isfinite(complex(given))) else None
