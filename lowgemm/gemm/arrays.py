"""Arrays of other libraries as sgemm() takes them: what a call costs is mostly reading them.

A *mark* is all that decides how a call is made, but for the address: two arrays with one mark are
computed by one plan. An array that has none is looked at anew each time.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

import numpy as np

from lowgemm.errors import ArrayLayoutError, DtypeError
from lowgemm.runtime import Array, ArrayView, Device, ElementType, as_view
from lowgemm.runtime.shapes import shown

__all__ = ["ArrayReader", "check_floats", "reader_of"]

_FLOAT_BYTES, _VECTOR_BYTES = 4, 16


class ArrayReader(ABC):
    """How arrays of one library are read and made."""

    @abstractmethod
    def mark(self, array: Any) -> tuple[Hashable | None, int]:
        """The mark, or None, and the address."""

    #: Whether the array is valid in the library's current stream, for any other to wait for.
    names_stream = False

    def view(self, array: Any, stream: int) -> ArrayView:
        """The array, read with all checks.

        Raises
        ------
        ArrayLayoutError, DtypeError, StreamDeviceError
            See :func:`lowgemm.runtime.as_view`.
        """
        return as_view(array, stream=stream)

    def current_stream(self, array: Any) -> object:
        """The library's current stream; None: the default stream."""
        return None

    def ordinal(self, array: Any) -> int | None:
        """The GPU on which it lies, if that can be told without asking the driver."""
        return None

    def empty(self, array: Any, shape: tuple[int, ...], device: Device) -> Any:
        """A new array of that library, beside another."""
        return device.empty(shape)


class _Own(ArrayReader):
    def mark(self, array: Array) -> tuple[Hashable | None, int]:
        pointer = array.pointer
        device = array.device
        place = getattr(device, "ordinal", None)
        mark = (
            *(id(device) if place is None else place, array.shape, array.dtype, array.readonly),
            pointer % _VECTOR_BYTES,
        )
        return mark, pointer

    def view(self, array: Array, stream: int) -> ArrayView:
        dtype = ElementType.of(array.dtype)
        ordinal = getattr(array.device, "ordinal", None)
        return ArrayView(
            array.pointer, array.shape, None, dtype, array.readonly, ordinal, None, array
        )


class _Torch(ArrayReader):
    def mark(self, array: Any) -> tuple[Hashable | None, int]:
        try:
            pointer = array.data_ptr()
            mark = (
                *(array.shape, array.stride(), array.dtype, array.device),
                *(array.requires_grad, array.is_neg(), pointer % _VECTOR_BYTES),
            )
        except (RuntimeError, NotImplementedError):  # sparse, on the device "meta"
            return None, 0
        return mark, pointer

    def view(self, array: Any, stream: int) -> ArrayView:
        if array.is_neg():
            raise ArrayLayoutError(
                "the tensor is a view with its sign turned", "pass x.resolve_neg()"
            )
        return as_view(array, stream=stream)

    def current_stream(self, array: Any) -> object:
        device = array.device
        if device.type != "cuda":
            return None
        torch = sys.modules["torch"]
        try:  # the handle alone: an object for the stream takes longer than the launch
            return torch._C._cuda_getCurrentRawStream(device.index)
        except AttributeError:
            return torch.cuda.current_stream(device).cuda_stream

    def ordinal(self, array: Any) -> int | None:
        return int(array.device.index)

    def empty(self, array: Any, shape: tuple[int, ...], device: Device) -> Any:
        return array.new_empty(shape)


class _Cupy(ArrayReader):
    names_stream = True

    def mark(self, array: Any) -> tuple[Hashable | None, int]:
        pointer = array.data.ptr
        mark = (
            array.shape, array.strides, array.dtype, array.device.id, pointer % _VECTOR_BYTES,
        )  # fmt: skip
        return mark, pointer

    def current_stream(self, array: Any) -> object:
        with array.device:  # each has its own
            return sys.modules["cupy"].cuda.get_current_stream().ptr

    def ordinal(self, array: Any) -> int | None:
        return int(array.device.id)

    def empty(self, array: Any, shape: tuple[int, ...], device: Device) -> Any:
        with array.device:
            return sys.modules["cupy"].empty(shape, "float32")


class _Other(ArrayReader):
    def mark(self, array: Any) -> tuple[Hashable | None, int]:
        return None, 0


class _None(ArrayReader):
    """What lies in the host's memory."""

    def mark(self, array: Any) -> tuple[Hashable | None, int]:
        return None, 0

    def view(self, array: Any, stream: int) -> ArrayView:
        raise ArrayLayoutError(
            f"a numpy array ({shown(array)}) among arrays on a device",
            "hand in numpy arrays alone, or arrays of one device alone (device.upload(x))",
        )


def check_floats(name: str, view: ArrayView) -> None:
    """Refuse what is no array of aligned float32.

    Raises
    ------
    DtypeError
        Other elements.
    ArrayLayoutError
        It begins between two floats.
    """
    if str(view.dtype) != "float32":
        raise DtypeError(f"{name} holds {view.dtype}, not float32", "convert it to float32")
    if view.pointer % _FLOAT_BYTES:
        raise ArrayLayoutError(
            f"{name} begins at address {view.pointer:#x}, between two floats",
            "hand in an array that begins on a multiple of 4 bytes",
        )


_READERS: dict[type, ArrayReader] = {}


def reader_of(kind: type) -> ArrayReader:
    """How arrays of a type are read."""
    reader = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = _reader(kind)
    return reader


def _reader(kind: type) -> ArrayReader:
    package = kind.__module__.partition(".")[0]
    if issubclass(kind, Array):
        return _Own()
    if issubclass(kind, np.ndarray):  # it speaks DLPack as well, for the host's memory
        return _None()
    if package == "torch" and hasattr(kind, "data_ptr"):
        return _Torch()
    if package == "cupy" and kind.__name__ == "ndarray":
        return _Cupy()
    return _Other()
