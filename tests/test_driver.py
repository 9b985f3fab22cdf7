"""The driver's results, faults and contexts, on a stand-in for the driver: no GPU is needed."""

# The stand-in's functions have the driver's names.
# ruff: noqa: N802, N815
from __future__ import annotations

import ctypes
import gc
import itertools
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lowgemm.binary.signature import KernelSignature, Parameter, ParameterKind
from lowgemm.device import Gpu, driver_version, gpu_available, gpu_count
from lowgemm.device.driver import bindings, call, check
from lowgemm.device.faults import FAULT_CODES, LaunchLog, LaunchRecord
from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    BlockSizeError,
    CubinError,
    DriverError,
    DriverNotFoundError,
    DtypeError,
    KernelFaultError,
    KernelNotFoundError,
    NoGpuError,
    SharedMemoryError,
    StreamDeviceError,
)
from lowgemm.hardware.architecture import Architecture
from lowgemm.runtime.interchange import as_view, cuda_array_interface

REAL = bindings()
OK = REAL.CUresult.CUDA_SUCCESS
ILLEGAL = REAL.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
F4 = np.dtype(np.float32)
INVALID_CONTEXT = REAL.CUresult.CUDA_ERROR_INVALID_CONTEXT


class StandIn:
    """Stands in for ``cuda.bindings.driver``: host memory, contexts per thread, launches noted.

    Names are looked up as ``do_<name>``; enumerations and structures are the real ones. A result
    in ``fail`` is returned by the function of that name instead of calling it.
    """

    PRIMARY = 0x100

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.fail: dict[str, Any] = {}
        self.calls: list[str] = []
        self.retained = 0
        self.memory: dict[int, Any] = {}
        self.live: dict[str, set[int]] = {"stream": set(), "event": set(), "module": set()}
        self.handles = itertools.count(0x10000, 16)
        self.threads = threading.local()
        self.stream_contexts: dict[int, int] = {}
        self.sticky: Any = OK
        self.launched: list[dict[str, Any]] = []
        self.attributes: list[tuple[str, int]] = []
        self.loaded: list[bytes] = []
        self.encoded: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if not (name.startswith("cu") and name[2].isupper()):
            return getattr(REAL, name)
        function = getattr(type(self), f"do_{name}", None)
        if function is None:
            raise AssertionError(f"the stand-in has no {name}")

        def called(*args: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name in self.fail:
                return (self.fail[name],)
            values = function(self, *args)
            return values if isinstance(values, tuple) else (OK, values)

        return called

    # ---- contexts

    @property
    def stack(self) -> list[int]:
        if not hasattr(self.threads, "stack"):
            self.threads.stack = []
        stack: list[int] = self.threads.stack
        return stack

    @property
    def current(self) -> int:
        return self.stack[-1] if self.stack else 0

    def fault(self, code: Any) -> None:
        self.sticky = code

    def _ready(self) -> tuple[Any, ...]:
        return (self.sticky if self.current else INVALID_CONTEXT,)

    def do_cuInit(self, flags: int) -> Any:
        return (OK,)

    def do_cuDriverGetVersion(self) -> Any:
        return 13020

    def do_cuDeviceGetCount(self) -> Any:
        return self.gpus

    def do_cuDeviceGet(self, ordinal: int) -> Any:
        return ordinal

    def do_cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self.retained += 1
        return REAL.CUcontext(self.PRIMARY + device)

    def do_cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        self.retained -= 1
        return (OK,)

    def do_cuCtxGetCurrent(self) -> Any:
        return REAL.CUcontext(self.current)

    def do_cuCtxSetCurrent(self, context: Any) -> Any:
        self.stack[-1:] = [int(context)]
        return (OK,)

    def do_cuCtxPushCurrent(self, context: Any) -> Any:
        self.stack.append(int(context))
        return (OK,)

    def do_cuCtxPopCurrent(self) -> Any:
        return REAL.CUcontext(self.stack.pop())

    def do_cuCtxGetDevice(self) -> Any:
        return self.current & 0xF

    def do_cuCtxSynchronize(self) -> Any:
        return self._ready()

    def do_cuGetErrorString(self, code: Any) -> Any:
        return f"text of {int(code)}".encode()

    # ---- the GPU

    def do_cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        values = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
            "WARP_SIZE": 32,
            "MAX_BLOCK_DIM_X": 1024,
            "MAX_BLOCK_DIM_Y": 1024,
            "MAX_BLOCK_DIM_Z": 64,
            "MAX_GRID_DIM_X": 2**31 - 1,
            "MAX_GRID_DIM_Y": 65535,
            "MAX_GRID_DIM_Z": 65535,
        }
        return values.get(attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 1)

    def do_cuDeviceGetUuid(self, device: int) -> Any:
        return SimpleNamespace(bytes=bytes(range(16)))

    def do_cuDeviceGetName(self, length: int, device: int) -> Any:
        return b"Stand-in".ljust(length, b"\0")

    def do_cuDeviceGetPCIBusId(self, length: int, device: int) -> Any:
        return b"0000:01:00.0".ljust(length, b"\0")

    def do_cuDeviceTotalMem(self, device: int) -> Any:
        return 1 << 37

    # ---- memory: host buffers, so that copies can be checked

    def do_cuMemAlloc(self, size: int) -> Any:
        if not self.current:
            return (INVALID_CONTEXT,)
        buffer = ctypes.create_string_buffer(b"\xcc" * size, size)
        self.memory[ctypes.addressof(buffer)] = buffer
        return REAL.CUdeviceptr(ctypes.addressof(buffer))

    def do_cuTensorMapEncodeTiled(self, *args: Any) -> Any:
        self.encoded = args
        return SimpleNamespace(opaque=[REAL.cuuint64_t(word + 1) for word in range(16)])

    def do_cuMemFree(self, pointer: int) -> Any:
        del self.memory[int(pointer)]
        return (OK,)

    def do_cuMemcpyHtoD(self, target: int, source: int, size: int) -> Any:
        ctypes.memmove(target, source, size)
        return self._ready()

    do_cuMemcpyDtoH = do_cuMemcpyHtoD

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> Any:
        return self.do_cuMemcpyHtoD(target, source, size)

    do_cuMemcpyDtoHAsync = do_cuMemcpyHtoDAsync

    def do_cuMemsetD8(self, target: int, value: int, count: int) -> Any:
        ctypes.memset(target, value, count)
        return self._ready()

    def do_cuMemsetD16(self, target: int, value: int, count: int) -> Any:
        ctypes.memmove(target, value.to_bytes(2, "little") * count, 2 * count)
        return self._ready()

    def do_cuMemsetD32(self, target: int, value: int, count: int) -> Any:
        ctypes.memmove(target, value.to_bytes(4, "little") * count, 4 * count)
        return self._ready()

    def do_cuPointerGetAttribute(self, attribute: Any, pointer: int) -> Any:
        assert attribute.name == "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL"
        return pointer & 0xF

    # ---- streams and events

    def _make(self, kind: str) -> int:
        handle = next(self.handles)
        self.live[kind].add(handle)
        return handle

    def do_cuStreamCreate(self, flags: int) -> Any:
        assert flags == int(REAL.CUstream_flags.CU_STREAM_NON_BLOCKING)
        handle = self._make("stream")
        self.stream_contexts[handle] = self.current
        return REAL.CUstream(handle)

    def do_cuStreamDestroy(self, stream: Any) -> Any:
        self.live["stream"].remove(int(stream))
        return (OK,)

    def do_cuStreamSynchronize(self, stream: int) -> Any:
        return (self.sticky,)

    def do_cuStreamGetCtx(self, stream: int) -> Any:
        return REAL.CUcontext(self.stream_contexts[stream])

    def do_cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> Any:
        return (OK,)

    def do_cuEventCreate(self, flags: int) -> Any:
        return REAL.CUevent(self._make("event"))

    def do_cuEventDestroy(self, event: Any) -> Any:
        self.live["event"].remove(int(event))
        return (OK,)

    def do_cuEventRecord(self, event: Any, stream: int) -> Any:
        return self._ready()

    def do_cuEventSynchronize(self, event: Any) -> Any:
        return (self.sticky,)

    def do_cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        return 0.25

    # ---- modules and launches

    def do_cuModuleLoadData(self, image: bytes) -> Any:
        self.loaded.append(image)
        return REAL.CUmodule(self._make("module"))

    def do_cuModuleUnload(self, module: Any) -> Any:
        self.live["module"].remove(int(module))
        return (OK,)

    def do_cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return REAL.CUfunction(0x5000)

    def do_cuFuncGetAttribute(self, attribute: Any, function: Any) -> Any:
        values = {"NUM_REGS": 40, "MAX_THREADS_PER_BLOCK": 1024, "LOCAL_SIZE_BYTES": 0}
        values["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = 48 * 1024
        return values[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def do_cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> Any:
        self.attributes.append((attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_"), value))
        return (OK,)

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: Any, threads: int, shared: int
    ) -> Any:
        return 2048 // threads

    def do_cuLaunchKernel(self, function: Any, *numbers: Any) -> Any:
        *shape, stream, parameters, extra = numbers
        if self.current & ~0xF != self.PRIMARY & ~0xF:
            return (INVALID_CONTEXT,)
        if self.sticky or not int(function):
            return (self.sticky or REAL.CUresult.CUDA_ERROR_INVALID_VALUE,)
        assert extra == 0
        self.launched.append(
            {"shape": tuple(shape), "stream": int(stream), "parameters": parameters}
        )
        return (OK,)

    def do_cuLaunchKernelEx(self, config: Any, function: Any, *pointers: int) -> Any:
        """Read the structure as the driver does, from its memory."""
        words = ctypes.cast(config.getPtr(), ctypes.POINTER(ctypes.c_uint))
        assert config.numAttrs == 1
        result = self.do_cuLaunchKernel(function, *words[:7], config.hStream, *pointers)
        cluster = config.attrs[0].value.clusterDim
        self.launched[-1]["cluster"] = (cluster.x, cluster.y, cluster.z)
        return result


SIGNATURE = KernelSignature(
    "_Z4axpyfPfi",
    (
        Parameter(0, 0, 4, ParameterKind.FLOAT, "float"),
        Parameter(1, 8, 8, ParameterKind.POINTER, "float*", "float32"),
        Parameter(2, 16, 4, ParameterKind.SIGNED, "int"),
    ),
    registers=40,
    shared_bytes=0,
    stack_bytes=0,
    max_threads=256,
)


class FakeBuild:
    """What a compilation gives, as far as loading needs it."""

    def __init__(self, arch: str = "sm_90") -> None:
        self.cubin = b"cubin"
        self.arch = Architecture.parse(arch)
        self.kernels = (SimpleNamespace(signature=SIGNATURE),)

    def kernel(self, name: str) -> Any:
        if name != "axpy":
            raise KernelNotFoundError(f"no {name}", available=("axpy",))
        return self.kernels[0]


@pytest.fixture
def api() -> StandIn:
    return StandIn()


@pytest.fixture
def gpu(api: StandIn) -> Gpu:
    return Gpu(api=api)


# ---- without a driver


class NoDriver:
    def __getattr__(self, name: str) -> Any:
        class DynamicLibNotFoundError(RuntimeError):
            pass

        def missing(*_: Any) -> Any:
            raise DynamicLibNotFoundError("libcuda")

        return missing


def test_no_driver_is_its_own_error() -> None:
    """Without a driver each entry raises DriverNotFoundError with what to do, and is not fatal."""
    for function in (driver_version, gpu_count, Gpu):
        with pytest.raises(DriverNotFoundError, match="install the NVIDIA driver") as caught:
            function(api=NoDriver())
        assert caught.value.__suppress_context__  # the bindings' error says nothing more
    assert gpu_available(api=NoDriver()) is False


def test_import_is_light() -> None:
    """Importing lowgemm.device loads neither the bindings nor libcuda."""
    code = (
        "import sys, lowgemm.device, lowgemm.runtime; from pathlib import Path;"
        "print([m for m in sys.modules if m.startswith('cuda')],"
        " 'libcuda.so' in Path('/proc/self/maps').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_no_gpu(api: StandIn) -> None:
    """A driver without a GPU, or without that GPU, raises NoGpuError."""
    with pytest.raises(NoGpuError, match="no GPU 3: 1 found"):
        Gpu(3, api=api)
    for ordinal in (-1, "a", 0.5, True):
        with pytest.raises(NoGpuError):
            Gpu(ordinal, api=api)  # type: ignore[arg-type]
    api.fail["cuInit"] = REAL.CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(NoGpuError, match="CUDA_ERROR_NO_DEVICE"):
        Gpu(api=api)
    assert not gpu_available(api=api)


def test_versions_and_counts(api: StandIn) -> None:
    """The driver's version comes as (major, minor)."""
    assert driver_version(api=api) == (13, 2)
    assert gpu_count(api=StandIn(gpus=2)) == 2
    assert gpu_available(api=api)


# ---- results


def test_check_gives_the_values() -> None:
    """No value gives None, one value itself, several a tuple."""
    assert check((OK,)) is None
    assert check((OK, 5)) == 5
    assert check((OK, 5, 6)) == (5, 6)


def test_check_names_the_error() -> None:
    """A failure is raised with the call, the code's name, its text and a remedy."""
    with pytest.raises(DriverError, match=r"cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY") as error:
        check((REAL.CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0), "cuMemAlloc")
    assert error.value.code == "CUDA_ERROR_OUT_OF_MEMORY"
    assert error.value.call == "cuMemAlloc"
    assert "free arrays" in error.value.remedy
    assert "enough memory" in error.value.what
    with pytest.raises(DriverError, match="text of 1"):
        check((REAL.CUresult.CUDA_ERROR_INVALID_VALUE,), "cuX", api=StandIn())
    with pytest.raises(DriverError, match="CUresult 12345"):
        check((12345,), "cuX")


def test_function_that_the_driver_lacks() -> None:
    """An older driver without a function is told from no driver."""

    def missing(*_: Any) -> Any:
        raise RuntimeError('Function "cuNew" not found')

    with pytest.raises(DriverError, match="update the NVIDIA driver") as error:
        call(SimpleNamespace(cuNew=missing), "cuNew")
    assert error.value.code == "FUNCTION_NOT_FOUND"


def test_every_fault_code_exists() -> None:
    """Each code that counts as a kernel's fault is one of the driver's."""
    assert {code for code in FAULT_CODES if not hasattr(REAL.CUresult, code)} == set()


# ---- faults


def record(kernel: str, stream: int = 0, grid: int = 1) -> LaunchRecord:
    return LaunchRecord(kernel, (grid, 1, 1), (32, 1, 1), stream)


def fault_of(*records: LaunchRecord, length: int = 64) -> KernelFaultError:
    log = LaunchLog(length)
    for each in records:
        log.append(each)
    with pytest.raises(KernelFaultError) as error:
        check((ILLEGAL,), "cuCtxSynchronize", launches=log)
    return error.value


def test_fault_of_one_candidate() -> None:
    """One kernel launched since the last synchronisation is named, with its shape."""
    error = fault_of(record("broken", grid=7), record("broken", grid=7))
    assert "in kernel broken (grid (7, 1, 1), block (32, 1, 1))" in error.what
    assert error.kernels == ("broken",)
    assert error.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert "compute-sanitizer" in error.remedy


def test_fault_of_several_candidates() -> None:
    """Several candidates are all named, with the way to pin the one."""
    error = fault_of(record("one"), record("two"), record("one"))
    assert error.kernels == ("one", "two")
    assert "in one of those launched since" in error.what
    assert "CUDA_LAUNCH_BLOCKING=1" in error.remedy


def test_fault_with_a_full_record() -> None:
    """Where older launches may have dropped out, the message does not claim to know the one."""
    error = fault_of(*[record("same")] * 4, length=4)
    assert "in one of the last launched" in error.what


def test_fault_without_candidates() -> None:
    """A fault of somebody else's kernel is said to be so."""
    error = fault_of()
    assert error.kernels == ()
    assert "not launched through this device object" in error.what


def test_confirmation_by_stream() -> None:
    """A stream's synchronisation confirms that stream's launches alone, and none made meanwhile."""
    log = LaunchLog()
    for each in (record("a", 0), record("b", 5), record("c", 0)):
        log.append(each)
    count = len(log)
    log.append(record("d", 5))
    log.confirm(count, 5)
    assert log.streams == {0, 5}
    assert len(log) == 3
    log.confirm(len(log), 5)
    assert log.streams == {0}
    log.confirm(len(log))
    assert len(log) == 0


# ---- the GPU


def test_attributes(gpu: Gpu) -> None:
    """A GPU tells its name, capability, limits and identity."""
    assert (gpu.name, gpu.capability, gpu.multiprocessors) == ("Stand-in", (9, 0), 132)
    assert str(gpu.architecture) == "sm_90"
    assert gpu.limits.max_shared_bytes_per_block == 232448
    assert gpu.limits.max_block == (1024, 1024, 64)
    assert gpu.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert gpu.pci_bus_id == "0000:01:00.0"
    assert gpu.attributes.warps_per_multiprocessor == 64


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64", "bool"])
def test_round_trip(gpu: Gpu, dtype: str) -> None:
    """What is uploaded is downloaded, also from a host array that is not contiguous."""
    host = np.arange(24).reshape(4, 6).astype(dtype)
    np.testing.assert_array_equal(gpu.upload(host).download(), host)
    np.testing.assert_array_equal(gpu.upload(host.T).download(), host.T)
    stream = gpu.stream()
    array = gpu.empty((4, 6), dtype)
    array.upload(host, stream=stream)
    np.testing.assert_array_equal(array.download(stream=stream), host)


def test_upload_checks(gpu: Gpu) -> None:
    """Another dtype or shape is refused, and nothing is converted in silence."""
    array = gpu.empty((2, 3))
    with pytest.raises(DtypeError, match="float64"):
        array.upload(np.zeros((2, 3)))
    with pytest.raises(ArrayLayoutError, match=r"\(3, 2\)"):
        array.upload(np.zeros((3, 2), np.float32))
    for bad in (object, ">f4", "no dtype"):
        with pytest.raises(DtypeError):
            gpu.empty(3, bad)
    for shape in (-1, (2, -1), 1.5, "ab"):
        with pytest.raises(ArrayLayoutError):
            gpu.empty(shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1.5),
        ("float16", -2.0),
        ("int8", -3),
        ("uint32", 4_000_000_000),
        ("float64", 0.1),
        ("int64", -1),
        ("complex128", 1 + 2j),
        ("bool", True),
    ],
)
def test_fill(gpu: Gpu, dtype: str, value: Any) -> None:
    """fill sets each element; fill_bytes each byte."""
    array = gpu.empty((3, 5), dtype)
    array.fill(value)
    np.testing.assert_array_equal(array.download(), np.full((3, 5), value, dtype))
    array.fill_bytes(0)
    np.testing.assert_array_equal(array.download(), np.zeros((3, 5), dtype))
    with pytest.raises(ArgumentValueError):
        array.fill_bytes(256)


def test_bad_contents_change_nothing(api: StandIn, gpu: Gpu) -> None:
    """What an array cannot hold, a part that is none, what is no stream: errors, and no call."""
    array, empty = gpu.upload(np.arange(4, dtype=np.int32)), gpu.empty(0, np.int32)
    array.view(np.int64(1), 2).fill(1)  # type: ignore[arg-type]
    api.calls.clear()
    for value in (1.5, 1j, 2**31):
        with pytest.raises(ArgumentValueError, match="cannot hold"):
            array.fill(value)
    for bad in ("q", [1, 2]):
        with pytest.raises(ArgumentTypeError):
            array.fill(bad)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError):
        array.fill_bytes(1.5)  # type: ignore[arg-type]
    with pytest.raises(ArrayLayoutError, match="offset"):
        array.view(1.5, 2)  # type: ignore[arg-type]
    with pytest.raises(ArrayLayoutError, match="download it first"):
        gpu.upload(array)  # type: ignore[arg-type]
    for shape in ((1 << 40, 1 << 40), (1,) * 100):
        with pytest.raises(ArrayLayoutError):
            gpu.empty(shape)
    for target in (array, empty):
        with pytest.raises(StreamDeviceError):
            target.fill(7, stream="s")
        with pytest.raises(StreamDeviceError):
            target.download(stream="s")
    with pytest.raises(StreamDeviceError):
        gpu.upload(np.zeros(4), stream="s")
    assert api.calls == []
    assert array.download().tolist() == [0, 1, 1, 3]


def test_views(api: StandIn, gpu: Gpu) -> None:
    """A view is a part of the memory, keeps it alive and stays within it."""
    array = gpu.upload(np.arange(12, dtype=np.float32))
    part = array.view(4, (2, 3)).view(1, 4)
    np.testing.assert_array_equal(part.download(), [5, 6, 7, 8])
    for offset, shape in ((8, 5), (-1, 2), (13, 0)):
        with pytest.raises(ArrayLayoutError, match="does not lie within"):
            array.view(offset, shape)
    del array
    gc.collect()
    assert len(api.memory) == 1
    del part
    gc.collect()
    assert not api.memory


def test_empty_array(api: StandIn, gpu: Gpu) -> None:
    """An array without elements takes no memory and can be copied."""
    array = gpu.upload(np.zeros((0, 3), np.float32))
    assert array.download().shape == (0, 3)
    assert "cuMemAlloc" not in api.calls


def test_memory_is_freed_once(api: StandIn, gpu: Gpu) -> None:
    """Memory is freed by close(), by with, or when the array is forgotten; once."""
    array = gpu.empty(3)
    array.close()
    array.close()
    with gpu.empty(3):
        assert len(api.memory) == 1
    gpu.empty(3)
    gc.collect()
    assert not api.memory
    assert api.calls.count("cuMemFree") == 3
    with pytest.raises(DriverError, match="closed"):
        array.download()


def test_close_frees_everything(api: StandIn) -> None:
    """Closing a GPU frees what was made with it and releases the context, once."""
    gpu = Gpu(api=api)
    kept = [gpu.empty(3), gpu.stream(), gpu.event(), gpu.load(FakeBuild())]
    with gpu:
        assert api.retained == 1
    gpu.close()
    assert api.retained == 0
    assert not api.memory
    assert api.live == {"stream": set(), "event": set(), "module": set()}
    with pytest.raises(DriverError, match="closed"):
        gpu.empty(3)
    del kept
    gc.collect()
    assert api.calls.count("cuMemFree") == 1


def test_a_prepared_launch_keeps_its_stream(api: StandIn) -> None:
    """The stream that a launch was prepared for lives until both are forgotten."""
    gpu = Gpu(api=api)
    kernel = gpu.load(FakeBuild()).kernel("axpy")
    prepared = kernel.prepare(2.0, gpu.zeros(8), 8, grid=1, block=32, stream=gpu.stream())
    gc.collect()
    assert len(api.live["stream"]) == 1
    prepared.launch()
    del prepared
    gc.collect()
    assert not api.live["stream"]


def test_context_lives_as_long_as_its_arrays(api: StandIn) -> None:
    """An array keeps the context; when both are forgotten the context is released last."""
    array = Gpu(api=api).empty(3)
    gc.collect()
    assert api.retained == 1
    del array
    gc.collect()
    assert api.retained == 0
    assert api.calls.index("cuMemFree") < api.calls.index("cuDevicePrimaryCtxRelease")


def test_other_context_is_restored(api: StandIn, gpu: Gpu) -> None:
    """Where another library's context is current, it is so again after each call."""
    api.stack[:] = [0x900]
    array = gpu.upload(np.zeros(3, np.float32))
    assert api.stack == [0x900]
    array.close()
    assert api.stack == [0x900]
    assert not api.memory


# ---- streams and events


def test_streams_and_events(api: StandIn, gpu: Gpu) -> None:
    """Streams speak __cuda_stream__; events give microseconds; both are freed."""
    with gpu.stream() as stream:
        assert stream.__cuda_stream__() == (0, stream.handle)
        start = stream.record()
        end = gpu.event()
        end.record(stream)
        assert end.elapsed_us(start) == 250.0
        gpu.default_stream.wait(end)
        stream.synchronize()
    with pytest.raises(DriverError, match="closed"):
        stream.synchronize()
    start.close()
    with pytest.raises(DriverError, match="closed"):
        start.synchronize()
    del start, end
    gc.collect()
    assert api.live == {"stream": set(), "event": set(), "module": set()}


def test_what_is_no_event(gpu: Gpu) -> None:
    """A stream records and awaits events of a GPU only."""
    stream, event = gpu.stream(), gpu.event()
    for bad in (5, "s", stream):
        with pytest.raises(StreamDeviceError, match="no event of a GPU"):
            stream.record(bad)  # type: ignore[arg-type]
        with pytest.raises(StreamDeviceError, match="no event of a GPU"):
            stream.wait(bad)  # type: ignore[arg-type]
        with pytest.raises(StreamDeviceError, match="no event of a GPU"):
            event.elapsed_us(bad)  # type: ignore[arg-type]


def test_foreign_stream_is_not_destroyed(api: StandIn, gpu: Gpu) -> None:
    """A wrapped stream of the same context is used and left to its owner."""
    api.stream_contexts[0xAAAA] = StandIn.PRIMARY
    with gpu.stream(0xAAAA) as stream:
        assert stream.handle == 0xAAAA
    assert "cuStreamDestroy" not in api.calls
    assert gpu.stream_handle(None) == gpu.stream_handle(0) == 0


@pytest.mark.parametrize(
    ("context", "place"), [(StandIn.PRIMARY + 1, "GPU 1"), (0x900, "another context")]
)
def test_stream_of_another_device(api: StandIn, gpu: Gpu, context: int, place: str) -> None:
    """A stream of another GPU or context is refused, naming where it belongs."""
    api.stream_contexts[0xAAAA] = context
    with pytest.raises(StreamDeviceError, match=place):
        gpu.stream(0xAAAA)
    with pytest.raises(StreamDeviceError):
        launch(gpu, stream=0xAAAA)
    assert api.launched == []


# ---- launching


def launch(gpu: Gpu, *args: Any, **shape: Any) -> None:
    kernel = gpu.load(FakeBuild()).kernel("axpy")
    values = args or (2.0, gpu.zeros(8), 8)
    kernel.launch(*values, **{"grid": 1, "block": 32} | shape)


def test_launch_arrives(api: StandIn, gpu: Gpu) -> None:
    """Shape, stream and each argument's bytes arrive at the driver."""
    kernel = gpu.load(FakeBuild()).kernel("axpy")
    array = gpu.zeros(8)
    stream = gpu.stream()
    prepared = kernel.prepare(
        2.0, array, -1, grid=(3, 2), block=64, shared_bytes=128, stream=stream
    )
    prepared()
    [seen] = api.launched
    assert seen["shape"] == (3, 2, 1, 64, 1, 1, 128)
    assert seen["stream"] == stream.handle
    pointers = ctypes.cast(seen["parameters"], ctypes.POINTER(ctypes.c_void_p))
    assert ctypes.c_float.from_address(pointers[0] or 0).value == 2.0
    assert ctypes.c_uint64.from_address(pointers[1] or 0).value == array.pointer
    assert ctypes.c_int.from_address(pointers[2] or 0).value == -1


def test_prepared_launch_in_another_stream(api: StandIn, gpu: Gpu) -> None:
    """A prepared launch goes to its own stream, or to the one given, repeatedly."""
    prepared = gpu.load(FakeBuild()).kernel().prepare(2.0, gpu.zeros(8), 8, grid=1, block=32)
    stream = gpu.stream()
    prepared.launch()
    prepared(stream)
    prepared.launch(stream)
    assert [seen["stream"] for seen in api.launched] == [0, stream.handle, stream.handle]
    assert gpu.context.launches.streams == {0, stream.handle}


def test_cluster_launch(api: StandIn, gpu: Gpu) -> None:
    """A cluster goes through cuLaunchKernelEx; more than eight blocks ask for permission once."""
    launch(gpu, grid=(4, 2), cluster=(2, 2))
    assert api.launched[0]["shape"] == (4, 2, 1, 32, 1, 1, 0)
    assert api.launched[0]["cluster"] == (2, 2, 1)
    assert api.attributes == []
    kernel = gpu.load(FakeBuild()).kernel()
    for grid in (16, 32):
        kernel.launch(2.0, gpu.zeros(8), 8, grid=grid, block=32, cluster=16)
    assert api.attributes == [("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)]


def test_refused_before_the_driver(api: StandIn, gpu: Gpu) -> None:
    """Wrong arguments and shapes raise before the driver is asked for anything."""
    array = gpu.zeros(8)
    with pytest.raises(ArgumentCountError):
        launch(gpu, 2.0, array)
    with pytest.raises(BlockSizeError, match="256"):
        launch(gpu, block=257)
    with pytest.raises(SharedMemoryError):
        launch(gpu, shared_bytes=232449)
    with pytest.raises(ArrayLayoutError, match="another device"):
        launch(gpu, 2.0, Gpu(1, api=StandIn(gpus=2)).zeros(8), 8)
    assert api.launched == []


def test_dynamic_shared_memory_limit_only_rises(api: StandIn, gpu: Gpu) -> None:
    """The kernel's limit is raised when a launch needs it, and never lowered."""
    kernel = gpu.load(FakeBuild()).kernel()
    array = gpu.zeros(8)
    for shared in (48 * 1024, 100_000, 60_000, 200_000, 100_000):
        kernel.launch(2.0, array, 8, grid=1, block=32, shared_bytes=shared)
    name = "MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert api.attributes == [(name, 100_000), (name, 200_000)]
    assert len(api.launched) == 5
    assert kernel.occupancy(256) == 8


def test_launch_under_another_context(api: StandIn, gpu: Gpu) -> None:
    """A launch is right where another library's context, or none, is current in the thread."""
    prepared = gpu.load(FakeBuild()).kernel().prepare(2.0, gpu.zeros(8), 8, grid=1, block=32)
    api.stack[:] = [0x900]
    prepared()
    assert (len(api.launched), api.stack) == (1, [0x900])
    thread = threading.Thread(target=prepared)
    thread.start()
    thread.join()
    assert len(api.launched) == 2


def test_fault_names_the_kernel(api: StandIn, gpu: Gpu) -> None:
    """A fault that a later call reports names the kernel; the next launch is not blamed."""
    launch(gpu, grid=5)
    api.fault(ILLEGAL)
    with pytest.raises(KernelFaultError, match=r"_Z4axpyfPfi \(grid \(5, 1, 1\)") as error:
        gpu.synchronize()
    assert error.value.kernels == ("_Z4axpyfPfi",)
    assert error.value.call == "cuCtxSynchronize"
    assert len(gpu.context.launches) == 1


def test_fault_reported_by_a_launch(api: StandIn, gpu: Gpu) -> None:
    """A launch that reports an earlier fault is not itself a candidate."""
    kernel = gpu.load(FakeBuild()).kernel()
    prepared = kernel.prepare(2.0, gpu.zeros(8), 8, grid=1, block=32)
    api.fault(ILLEGAL)
    with pytest.raises(KernelFaultError) as error:
        prepared()
    assert (error.value.kernels, error.value.call) == ((), "cuLaunchKernel")


def test_success_clears_the_candidates(api: StandIn, gpu: Gpu) -> None:
    """After a successful synchronisation a later fault is not blamed on confirmed kernels."""
    launch(gpu)
    gpu.synchronize()
    api.fault(ILLEGAL)
    with pytest.raises(KernelFaultError) as error:
        gpu.synchronize()
    assert error.value.kernels == ()


# ---- modules


def test_kernel_lookup(gpu: Gpu) -> None:
    """A kernel is found by its source name or its name in the cubin, and is the same object."""
    module = gpu.load(FakeBuild())
    assert module.kernels == ("_Z4axpyfPfi",)
    assert module.kernel("axpy") is module.kernel("_Z4axpyfPfi") is module.kernel()
    assert (module.kernel().registers, module.kernel().max_threads) == (40, 1024)
    with pytest.raises(KernelNotFoundError):
        module.kernel("none")
    with pytest.raises(ArgumentTypeError, match="axpy"):
        module.kernel(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_89"])
def test_architecture_mismatch(api: StandIn, gpu: Gpu, arch: str) -> None:
    """A cubin for another architecture is refused before the driver sees it, naming both."""
    with pytest.raises(ArchitectureMismatchError, match=rf"{arch}; Stand-in is sm_90"):
        gpu.load(FakeBuild(arch))
    assert api.loaded == []


def test_architecture_match(gpu: Gpu) -> None:
    """The architecture-specific target of the same capability is accepted."""
    assert gpu.load(FakeBuild("sm_90a")).arch == Architecture(9, 0, "a")


def test_what_cannot_be_loaded(gpu: Gpu) -> None:
    """Bytes that are no cubin and objects that are no build are refused."""
    with pytest.raises(CubinError):
        gpu.load(b"not a cubin")
    with pytest.raises(CubinError, match="neither a build nor"):
        gpu.load("kernel.cu")  # type: ignore[arg-type]


def test_closed_module(api: StandIn, gpu: Gpu) -> None:
    """Kernels and prepared launches of a closed module refuse to launch."""
    module = gpu.load(FakeBuild())
    kernel = module.kernel()
    prepared = kernel.prepare(2.0, gpu.zeros(8), 8, grid=1, block=32)
    module.close()
    for refused in (
        prepared,
        module.kernel,
        lambda: kernel.launch(2.0, gpu.zeros(8), 8, grid=1, block=32),
    ):
        with pytest.raises(DriverError, match="module has been closed"):
            refused()
    assert api.launched == []


# ---- for other libraries


def test_wrap(api: StandIn, gpu: Gpu) -> None:
    """Another library's array is wrapped without a copy, and one of another GPU is refused."""

    class Foreign:
        def __init__(self, pointer: int) -> None:
            self.__cuda_array_interface__ = {
                "shape": (2, 3),
                "typestr": "<f4",
                "data": (pointer, True),
                "version": 3,
                "strides": None,
                "stream": 7,
            }

    array = gpu.wrap(Foreign(0x1000))
    assert (array.pointer, array.shape, array.readonly) == (0x1000, (2, 3), True)
    assert "cuStreamWaitEvent" in api.calls, "the default stream must wait for stream 7"
    array.close()
    assert "cuMemFree" not in api.calls
    with pytest.raises(ArrayLayoutError, match="GPU 1, not on GPU 0"):
        gpu.wrap(Foreign(0x1001))
    objects = Foreign(0x1000)
    objects.__cuda_array_interface__["typestr"] = "|O"
    with pytest.raises(DtypeError, match="object"):
        gpu.wrap(objects)
    own = gpu.zeros(3)
    assert gpu.wrap(own) is own


def test_export(api: StandIn, gpu: Gpu) -> None:
    """An array is given by both protocols; launches elsewhere are waited for first."""
    array = gpu.zeros((2, 3))
    gpu.synchronize()
    api.calls.clear()
    assert array.__cuda_array_interface__["data"] == (array.pointer, False)
    assert "cuCtxSynchronize" not in api.calls
    launch(gpu, 2.0, array, 6, stream=gpu.stream())
    api.calls.clear()
    capsule = array.__dlpack__(stream=-1)
    assert "cuCtxSynchronize" not in api.calls
    del capsule
    view = as_view(SimpleView(array))
    assert "cuCtxSynchronize" in api.calls
    assert (view.pointer, view.device_ordinal) == (array.pointer, 0)
    with pytest.raises(ArgumentValueError, match="stream 0"):
        array.__dlpack__(stream=0)
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(1, 0))


class SimpleView:
    """Shows an array's DLPack side alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **more: Any) -> Any:
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_launch_waits_for_the_foreign_stream(api: StandIn, gpu: Gpu) -> None:
    """A launch waits for the stream in which an argument becomes valid, unless it is the same."""

    class Foreign:
        def __init__(self, stream: int) -> None:
            self.__cuda_array_interface__ = {
                "shape": (8,),
                "typestr": "<f4",
                "data": (0x1000, False),
                "version": 3,
                "stream": stream,
            }

    launch(gpu, 2.0, Foreign(1), 8)
    assert "cuStreamWaitEvent" not in api.calls
    launch(gpu, 2.0, Foreign(1), 8, stream=gpu.stream())
    assert api.calls.count("cuStreamWaitEvent") == 1
    assert api.live["event"] == set()


def test_a_prepared_launch_in_another_stream_waits_for_the_producers(
    api: StandIn, gpu: Gpu
) -> None:
    """A prepared launch waits for the streams of its arrays in whatever stream it is launched."""

    class Foreign:
        __cuda_array_interface__ = cuda_array_interface(0x1000, (8,), F4, stream=1)

    kernel = gpu.load(FakeBuild()).kernel()
    first, second = gpu.stream(), gpu.stream()
    prepared = kernel.prepare(2.0, Foreign(), 8, grid=1, block=32, stream=first)
    ordered = api.calls.count("cuStreamWaitEvent")
    prepared.launch()
    assert api.calls.count("cuStreamWaitEvent") == ordered == 1
    prepared.launch(second)
    assert api.calls.count("cuStreamWaitEvent") == 2
    assert api.live["event"] == set()


def test_a_dlpack_array_is_valid_in_the_other_stream_too(api: StandIn, gpu: Gpu) -> None:
    """A DLPack array was made ready for the prepared stream: another one waits for that."""
    kernel = gpu.load(FakeBuild()).kernel()
    array = SimpleView(gpu.zeros(8))
    prepared = kernel.prepare(2.0, array, 8, grid=1, block=32, stream=gpu.stream())
    assert "cuStreamWaitEvent" not in api.calls
    prepared.launch(gpu.stream())
    assert api.calls.count("cuStreamWaitEvent") == 1


# ---- tensor maps


def test_the_driver_encodes_tensor_maps(gpu: Gpu, api: StandIn) -> None:
    """Axes go innermost first; the bytes are the driver's words; one axis has a stride unread."""
    array = gpu.empty((6, 5, 16), np.float16)
    tensor_map = gpu.tensor_map(
        array, (2, 3, 8), swizzle="32B", shape=(5, 5, 16), l2_promotion="128B"
    )
    kind, rank, pointer, *rest, interleave, swizzle, promotion, fill = api.encoded
    assert (rank, pointer) == (3, array.pointer)
    numbers = [[int(each) for each in axis] for axis in rest]
    assert numbers == [[16, 5, 5], [32, 160], [8, 3, 2], [1, 1, 1]]
    assert kind.name == "CU_TENSOR_MAP_DATA_TYPE_FLOAT16"
    assert interleave.name == "CU_TENSOR_MAP_INTERLEAVE_NONE"
    assert swizzle.name == "CU_TENSOR_MAP_SWIZZLE_32B"
    assert promotion.name == "CU_TENSOR_MAP_L2_PROMOTION_L2_128B"
    assert fill.name == "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"
    assert bytes(tensor_map) == b"".join(word.to_bytes(8, "little") for word in range(1, 17))
    gpu.tensor_map(array, 8, shape=160)
    assert [int(each) for each in api.encoded[4]] == [16]
    assert api.encoded[8].name == "CU_TENSOR_MAP_SWIZZLE_NONE"
    assert api.encoded[9].name == "CU_TENSOR_MAP_L2_PROMOTION_NONE"


def test_a_map_the_driver_refuses_is_its_error(gpu: Gpu, api: StandIn) -> None:
    """What the checks before let through is told with the driver's name for it."""
    api.fail["cuTensorMapEncodeTiled"] = REAL.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DriverError, match="cuTensorMapEncodeTiled failed") as error:
        gpu.tensor_map(gpu.empty(160), 8)
    assert error.value.code == "CUDA_ERROR_INVALID_VALUE"
