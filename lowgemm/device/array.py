"""Arrays in a GPU's memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.device.context import LEGACY_STREAM, free, is_special_stream
from lowgemm.device.stream import stream_handle
from lowgemm.errors import ArgumentValueError, ArrayLayoutError, DriverError
from lowgemm.runtime.interchange import DLPACK_CUDA, cuda_array_interface, export_dlpack
from lowgemm.runtime.interface import Array
from lowgemm.runtime.shapes import checked_byte, checked_host_array, checked_part, element_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.device.gpu import Gpu

__all__ = ["DeviceArray"]


class DeviceArray(Array):
    """A C-contiguous array in a GPU's memory: its own, a part of one, or another library's.

    Copies and fills are complete when the call returns. Without ``stream`` they wait for all work
    in the GPU's context first, since the GPU's own streams do not wait for the default stream;
    with one, for the work in that stream.
    """

    def __init__(
        self,
        device: Gpu,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        pointer: int | None = None,
        owner: object = None,
        readonly: bool = False,
    ) -> None:
        self.device: Gpu = device
        self.shape = shape
        self.dtype = dtype
        self._context = device.context
        self._owner = owner
        self._readonly = readonly
        self._free: weakref.finalize[..., DeviceArray] | None = None
        self._closed = False
        if pointer is None:
            pointer = 0
            if self.nbytes:
                pointer = int(self._context.run("cuMemAlloc", self.nbytes))
                self._free = weakref.finalize(self, free, self._context, "cuMemFree", pointer)
        self._pointer = pointer

    @property
    def pointer(self) -> int:
        root = self._owner if isinstance(self._owner, DeviceArray) else self
        if self._closed or root._closed:
            raise DriverError(
                f"the array of shape {self.shape} has been closed", "make a new one", code="CLOSED"
            )
        return self._pointer

    @property
    def readonly(self) -> bool:
        return self._readonly

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on GPU {self._context.ordinal}>"

    def close(self) -> None:
        self._closed = True
        if not isinstance(self._owner, DeviceArray):
            self._owner = None  # another library's array may be freed now
        if self._free is not None:
            self._free()

    # ---- copying

    def _check_writable(self) -> None:
        if self._readonly:
            raise ArrayLayoutError("the array is read-only", "copy it to an array of your own")

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        self._check_writable()
        host = checked_host_array(self, host)
        self._transfer("cuMemcpyHtoD", (self.pointer, host.ctypes.data, self.nbytes), stream)

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        host = np.empty(self.shape, self.dtype)
        self._transfer("cuMemcpyDtoH", (host.ctypes.data, self.pointer, self.nbytes), stream)
        return host

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        self._check_writable()
        byte = checked_byte(value)
        self._transfer("cuMemsetD8", (self.pointer, byte, self.nbytes), stream)

    def fill(self, value: complex, *, stream: object = None) -> None:
        self._check_writable()
        element = element_of(value, self.dtype)
        pattern = element.tobytes()
        width = len(pattern)
        if width == 8 and pattern[:4] == pattern[4:]:
            pattern, width = pattern[:4], 4
        if width not in (1, 2, 4):
            self.upload(np.full(self.shape, element, self.dtype), stream=stream)
            return
        number = int.from_bytes(pattern, "little")
        count = self.nbytes // width
        self._transfer(f"cuMemsetD{8 * width}", (self.pointer, number, count), stream)

    def _transfer(self, call: str, args: tuple[int, int, int], stream: object) -> None:
        """Make a copy or a fill, and wait for it.

        The calls without a stream may return while the GPU still works (fills, and the last part of
        an upload from pageable memory); a stream that does not wait for the default one would read
        old data. So each is waited for.
        """
        context = self._context
        handle = stream_handle(context, stream)
        if self.size == 0:
            return
        if stream is None:
            context.synchronize()
            context.run(call, *args)
            context.synchronize_stream(0)
            return
        run = context.run if is_special_stream(handle) else context.attempt
        run(f"{call}Async", *args, handle)
        context.synchronize_stream(handle)

    def view(self, offset: int, shape: int | Sequence[int]) -> DeviceArray:
        first, extents = checked_part(self, offset, shape)
        root = self._owner if isinstance(self._owner, DeviceArray) else self
        return DeviceArray(
            self.device,
            extents,
            self.dtype,
            pointer=self.pointer + first * self.dtype.itemsize,
            owner=root,
            readonly=self._readonly,
        )

    # ---- for other libraries

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._context.settle(LEGACY_STREAM)
        return cuda_array_interface(
            self.pointer, self.shape, self.dtype, readonly=self._readonly, stream=LEGACY_STREAM
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._context.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream == 0:
            raise ArgumentValueError(
                "DLPack does not allow stream 0", "1 is the legacy default stream, 2 the per-thread"
            )
        # The standard has producers raise BufferError for what they cannot export.
        if copy or self._readonly:
            raise BufferError("the array cannot be exported as a copy, or while it is read-only")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array lies on {self.__dlpack_device__()}, not on {dl_device}")
        if stream != -1:
            self._context.settle(LEGACY_STREAM if stream is None else stream)
        return export_dlpack(
            self.pointer,
            self.shape,
            self.dtype,
            self,
            device=self.__dlpack_device__(),
            max_version=max_version,
        )
