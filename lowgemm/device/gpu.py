"""A GPU: its attributes, its memory, streams and modules."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.device.array import DeviceArray
from lowgemm.device.context import Context
from lowgemm.device.driver import call, initialise
from lowgemm.device.module import DeviceModule
from lowgemm.device.stream import DeviceEvent, DeviceStream, stream_handle
from lowgemm.device.tensor_map import encode_tensor_map
from lowgemm.errors import ArrayLayoutError, DtypeError, NoGpuError
from lowgemm.hardware.architecture import Architecture
from lowgemm.hardware.gpus import GpuRecord, record_from_attributes
from lowgemm.runtime.interchange import as_view
from lowgemm.runtime.interface import Array, Device
from lowgemm.runtime.launch import DeviceLimits
from lowgemm.runtime.shapes import array_layout, element_dtype, host_array, shown, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.runtime.interface import CubinSource, Resource
    from lowgemm.runtime.tensor_map import TensorLayout

__all__ = ["Gpu", "GpuAttributes"]


@dataclass(frozen=True, slots=True)
class GpuAttributes:
    """What the driver says of a GPU. Clocks are the highest that it may run at."""

    name: str
    uuid: str
    pci_bus_id: str
    capability_major: int
    capability_minor: int
    multiprocessors: int
    sm_clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_per_block: int
    shared_bytes_per_block_optin: int
    reserved_shared_bytes_per_block: int
    registers_per_multiprocessor: int
    registers_per_block: int
    warp_threads: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    threads_per_block: int
    block_x: int
    block_y: int
    block_z: int
    grid_x: int
    grid_y: int
    grid_z: int
    cluster_launch: bool

    @property
    def warps_per_multiprocessor(self) -> int:
        """Resident warps that one multiprocessor holds at most."""
        return self.threads_per_multiprocessor // self.warp_threads

    def as_record(self) -> GpuRecord:
        """The GPU as a record of the machine model; see :func:`record_from_attributes`."""
        return record_from_attributes(
            self.name,
            capability_major=self.capability_major,
            capability_minor=self.capability_minor,
            multiprocessors=self.multiprocessors,
            sm_clock_khz=self.sm_clock_khz,
            memory_clock_khz=self.memory_clock_khz,
            memory_bus_bits=self.memory_bus_bits,
            l2_bytes=self.l2_bytes,
        )


# Field of GpuAttributes: the CUdevice_attribute without its prefix.
_DRIVER_NAMES = {
    "capability_major": "COMPUTE_CAPABILITY_MAJOR",
    "capability_minor": "COMPUTE_CAPABILITY_MINOR",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "sm_clock_khz": "CLOCK_RATE",
    "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
    "l2_bytes": "L2_CACHE_SIZE",
    "shared_bytes_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "shared_bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_bytes_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "reserved_shared_bytes_per_block": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "registers_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "warp_threads": "WARP_SIZE",
    "threads_per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "blocks_per_multiprocessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "threads_per_block": "MAX_THREADS_PER_BLOCK",
    "block_x": "MAX_BLOCK_DIM_X",
    "block_y": "MAX_BLOCK_DIM_Y",
    "block_z": "MAX_BLOCK_DIM_Z",
    "grid_x": "MAX_GRID_DIM_X",
    "grid_y": "MAX_GRID_DIM_Y",
    "grid_z": "MAX_GRID_DIM_Z",
    "cluster_launch": "CLUSTER_LAUNCH",
}


def _text(data: Any) -> str:
    return bytes(data).split(b"\0", 1)[0].decode(errors="replace")


def _read_attributes(api: Any, device: Any) -> GpuAttributes:
    numbers = {
        field: int(
            call(
                api,
                "cuDeviceGetAttribute",
                getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"),
                device,
            )
        )
        for field, name in _DRIVER_NAMES.items()
    }
    uuid = bytes(call(api, "cuDeviceGetUuid", device).bytes).hex()
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    fields: dict[str, Any] = {**numbers, "cluster_launch": bool(numbers["cluster_launch"])}
    return GpuAttributes(
        name=_text(call(api, "cuDeviceGetName", 256, device)),
        uuid=f"GPU-{'-'.join(parts)}",
        pci_bus_id=_text(call(api, "cuDeviceGetPCIBusId", 32, device)),
        memory_bytes=int(call(api, "cuDeviceTotalMem", device)),
        **fields,
    )


class Gpu(Device):
    """One GPU, through its primary context.

    Parameters
    ----------
    ordinal
        Its number among the GPUs that the process may use (``CUDA_VISIBLE_DEVICES``).
    api
        The driver functions, for tests; by default ``cuda.bindings.driver``.

    Raises
    ------
    DriverNotFoundError
        The NVIDIA driver cannot be loaded.
    NoGpuError
        There is no such GPU, or the ordinal is not an integer.
    """

    takes_cuda_arrays = True

    def __init__(self, ordinal: int = 0, *, api: Any = None) -> None:
        api = initialise(api)
        count = int(call(api, "cuDeviceGetCount"))
        number = whole_number(ordinal)
        if number is None or not 0 <= number < count:
            raise NoGpuError(
                f"there is no GPU {shown(ordinal)}: {count} found",
                "CUDA_VISIBLE_DEVICES hides the GPUs that it does not name",
            )
        self.ordinal = number
        self.context = Context(api, number)
        self.attributes = _read_attributes(api, self.context.device)
        self._resources: weakref.WeakSet[Resource] = weakref.WeakSet()
        a = self.attributes
        self.name = a.name
        self.capability = (a.capability_major, a.capability_minor)
        self.multiprocessors = a.multiprocessors
        self.limits = DeviceLimits(
            capability=self.capability,
            max_threads_per_block=a.threads_per_block,
            max_block=(a.block_x, a.block_y, a.block_z),
            max_grid=(a.grid_x, a.grid_y, a.grid_z),
            max_shared_bytes_per_block=a.shared_bytes_per_block_optin,
            reserved_shared_bytes_per_block=a.reserved_shared_bytes_per_block,
        )

    def __repr__(self) -> str:
        return f"<Gpu {self.ordinal}: {self.name}, {self.architecture}>"

    @property
    def architecture(self) -> Architecture:
        return Architecture(*self.capability)

    @property
    def uuid(self) -> str:
        """The GPU's UUID as nvidia-smi and NVML write it."""
        return self.attributes.uuid

    @property
    def pci_bus_id(self) -> str:
        """The GPU's PCI address, domain:bus:device.function."""
        return self.attributes.pci_bus_id

    def memory_bytes(self) -> tuple[int, int]:
        """Bytes of the GPU's memory: free, and in all."""
        free, total = self.context.run("cuMemGetInfo")
        return int(free), int(total)

    # ---- memory

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> DeviceArray:
        array = DeviceArray(self, *array_layout(shape, dtype))
        self._resources.add(array)
        return array

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> DeviceArray:
        host = host_array(host)
        self.stream_handle(stream)  # refused before memory is taken
        array = self.empty(host.shape, host.dtype)
        array.upload(host, stream=stream)
        return array

    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> DeviceArray:
        array = self.empty(shape, dtype)
        array.fill_bytes(0)
        return array

    def wrap(self, obj: object) -> DeviceArray:
        """Another library's array as one of this GPU, without copying it.

        Later work in the default stream waits for the stream that the other library names.

        Raises
        ------
        ArrayLayoutError
            It is not contiguous, not in a CUDA device's memory, or on another GPU.
        DtypeError
            numpy has no dtype for its elements, or they are no numbers.
        """
        if isinstance(obj, DeviceArray) and self.owns(obj):
            return obj
        view = as_view(obj, stream=1)
        dtype = view.dtype.numpy
        if view.dtype.name == "void":
            dtype = np.dtype(np.uint8)
        if dtype is None:
            raise DtypeError(
                f"numpy has no dtype for {view.dtype}",
                "view it as an integer of the same width (torch: x.view(torch.int16)), or pass it "
                "to a launch as it is",
            )
        dtype = element_dtype(dtype)
        if not view.contiguous:
            raise ArrayLayoutError(
                f"the array of shape {view.shape} is not contiguous "
                f"(strides {view.strides_bytes} bytes)",
                "wrap a contiguous copy",
            )
        ordinal = view.device_ordinal
        if ordinal is None and view.pointer:
            ordinal = self.ordinal_of(view.pointer)
        if ordinal not in (None, self.ordinal):
            raise ArrayLayoutError(
                f"the array lies on GPU {ordinal}, not on GPU {self.ordinal}",
                "wrap it with the Gpu object of the GPU that it lies on",
            )
        if view.stream is not None:
            self.context.order(view.stream, 0)
        return DeviceArray(
            self, view.shape, dtype, pointer=view.pointer, owner=view, readonly=view.readonly
        )

    def ordinal_of(self, pointer: int) -> int:
        """The ordinal of the GPU in whose memory an address lies.

        Raises
        ------
        DriverError
            It lies in none's.
        """
        kind = self.context.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.context.run("cuPointerGetAttribute", kind, pointer))

    def owns(self, array: Array) -> bool:
        return isinstance(array, DeviceArray) and array.device.ordinal == self.ordinal

    def encode_tensor_map(self, layout: TensorLayout) -> bytes:
        return encode_tensor_map(self.context, layout)

    # ---- work

    @property
    def default_stream(self) -> DeviceStream:
        """The legacy default stream, in which a launch goes where no stream is given."""
        return DeviceStream(self.context, handle=0)

    def stream(self, foreign: object = None) -> DeviceStream:
        stream = DeviceStream(self.context, foreign)
        self._resources.add(stream)
        return stream

    def stream_handle(self, stream: object) -> int:
        """The driver's handle of a stream of this GPU: see :func:`~.stream.stream_handle`."""
        return stream_handle(self.context, stream)

    def event(self) -> DeviceEvent:
        event = DeviceEvent(self.context)
        self._resources.add(event)
        return event

    def load(self, code: CubinSource | bytes) -> DeviceModule:
        module = DeviceModule(self, code)
        self._resources.add(module)
        return module

    def synchronize(self) -> None:
        self.context.synchronize()

    def close(self) -> None:
        """Free all that was made with this object, and release the context."""
        for resource in list(self._resources):
            resource.close()
        self.context.release()
