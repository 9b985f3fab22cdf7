"""The interface that every implementation of running a kernel has."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from lowgemm.binary.signature import KernelSignature
    from lowgemm.hardware.architecture import Architecture
    from lowgemm.runtime.launch import DeviceLimits

__all__ = [
    "Array",
    "CubinSource",
    "Device",
    "Event",
    "Kernel",
    "Module",
    "PreparedLaunch",
    "Resource",
    "Stream",
]


class _HasSignature(Protocol):
    @property
    def signature(self) -> KernelSignature: ...


class CubinSource(Protocol):
    """What can be loaded beside raw bytes: a compilation's result, with refined signatures."""

    @property
    def cubin(self) -> bytes: ...

    @property
    def arch(self) -> Architecture: ...

    @property
    def kernels(self) -> Sequence[_HasSignature]: ...

    def kernel(self, name: str) -> _HasSignature: ...


class Resource(ABC):
    """Something that is freed once: by :meth:`close`, at the end of a ``with``, or by the GC."""

    @abstractmethod
    def close(self) -> None:
        """Free the resource now. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Array(Resource):
    """A C-contiguous array in a device's memory."""

    device: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def pointer(self) -> int:
        """The address of the first element, in bytes."""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def readonly(self) -> bool:
        """Whether kernels must not write to the array."""
        return False

    @abstractmethod
    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        """Copy a host array of the same shape and dtype into this array.

        The copy is complete when the call returns. Without a stream it begins after all work that
        the device has been given; with one, after the work in that stream.

        Raises
        ------
        DtypeError, ArrayLayoutError
            The host array has another dtype or shape.
        StreamDeviceError
            The stream is none of this device.
        """

    @abstractmethod
    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        """Copy this array to a new host array; ordered as :meth:`upload` is."""

    @abstractmethod
    def fill(self, value: complex, *, stream: object = None) -> None:
        """Set each element to ``value``, converted to the array's dtype.

        A floating-point element is rounded; an integer takes what it holds exactly.

        Raises
        ------
        ArgumentTypeError
            It is no number.
        ArgumentValueError
            The dtype cannot hold it: it is out of its range, or complex or fractional.
        """

    @abstractmethod
    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        """Set each byte to ``value`` (0 to 255).

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            It is no integer, or out of that range.
        """

    @abstractmethod
    def view(self, offset: int, shape: int | Sequence[int]) -> Array:
        """A C-contiguous part of this array, sharing its memory and keeping it alive.

        Parameters
        ----------
        offset
            The first element, counted from this array's first.
        shape
            The shape of the part.

        Raises
        ------
        ArrayLayoutError
            The part does not lie within the array, or offset or shape are no integers.
        """


class Stream(Resource):
    """A queue of work, done in order."""

    @abstractmethod
    def record(self, event: Event | None = None) -> Event:
        """Record an event (a new one, if none is given) after the work so far; return it.

        Raises
        ------
        StreamDeviceError
            The event is none of this kind of device.
        """

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let later work in this stream wait for the event; the host does not wait.

        Raises
        ------
        StreamDeviceError
            The event is none of this kind of device.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work in this stream is done."""


class Event(Resource):
    """A point in a stream, with the time at which the device reached it."""

    @abstractmethod
    def record(self, stream: object = None) -> None:
        """Mark the point after the work so far in the stream (None: the default stream)."""

    @abstractmethod
    def elapsed_us(self, since: Event) -> float:
        """Microseconds from the event ``since`` to this one; waits for this one."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has reached the event."""


class PreparedLaunch(ABC):
    """A launch whose arguments and shape have been checked and packed, to be repeated cheaply.

    It keeps its array arguments alive.
    """

    @property
    @abstractmethod
    def parameters(self) -> memoryview:
        """The bytes of the kernel's parameters, to be overwritten for the launches that follow.

        Nothing checks what is written, and an array whose address is written is not kept alive.
        """

    @abstractmethod
    def launch(self, stream: object = None) -> None:
        """Launch, in the stream given at preparation unless another is given."""

    def __call__(self, stream: object = None) -> None:
        self.launch(stream)


class Kernel(ABC):
    """A kernel of a loaded module.

    ``registers`` and ``local_bytes`` are per thread. ``shared_bytes`` is the static shared memory
    per block that the kernel declares, without what the system reserves.
    ``max_threads`` is the most threads per block that a launch may have.
    """

    signature: KernelSignature
    registers: int
    shared_bytes: int
    local_bytes: int
    max_threads: int

    @property
    def name(self) -> str:
        """The kernel's name in the cubin."""
        return self.signature.name

    @abstractmethod
    def prepare(
        self,
        *args: object,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        stream: object = None,
    ) -> PreparedLaunch:
        """Check and pack a launch without making it.

        Parameters
        ----------
        *args
            One value per kernel parameter; see :func:`lowgemm.runtime.arguments.pack`.
        grid
            Blocks, an int or up to three.
        block
            Threads per block, an int or up to three.
        shared_bytes
            Dynamic shared memory per block.
        cluster
            Blocks per cluster (compute capability 9.0 and later).
        stream
            A stream of this device, an object with ``__cuda_stream__``, a handle, or None for the
            default stream.

        Raises
        ------
        ArgumentCountError, ArgumentTypeError, ArgumentValueError, DtypeError, ArrayLayoutError
            An argument does not fit its parameter.
        BlockSizeError, GridSizeError, SharedMemoryError, StreamDeviceError
            The kernel or the device cannot be launched so.
        """

    def launch(
        self,
        *args: object,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        stream: object = None,
    ) -> None:
        """Launch the kernel; the host does not wait. Parameters and errors: :meth:`prepare`."""
        self.prepare(
            *args,
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            cluster=cluster,
            stream=stream,
        ).launch()

    def occupancy(self, block: int | Sequence[int], shared_bytes: int = 0) -> int | None:
        """Blocks that fit on one multiprocessor at once, or None where the device cannot tell."""
        return None


class Module(Resource):
    """A cubin, loaded."""

    device: Device
    arch: Architecture

    @property
    @abstractmethod
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels in the cubin."""

    @abstractmethod
    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel of that name; without a name, the only one.

        Raises
        ------
        KernelNotFoundError
            There is none of that name, or no name was given and there are several.
        ArgumentTypeError
            The name is no text.
        """


class Device(Resource):
    """Something that runs kernels."""

    takes_cuda_arrays: bool = False
    """Whether pointers into a GPU's memory (torch, CuPy, ...) mean something to this device."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    limits: DeviceLimits

    @functools.cached_property
    def kept(self) -> dict[object, Any]:
        """What others keep for this device, as long as it lives, by a key of their own."""
        return {}

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The architecture to compile for."""

    @abstractmethod
    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        """An array of that shape and dtype, not initialised.

        Raises
        ------
        ArrayLayoutError
            The shape is no integer or sequence of them, or too large.
        DtypeError
            The elements are no numbers, or in the other byte order.
        """

    @abstractmethod
    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> Array:
        """A new array with a copy of a host array (made C-contiguous).

        Raises
        ------
        ArrayLayoutError
            numpy makes no array of it, or it is masked.
        DtypeError
            Its elements are no numbers, or in the other byte order.
        StreamDeviceError
            The stream is none of this device.
        """

    @abstractmethod
    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        """An array of zeros."""

    def owns(self, array: Array) -> bool:
        """Whether the array lies in memory that this device's kernels may use."""
        return array.device is self

    @abstractmethod
    def stream(self, foreign: object = None) -> Stream:
        """A new stream, or one that wraps another library's without owning it.

        Raises
        ------
        StreamDeviceError
            The object is no stream, or one of another device.
        """

    @abstractmethod
    def event(self) -> Event:
        """A new event."""

    @abstractmethod
    def load(self, code: CubinSource | bytes) -> Module:
        """Load a build or a cubin's bytes.

        Raises
        ------
        ArchitectureMismatchError
            The device cannot run the cubin.
        CubinError
            The bytes are no cubin.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of this device is done."""
