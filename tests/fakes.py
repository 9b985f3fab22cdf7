"""A device that runs nothing: it checks and packs as every device does, and records launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from lowgemm.binary import KernelSignature
from lowgemm.hardware import Architecture
from lowgemm.runtime import (
    Array,
    CubinSource,
    Device,
    DeviceLimits,
    Event,
    Kernel,
    LaunchShape,
    Module,
    PackedArguments,
    PreparedLaunch,
    Stream,
    TensorLayout,
    check_launch,
    pack,
)


class CudaLike:
    """Something with ``__cuda_array_interface__``: a torch or CuPy array, as far as it matters."""

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        pointer: int = 0x10000,
        dtype: str = "<f4",
        strides: tuple[int, ...] | None = None,
        readonly: bool = False,
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype,
            "data": (pointer, readonly),
            "strides": strides,
        }


class FakeArray(Array):
    """Host memory with an address that looks like a device's."""

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: Any, pointer: int) -> None:
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._pointer = pointer

    @property
    def pointer(self) -> int:
        return self._pointer

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        raise NotImplementedError

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def fill(self, value: complex, *, stream: object = None) -> None:
        raise NotImplementedError

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        raise NotImplementedError

    def view(self, offset: int, shape: int | Sequence[int]) -> Array:
        extent = (shape,) if isinstance(shape, int) else tuple(shape)
        return FakeArray(
            self.device, extent, self.dtype, self._pointer + offset * self.dtype.itemsize
        )

    def close(self) -> None:
        pass


class FakeLaunch(PreparedLaunch):
    def __init__(
        self, device: FakeDevice, record: tuple[str, LaunchShape, PackedArguments]
    ) -> None:
        self._device = device
        self._record = record

    @property
    def parameters(self) -> memoryview:
        return memoryview(self._record[2].buffer).cast("B")

    def launch(self, stream: object = None) -> None:
        self._device.launches.append(self._record)


class FakeKernel(Kernel):
    def __init__(self, device: FakeDevice, signature: KernelSignature) -> None:
        self._device = device
        self.signature = signature
        self.registers = signature.registers
        self.shared_bytes = signature.shared_bytes
        self.local_bytes = 0
        self.max_threads = signature.max_threads or 1024

    def prepare(
        self,
        *args: object,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        stream: object = None,
    ) -> PreparedLaunch:
        shape = LaunchShape.of(grid, block, shared_bytes=shared_bytes, cluster=cluster)
        check_launch(self.signature, shape, self._device.limits)
        packed = pack(self.signature, args, device=self._device)
        return FakeLaunch(self._device, (self.signature.name, shape, packed))


class FakeModule(Module):
    def __init__(self, device: FakeDevice, code: CubinSource) -> None:
        self.device = device
        self.arch = code.arch
        self._code = code

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(kernel.signature.name for kernel in self._code.kernels)

    def kernel(self, name: str | None = None) -> Kernel:
        assert name is not None
        assert isinstance(self.device, FakeDevice)
        return FakeKernel(self.device, self._code.kernel(name).signature)

    def close(self) -> None:
        pass


class FakeDevice(Device):
    """Its ``launches`` are (kernel name, launch shape, packed arguments)."""

    takes_cuda_arrays = True

    def __init__(self, arch: str = "sm_90") -> None:
        self._arch = Architecture.parse(arch)
        self.name = "fake"
        self.capability = (self._arch.major, self._arch.minor)
        self.multiprocessors = 1
        self.limits = DeviceLimits(capability=self.capability)
        self.launches: list[tuple[str, LaunchShape, PackedArguments]] = []
        self._next = 1 << 20

    @property
    def architecture(self) -> Architecture:
        return self._arch

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        extent = (shape,) if isinstance(shape, int) else tuple(shape)
        array = FakeArray(self, extent, dtype, self._next)
        self._next += -(-array.nbytes // 256) * 256
        return array

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> Array:
        raise NotImplementedError

    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        raise NotImplementedError

    def encode_tensor_map(self, layout: TensorLayout) -> bytes:
        return layout.pointer.to_bytes(128, "little")

    def stream(self, foreign: object = None) -> Stream:
        raise NotImplementedError

    def event(self) -> Event:
        raise NotImplementedError

    def load(self, code: CubinSource | bytes) -> Module:
        assert not isinstance(code, bytes)
        return FakeModule(self, code)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


# ---- time that a test moves


class Moment(Protocol):
    """A device's time in microseconds."""

    now_us: float


class TimedEvent(Event):
    """An event that keeps the time at which it was recorded."""

    def __init__(self, clock: Moment) -> None:
        self.clock = clock
        self.at_us = 0.0

    def record(self, stream: object = None) -> None:
        self.at_us = self.clock.now_us

    def elapsed_us(self, since: Event) -> float:
        assert isinstance(since, TimedEvent)
        return self.at_us - since.at_us

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


class TimedStream(Stream):
    """A stream on which everything is done at once."""

    def record(self, event: Event | None = None) -> Event:
        assert event is not None
        event.record(self)
        return event

    def wait(self, event: Event) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass
