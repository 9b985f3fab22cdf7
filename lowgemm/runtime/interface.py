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
    from lowgemm.runtime.tensor_map import TensorLayout, TensorMap

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

    def tensor_map(
        self,
        array: object,
        box: int | Sequence[int],
        *,
        swizzle: str = "none",
        shape: int | Sequence[int] | None = None,
        strides_bytes: int | Sequence[int] | None = None,
        l2_promotion: str = "none",
    ) -> TensorMap:
        """A tensor map of an array: what TMA needs to copy boxes of it (sm_90 and later).

        What a box has beyond the array on any side is zeros, and is not written by a store, but for
        the last 16 bytes of a row, which an H200 writes as a whole.

        Parameters
        ----------
        array
            An array of this device or, on a GPU, another library's, of 1 to 5 axes. Rows may have
            gaps between them.
        box
            Elements that one copy moves along each axis, in the order of the array's shape: (rows,
            columns). Kernels name coordinates the other way round: {column, row}. The innermost
            must stand for a multiple of 16 bytes, and a store may not begin before the array: on an
            H200 these are illegal instructions.
        swizzle
            How 16-byte chunks of the rows of a box are exchanged in shared memory, so that columns
            can be read without bank conflicts: bits 4-6 of the shared address are changed by bits
            7-9 (``"128B"``), bits 4-5 by 7-8 (``"64B"``), bit 4 by 7 (``"32B"``).
        shape, strides_bytes
            Extents, and bytes from an element to the next along each axis, where they are not the
            array's own; so an array of one axis can stand for a matrix with a leading dimension.
        l2_promotion
            How much L2 fetches at least: ``"none"``, ``"64B"``, ``"128B"``, ``"256B"``.

        Raises
        ------
        ArchitectureMismatchError
            The device has no tensor maps.
        ArrayLayoutError
            The array begins at no multiple of 16 bytes; a stride is no multiple of 16 or reaches
            2^40; an extent is over 2^32; the rank is not 1 to 5; the shape does not lie within the
            array; the array is another device's.
        ArgumentValueError
            A box's extent is not 1 to 256, its rows are no multiple of 16 bytes or longer than the
            swizzle, or another word is given.
        ArgumentTypeError
            It is no array in a device's memory.
        DtypeError
            A tensor map has no name for such elements.
        """
        from lowgemm.runtime.tensor_map import make_tensor_map

        return make_tensor_map(
            self,
            array,
            box,
            swizzle=swizzle,
            shape=shape,
            strides_bytes=strides_bytes,
            l2_promotion=l2_promotion,
        )

    @abstractmethod
    def encode_tensor_map(self, layout: TensorLayout) -> bytes:
        """The 128 bytes of a tensor map that have been checked, as this device reads them."""

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
