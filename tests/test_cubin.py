"""Reading cubins, sound and damaged."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowgemm.binary import read_cubin
from lowgemm.compiler import Build, compile_source
from lowgemm.errors import CubinError
from lowgemm.hardware import Architecture

SOURCE = """
struct Odd { char c[3]; };
struct Empty {};
struct Big { char c[5000]; };
extern "C" __global__ void __launch_bounds__(256) plain(float* p, int n, Odd q, double d, Empty e)
{
    __shared__ float s[67];
    s[threadIdx.x % 67] = p[n];
    __syncthreads();
    p[threadIdx.x] = s[66 - threadIdx.x % 67] * q.c[n] + d;
}
namespace deep { template <class T> __global__ void inner(T* p, Big big) { p[0] = big.c[p[1]]; } }
extern "C" __global__ void stack(float* p, int n)
{
    float a[300], sum = 0;
#pragma unroll 1
    for (int i = 0; i < 300; i++) a[i] = p[i * n];
#pragma unroll 1
    for (int i = 0; i < 300; i++) sum += a[(i * n) % 300];
    p[0] = sum;
}
extern "C" __global__ void dynamic(float* p)
{
    extern __shared__ float d[];
    d[threadIdx.x] = p[0];
    __syncthreads();
    p[0] = d[3];
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(float* p) { p[0] = 1; }
extern "C" __global__ void __launch_bounds__(128, 1, 4) rank(float* p) { p[0] = 1; }
extern "C" __global__ void __block_size__((32, 4, 2), (2, 2, 1)) block(float* p) { p[0] = 1; }
#endif
"""
ARCHS = ["75", "80", "89", "90", "90a", "100", "100a", "120", "120a"]


def _compile(arch: str) -> Build:
    return compile_source(SOURCE, arch=arch, name_expressions=("deep::inner<int>",))


@pytest.fixture(scope="module")
def build() -> Build:
    return _compile("90")


@pytest.mark.parametrize("arch", ARCHS)
def test_architecture_registers_and_shared_memory(arch: str) -> None:
    """On each architecture the cubin's figures are those that ptxas reported."""
    build = _compile(arch)
    cubin = read_cubin(build.cubin)
    assert cubin.arch == Architecture.parse(arch)
    assert {k.name for k in cubin.kernels} == {k.name for k in build.kernels}
    for kernel in build.kernels:
        assert kernel.signature.registers == kernel.resources.registers > 0
        assert kernel.signature.shared_bytes == kernel.resources.shared_bytes
        assert kernel.signature.stack_bytes == kernel.resources.stack_bytes
    assert build.kernel("plain").signature.shared_bytes in (67 * 4, 68 * 4)  # ptxas rounds up
    assert build.kernel("dynamic").signature.shared_bytes == 0
    stack_bytes = build.kernel("stack").signature.stack_bytes
    assert stack_bytes is not None
    assert stack_bytes >= 1200


def test_a_family_target_reads_as_the_plain_one() -> None:
    """A cubin for sm_100f does not say so: it reads as sm_100, while the build keeps the suffix."""
    build = _compile("100f")
    assert str(read_cubin(build.cubin).arch) == "sm_100"
    assert str(build.arch) == "sm_100f"


def test_parameters_have_offset_and_size(build: Build) -> None:
    """Each parameter's place is known, odd and empty structs included."""
    parameters = build.kernel("plain").signature.parameters
    assert [(p.offset_bytes, p.size_bytes) for p in parameters] == [
        (0, 8),
        (8, 4),
        (12, 3),
        (16, 8),
        (24, 1),
    ]
    big = build.kernel("deep::inner<int>").signature.parameters
    assert [(p.offset_bytes, p.size_bytes) for p in big] == [(0, 8), (8, 5000)]
    assert big[1].type_name == "Big"


def test_launch_limits(build: Build) -> None:
    """Launch bounds, required blocks and clusters are read."""
    assert build.kernel("plain").signature.max_threads == 256
    assert build.kernel("stack").signature.max_threads is None
    assert build.kernel("block").signature.required_block == (32, 4, 2)
    assert build.kernel("cluster").signature.required_cluster == (2, 1, 1)
    assert build.kernel("rank").signature.max_cluster_blocks == 4


def _kernel_names(cubin: bytes) -> list[str]:
    return [kernel.name for kernel in read_cubin(cubin).kernels]


def test_names_with_dots_are_whole() -> None:
    """A kernel whose name holds dots, as other compilers make, is found under its whole name."""
    build = compile_source('extern "C" __global__ void aXbXc(int* p) { p[0] = 1; }', arch=90)
    renamed = build.cubin.replace(b"aXbXc", b"a.b.c")
    assert _kernel_names(renamed) == ["a.b.c"]
    assert len(read_cubin(renamed).kernels[0].parameters) == 1


def test_the_older_layout_is_read(build: Build) -> None:
    """ABI version 7, which NVRTC 12 writes up to sm_90, keeps the architecture elsewhere."""
    old = bytearray(build.cubin)
    old[8] = 7
    for flags, name in ((0x5A055A, "sm_90"), (0x5A0D5A, "sm_90a"), (0x500550, "sm_80")):
        struct.pack_into("<I", old, 48, flags)
        assert str(read_cubin(bytes(old)).arch) == name


def test_nvrtc_12_marks_the_a_suffix_in_the_flags(build: Build) -> None:
    """ABI version 8 of NVRTC 12 has the suffix in bit 3 of the flags."""
    marked = bytearray(build.cubin)
    struct.pack_into("<I", marked, 48, 0x600640A)
    assert str(read_cubin(bytes(marked)).arch) == "sm_100a"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", b"PK\x03\x04" * 100, b"\x7fELF\x02\x01\x01" + b"\0" * 57, b"\xff" * 4096],
)
def test_other_files_are_refused(data: bytes) -> None:
    """What is no cubin gives CubinError, with what is wrong and where."""
    with pytest.raises(CubinError, match="not a readable cubin"):
        read_cubin(data)


def test_a_host_program_is_refused() -> None:
    """An ELF file for another machine is named as such."""
    import sys
    from pathlib import Path

    with pytest.raises(CubinError, match="not EM_CUDA"):
        read_cubin(Path(sys.executable).read_bytes())


def _read_or_refuse(data: bytes) -> None:
    with contextlib.suppress(CubinError):
        read_cubin(data)


def test_every_truncation_is_refused_or_read(build: Build) -> None:
    """A cubin cut off anywhere raises CubinError or nothing."""
    for length in range(0, len(build.cubin), 97):
        _read_or_refuse(build.cubin[:length])


def test_random_damage_raises_cubin_error_alone(build: Build) -> None:
    """Bytes overwritten anywhere, structure and code, raise CubinError or nothing."""
    rng = random.Random(5)
    header, tail = 64, len(build.cubin) * 2 // 3
    for round_ in range(600):
        damaged = bytearray(build.cubin)
        for _ in range(rng.choice([1, 1, 4, 64])):
            low, high = [(0, header), (tail, len(damaged)), (0, len(damaged))][round_ % 3]
            value = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            damaged[rng.randrange(low, high)] = value
        _read_or_refuse(bytes(damaged))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 63), st.binary(min_size=1, max_size=8))
def test_damaged_headers_raise_cubin_error_alone(position: int, value: bytes) -> None:
    """An ELF header with any field overwritten raises CubinError or nothing."""
    damaged = bytearray(_compile("90").cubin)
    damaged[position : position + len(value)] = value
    _read_or_refuse(bytes(damaged))


@pytest.mark.parametrize("arch", ["75", "80", "90", "100", "120"])
def test_relocatable_cubins_are_read(arch: str) -> None:
    """A cubin compiled with -rdc=true is read, with its static shared memory."""
    text = """
__device__ int global[50000];
extern "C" __global__ void k(int* p)
{
    __shared__ int s[12288];
    s[threadIdx.x] = p[0];
    __syncthreads();
    p[0] = s[3] + global[p[1]];
}
"""
    build = compile_source(text, arch=arch, options=("-rdc=true",))
    assert build.kernel().signature.shared_bytes == 49152
    assert read_cubin(build.cubin).code["k"].content


# Kernels that call a function, one through another, a function through a pointer, and themselves.
CALLS = """
__device__ __noinline__ float leaf(const float* x, int n) {
    float a[32], s = 0;
    for (int i = 0; i < n; ++i) a[i] = x[i];
    for (int i = 0; i < n; ++i) s = fmaf(s, a[i], 2.0f);
    return s;
}
__device__ __noinline__ float twice(const float* x, int n) { return leaf(x + 1, n) * leaf(x, n); }
__device__ float (*chosen)(const float*, int) = twice;
extern "C" __global__ void direct(float* o, int n) { o[0] = leaf(o, n); }
extern "C" __global__ void deeper(float* o, int n) { o[0] = twice(o, n); }
extern "C" __global__ void pointed(float* o, int n) { o[0] = chosen(o, n); }
extern "C" __global__ void alone(float* o, int n) { o[0] = n; }
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
@pytest.mark.parametrize("option", ["-rdc=true", "-G"])
def test_code_holds_the_functions_with_sections_of_their_own(arch: str, option: str) -> None:
    """A kernel's code is followed by that of all that it may call, through a pointer as well."""
    read = read_cubin(compile_source(CALLS, arch=arch, options=(option,)).cubin)
    called = {name: [part.function for part in code.parts] for name, code in read.code.items()}
    assert called["alone"] == ["alone"]
    leaf, twice = "_Z4leafPKfi", "_Z5twicePKfi"
    assert leaf in called["direct"] and twice not in called["direct"]
    assert {leaf, twice} <= set(called["deeper"]) and {leaf, twice} <= set(called["pointed"])
    for code in read.code.values():
        assert set(code.functions) == {part.start for part in code.parts[1:]}


def test_a_relocatable_kernel_has_the_registers_and_stack_of_its_callees() -> None:
    """Registers are those of the greediest function, the stack that of the deepest calls."""
    read = read_cubin(compile_source(CALLS, arch=90, options=("-rdc=true",)).cubin)
    kernels = {kernel.name: kernel for kernel in read.kernels}
    assert kernels["alone"].registers == read.own_registers["alone"]
    assert kernels["deeper"].registers > read.own_registers["deeper"]
    assert kernels["alone"].stack_bytes == 0
    assert 0 < kernels["direct"].stack_bytes < kernels["deeper"].stack_bytes  # type: ignore[operator]


@pytest.mark.parametrize("option", ["-rdc=true", "-G", "--fmad=true"])
def test_shared_memory_of_a_function_counts_for_its_kernels(option: str) -> None:
    """Variables of a device function are the kernel's too, once however often it is called."""
    text = """
__device__ __noinline__ float turned(const float* x, int n) {
    __shared__ float a[64];
    a[threadIdx.x] = x[n];
    __syncthreads();
    return a[63 - threadIdx.x];
}
extern "C" __global__ void twice(float* o, int n) { o[0] = turned(o, n) + turned(o + n, n); }
extern "C" __global__ void never(float* o, int n) { o[0] = n; }
"""
    build = compile_source(text, arch=90, options=(option,))
    assert build.kernel("twice").signature.shared_bytes == 256
    assert build.kernel("never").signature.shared_bytes == 0


def test_a_function_to_be_linked_in_is_told() -> None:
    """What a relocatable kernel calls and the cubin lacks is named; printf is the driver's."""
    text = """
extern __device__ float elsewhere(float);
extern "C" __global__ void k(float* o) { o[0] = elsewhere(o[1]); printf("%f", o[0]); }
"""
    build = compile_source(text, arch=90, options=("-rdc=true",))
    assert read_cubin(build.cubin).code["k"].external_calls == ("_Z9elsewheref",)
    assert build.kernel("k").signature.stack_bytes is None


def test_a_recursion_has_no_known_stack() -> None:
    """The stack of a kernel that calls itself in a circle is not known: None."""
    text = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void k(int* p) { p[0] = fib(p[1]); }
"""
    assert compile_source(text, arch=90).kernel("k").signature.stack_bytes is None


def test_sections_that_claim_the_whole_file_cost_no_memory() -> None:
    """Many section headers over the same bytes are refused before the bytes are copied."""
    count, size = 3000, 1 << 20
    head = bytearray(b"\x7fELF\x02\x01\x01\x33\x08".ljust(64, b"\0"))
    struct.pack_into("<HHI", head, 16, 2, 190, 1)
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<I", head, 48, 0x5A00)
    struct.pack_into("<HHHHHH", head, 52, 64, 56, 0, 64, count, 0)
    header = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 0, size, 0, 0, 1, 0)
    data = (bytes(head) + header * count).ljust(size, b"\0")
    tracemalloc.start()
    try:
        with pytest.raises(CubinError, match="sections of"):
            read_cubin(data)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_call_through_a_pointer_may_leave_the_file() -> None:
    """In relocatable code a pointer's function may be another file's, and is told as such."""
    text = """
typedef float (*F)(float);
__device__ __noinline__ float via(F f, float x) { return (*f)(x) + 1; }
extern "C" __global__ void direct(float* o, F* f) { o[0] = (*f)(o[1]); }
extern "C" __global__ void deep(float* o, F* f) { o[0] = via(*f, o[1]); }
extern "C" __global__ void none(float* o) { o[0] = 1; }
"""
    for arch in (80, 90, 120):
        code = read_cubin(compile_source(text, arch=arch, options=("-rdc=true",)).cubin).code
        assert code["direct"].external_calls == ("a function through a pointer",)
        assert code["deep"].external_calls == ("a function through a pointer",)
        assert code["none"].external_calls == ()
