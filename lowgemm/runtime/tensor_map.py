"""Tensor maps: what TMA is told of an array in global memory, checked before it is encoded.

The limits are those of ``cuTensorMapEncodeTiled`` in the CUDA driver API (group "Tensor Map Object
Management"). The hardware checks none of them by itself: a map that breaks one faults, or copies
other bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
)
from lowgemm.runtime.interchange import (
    ArrayView,
    ElementType,
    as_view,
    byte_range,
    has_cuda_interface,
    is_dlpack,
)
from lowgemm.runtime.interface import Array
from lowgemm.runtime.shapes import shape_of, shown, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.runtime.interface import Device

__all__ = [
    "ELEMENT_TYPES",
    "L2_PROMOTIONS",
    "SWIZZLE_SPANS",
    "TENSOR_MAP_ALIGNMENT",
    "TENSOR_MAP_BYTES",
    "TensorLayout",
    "TensorMap",
    "make_tensor_map",
]

#: ``CUtensorMap`` in cuda.h: 16 words of 64 bits.
TENSOR_MAP_BYTES = 128
#: Where one must lie in memory.
TENSOR_MAP_ALIGNMENT = 64
#: Bytes of a row within which each swizzle exchanges 16-byte chunks; 0: it exchanges none.
SWIZZLE_SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
#: Bytes that L2 fetches from DRAM at least.
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
#: The driver's data type (CU_TENSOR_MAP_DATA_TYPE_...) by element type. TMA moves bits: signs and
#: formats of 8 and 16 bits that it has no name for go as unsigned integers.
ELEMENT_TYPES = {
    **dict.fromkeys(("uint8", "int8", "bool", "void"), "UINT8"),
    **dict.fromkeys(("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"), "UINT8"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"), "UINT8"),
    **dict.fromkeys(("float8_e5m2fnuz", "float8_e8m0fnu"), "UINT8"),
    **dict.fromkeys(("uint16", "int16"), "UINT16"),
    "uint32": "UINT32",
    "int32": "INT32",
    "uint64": "UINT64",
    "int64": "INT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
}
_MOST_AXES = 5
_MOST_EXTENT = 1 << 32
_STRIDE_LIMIT = 1 << 40
_MOST_BOX = 256
#: Pointers, strides and rows of a box are multiples of it.
_GRANULE = 16
_NEEDS = (9, 0)
_LEGACY_STREAM = 1


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """What a tensor map describes; axes in the order of the array's shape, the innermost last.

    ``strides_bytes`` has all axes; the last is the element's size. ``box`` is what one copy moves,
    in elements. ``swizzle`` is a key of :data:`SWIZZLE_SPANS`, ``l2_promotion`` one of
    :data:`L2_PROMOTIONS`.
    """

    pointer: int
    dtype: ElementType
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    l2_promotion: str = "none"

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes into shared memory, those out of bounds included."""
        return math.prod(self.box) * self.dtype.size_bytes


class TensorMap:
    """A tensor map, which TMA reads: the argument of a parameter of 128 bytes.

    Made by :meth:`lowgemm.runtime.Device.tensor_map`. The kernel takes it as
    ``const __grid_constant__ TensorMap map``, where ``struct alignas(64) TensorMap`` has 128 bytes,
    and gives ``&map`` to ``cp.async.bulk.tensor``. A launch keeps it alive, and it its array.
    ``bytes(map)`` are what a GPU (or the emulator, whose encoding is its own) reads: a kernel may
    also take the address of a copy of them in global memory, at a multiple of 64 bytes.

    Attributes
    ----------
    device
        The device that can use it.
    layout
        What it describes.
    streams
        The handles of the streams in which a foreign array becomes valid; a launch waits for them.
    """

    __slots__ = ("__weakref__", "_content", "_owner", "device", "layout", "streams")

    def __init__(
        self, device: Device, layout: TensorLayout, owner: object, streams: frozenset[int]
    ) -> None:
        self.device = device
        self.layout = layout
        self.streams = streams
        self._owner = owner
        self._content = device.encode_tensor_map(layout)

    def __repr__(self) -> str:
        layout = self.layout
        swizzle = "" if layout.swizzle == "none" else f", swizzle {layout.swizzle}"
        return f"<TensorMap of {layout.shape} {layout.dtype}, box {layout.box}{swizzle}>"

    def __bytes__(self) -> bytes:
        return self._content

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy brings: what an mbarrier is to expect (``expect_tx``)."""
        return self.layout.box_bytes

    def check_open(self) -> None:
        """Refuse a map whose array has been closed.

        Raises
        ------
        DriverError, EmulationError
            It has been.
        """
        if isinstance(self._owner, Array):
            _ = self._owner.pointer


def make_tensor_map(
    device: Device,
    array: object,
    box: int | Sequence[int],
    *,
    swizzle: str,
    shape: int | Sequence[int] | None,
    strides_bytes: int | Sequence[int] | None,
    l2_promotion: str,
) -> TensorMap:
    """Check and encode a tensor map; see :meth:`lowgemm.runtime.Device.tensor_map`."""
    if device.capability < _NEEDS:
        major, minor = device.capability
        raise ArchitectureMismatchError(
            f"{device.name} has no tensor maps: its compute capability is {major}.{minor}",
            "they need 9.0 (sm_90) or later",
        )
    view, streams = _view(device, array)
    extents, strides = _axes(view, shape, strides_bytes)
    layout = TensorLayout(
        view.pointer,
        view.dtype,
        extents,
        strides,
        _numbers("box", box, len(extents)),
        _word("swizzle", swizzle, tuple(SWIZZLE_SPANS)),
        _word("l2_promotion", l2_promotion, L2_PROMOTIONS),
    )
    _check_array(layout)
    _check_box(layout)
    return TensorMap(device, layout, view.owner, streams)


# ---- arrays


def _view(device: Device, array: object) -> tuple[ArrayView, frozenset[int]]:
    """An array of this device or another library's, and the streams in which it becomes valid."""
    if isinstance(array, Array):
        if not device.owns(array):
            raise ArrayLayoutError(
                f"the array lies in the memory of another device, {array.device.name}",
                f"upload it to {device.name}",
            )
        dtype = ElementType.of(array.dtype)
        view = ArrayView(array.pointer, array.shape, None, dtype, array.readonly, None, None, array)
        return view, frozenset()
    if isinstance(array, np.ndarray) or not has_cuda_interface(array):
        raise ArgumentTypeError(
            f"a tensor map cannot describe {shown(array)}",
            "TMA reads a device's memory: pass device.upload(x), or another library's GPU array",
        )
    if not device.takes_cuda_arrays:
        raise ArgumentTypeError(
            f"a tensor map cannot describe {shown(array)}: {device.name} has no GPU memory",
            "upload a numpy array",
        )
    view = as_view(array, stream=_LEGACY_STREAM)
    ordinal = getattr(device, "ordinal", None)
    if None not in (ordinal, view.device_ordinal) and ordinal != view.device_ordinal:
        raise ArrayLayoutError(
            f"the array lies on GPU {view.device_ordinal}, not on GPU {ordinal}",
            "make its map with the Gpu object of the GPU that it lies on",
        )
    if view.stream is not None:
        return view, frozenset((view.stream,))
    return view, frozenset((_LEGACY_STREAM,) if is_dlpack(view) else ())


def _axes(
    view: ArrayView,
    shape: int | Sequence[int] | None,
    strides_bytes: int | Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides: those that were asked for, otherwise the array's."""
    extents = view.shape if shape is None else shape_of(shape)
    if not 1 <= len(extents) <= _MOST_AXES:
        raise ArrayLayoutError(
            f"a tensor map cannot have {len(extents)} axes (shape {shown(extents)})",
            f"it has 1 to {_MOST_AXES}: give shape= and strides_bytes= of fewer",
        )
    for extent in extents:
        if not 1 <= extent <= _MOST_EXTENT:
            raise ArrayLayoutError(
                f"an extent of {extent} in the shape {shown(extents)}",
                f"each extent of a tensor map is 1 to {_MOST_EXTENT}",
            )
    size = view.dtype.size_bytes
    if strides_bytes is not None:
        strides = _numbers("strides_bytes", strides_bytes, len(extents))
    elif shape is None and view.strides_bytes is not None:
        strides = view.strides_bytes
    elif shape is not None and not view.contiguous:
        raise ArrayLayoutError(
            f"another shape, {shown(extents)}, of an array that is not contiguous "
            f"(strides {view.strides_bytes} bytes)",
            "give strides_bytes= as well",
        )
    else:
        strides = tuple(math.prod(extents[axis + 1 :]) * size for axis in range(len(extents)))
    strides = _meaningful(extents, strides, size)
    if shape is not None or strides_bytes is not None:
        _check_inside(view, extents, strides)
    return extents, strides


def _meaningful(extents: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Strides, with a valid one for each axis of one element, whose own says nothing."""
    found = list(strides)
    inner = size
    for axis in reversed(range(len(extents))):
        if extents[axis] == 1:
            is_innermost = axis == len(extents) - 1
            found[axis] = size if is_innermost else -(-inner // _GRANULE) * _GRANULE
        inner = max(inner, found[axis] * extents[axis])
    return tuple(found)


def _check_inside(view: ArrayView, extents: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Refuse a shape and strides of the caller's that reach out of the array."""
    first, end = byte_range(view)
    reach = [(extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)]
    low = view.pointer + sum(min(each, 0) for each in reach)
    high = view.pointer + sum(max(each, 0) for each in reach) + view.dtype.size_bytes
    if low < first or high > end:
        raise ArrayLayoutError(
            f"the shape {shown(extents)} with strides of {shown(strides)} bytes needs the bytes "
            f"{low - view.pointer} to {high - view.pointer} of an array that has "
            f"{first - view.pointer} to {end - view.pointer}",
            "give the extents that are there: what a box reaches beyond them is zeros",
        )


# ---- limits


def _check_array(layout: TensorLayout) -> None:
    size = layout.dtype.size_bytes
    if layout.dtype.name not in ELEMENT_TYPES:
        raise DtypeError(
            f"a tensor map cannot describe elements of {layout.dtype}",
            f"it knows {', '.join(ELEMENT_TYPES)}; view the array as one of these",
        )
    if layout.pointer % _GRANULE:
        raise ArrayLayoutError(
            f"the array begins at {layout.pointer:#x}, no multiple of {_GRANULE} bytes",
            "describe the whole array, and let the kernel's coordinates say where to begin",
        )
    *outer, innermost = layout.strides_bytes
    if innermost != size:
        raise ArrayLayoutError(
            f"the innermost axis has a stride of {innermost} bytes, its elements {size}",
            "the elements of a row lie side by side: transpose the axes, or copy the array",
        )
    for axis, stride in enumerate(outer):
        if stride < 0 or stride >= _STRIDE_LIMIT or stride % _GRANULE:
            raise ArrayLayoutError(
                f"axis {axis} of the shape {layout.shape} has a stride of {stride} bytes",
                f"strides of a tensor map are multiples of {_GRANULE} bytes from 0 up to 2^40: "
                f"pad the rows (a leading dimension that is a multiple of {_GRANULE // size or 1})",
            )


def _check_box(layout: TensorLayout) -> None:
    for extent in layout.box:
        if not 1 <= extent <= _MOST_BOX:
            raise ArgumentValueError(
                f"box={shown(layout.box)} has an extent of {extent}",
                f"each is 1 to {_MOST_BOX} elements: copy a larger tile in several parts",
            )
    row = layout.box[-1] * layout.dtype.size_bytes
    if row % _GRANULE:
        raise ArgumentValueError(
            f"box={shown(layout.box)} has rows of {row} bytes ({layout.box[-1]} of {layout.dtype})",
            f"make them a multiple of {_GRANULE} bytes",
        )
    span = SWIZZLE_SPANS[layout.swizzle]
    if span and row > span:
        raise ArgumentValueError(
            f"box={shown(layout.box)} has rows of {row} bytes ({layout.box[-1]} of "
            f"{layout.dtype}), and swizzle={layout.swizzle!r} goes over {span}",
            f"copy boxes of {span // layout.dtype.size_bytes} columns, or swizzle wider or not",
        )


def _numbers(name: str, value: object, rank: int) -> tuple[int, ...]:
    numbers = whole_numbers(value)
    if numbers is None or len(numbers) != rank:
        raise ArgumentValueError(
            f"{name}={shown(value)} for {rank} axes",
            f"give {rank} integers, in the order of the shape",
        )
    return numbers


def _word(name: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ArgumentValueError(f"{name}={shown(value)}", f"one of {', '.join(map(repr, known))}")
    return value
