"""Compiling sources: builds, their kernels, and errors that say what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lowgemm.compiler import Cache, compile_file, compile_many, compile_source, parse_log
from lowgemm.compiler.build import assemble_kernels
from lowgemm.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CompilationError,
    CubinError,
    EmptyCubinError,
    KernelNotFoundError,
    SourceNotFoundError,
    UnknownArchitectureError,
)
from lowgemm.hardware import Architecture
from lowgemm.toolchain import nvrtc_version

if TYPE_CHECKING:
    from lowgemm.device import Gpu

ONE = 'extern "C" __global__ void one(float* p, int n) { p[0] = n * VALUE; }\n'
TEMPLATE = """
template <bool Fast, class T> __global__ void ex8(const T* a, T* b, int n)
{
    __shared__ T s[64];
    s[threadIdx.x] = a[n];
    __syncthreads();
    b[threadIdx.x] = Fast ? s[63 - threadIdx.x] : s[0];
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "one.cu"
    path.write_text(ONE)
    return path


def test_a_build_has_cubin_ptx_log_and_kernels(source: Path) -> None:
    """One call gives cubin, PTX, the compiler's log and each kernel's resources and parameters."""
    build = compile_file(source, arch="sm_90", defines={"VALUE": 3})
    assert build.cubin.startswith(b"\x7fELF")
    assert ".entry one" in build.ptx
    assert "ptxas info" in build.log
    assert (build.source, str(build.arch)) == (source, "sm_90")
    kernel = build.kernel()
    assert kernel.display_name == kernel.name == "one"
    assert kernel.resources.registers == kernel.signature.registers
    assert [p.size_bytes for p in kernel.signature.parameters] == [8, 4]


def test_template_instances_are_found_by_every_name() -> None:
    """An instance is found by name expression, mangled name, or plain name if unique."""
    names = ("ex8<true, float>", "ex8<false, double>")
    build = compile_source(TEMPLATE, arch=90, name_expressions=names)
    kernel = build.kernel("ex8<true,float>")
    assert kernel.name_expression == "ex8<true, float>"
    assert kernel is build.kernel(kernel.name)
    assert kernel.resources.shared_bytes == 256
    assert [p.pointee for p in kernel.signature.parameters] == ["float32", "float32", None]
    with pytest.raises(KernelNotFoundError, match="2 kernels are named 'ex8'"):
        build.kernel("ex8")
    with pytest.raises(KernelNotFoundError, match="no name was given"):
        build.kernel()
    with pytest.raises(KernelNotFoundError) as caught:
        build.kernel("ex9<true>")
    assert caught.value.available == (
        build.kernels[0].display_name,
        build.kernels[1].display_name,
    )
    one = compile_source(TEMPLATE, arch=90, name_expressions=names[:1])
    assert one.kernel("ex8") is one.kernel()


def test_repr_is_short(source: Path) -> None:
    """A build's repr names source, architecture and kernels, and holds no binary."""
    text = repr(compile_file(source, arch=90, defines={"VALUE": 1}))
    assert "one.cu" in text
    assert "sm_90" in text
    assert len(text) < 300


def test_many_architectures(source: Path) -> None:
    """Several architectures give a build each, in order, and equal to those compiled singly."""
    archs = ["sm_120", "sm_80", "sm_90a", "sm_80"]
    builds = compile_many(source, archs, defines={"VALUE": 2}, cache=None)
    assert [str(arch) for arch in builds] == ["sm_120", "sm_80", "sm_90a"]
    single = compile_file(source, arch="sm_80", defines={"VALUE": 2}, cache=None)
    assert builds[Architecture.parse("sm_80")] == single


@pytest.mark.parametrize(
    ("value", "literal"),
    [(3, "3"), (True, "1"), (0.5, "0.5"), ("a + b", "a + b"), (None, None), (1e20, "1e+20")],
)
def test_defines_reach_the_source(value: float | str | None, literal: str | None) -> None:
    """Integers, floats, booleans, text and None become the macros that one expects."""
    text = f"""
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#ifndef X
#error X is missing
#endif
__device__ constexpr bool same(const char* a, const char* b)
{{ return *a == *b && (!*a || same(a + 1, b + 1)); }}
static_assert(same(TEXT(X), "{"1" if literal is None else literal}"), "");
__global__ void k() {{}}
"""
    compile_source(text, arch=80, defines={"X": value})


def test_impossible_defines_are_refused() -> None:
    """A macro's name must be an identifier and its value one line of text or a finite number."""
    for name in ("", "1X", "X=1", "A B", "X(a)"):
        with pytest.raises(ArgumentValueError):
            compile_source(ONE, arch=90, defines={name: 1})
    for value in (float("nan"), float("inf"), "a\nb", "a\0"):
        with pytest.raises(ArgumentValueError):
            compile_source(ONE, arch=90, defines={"VALUE": value})
    with pytest.raises(ArgumentTypeError):
        compile_source(ONE, arch=90, defines={"VALUE": [1]})  # type: ignore[dict-item]
    with pytest.raises(ArgumentTypeError, match="write"):
        compile_source(TEMPLATE, arch=90, name_expressions="ex8<true, float>")


def test_syntax_errors_name_file_and_line(tmp_path: Path) -> None:
    """A syntax error names the file and line, and the error keeps the compiler's whole log."""
    path = tmp_path / "bad.cu"
    path.write_text("__global__ void k()\n{\n  oops\n}\n")
    with pytest.raises(CompilationError, match=r"bad\.cu\(3\): error") as caught:
        compile_file(path, arch=90)
    assert "oops" in caught.value.log


def test_a_missing_header_names_the_places_searched(tmp_path: Path) -> None:
    """A header that is nowhere raises CompilationError with the include path in the remedy."""
    text = '#include "nowhere.h"\n__global__ void k() {}\n'
    with pytest.raises(CompilationError) as caught:
        compile_source(text, arch=90, include_dirs=[tmp_path])
    assert "nowhere.h" in caught.value.remedy
    assert str(tmp_path) in caught.value.remedy


def test_host_headers_are_explained() -> None:
    """The host's headers cannot be had; the remedy says how to keep them out of NVRTC's sight."""
    with pytest.raises(CompilationError) as caught:
        compile_source("#include <cstdio>\n__global__ void k() {}\n", arch=90)
    assert "__CUDACC_RTC__" in caught.value.remedy
    guarded = "#ifndef __CUDACC_RTC__\n#include <cstdio>\n#endif\n__global__ void k() {}\n"
    build = compile_source(guarded, arch=90)
    assert not any(option.startswith("-I") for option in build.options)


def test_sources_written_for_nvcc_compile() -> None:
    """``#include <cuda_runtime.h>`` costs nothing: NVRTC declares its contents by itself."""
    build = compile_source("#include <cuda_runtime.h>\n__global__ void k(float4* p) {}\n", arch=90)
    assert build.kernel("k").signature.parameters[0].type_name == "float4*"


def test_a_template_without_instance_is_no_empty_success() -> None:
    """A template of which no instance was asked for raises EmptyCubinError that names it."""
    with pytest.raises(EmptyCubinError, match=r'name_expressions=\("ex8<float>",\)'):
        compile_source(TEMPLATE, arch=90)


def test_a_source_without_kernel_is_no_empty_success() -> None:
    """A source with no kernel at all raises EmptyCubinError."""
    with pytest.raises(EmptyCubinError, match="__global__"):
        compile_source("__device__ int f() { return 1; }", arch=90)
    with pytest.raises(EmptyCubinError):
        compile_source("", arch=90)


def test_a_wrong_name_expression_is_explained() -> None:
    """A name expression that names nothing raises CompilationError with it and what there is."""
    with pytest.raises(CompilationError, match="ex9<true>") as caught:
        compile_source(TEMPLATE, arch=90, name_expressions=("ex9<true>",))
    assert "a kernel of the source (ex8)" in caught.value.remedy


@pytest.mark.parametrize("arch", ["sm_95", "sm_80a", "sm_90f", "compute_90", "hopper", 30])
def test_unknown_architectures_are_refused(arch: str | int) -> None:
    """An architecture that NVRTC lacks is refused before compiling, with those it has."""
    with pytest.raises(UnknownArchitectureError, match=r"sm_90"):
        compile_source(ONE, arch=arch)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, and a directory, raise SourceNotFoundError, which is a FileNotFoundError."""
    for path in (tmp_path / "missing.cu", tmp_path):
        with pytest.raises(SourceNotFoundError, match=str(path)):
            compile_file(path, arch=90)
    with pytest.raises(FileNotFoundError):
        compile_many(tmp_path / "missing.cu", ["sm_90"])


def test_options_are_checked() -> None:
    """Options that NVRTC refuses, and an architecture among the options, are named."""
    with pytest.raises(CompilationError, match="--no-such-option"):
        compile_source(ONE, arch=90, options=("--no-such-option",))
    with pytest.raises(CompilationError, match="arch="):
        compile_source(ONE, arch=90, options=("-arch=sm_80",))


def test_odd_texts(tmp_path: Path) -> None:
    """A byte order mark is accepted, a NUL byte refused, and non-ASCII comments and paths work."""
    path = tmp_path / "größe.cu"
    path.write_bytes(b"\xef\xbb\xbf// \xc3\xa9\n" + ONE.encode())
    assert compile_file(path, arch=90, defines={"VALUE": 1}).kernels
    with pytest.raises(CompilationError, match="NUL"):
        compile_source("\0", arch=90)


def test_line_info_is_a_choice(source: Path) -> None:
    """The cubin names source lines unless it is told not to."""
    with_lines = compile_file(source, arch=90, defines={"VALUE": 1})
    without = compile_file(source, arch=90, defines={"VALUE": 1}, line_info=False)
    assert b".debug_line" in with_lines.cubin
    assert b".debug_line" not in without.cubin


def test_spills_are_read_from_the_log() -> None:
    """Spill stores and loads are those of the compiler's log, with the functions it calls."""
    log = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
ptxas         .     96 bytes stack frame, 120 bytes spill stores, 200 bytes spill loads
ptxas info    : Used 32 registers, used 2 barriers, 9216 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for _Z3devPf
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'cut off' for 'sm_80'
"""
    told = parse_log(log)
    assert told.resources("cut off", (), ()) is None
    kernel = told.resources("_Z1kPf", (), ())
    assert kernel is not None
    assert (kernel.registers, kernel.barriers, kernel.shared_bytes) == (32, 2, 9216)
    assert (kernel.stack_bytes, kernel.constant_bytes) == (96, 376)
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (124, 208)


def test_functions_with_sections_of_their_own_count_for_their_callers() -> None:
    """In relocatable code a function's spills count for the kernels that call it, wherever told."""
    log = """
ptxas info    : Function properties for _Z3bigPf$1
ptxas         .     520 bytes stack frame, 580 bytes spill stores, 740 bytes spill loads
ptxas info    : Compiling entry function '_Z4callPf' for 'sm_90'
ptxas info    : Function properties for _Z4callPf
ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
ptxas info    : Function properties for _Z5otherPf
ptxas         .     0 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads
"""
    told, separate = parse_log(log), ("_Z3bigPf$1", "_Z5otherPf")
    alone = told.resources("_Z4callPf", separate, ())
    both = told.resources("_Z4callPf", separate, ["_Z3bigPf$1"])
    assert alone is not None and both is not None
    assert (alone.spill_store_bytes, alone.spill_load_bytes) == (4, 8)
    assert (both.spill_store_bytes, both.spill_load_bytes) == (584, 748)


def test_real_spills(tmp_path: Path) -> None:
    """A kernel squeezed into too few registers reports its spills."""
    text = """
extern "C" __global__ void k(float* p, int n)
{
    float a[64];
#pragma unroll
    for (int i = 0; i < 64; i++) a[i] = p[i * n];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++) p[i] = a[63 - i];
}
"""
    cache = Cache(tmp_path)
    build = compile_source(text, arch=90, options=("--maxrregcount=32",), cache=cache)
    assert build.kernel("k").resources.spill_store_bytes > 0
    assert build.kernel("k").resources.registers <= 32


def test_nvrtcs_own_cache_is_off() -> None:
    """NVRTC's cache (12.9 and later, with a driver) would give a cubin without ptxas's log."""
    build = compile_source("__global__ void k() {}", arch="sm_90")
    assert ("--no-cache" in build.options) is (nvrtc_version() >= (12, 9))


@pytest.mark.gpu
def test_a_second_compilation_has_its_log(gpu: Gpu) -> None:
    """With a driver, too, every compilation gives registers and spills, the second as the first."""
    text = "__global__ void again(float* x) { x[threadIdx.x] *= 3; }"
    for _ in range(2):
        build = compile_source(text, arch=gpu.architecture, cache=None)
        assert "bytes spill stores" in build.log


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"text": "// \ud800\n" + ONE}, ArgumentValueError),
        ({"text": b"__global__ void k() {}"}, ArgumentTypeError),
        ({"name": "a\0b.cu"}, ArgumentValueError),
        ({"name": "a\ud800.cu"}, ArgumentValueError),
        ({"name": 5}, ArgumentTypeError),
        ({"defines": {"VALUE": "\ud800"}}, ArgumentValueError),
        ({"defines": ["VALUE"]}, ArgumentTypeError),
        ({"include_dirs": ["a\0b"]}, ArgumentValueError),
        ({"include_dirs": ["a\ud800"]}, ArgumentValueError),
        ({"include_dirs": ["ends in a blank "]}, ArgumentValueError),
        ({"include_dirs": [5]}, ArgumentTypeError),
        ({"include_dirs": Path("a")}, ArgumentTypeError),
        ({"name_expressions": (5,)}, ArgumentTypeError),
        ({"name_expressions": ("k\0",)}, ArgumentValueError),
        ({"options": ("-DA=1\0-DB",)}, ArgumentValueError),
        ({"options": (b"-G",)}, ArgumentTypeError),
        ({"options": 5}, ArgumentTypeError),
        ({"arch": "sm_" + "9" * 5000}, UnknownArchitectureError),
        ({"arch": 10**5000}, UnknownArchitectureError),
        ({"options": (" -arch=sm_80",)}, CompilationError),
    ],
)
def test_impossible_arguments_have_typed_errors(
    change: dict[str, Any], error: type[Exception]
) -> None:
    """What NVRTC cannot take is refused with a typed error of a few words."""
    arguments: dict[str, Any] = {"text": ONE, "arch": 90, "defines": {"VALUE": 1}} | change
    text = arguments.pop("text")
    with pytest.raises(error) as raised:
        compile_source(text, **arguments)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("path", ["a\0b.cu", "a\ud800.cu", 5])
def test_impossible_paths_have_typed_errors(path: Any) -> None:
    """A path that no file can have is refused with a typed error."""
    with pytest.raises((ArgumentValueError, ArgumentTypeError)):
        compile_file(path, arch=90)


def test_a_cubin_for_another_architecture_is_refused() -> None:
    """A build's cubin is for the architecture that the build says."""
    build = compile_source(ONE, arch=80, defines={"VALUE": 1})
    with pytest.raises(CubinError, match="made a cubin for sm_80; sm_90 was asked for"):
        assemble_kernels(build.cubin, build.ptx, build.log, (), Architecture.parse(90))


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """A byte order mark before a text does no harm, in a file or not."""
    (tmp_path / "k.cu").write_text("\ufeff" + ONE, encoding="utf-8")
    assert compile_source("\ufeff" + ONE, arch=90, defines={"VALUE": 1}).kernels
    assert compile_file(tmp_path / "k.cu", arch=90, defines={"VALUE": 1}).kernels


def test_a_quotation_mark_in_the_path_is_explained(tmp_path: Path) -> None:
    """Line information cannot hold a path with a quotation mark: the error says what to do."""
    path = tmp_path / 'd"q.cu'
    path.write_text(ONE)
    with pytest.raises(CompilationError, match="line_info=False"):
        compile_file(path, arch=90, defines={"VALUE": 1})
    assert compile_file(path, arch=90, defines={"VALUE": 1}, line_info=False).kernels


def test_templates_are_named_in_linear_time() -> None:
    """A long comment that looks like templates does not keep the error message waiting."""
    text = "// " + "template<a> __global__ " * 5000
    start = time.perf_counter()
    with pytest.raises(EmptyCubinError):
        compile_source(text, arch=90, cache=None)
    assert time.perf_counter() - start < 3
    bounded = "template <int N> static __global__ void __launch_bounds__(32) kn(int* p) {}"
    with pytest.raises(EmptyCubinError, match=r"its templates \(kn\)"):
        compile_source(bounded, arch=90)


def test_spills_of_a_shared_function_count_for_each_of_its_kernels() -> None:
    """In relocatable code as elsewhere: a kernel that calls the function spills when it runs."""
    text = """
__device__ __noinline__ float shared(const float* p)
{
    float a[64], sum = 0;
    for (int i = 0; i < 64; i++) a[i] = p[i];
    __syncthreads();
    for (int i = 0; i < 64; i++) sum += a[i] * a[63 - i];
    return sum;
}
__global__ void __launch_bounds__(1024) one(float* p) { p[0] = shared(p + 1); }
__global__ void __launch_bounds__(1024) two(float* p) { p[0] = shared(p + 2); }
"""
    options = ("-rdc=true", "-maxrregcount=32")
    build = compile_source(text, arch=90, options=options)
    spills = [kernel.resources.spill_store_bytes > 0 for kernel in build.kernels]
    assert spills == [True, True]
