"""Arrays in the emulator's memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.errors import EmulationError
from lowgemm.runtime.interface import Array
from lowgemm.runtime.shapes import checked_byte, checked_host_array, checked_part, element_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.emulator.device import Emulator
    from lowgemm.emulator.global_memory import GlobalMemory

__all__ = ["EmulatorArray"]


def _free(memory: GlobalMemory, pointer: int) -> None:
    memory.free(pointer)


class EmulatorArray(Array):
    """A C-contiguous array in the emulator's memory, or a part of one.

    It knows which of its bytes have been written: a kernel that reads others is found out.
    """

    def __init__(
        self,
        device: Emulator,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        pointer: int | None = None,
        owner: EmulatorArray | None = None,
    ) -> None:
        self.device: Emulator = device
        self.shape = shape
        self.dtype = dtype
        self._owner = owner
        self._closed = False
        self._memory = device.memory
        self._free: weakref.finalize[..., EmulatorArray] | None = None
        if pointer is None:
            pointer = 0
            if self.nbytes:
                name = f"array of shape {shape}, {dtype}"
                pointer = self._memory.allocate(self.nbytes, name=name)
                self._free = weakref.finalize(self, _free, self._memory, pointer)
        self._pointer = pointer

    @property
    def pointer(self) -> int:
        root = self if self._owner is None else self._owner
        if self._closed or root._closed:
            raise EmulationError(
                f"the array of shape {self.shape} has been closed", "make a new one"
            )
        return self._pointer

    def __repr__(self) -> str:
        return f"<EmulatorArray {self.shape} {self.dtype}>"

    def close(self) -> None:
        self._closed = True
        if self._free is not None:
            self._free()

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        host = checked_host_array(self, host)
        self.device.check_stream(stream)
        pointer = self.pointer
        if self.nbytes:
            self._memory.write(pointer, host.reshape(-1).view(np.uint8))

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        self.device.check_stream(stream)
        pointer = self.pointer
        if not self.nbytes:
            return np.empty(self.shape, self.dtype)
        return self._memory.read(pointer, self.nbytes).view(self.dtype).reshape(self.shape)

    def fill(self, value: complex, *, stream: object = None) -> None:
        element = element_of(value, self.dtype)
        self.upload(np.full(self.shape, element, self.dtype), stream=stream)

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        byte = checked_byte(value)
        self.device.check_stream(stream)
        pointer = self.pointer
        if self.nbytes:
            self._memory.fill(pointer, self.nbytes, byte)

    def view(self, offset: int, shape: int | Sequence[int]) -> EmulatorArray:
        first, extents = checked_part(self, offset, shape)
        return EmulatorArray(
            self.device,
            extents,
            self.dtype,
            pointer=self.pointer + first * self.dtype.itemsize,
            owner=self if self._owner is None else self._owner,
        )
