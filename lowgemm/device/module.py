"""Loaded cubins, their kernels and their launches."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING, Any

from lowgemm.device.context import WRONG_CONTEXT, free, same_stream
from lowgemm.device.driver import check
from lowgemm.device.faults import LaunchRecord
from lowgemm.device.stream import stream_handle
from lowgemm.errors import DriverError
from lowgemm.runtime.arguments import pack
from lowgemm.runtime.interface import Kernel, Module, PreparedLaunch
from lowgemm.runtime.launch import LaunchShape, check_launch
from lowgemm.runtime.loading import Loadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.binary.signature import KernelSignature
    from lowgemm.device.context import Context
    from lowgemm.device.gpu import Gpu
    from lowgemm.runtime.arguments import PackedArguments
    from lowgemm.runtime.interface import CubinSource

__all__ = ["DeviceKernel", "DeviceModule", "DevicePreparedLaunch"]

_MOST_SHAPES = 64


def _closed() -> DriverError:
    return DriverError("the module has been closed", "load it again", code="CLOSED")


class DeviceModule(Module):
    """A cubin on a GPU."""

    def __init__(self, device: Gpu, code: CubinSource | bytes) -> None:
        self.device: Gpu = device
        self._code = Loadable.of(code)
        self.arch = self._code.arch
        self._code.check_runs_on(device)
        context = device.context
        self.context = context
        self._module = context.run("cuModuleLoadData", self._code.image)
        self._free = weakref.finalize(self, free, context, "cuModuleUnload", self._module)
        self._kernels: dict[str, DeviceKernel] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        return self._code.kernels

    def __repr__(self) -> str:
        return f"<DeviceModule {self.arch} on GPU {self.device.ordinal}: {', '.join(self.kernels)}>"

    def kernel(self, name: str | None = None) -> DeviceKernel:
        if not self._free.alive:
            raise _closed()
        signature = self._code.find(name)
        kernel = self._kernels.get(signature.name)
        if kernel is None:
            kernel = self._kernels.setdefault(signature.name, DeviceKernel(self, signature))
        return kernel

    def function(self, name: str) -> Any:
        """The driver's handle of a kernel."""
        return self.context.attempt("cuModuleGetFunction", self._module, name.encode())

    def close(self) -> None:
        for kernel in self._kernels.values():
            kernel.forget()
        self._free()


class DeviceKernel(Kernel):
    """A kernel on a GPU."""

    def __init__(self, module: DeviceModule, signature: KernelSignature) -> None:
        self.module = module
        self.signature = signature
        self.context: Context = module.context
        self._function = module.function(signature.name)
        self.loaded = True
        self.registers = self._attribute("NUM_REGS")
        self.local_bytes = self._attribute("LOCAL_SIZE_BYTES")
        self.max_threads = self._attribute("MAX_THREADS_PER_BLOCK")
        self.shared_bytes = signature.shared_bytes
        self._dynamic_limit = self._attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")
        self._nonportable = False
        self._lock = threading.Lock()
        self._shapes: dict[object, _Geometry] = {}

    def __repr__(self) -> str:
        return f"<DeviceKernel {self.name}: {self.registers} registers>"

    def _attribute_id(self, name: str) -> Any:
        return getattr(self.context.api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")

    def _attribute(self, name: str) -> int:
        # Under lazy loading this loads the kernel's code as well.
        return int(self.context.run("cuFuncGetAttribute", self._attribute_id(name), self._function))

    def forget(self) -> None:
        """Make the kernel's launches, prepared ones too, fail: its module is unloaded."""
        self.loaded = False
        # Prepared launches share the handle object; the driver refuses a null function.
        ctypes.c_void_p.from_address(int(self._function.getPtr())).value = None

    @property
    def function(self) -> Any:
        """The driver's handle, a ``CUfunction``."""
        return self._function

    def driver_shared_bytes(self) -> int:
        """The static shared memory per block that the driver reports."""
        return self._attribute("SHARED_SIZE_BYTES")

    def _allow_dynamic(self, shared_bytes: int) -> None:
        """Raise the kernel's limit of dynamic shared memory, which begins at 48 KiB less static."""
        with self._lock:
            if shared_bytes > self._dynamic_limit:
                attribute = self._attribute_id("MAX_DYNAMIC_SHARED_SIZE_BYTES")
                self.context.run("cuFuncSetAttribute", self._function, attribute, shared_bytes)
                self._dynamic_limit = shared_bytes

    def _allow_nonportable_cluster(self) -> None:
        with self._lock:
            if not self._nonportable:
                attribute = self._attribute_id("NON_PORTABLE_CLUSTER_SIZE_ALLOWED")
                self.context.run("cuFuncSetAttribute", self._function, attribute, 1)
                self._nonportable = True

    def _geometry(self, grid: Any, block: Any, shared_bytes: int, cluster: Any) -> _Geometry:
        key = (grid, block, shared_bytes, cluster)
        try:
            known = self._shapes.get(key)
        except TypeError:  # a list
            known = None
            key = None  # type: ignore[assignment]
        if known is not None:
            return known
        shape = LaunchShape.of(grid, block, cluster, shared_bytes)
        check_launch(self.signature, shape, self.module.device.limits)
        if shape.shared_bytes > self._dynamic_limit:
            self._allow_dynamic(shape.shared_bytes)
        blocks_per_cluster = 1
        for size in shape.cluster or ():
            blocks_per_cluster *= size
        if blocks_per_cluster > self.module.device.limits.max_cluster_blocks:
            self._allow_nonportable_cluster()
        geometry = _Geometry(self, shape)
        if key is not None and len(self._shapes) < _MOST_SHAPES:
            self._shapes[key] = geometry
        return geometry

    def prepare(
        self,
        *args: object,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        stream: object = None,
    ) -> DevicePreparedLaunch:
        if not self.loaded:
            raise _closed()
        geometry = self._geometry(grid, block, shared_bytes, cluster)
        context = self.context
        handle = 0 if stream is None else stream_handle(context, stream)
        packed = pack(self.signature, args, device=self.module.device, stream=handle)
        for valid_in in packed.streams:
            if not same_stream(valid_in, handle):
                context.order(valid_in, handle)
        return DevicePreparedLaunch(self, geometry, packed, handle, keeps=stream)

    def occupancy(self, block: int | Sequence[int], shared_bytes: int = 0) -> int:
        shape = LaunchShape.of(1, block, None, shared_bytes)
        check_launch(self.signature, shape, self.module.device.limits)
        self._allow_dynamic(shape.shared_bytes)
        blocks = self.context.run(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            self._function,
            shape.threads_per_block,
            shape.shared_bytes,
        )
        return int(blocks)


class _Geometry:
    """A checked shape as the driver takes it; shared by all launches of that shape."""

    __slots__ = ("kernel", "numbers", "shape")

    def __init__(self, kernel: DeviceKernel, shape: LaunchShape) -> None:
        self.kernel = kernel
        self.shape = shape
        self.numbers = (*shape.grid, *shape.block, shape.shared_bytes)

    def call(self, packed: PackedArguments, stream: int) -> tuple[str, tuple[Any, ...]]:
        """The driver function's name and its arguments."""
        function = self.kernel.function
        if self.shape.cluster is None:
            handle = self.kernel.context.api.CUstream(stream)
            return "cuLaunchKernel", (function, *self.numbers, handle, packed.address, 0)
        config = self._config(self.shape.cluster, stream)
        return "cuLaunchKernelEx", (config, function, packed.address, 0)

    def _config(self, cluster: tuple[int, int, int], stream: int) -> Any:
        api = self.kernel.context.api
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension = attribute.value.clusterDim
        dimension.x, dimension.y, dimension.z = cluster
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.shape.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.shape.block
        config.sharedMemBytes = self.shape.shared_bytes
        config.hStream = api.CUstream(stream)
        config.attrs = [attribute]
        config.numAttrs = 1
        return config


class DevicePreparedLaunch(PreparedLaunch):
    """A launch on a GPU, ready to be repeated.

    A repetition is one call of the driver with arguments made beforehand, one test of its result
    and one note of what was launched. It asks nothing about the current context:
    a launch under another library's is refused by the driver without effect, and then made again
    under the kernel's own. The stream that it was prepared for stays alive with it.
    """

    __slots__ = (
        "_append",
        "_arguments",
        "_function",
        "_geometry",
        "_keeps",
        "_name",
        "_others",
        "_packed",
        "_record",
        "kernel",
    )

    def __init__(
        self,
        kernel: DeviceKernel,
        geometry: _Geometry,
        packed: PackedArguments,
        stream: int,
        *,
        keeps: object = None,
    ) -> None:
        self.kernel = kernel
        # A stream's destructor destroys its handle, which the driver then reads after its end.
        self._keeps = keeps
        self._geometry = geometry
        self._packed = packed
        self._append = kernel.context.launches.append
        self._name, self._arguments = geometry.call(packed, stream)
        self._function = getattr(kernel.context.api, self._name)
        shape = geometry.shape
        self._record = LaunchRecord(kernel.name, shape.grid, shape.block, stream)
        self._others: dict[int, DevicePreparedLaunch] = {}

    def __repr__(self) -> str:
        return f"<DevicePreparedLaunch of {self._record}>"

    @property
    def parameters(self) -> memoryview:
        return memoryview(self._packed.buffer).cast("B")

    def launch(self, stream: object = None) -> None:
        if stream is None:
            result = self._function(*self._arguments)
            if result[0]:
                self._retry(result)
            self._append(self._record)
        else:
            self._on(stream).launch()

    __call__ = launch

    def _on(self, stream: object) -> DevicePreparedLaunch:
        handle = stream_handle(self.kernel.context, stream)
        other = self._others.get(handle)
        if other is None:
            other = DevicePreparedLaunch(self.kernel, self._geometry, self._packed, handle)
            if len(self._others) < _MOST_SHAPES:
                self._others[handle] = other
        # The preparation ordered its own stream alone behind those of the arrays' producers.
        for valid_in in self._packed.streams:
            self.kernel.context.order(valid_in, handle)
        return other

    def _retry(self, result: tuple[Any, ...]) -> None:
        """Launch once more under the kernel's own context, if another was current."""
        context = self.kernel.context
        if not self.kernel.loaded:
            raise _closed()
        if getattr(result[0], "name", None) in WRONG_CONTEXT:
            with context.current():
                result = self._function(*self._arguments)
        check(result, self._name, launches=context.launches, api=context.api)
