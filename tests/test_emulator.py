"""The emulator as a device: the same interface as a GPU's, and what it says where it is another."""

from __future__ import annotations

import numpy as np
import pytest

from lowgemm.compiler import Build, compile_source
from lowgemm.emulator import ARCHITECTURES, Emulator, EmulatorKernel, FindingKind
from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    BlockSizeError,
    DtypeError,
    EmulationError,
    EmulatorFindingsError,
    GridSizeError,
    KernelNotFoundError,
    StreamDeviceError,
    UnknownArchitectureError,
    UnknownInstructionError,
    UnmeasurableError,
)
from lowgemm.studies.devices import open_device

SAXPY = """
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def _compiled(source: str, arch: str = "sm_90") -> Build:
    return compile_source(source, arch=arch)


# ---- the interface


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_kernel_runs_on_every_architecture(arch: str) -> None:
    """The code of each architecture runs; what lies behind the last element stays as it was."""
    with Emulator(arch) as device:
        assert device.name == f"emulator of {arch}"
        x, y = np.arange(1000, dtype=np.float32), np.ones(1024, np.float32)
        on_device = device.upload(y)
        kernel = device.load(_compiled(SAXPY, arch)).kernel("saxpy")
        kernel.launch(1000, 3.0, device.upload(x), on_device, grid=4, block=256)
        expected = np.concatenate([1 + 3 * x, np.ones(24, np.float32)])
        assert (on_device.download() == expected).all()


def test_arrays_are_copied_filled_and_viewed() -> None:
    """Arrays do what a GPU's do: shapes and dtypes are kept, views share their memory."""
    with Emulator() as device:
        array = device.zeros((4, 8), "int32")
        assert not array.download().any()
        part = array.view(8, (2, 8))
        part.fill(7)
        assert (array.download()[1:3] == 7).all() and array.download().sum() == 7 * 16
        part.fill_bytes(0xFF)
        assert (array.download()[1:3] == -1).all()
        with pytest.raises(ArrayLayoutError, match="does not lie within"):
            array.view(30, 3)
        with pytest.raises(DtypeError, match="convert it"):
            array.upload(np.zeros((4, 8)))
        with pytest.raises(ArrayLayoutError, match="shape"):
            array.upload(np.zeros((8, 4), np.int32))
        with pytest.raises(ArgumentValueError, match="0 to 255"):
            array.fill_bytes(256)
        array.close()
        with pytest.raises(EmulationError, match="closed"):
            part.download()
        assert device.empty(0).download().size == 0


def test_arguments_and_shapes_are_checked_before_anything_runs() -> None:
    """A launch that a GPU's runtime would refuse is refused with the same errors."""
    with Emulator() as device, Emulator() as other:
        kernel = device.load(_compiled(SAXPY)).kernel()
        x = device.zeros(8)
        with pytest.raises(ArgumentCountError):
            kernel.launch(8, 1.0, x, grid=1, block=32)
        with pytest.raises(ArgumentTypeError):
            kernel.launch("8", 1.0, x, x, grid=1, block=32)
        with pytest.raises(ArrayLayoutError):
            kernel.launch(8, 1.0, other.zeros(8), x, grid=1, block=32)
        with pytest.raises(BlockSizeError):
            kernel.launch(8, 1.0, x, x, grid=1, block=2048)
        with pytest.raises(GridSizeError):
            kernel.launch(8, 1.0, x, x, grid=0, block=32)
        with pytest.raises(StreamDeviceError):
            kernel.launch(8, 1.0, x, x, grid=1, block=32, stream=other.stream())
        assert not x.download().any()


def test_streams_and_events_order_and_know_no_time() -> None:
    """Work is done when a launch returns; an event says that it has no time, and what to do."""
    with Emulator() as device:
        stream = device.stream()
        first = stream.record()
        second = stream.record(device.event())
        stream.wait(first)
        stream.synchronize()
        device.synchronize()
        with pytest.raises(UnmeasurableError, match="no time"):
            second.elapsed_us(first)
        with pytest.raises(StreamDeviceError, match="stream of a GPU"):
            device.stream(123)


def test_what_cannot_be_loaded_is_refused() -> None:
    """Another architecture's cubin, an unknown architecture, an unknown kernel: typed errors."""
    with Emulator("sm_80") as device:
        with pytest.raises(ArchitectureMismatchError):
            device.load(_compiled(SAXPY, "sm_90"))
        with pytest.raises(KernelNotFoundError, match="it has"):
            device.load(_compiled(SAXPY, "sm_80").cubin).kernel("no_such_kernel")
    with pytest.raises(UnknownArchitectureError, match="it runs"):
        Emulator("sm_70")
    with pytest.raises(ArgumentValueError, match="collect"):
        Emulator(findings="ignore")
    with pytest.raises(ArgumentValueError, match="'gpu' and 'emulator'"):
        open_device("cpu")


def test_one_line_chooses_the_device() -> None:
    """The emulator comes when it is named, with the architecture that is named."""
    assert open_device("emulator", "sm_120").capability == (12, 0)


# ---- what it does where a GPU has no words


def test_an_unknown_instruction_stops_the_run_with_its_place() -> None:
    """The error names kernel, address and text; the instruction is met only if it is executed."""
    source = """
    __global__ void tensor(unsigned* out, int n) {
        unsigned d[4] = {0, 0, 0, 0};
        if (n > 0)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(n));
        out[threadIdx.x] = d[0];
    }"""
    with Emulator("sm_80") as device:
        kernel = device.load(_compiled(source, "sm_80")).kernel()
        out = device.zeros(32, "uint32")
        kernel.launch(out, 0, grid=1, block=32)
        with pytest.raises(UnknownInstructionError, match=r"kernel .*tensor.*HMMA") as caught:
            kernel.launch(out, 1, grid=1, block=32)
        assert caught.value.address is not None


def test_a_kernel_without_end_is_stopped() -> None:
    """A launch that goes on beyond its limit of instructions ends with an error that names it."""
    source = "__global__ void for_ever(volatile int* x) { while (x[0] == 0) {} }"
    with Emulator(instructions=20_000) as device:
        kernel = device.load(_compiled(source)).kernel()
        with pytest.raises(EmulationError, match=r"for_ever.*more than 20000 instructions \(one"):
            kernel.launch(device.zeros(1, "int32"), grid=1, block=32)


def test_blocks_make_progress_whatever_they_wait_for() -> None:
    """A block that waits for a later one through global memory is served."""
    source = """__global__ void chain(volatile int* ready, int* out) {
        if (threadIdx.x == 0) {
            while (blockIdx.x + 1 < gridDim.x && ready[blockIdx.x + 1] == 0) {}
            out[blockIdx.x] = gridDim.x - blockIdx.x;
            __threadfence();
            ready[blockIdx.x] = 1;
        }
    }"""
    with Emulator("sm_80") as device:
        blocks = 12
        out = device.zeros(blocks, "int32")
        kernel = device.load(_compiled(source, "sm_80")).kernel()
        # Blocks of 1024 threads: four at a time.
        kernel.launch(device.zeros(blocks, "int32"), out, grid=blocks, block=1024)
        assert (out.download() == np.arange(blocks, 0, -1)).all()


def test_findings_are_raised_or_collected() -> None:
    """By default a launch raises what it found when it is over; otherwise that is collected."""
    source = "__global__ void beyond(int* x) { x[threadIdx.x] = x[threadIdx.x + 8] + 1; }"
    build = _compiled(source)
    with Emulator() as device:
        with pytest.raises(EmulatorFindingsError) as caught:
            device.load(build).kernel().launch(device.zeros(32, "int32"), grid=1, block=32)
        assert [each.kind for each in caught.value.findings] == [FindingKind.GLOBAL_OUT_OF_BOUNDS]
    with Emulator(findings="collect") as device:
        x = device.zeros(32, "int32")
        device.load(build).kernel().launch(x, grid=1, block=32)
        (finding,) = device.findings
        assert (finding.count, finding.thread, finding.cta) == (8, (24, 0, 0), (0, 0, 0))
        assert finding.line is not None and "beyond" in str(finding)
        assert (x.download() == 1).all()  # the run went on


def test_a_kernel_has_the_findings_of_its_last_launch() -> None:
    """The device keeps those of all launches, the kernel only those of the latest."""
    source = "__global__ void beyond(int* x, int by) { x[threadIdx.x + by] = 1; }"
    with Emulator(findings="collect") as device:
        kernel, x = device.load(_compiled(source)).kernel(), device.zeros(32, "int32")
        assert isinstance(kernel, EmulatorKernel) and not kernel.findings
        kernel.launch(x, 8, grid=1, block=32)
        (finding,) = device.findings
        assert list(kernel.findings) == [finding]
        assert "right behind the end" in str(finding) and "(kernel.cu:1)" in str(finding)
        kernel.launch(x, 0, grid=1, block=32)
        assert not kernel.findings and device.findings == [finding]


def test_dynamic_shared_memory_that_was_not_given_is_hinted_at() -> None:
    """An access to shared memory of a launch that has none tells of ``shared_bytes``."""
    source = """extern __shared__ int tile[];
    __global__ void dynamic(int* x) {
        tile[threadIdx.x] = 1;
        x[threadIdx.x] = tile[threadIdx.x];
    }"""
    with Emulator(findings="collect") as device:
        kernel, x = device.load(_compiled(source)).kernel(), device.zeros(32, "int32")
        kernel.launch(x, grid=1, block=32)
        assert "launch it with shared_bytes=" in device.findings[0].detail
        device.findings.clear()
        kernel.launch(x, grid=1, block=32, shared_bytes=128)
        assert device.findings == []


def test_the_worst_access_tells_where_it_is_and_draws_itself() -> None:
    """It has address, text, line and ways; of an atomic each lane is a letter."""
    source = """__global__ void crowd(int* x) {
        __shared__ int count[64];
        count[2 * threadIdx.x % 64 + threadIdx.x / 32] = 0;
        __syncthreads();
        atomicAdd(&count[threadIdx.x / 8], 1);
        __syncthreads();
        x[threadIdx.x] = count[threadIdx.x];
    }"""
    with Emulator() as device:
        kernel = device.load(_compiled(source)).kernel()
        assert isinstance(kernel, EmulatorKernel) and kernel.counts.worst_access() is None
        kernel.launch(device.zeros(64, "int32"), grid=1, block=64)
        store, atomic = sorted(kernel.counts.worst.values(), key=lambda each: each.index)
        assert kernel.counts.worst_access() == atomic
        for access, ways, line, what in ((store, 2, 3, "words"), (atomic, 8, 5, "lanes")):
            assert access.line is not None and access.line.line == line and access.ways == ways
            head, picture = str(access).split("\n", 1)
            assert head.startswith(f"{access.address:#06x} {access.text} (kernel.cu:{line})")
            assert head.endswith(f"{access.wavefronts} wavefronts, {ways} {what} in one bank")
            assert f"at most {ways}" in picture
        assert "   7  h..............................." in str(atomic)


def test_counts_are_kept_until_they_are_reset() -> None:
    """Counts add up over launches of a kernel, and begin anew when asked to."""
    with Emulator() as device:
        kernel = device.load(_compiled(SAXPY)).kernel()
        assert isinstance(kernel, EmulatorKernel)
        launch = kernel.prepare(40, 1.0, device.zeros(40), device.zeros(40), grid=2, block=32)
        launch()
        once = kernel.counts.totals()
        assert once.ffma_threads == 40 and once.ffma_warps == 2
        assert (once.global_requests, once.global_sectors, once.ideal_global_sectors) == (6, 15, 15)
        launch()
        assert kernel.counts.totals().instructions == 2 * once.instructions
        kernel.reset_counts()
        assert kernel.counts.totals().instructions == 0


def test_variables_of_the_module_are_in_memory() -> None:
    """``__device__`` and ``__constant__`` variables have their values, and keep what is written."""
    source = """
    __device__ int counter = 5;
    __device__ int zeros[4];
    __constant__ float table[3] = {1.5f, 2.5f, 3.5f};
    __global__ void variables(float* out, int i) {
        int old = atomicAdd(&counter, 1);
        out[0] = old + table[i] + zeros[i];
    }"""
    for arch in ("sm_80", "sm_120"):
        with Emulator(arch) as device:
            kernel = device.load(_compiled(source, arch)).kernel("variables")
            out = device.zeros(1)
            for launch in range(3):
                kernel.launch(out, 2, grid=1, block=1)
                assert out.download()[0] == 5 + launch + 3.5


def test_a_limit_is_a_positive_number() -> None:
    """Anything else is refused before a kernel is run."""
    for limit in (0, -1, "x", True, 1.5):
        with pytest.raises(ArgumentValueError, match="instructions="):
            Emulator(instructions=limit)  # type: ignore[arg-type]


def test_what_is_closed_does_no_work() -> None:
    """A closed module launches nothing, a closed emulator gives no memory and loads nothing."""
    build = compile_source("__global__ void k() {}", arch="sm_90")
    device = Emulator("sm_90")
    module = device.load(build)
    kernel = module.kernel("k")
    prepared = kernel.prepare(grid=1, block=1)
    module.close()
    module.close()
    with pytest.raises(EmulationError, match="module has been closed"):
        prepared.launch()
    with pytest.raises(EmulationError, match="module has been closed"):
        kernel.launch(grid=1, block=1)
    device.close()
    with pytest.raises(EmulationError, match="emulator has been closed"):
        device.empty(1)
    with pytest.raises(EmulationError, match="emulator has been closed"):
        device.load(build)


def test_more_memory_than_there_is() -> None:
    """An allocation beyond the machine is refused with its size."""
    with Emulator() as device, pytest.raises(EmulationError, match="4000000000000000 bytes"):
        device.empty(10**15)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('printf("%d", *g);', "vprintf"),
        ("int* p = (int*)malloc(4); if (p) *g = *p;", "malloc"),
    ],
)
def test_what_the_driver_brings_is_named(body: str, name: str, arch: str) -> None:
    """A call of a function that is in no cubin ends the run with its name."""
    build = compile_source(f"__global__ void k(int* g) {{ {body} }}", arch=arch)
    with Emulator(arch) as device, pytest.raises(EmulationError, match=f"calls {name}, which"):
        device.load(build).kernel("k").launch(device.zeros(1, np.int32), grid=1, block=1)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("limit", "count"), [(40, 24), (0, 64)])
def test_a_trap_is_a_finding(arch: str, limit: int, count: int) -> None:
    """The threads that trap are counted, and go no further; others do."""
    source = """__global__ void k(int* g, int n) {
        if (threadIdx.x >= n) __trap();
        g[threadIdx.x] = 2;
    }"""
    with Emulator(arch, findings="collect") as device:
        out = device.zeros(64, np.int32)
        build = compile_source(source, arch=arch)
        device.load(build).kernel("k").launch(out, limit, grid=1, block=64)
        [finding] = device.findings
        assert (finding.kind, finding.count) == (FindingKind.TRAP, count)
        assert finding.thread == (limit, 0, 0)
        assert out.download().tolist() == [2] * limit + [0] * (64 - limit)


def test_bad_contents_change_nothing() -> None:
    """What an array cannot hold, a part that is none and a foreign stream: errors, and no write."""
    with Emulator() as device, Emulator() as other:
        array = device.upload(np.arange(4, dtype=np.int32))
        array.view(np.int64(1), 2).fill(1)  # type: ignore[arg-type]
        before = array.download()
        for value in (1.5, 1j, 2**31):
            with pytest.raises(ArgumentValueError, match="cannot hold"):
                array.fill(value)
        with pytest.raises(ArgumentTypeError):
            array.fill_bytes(1.5)  # type: ignore[arg-type]
        with pytest.raises(ArrayLayoutError, match="offset"):
            array.view(1.5, 2)  # type: ignore[arg-type]
        with pytest.raises(ArrayLayoutError, match="download it first"):
            device.upload(array)  # type: ignore[arg-type]
        for stream in (3, "s", other.stream()):
            with pytest.raises(StreamDeviceError):
                array.fill(7, stream=stream)
            with pytest.raises(StreamDeviceError):
                array.fill_bytes(7, stream=stream)
            with pytest.raises(StreamDeviceError):
                array.upload(before + 1, stream=stream)
            with pytest.raises(StreamDeviceError):
                array.download(stream=stream)
            with pytest.raises(StreamDeviceError):
                device.upload(before, stream=stream)
        assert array.download().tolist() == before.tolist() == [0, 1, 1, 3]
        array.fill(7, stream=device.stream())
        assert array.download(stream=device.stream()).tolist() == [7] * 4


def test_streams_and_events_belong_to_one_emulator() -> None:
    """A stream or an event of another emulator, and what is neither, is refused."""
    with Emulator() as device, Emulator() as other:
        stream, event = device.stream(), device.event()
        assert device.stream(stream) is not stream
        for bad in (5, "s", other.event(), other.stream()):
            with pytest.raises(StreamDeviceError):
                stream.record(bad)  # type: ignore[arg-type]
            with pytest.raises(StreamDeviceError):
                stream.wait(bad)  # type: ignore[arg-type]
            with pytest.raises(StreamDeviceError):
                event.elapsed_us(bad)  # type: ignore[arg-type]
            with pytest.raises(StreamDeviceError):
                event.record(bad)
            with pytest.raises(StreamDeviceError):
                device.stream(bad)


def test_names_and_switches_of_the_right_type() -> None:
    """A kernel's name is a text and strict a bool: nothing else is taken for one."""
    with Emulator() as device, pytest.raises(ArgumentTypeError, match="saxpy"):
        device.load(_compiled(SAXPY)).kernel(3)  # type: ignore[arg-type]
    for value in ("yes", 1, None):
        with pytest.raises(ArgumentValueError, match="strict="):
            Emulator(strict=value)  # type: ignore[arg-type]
    for words in (3, np.array(["raise", "collect"])):
        with pytest.raises(ArgumentValueError, match="findings="):
            Emulator(findings=words)  # type: ignore[arg-type]
