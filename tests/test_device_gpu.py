"""Running on a GPU: copies, launches, faults, and arrays and streams of other libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lowgemm.compiler import compile_source
from lowgemm.device.driver import bindings
from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentCountError,
    ArgumentTypeError,
    ArrayLayoutError,
    BlockSizeError,
    DriverError,
    DtypeError,
    GridSizeError,
    SharedMemoryError,
    StreamDeviceError,
)
from lowgemm.runtime import as_view
from lowgemm.runtime.interchange import cuda_array_interface

if TYPE_CHECKING:
    from lowgemm.device import Gpu
    from lowgemm.device.module import DeviceModule

pytestmark = pytest.mark.gpu

SOURCE = """
__global__ void scale(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}

__global__ void numbers(float* out, float f, double d, signed char c, long long l, unsigned u) {
  out[0] = f; out[1] = (float)d; out[2] = c; out[3] = (float)l; out[4] = (float)u;
}

__global__ void __launch_bounds__(128) bounded(int* out) { out[threadIdx.x] = threadIdx.x; }

__global__ void fixed(float* out) {
  __shared__ float tile[1024];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void dynamic(int* out, int words) {
  extern __shared__ int shared[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = shared[words - 1];
}

struct Pair { int a; float b; };
__global__ void structure(Pair pair, float* out) { out[0] = pair.a; out[1] = pair.b; }

__global__ void count(unsigned* total) { atomicAdd(total, 1u); }

__global__ void slow(float* out, float value, long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  *out = value;
}
"""

CLUSTER = """
extern "C" __global__ void rank(unsigned* out) {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) out[blockIdx.x] = rank + 100 * size;
}
"""


@pytest.fixture(scope="module")
def module(gpu: Gpu) -> DeviceModule:
    return gpu.load(compile_source(SOURCE, arch=gpu.architecture))


def mangled(module: DeviceModule, name: str) -> Any:
    [found] = [each for each in module.kernels if f"{len(name)}{name}" in each]
    return module.kernel(found)


def random(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).standard_normal(n, dtype=np.float32)


def scaled(gpu: Gpu, module: DeviceModule, x: Any, n: int, stream: object = None) -> Any:
    """2 * x by a launch."""
    y = gpu.zeros(n)
    kernel = mangled(module, "scale")
    kernel.launch(2.0, x, y, n, grid=-(-n // 128), block=128, stream=stream)
    return y.download()


# ---- memory


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "uint16", "int64", "complex64", "bool"]
)
def test_round_trip(gpu: Gpu, dtype: str) -> None:
    """What is uploaded is downloaded, by the default stream and by another."""
    host = (np.arange(1000) % 7).astype(dtype).reshape(10, 100)
    assert np.array_equal(gpu.upload(host).download(), host)
    assert np.array_equal(gpu.upload(host.T).download(), host.T)
    with gpu.stream() as stream:
        array = gpu.upload(host, stream=stream)
        assert np.array_equal(array.download(stream=stream), host)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 1.5), ("float16", 2), ("int8", -3), ("float64", 0.1), ("int64", -1)],
)
def test_fill(gpu: Gpu, dtype: str, value: float) -> None:
    """fill sets each element, of every width."""
    array = gpu.empty((37, 11), dtype)
    array.fill(value)
    assert np.array_equal(array.download(), np.full((37, 11), value, dtype))


def test_memory_returns(gpu: Gpu) -> None:
    """Closing an array gives its memory back to the GPU."""
    before, _ = gpu.memory_bytes()
    with gpu.empty(1 << 28, np.uint8):
        assert gpu.memory_bytes()[0] <= before - (1 << 28)
    assert gpu.memory_bytes()[0] > before - (1 << 28)


def test_out_of_memory(gpu: Gpu) -> None:
    """An array larger than the GPU is refused with a remedy, and the GPU stays usable."""
    with pytest.raises(DriverError, match="OUT_OF_MEMORY") as error:
        gpu.empty(1 << 50, np.uint8)
    assert "free arrays" in error.value.remedy
    assert gpu.zeros(3).download().tolist() == [0, 0, 0]


def test_attributes_are_plausible(gpu: Gpu) -> None:
    """The driver's attributes agree with each other."""
    a = gpu.attributes
    assert a.warp_threads == 32
    assert a.shared_bytes_per_block <= a.shared_bytes_per_block_optin
    assert (
        a.shared_bytes_per_block_optin + a.reserved_shared_bytes_per_block
        == a.shared_bytes_per_multiprocessor
    )
    assert a.registers_per_multiprocessor == 65536
    assert gpu.uuid.startswith("GPU-")


# ---- launching


@pytest.mark.parametrize("n", [1, 127, 128, 100_003])
def test_launch(gpu: Gpu, module: DeviceModule, n: int) -> None:
    """A launch with a float, two pointers and an int computes what it should."""
    x = random(n)
    assert np.array_equal(scaled(gpu, module, gpu.upload(x), n), 2 * x)


def test_numbers_arrive(gpu: Gpu, module: DeviceModule) -> None:
    """Each number arrives in its width and sign: a float as a float, a negative as a negative."""
    out = gpu.zeros(5)
    mangled(module, "numbers").launch(out, 0.5, 0.25, -3, -(2**40), 2**31, grid=1, block=1)
    assert out.download().tolist() == [0.5, 0.25, -3.0, -(2.0**40), 2.0**31]


def test_struct_arrives(gpu: Gpu, module: DeviceModule) -> None:
    """A struct is passed as a numpy record."""
    pair = np.array([(7, 0.5)], dtype=[("a", "<i4"), ("b", "<f4")])[0]
    out = gpu.zeros(2)
    mangled(module, "structure").launch(pair, out, grid=1, block=1)
    assert out.download().tolist() == [7.0, 0.5]


def test_wrong_arguments(gpu: Gpu, module: DeviceModule) -> None:
    """Wrong counts, widths and element types are refused, and the GPU stays usable."""
    kernel, x = mangled(module, "scale"), gpu.zeros(8)
    shape = {"grid": 1, "block": 8}
    counts: list[tuple[Any, ...]] = [(2.0, x, x), (2.0, x, x, 8, 9)]
    for bad in counts:
        with pytest.raises(ArgumentCountError):
            kernel.launch(*bad, **shape)
    for bad in [(np.float64(2), x, x, 8), (2.0, x, x, np.int64(8)), (2.0, x, x, 8.0)]:
        with pytest.raises(ArgumentTypeError):
            kernel.launch(*bad, **shape)
    with pytest.raises(DtypeError):
        kernel.launch(2.0, gpu.zeros(8, np.float64), x, 8, **shape)
    gpu.synchronize()


def test_launch_bounds(gpu: Gpu, module: DeviceModule) -> None:
    """A block beyond the kernel's bound is refused; the driver's own bound agrees."""
    kernel = mangled(module, "bounded")
    out = gpu.zeros(129, np.int32)
    assert kernel.max_threads == kernel.signature.max_threads == 128
    kernel.launch(out, grid=1, block=128)
    with pytest.raises(BlockSizeError, match="128"):
        kernel.launch(out, grid=1, block=129)
    assert out.download().tolist() == [*range(128), 0]


def test_resources_agree_with_the_driver(module: DeviceModule) -> None:
    """Registers and static shared memory read from the cubin are those of the driver."""
    for name in module.kernels:
        kernel = module.kernel(name)
        assert kernel.registers == kernel.signature.registers
        assert kernel.driver_shared_bytes() == kernel.shared_bytes


def test_dynamic_shared_memory(gpu: Gpu, module: DeviceModule) -> None:
    """More than 48 KiB of dynamic shared memory work up to the device's limit, and not beyond."""
    kernel, out = mangled(module, "dynamic"), gpu.zeros(1, np.int32)
    limit = gpu.limits.max_shared_bytes_per_block
    for size in (1024, 49152, 65536, limit, 2048):
        kernel.launch(out, size // 4, grid=1, block=256, shared_bytes=size)
        assert out.download()[0] == size // 4 - 1
    with pytest.raises(SharedMemoryError, match=str(limit)):
        kernel.launch(out, 1, grid=1, block=256, shared_bytes=limit + 1)


def test_static_shared_memory_counts(gpu: Gpu, module: DeviceModule) -> None:
    """Static shared memory counts towards the limit, to the byte."""
    kernel, out = mangled(module, "fixed"), gpu.zeros(32)
    limit = gpu.limits.max_shared_bytes_per_block
    kernel.launch(out, grid=1, block=32, shared_bytes=limit - 4096)
    assert out.download().tolist() == list(range(31, -1, -1))
    with pytest.raises(SharedMemoryError, match="4096 static"):
        kernel.launch(out, grid=1, block=32, shared_bytes=limit - 4095)


def test_occupancy(module: DeviceModule) -> None:
    """The driver's occupancy falls as the block's shared memory rises."""
    kernel = mangled(module, "dynamic")
    assert kernel.occupancy(256, 0) > kernel.occupancy(256, 65536) >= 1


def test_other_architecture(gpu: Gpu) -> None:
    """A cubin for another architecture is refused, naming both."""
    other = "sm_80" if gpu.capability[0] != 8 else "sm_90"
    build = compile_source('extern "C" __global__ void k() {}', arch=other)
    with pytest.raises(ArchitectureMismatchError, match=rf"{other}.*{gpu.architecture}"):
        gpu.load(build)
    with pytest.raises(ArchitectureMismatchError):
        gpu.load(build.cubin)


def test_bare_cubin(gpu: Gpu) -> None:
    """A cubin's bytes alone are loaded and their launches checked by count and width."""
    build = compile_source(SOURCE, arch=gpu.architecture)
    with gpu.load(build.cubin) as module:
        x = random(100)
        y = gpu.zeros(100)
        module.kernel("scale").launch(2.0, gpu.upload(x), y, 100, grid=1, block=128)
        assert np.array_equal(y.download(), 2 * x)
        with pytest.raises(ArgumentTypeError):
            module.kernel("scale").launch(2.0, y, y, np.int64(100), grid=1, block=128)


def test_closed_module(gpu: Gpu) -> None:
    """A prepared launch of an unloaded module is refused, not undefined."""
    module = gpu.load(compile_source('extern "C" __global__ void k() {}', arch=gpu.architecture))
    prepared = module.kernel("k").prepare(grid=1, block=1)
    prepared()
    module.close()
    with pytest.raises(DriverError, match="closed"):
        prepared()
    gpu.synchronize()


def test_prepared_equals_plain(gpu: Gpu, module: DeviceModule) -> None:
    """A prepared launch does what the plain one does, each time, in each stream."""
    x = random(1000)
    array, y = gpu.upload(x), gpu.zeros(1000)
    prepared = mangled(module, "scale").prepare(2.0, array, y, 1000, grid=8, block=128)
    expected = scaled(gpu, module, array, 1000)
    for stream in (None, gpu.stream(), None):
        y.fill(0)
        prepared(stream)
        assert np.array_equal(y.download(), expected)


def test_prepared_keeps_its_arrays(gpu: Gpu, module: DeviceModule) -> None:
    """A prepared launch keeps the arrays alive that nobody else holds."""
    y = gpu.zeros(100)
    x = random(100)
    prepared = mangled(module, "scale").prepare(2.0, gpu.upload(x), y, 100, grid=1, block=128)
    filler = [gpu.zeros(100) for _ in range(50)]
    prepared()
    assert np.array_equal(y.download(), 2 * x)
    del filler


def test_cluster(gpu: Gpu) -> None:
    """Blocks of a cluster know their rank; a cluster that does not divide the grid is refused."""
    if gpu.capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    kernel = gpu.load(compile_source(CLUSTER, arch=gpu.architecture)).kernel("rank")
    for size in (1, 2, 4, 8):
        out = gpu.zeros(16, np.uint32)
        kernel.launch(out, grid=16, block=32, cluster=size)
        assert out.download().tolist() == [i % size + 100 * size for i in range(16)]
    with pytest.raises(GridSizeError):
        kernel.launch(out, grid=15, block=32, cluster=2)


def test_nonportable_cluster(gpu: Gpu) -> None:
    """A cluster of sixteen runs where the GPU has it."""
    if gpu.capability != (9, 0):
        pytest.skip("known for compute capability 9.0 only")
    kernel = gpu.load(compile_source(CLUSTER, arch=gpu.architecture)).kernel("rank")
    out = gpu.zeros(16, np.uint32)
    kernel.launch(out, grid=16, block=32, cluster=16, stream=gpu.stream())
    assert out.download().tolist() == [i + 1600 for i in range(16)]


def test_many_threads(gpu: Gpu, module: DeviceModule) -> None:
    """Threads launch at the same time, with and without a stream of their own."""
    kernel, total = mangled(module, "count"), gpu.zeros(1, np.uint32)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            stream = gpu.stream() if number % 2 else None
            prepared = kernel.prepare(total, grid=2, block=32, stream=stream)
            for _ in range(200):
                prepared()
                kernel.launch(total, grid=1, block=32, stream=stream)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert total.download()[0] == 8 * 200 * (64 + 32)


def test_other_context_is_current(gpu: Gpu, module: DeviceModule) -> None:
    """Launches and copies are right while another context of the same GPU is current."""
    driver = bindings()
    code, other = driver.cuCtxCreate(None, 0, gpu.context.device)
    assert code == 0
    try:
        x = random(1000)
        assert np.array_equal(scaled(gpu, module, gpu.upload(x), 1000), 2 * x)
        assert np.array_equal(scaled(gpu, module, gpu.upload(x), 1000, gpu.stream()), 2 * x)
        stream = gpu.default_stream
        assert stream.record().elapsed_us(stream.record()) <= 0
        assert int(driver.cuCtxGetCurrent()[1]) == int(other)
        code, theirs = driver.cuStreamCreate(1)
        with pytest.raises(StreamDeviceError, match="another context"):
            gpu.stream(int(theirs))
    finally:
        driver.cuCtxDestroy(other)


def test_events_time_the_gpu(gpu: Gpu, module: DeviceModule) -> None:
    """The time between two events is that of the kernel between them, in microseconds."""
    kernel, out, stream = mangled(module, "slow"), gpu.zeros(1), gpu.stream()
    cycles = gpu.attributes.sm_clock_khz * 5  # 5 ms at the highest clock
    kernel.launch(out, 1.0, 1, grid=1, block=1, stream=stream)
    start = stream.record()
    kernel.launch(out, 1.0, cycles, grid=1, block=1, stream=stream)
    elapsed = stream.record().elapsed_us(start)
    assert 4_900 < elapsed < 100_000


def test_copies_wait_for_launches(gpu: Gpu, module: DeviceModule) -> None:
    """A download without a stream waits for a kernel in a stream that does not block."""
    out, stream = gpu.zeros(1), gpu.stream()
    mangled(module, "slow").launch(out, 3.0, 20_000_000, grid=1, block=1, stream=stream)
    assert out.download()[0] == 3.0


def test_stream_waits_for_event(gpu: Gpu, module: DeviceModule) -> None:
    """A stream that waits for another's event sees what was written before it."""
    x, first, second = gpu.zeros(1), gpu.stream(), gpu.stream()
    mangled(module, "slow").launch(x, 3.0, 20_000_000, grid=1, block=1, stream=first)
    second.wait(first.record())
    y = gpu.empty(1)
    mangled(module, "scale").launch(2.0, x, y, 1, grid=1, block=1, stream=second)
    assert y.download(stream=second)[0] == 6.0


def test_prepared_launch_in_another_stream_waits_for_the_producer(
    gpu: Gpu, module: DeviceModule
) -> None:
    """A prepared launch in a stream given later sees what the array's producer wrote before."""
    x, y = gpu.zeros(1), gpu.empty(1)
    producer, first, second = gpu.stream(), gpu.stream(), gpu.stream()
    mangled(module, "slow").launch(x, 3.0, 20_000_000, grid=1, block=1, stream=producer)

    class Produced:
        __cuda_array_interface__ = cuda_array_interface(
            x.pointer, (1,), np.dtype(np.float32), stream=producer.handle
        )

    prepared = mangled(module, "scale").prepare(
        2.0, Produced(), y, 1, grid=1, block=1, stream=first
    )
    prepared.launch(second)
    assert y.download(stream=second)[0] == 6.0


def test_stream_of_another_gpu(gpu: Gpu) -> None:
    """A stream of another GPU is refused."""
    from lowgemm.device import Gpu as OpenGpu
    from lowgemm.device import gpu_count

    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    with OpenGpu(1 - gpu.ordinal) as other:
        with pytest.raises(StreamDeviceError, match=f"GPU {other.ordinal}"):
            gpu.stream(other.stream().handle)
        with pytest.raises(ArrayLayoutError, match=f"GPU {other.ordinal}"):
            gpu.wrap(other.zeros(3))


# ---- faults: in a process of their own, since a fault ends its context

FAULTY = """
from lowgemm.compiler import compile_source
from lowgemm.device import Gpu
from lowgemm.errors import KernelFaultError
gpu = Gpu()
source = '''
extern "C" __global__ void good(int* p) { *p = 1; }
extern "C" __global__ void broken(int* p) { *p = 1; }
'''
module = gpu.load(compile_source(source, arch=gpu.architecture))
x = gpu.zeros(1, "int32")
module.kernel("good").launch(x, grid=1, block=1)
{sync}
module.kernel("broken").launch(4096, grid=3, block=32)
try:
    gpu.synchronize()
except KernelFaultError as error:
    print(error.code, *error.kernels)
    print(error)
try:
    x.download()
except KernelFaultError as error:
    print("again", *error.kernels)
"""


@pytest.mark.parametrize(
    ("sync", "kernels"), [("gpu.synchronize()", "broken"), ("", "good broken")]
)
def test_illegal_address_names_the_kernel(gpu: Gpu, sync: str, kernels: str) -> None:
    """An illegal address names the kernels that may have caused it, and the process ends well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FAULTY).replace("{sync}", sync)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu.uuid},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"CUDA_ERROR_ILLEGAL_ADDRESS {kernels}"
    assert "broken (grid (3, 1, 1), block (32, 1, 1))" in done.stdout
    assert "compute-sanitizer" in done.stdout
    assert lines[-1] == f"again {kernels}"
    assert done.stderr == ""


def test_exit_without_closing(gpu: Gpu) -> None:
    """A process that closes nothing ends without a word, also with arrays in module globals."""
    code = (
        "from lowgemm.device import Gpu; import numpy as np; gpu = Gpu(); x = gpu.zeros(9);"
        "s = gpu.stream(); e = s.record(); c = x.__dlpack__(); v = x.view(1, 2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- other libraries


def test_torch_tensors(gpu: Gpu, module: DeviceModule) -> None:
    """A torch tensor is an argument and shares memory both ways."""
    torch = pytest.importorskip("torch")
    x = torch.randn(1000, device=f"cuda:{gpu.ordinal}")
    assert np.array_equal(scaled(gpu, module, x, 1000), 2 * x.cpu().numpy())
    y = gpu.zeros(1000)
    tensor = torch.from_dlpack(y)
    assert tensor.data_ptr() == y.pointer
    tensor += 1
    torch.cuda.synchronize()
    assert (y.download() == 1).all()
    assert gpu.wrap(x).pointer == x.data_ptr()
    assert as_view(x.bfloat16()).dtype.name == "bfloat16"
    kernel = mangled(module, "scale")
    with pytest.raises(ArrayLayoutError, match="contiguous"):
        kernel.launch(2.0, x[::2], y, 500, grid=4, block=128)
    with pytest.raises(DtypeError):
        kernel.launch(2.0, x.double(), y, 1000, grid=8, block=128)
    with pytest.raises(ArrayLayoutError, match="the CPU"):
        kernel.launch(2.0, x.cpu(), y, 1000, grid=8, block=128)
    with pytest.raises(ArrayLayoutError, match="detach"):
        kernel.launch(2.0, x.requires_grad_(), y, 1000, grid=8, block=128)


def test_torch_stream(gpu: Gpu, module: DeviceModule) -> None:
    """A launch in a torch stream sees what torch wrote there before."""
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream(device=gpu.ordinal)
    y = gpu.zeros(1 << 20)
    with torch.cuda.stream(stream):
        x = torch.ones(1 << 20, device=f"cuda:{gpu.ordinal}")
        for _ in range(20):
            x = x + 1
        mangled(module, "scale").launch(2.0, x, y, 1 << 20, grid=8192, block=128, stream=stream)
    assert (y.download(stream=stream) == 42).all()


def test_cupy_arrays(gpu: Gpu, module: DeviceModule) -> None:
    """A CuPy array is an argument and shares memory both ways; so does its stream."""
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal(1000, dtype=cupy.float32)
    assert np.array_equal(scaled(gpu, module, x, 1000), 2 * cupy.asnumpy(x))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        z = x + 1
        assert np.array_equal(scaled(gpu, module, z, 1000, gpu.stream()), 2 * cupy.asnumpy(z))
        assert np.array_equal(scaled(gpu, module, z, 1000, stream), 2 * cupy.asnumpy(z))
    y = gpu.upload(random(100))
    for shared in (cupy.asarray(y), cupy.from_dlpack(y)):
        assert shared.data.ptr == y.pointer
        assert np.array_equal(cupy.asnumpy(shared), y.download())


def test_cuda_core(gpu: Gpu, module: DeviceModule) -> None:
    """A launch goes into a cuda.core stream, and a cuda.core buffer is an argument."""
    core = pytest.importorskip("cuda.core")
    if not hasattr(core, "Device"):
        pytest.skip("this cuda.core is older than 1.0")
    device = core.Device(gpu.ordinal)
    device.set_current()
    stream = device.create_stream()
    x = random(1000)
    assert np.array_equal(scaled(gpu, module, gpu.upload(x), 1000, stream), 2 * x)
    buffer = device.allocate(4000, stream=stream)
    stream.sync()
    kernel = mangled(module, "scale")
    kernel.launch(2.0, gpu.upload(x), buffer, 1000, grid=8, block=128, stream=stream)
    raw = gpu.wrap(buffer).download(stream=stream)
    assert np.array_equal(raw.view(np.float32), 2 * x)
