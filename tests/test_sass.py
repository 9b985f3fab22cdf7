"""Reports on machine code: counts per loop that a build may be failed on."""

from __future__ import annotations

import contextlib
import random
import re
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from corpus import ALL, ARCHS, EVERYWHERE, OTHERS, POINTER, build, kernels

from lowgemm.analysis import analyse_build, analyse_kernel
from lowgemm.analysis.banks import conflict_cycles
from lowgemm.analysis.expectations import judge, parse_expectation
from lowgemm.binary import base_name
from lowgemm.binary.sass import disassemble, read_sass
from lowgemm.compiler import compile_source
from lowgemm.errors import CubinError, LowgemmError, ToolFailedError, ToolTimeoutError
from lowgemm.gemm import RUNG_NAMES, rung
from lowgemm.hardware.register_banks import read_cycles
from lowgemm.studies.inspection import inspect_build, inspect_cubin
from lowgemm.toolchain import run_tool
from lowgemm.view.sass import sass_markdown

TILED = ("ex7", "ex8", "ex9", "ex10", "two_ideas")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", TILED)
def test_the_hot_loop_holds_what_the_tile_implies(name: str, arch: str) -> None:
    """Exactly TM TN FFMAs a k-step, and (TM + TN) / 4 LDS.128, no narrower one."""
    item = rung(name, arch)
    report = analyse_build(build(name, arch), kernels(name, arch))
    aligned = next(r for r in report if r.kernel == item.instance(aligned=True))
    assert aligned.hot is not None
    assert item.k_steps is not None
    loads = {key: n for key, n in aligned.hot.mix.items() if key.startswith("LDS.")}
    assert aligned.hot.mix["FFMA"] == item.tm * item.tn * item.k_steps
    assert loads == {"LDS.128": (item.tm + item.tn) // 4 * item.k_steps}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["ex4_32", "ex5", "ex6"])
def test_the_simple_rungs_unroll_as_their_source_says(name: str, arch: str) -> None:
    """TM TN FFMAs for each of the k-steps of an iteration."""
    item = rung(name, arch)
    report = analyse_build(build(name, arch), kernels(name, arch))
    hot = next(r for r in report if r.kernel == item.instance(aligned=True)).hot
    assert hot is not None
    assert item.k_steps is not None
    assert hot.mix["FFMA"] == item.tm * item.tn * item.k_steps


@pytest.mark.parametrize(("name", "arch"), EVERYWHERE)
def test_no_opcode_is_unknown(name: str, arch: str) -> None:
    """Every instruction of every rung and of the other files has a record."""
    for kernel in kernels(name, arch):
        report = analyse_kernel(kernel)
        assert report.unknown_opcodes == {}
        assert report.instructions == sum(report.mix.values())
        assert sum(loop.instructions for loop in report.loops) <= report.instructions


def test_counts_equal_the_text() -> None:
    """The mix of a kernel without dead code is what counting nvdisasm's text gives."""
    for arch in ARCHS:
        (kernel,) = kernels("softmax", arch)
        report = analyse_kernel(kernel)
        text = Counter(i.text.split()[-1 if i.text == "NOP" else 0] for i in kernel.instructions)
        assert report.mix.get("STG.32", 0) == sum(n for t, n in text.items() if "STG.E" in t)


@pytest.mark.parametrize("arch", ARCHS)
def test_widths_are_told_apart(arch: str) -> None:
    """Copies of 16, 8 and 1 bytes and of sign-extended shorts count by their width."""
    mixes = {k.name: analyse_kernel(k).mix for k in kernels("several", arch)}
    found = {
        name.split("P")[0].lstrip("_Z0123456789"): {
            key for key in mix if key.startswith(("LDG", "STG"))
        }
        for name, mix in mixes.items()
    }
    assert found["copy4"] == {"LDG.128", "STG.128"}
    assert found["copy2"] == {"LDG.64", "STG.64"}
    assert found["copy1"] == {"LDG.8", "STG.8"}
    assert found["copy_short"] == {"LDG.16", "STG.32"}


@pytest.mark.parametrize("arch", ARCHS)
def test_spills_and_local_arrays_are_told_apart(arch: str) -> None:
    """A launch bound that is too tight spills; a local array takes stack and does not."""
    (spilling,) = analyse_build(build("spills", arch), kernels("spills", arch))
    assert spilling.spill_store_bytes and spilling.spill_load_bytes
    assert spilling.mix["STL.32"] > 0
    (array,) = analyse_build(build("local_array", arch), kernels("local_array", arch))
    assert array.stack_bytes == 256
    assert (array.spill_store_bytes, array.spill_load_bytes) == (0, 0)


#: Kernel, widths of its accesses that must be there, and the least number of loops.
EXPECTED: tuple[tuple[str, set[str], int], ...] = (
    ("reduce_sum", {"LDG.32", "LDS.32", "STS.32"}, 1),
    ("scan_block", {"LDG.32", "STG.32", "LDS.32", "STS.32"}, 0),
    ("transpose_padded", {"LDG.32", "STG.32", "LDS.32", "STS.32"}, 0),
    ("stencil7", {"LDG.32", "STG.32"}, 1),
    ("softmax", {"LDG.32", "STG.32"}, 3),
    ("axpy_half2", {"LDG.32", "STG.32"}, 0),
    ("to_bfloat16", {"LDG.32", "STG.16"}, 0),
    ("half_max", {"LDG.16", "STG.32"}, 0),
    ("wmma_half", {"LDG.32"}, 1),
    ("histogram", {"LDG.8", "STS.32", "LDS.32"}, 3),
    ("locks", set(), 1),
    ("digits", {"STL.32", "LDL.32"}, 1),
    ("spilling", {"STL.32", "LDL.32"}, 1),
    ("report", {"LDG.32"}, 1),
    ("norms", {"LDG.64", "STG.64"}, 1),
    ("mix64", {"LDG.64", "STG.64"}, 1),
    ("bits", {"LDG.32", "STG.32"}, 0),
    ("pipeline", {"LDGSTS.128", "LDS.128"}, 1),
    ("mandelbrot", {"STG.8"}, 1),
    ("bitonic", {"LDS.32", "STS.32"}, 0),
    ("divergent", {"LDG.32", "STG.32"}, 2),
    ("nbody", {"LDG.128", "LDS.128", "STS.128", "STG.128"}, 2),
)


@pytest.mark.parametrize("arch", ARCHS)
def test_widths_and_loops_of_other_kernels(arch: str) -> None:
    """Each kernel has the accesses of the widths that its source has, and its loops."""
    reports = {
        base_name(kernel.name): analyse_kernel(kernel)
        for name in OTHERS
        for kernel in kernels(name, arch)
    }
    for name, widths, loops in EXPECTED:
        report = reports[name]
        assert widths <= set(report.mix), (name, widths - set(report.mix))
        assert len(report.loops) >= loops, (name, len(report.loops))
        if name != "divergent":  # the slow path of a shuffle jumps back into the loop's middle
            assert not report.irreducible, name


@pytest.mark.parametrize("arch", ARCHS)
def test_loops_of_other_kernels_have_their_depth(arch: str) -> None:
    """A tile loop around an unrolled loop nests two deep, and the inner one is hot."""
    (nbody,) = analyse_build(build("nbody", arch), kernels("nbody", arch))
    assert max(loop.depth for loop in nbody.loops) == 2
    assert nbody.hot is not None
    assert nbody.hot.depth == 2
    assert nbody.hot.mix["LDS.128"] == 8
    assert nbody.hot.mix["MUFU"] == 8


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_fillers_and_padding_are_no_work(arch: str) -> None:
    """NOPs behind the end and the LDS that never executes before LDGSTS do not count."""
    for kernel in kernels("ex10", arch):
        report = analyse_kernel(kernel)
        fillers = sum(i.is_filler for i in kernel.instructions)
        assert fillers > 0
        assert "NOP" not in report.mix
        assert report.instructions < len(kernel.instructions) - fillers + 1
        assert report.hot is not None
        assert "LDS.32" not in report.hot.mix
        assert report.hot.mix["LDGSTS.128" if "ILb1E" in kernel.name else "LDGSTS.32"] in (2, 8)


def test_registers_agree_with_cuobjdump() -> None:
    """cuobjdump -res-usage gives the registers that the report gives."""
    for name in ("ex8", "softmax", "several"):
        made = build(name, "sm_90")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "k.cubin"
            path.write_bytes(made.cubin)
            usage = run_tool("cuobjdump", ["-res-usage", path])
        told = dict(re.findall(r"Function (\S+):\s*\n\s*REG:(\d+)", usage))
        for kernel in made.kernels:
            assert int(told[kernel.name]) == kernel.signature.registers


# ---- live registers, banks, the kept report


def test_live_registers_stay_within_the_allocated() -> None:
    """nvdisasm's count of live registers is there for each loop and below the allocation."""
    for report in inspect_build(build("ex8", "sm_90")):
        assert report.registers_live is not None
        assert 64 < report.registers_live <= report.registers
        assert report.hot is not None
        assert report.hot.registers_live is not None
        assert report.hot.registers_live <= report.registers_live


def test_a_report_is_the_same_from_the_cache() -> None:
    """The second report equals the first, field by field, and starts no tool."""
    made = build("ex7", "sm_86")
    first = inspect_build(made)
    begin = time.perf_counter()
    assert inspect_build(made) == first
    assert time.perf_counter() - begin < 0.2
    (bare, _) = inspect_cubin(made.cubin)
    assert bare.spill_store_bytes is None
    assert bare.mix == first[0].mix


@pytest.mark.parametrize(
    ("fresh", "cycles"),
    [((), 1), ((4,), 1), ((4, 5), 1), ((4, 6), 2), ((4, 5, 7), 2), ((4, 6, 8), 3), ((4, 4), 1)],
)
def test_one_read_a_bank_and_cycle(fresh: tuple[int, ...], cycles: int) -> None:
    """Two registers of one bank take two cycles; one register in two slots is read once."""
    assert read_cycles([fresh] * 1000) == pytest.approx(1000 * cycles, abs=2)


def test_a_bank_holds_one_read_for_an_idle_cycle() -> None:
    """A second operand of a bank is free if the next instruction leaves the bank alone."""
    assert read_cycles([(4, 6), (5,)] * 500) == 1000
    assert read_cycles([(4, 6), (8,)] * 500) == pytest.approx(1500, abs=2)
    assert read_cycles([(4, 6), (5, 7)] * 500) == pytest.approx(1000, abs=2)
    assert read_cycles([(4, 6, 8)] * 500, issue_cycles=2) == pytest.approx(1500, abs=2)
    assert read_cycles([(4, 6)] * 500, issue_cycles=2) == 1000


def test_reuse_saves_the_read_of_the_next_ffma_alone() -> None:
    """Modelled conflicts lie between none and two a FFMA, and reuse lowers them."""
    kernel = kernels("ex8", "sm_90")[0]
    ffmas = [i for i in kernel.instructions if i.name == "FFMA"][:512]
    without = [
        replace(i, registers=tuple(replace(r, reuse=False) for r in i.registers)) for i in ffmas
    ]
    assert 0 <= conflict_cycles(ffmas) < conflict_cycles(without) <= 2 * len(ffmas)


# ---- hostile input


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def test_damaged_cubins_give_a_report_or_a_typed_error() -> None:
    """A thousand cubins with bytes changed: our reader never crashes and never hangs."""
    rng = random.Random(20)
    samples = [build(name, arch).cubin for name in ("softmax", "several") for arch in ARCHS]
    outcomes = Counter[str]()
    for _ in range(1000):
        data = mutated(rng.choice(samples), rng)
        begin = time.perf_counter()
        try:
            for kernel in read_sass(data):
                analyse_kernel(kernel)
            outcomes["report"] += 1
        except CubinError:
            outcomes["error"] += 1
        assert time.perf_counter() - begin < 10
    assert outcomes["report"] > 50
    assert outcomes["error"] > 50


def through_the_tools(seed: int, count: int) -> None:
    """Damaged cubins to nvdisasm and cuobjdump, each with a time limit."""
    rng = random.Random(seed)
    data = build("softmax", "sm_90").cubin
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.cubin"
        for _ in range(count):
            damaged = mutated(data, rng)
            path.write_bytes(damaged)
            begin = time.perf_counter()
            try:
                disassemble(damaged, live_registers=False, timeout_s=5)
            except (CubinError, ToolFailedError, ToolTimeoutError) as error:
                assert isinstance(error, LowgemmError)
            with contextlib.suppress(ToolFailedError, ToolTimeoutError):
                run_tool("cuobjdump", ["-res-usage", path], timeout_s=5)
            assert time.perf_counter() - begin < 20


def test_the_tools_trouble_with_damage_is_typed() -> None:
    """A tool may crash or hang on a damaged cubin: that is an error with a name, in time."""
    through_the_tools(0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_the_tools_trouble_with_much_damage_is_typed(seed: int) -> None:
    """The same for a thousand damaged cubins."""
    through_the_tools(seed, 20)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(100)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    """An empty file and a stub of one are errors before any tool is started."""
    with pytest.raises(CubinError):
        disassemble(data)


def test_the_corpus_is_what_it_says() -> None:
    """Thirty-three files of kernels that are no rungs, and every rung."""
    assert len(OTHERS) == 33
    assert set(RUNG_NAMES) < set(ALL)


# ---- functions behind a kernel, stack, tables

RECURSIVE = """
__device__ __noinline__ int walk(int n) {
    volatile int kept[8];
    kept[n & 7] = n;
    return n < 2 ? kept[n & 7] : walk(n - 1) + walk(n - 2);
}
__global__ void recursive(int* out, int n) { *out = walk(n); }"""

# The kernel's own frame is empty; that of the function behind the pointer is not.
FRAMES = """
typedef int (*Function)(int);
__device__ __noinline__ int deep(int n) {
    volatile int kept[16];
    for (int i = 0; i < 16; ++i) kept[i] = n * i;
    return kept[n & 15];
}
__device__ __noinline__ int flat(int n) { return n; }
__device__ Function table[2] = {deep, flat};
__global__ void shallow(int* out, int n, int which) { *out = table[which](n); }"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_a_loop_that_only_a_pointer_reaches_is_found_with_no_tool(arch: str) -> None:
    """The functions behind a kernel are known from the cubin's own symbols."""
    cubin = compile_source(POINTER, arch=arch).cubin
    (read,), (shown,) = read_sass(cubin), disassemble(cubin, live_registers=False)
    assert read.functions == shown.functions
    assert len(read.functions) == 2
    report = analyse_kernel(read)
    assert report.hot is not None
    assert report.hot.mix["FFMA"] >= 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_stack_includes_the_functions_that_are_called(arch: str) -> None:
    """It is what cuobjdump says, where ptxas's log speaks of the kernel's own frame alone."""
    made = compile_source(FRAMES, arch=arch)
    (report,) = analyse_build(made, read_sass(made.cubin))
    assert report.stack_bytes is not None
    assert report.stack_bytes >= 16 * 4 > made.kernels[0].resources.stack_bytes
    (bare,) = inspect_cubin(made.cubin)
    assert bare.stack_bytes == report.stack_bytes


def test_a_recursion_has_no_known_stack_and_fails_a_bound() -> None:
    """Nobody can promise how deep it goes."""
    made = compile_source(RECURSIVE, arch="sm_90")
    (report,) = analyse_build(made, read_sass(made.cubin))
    assert report.stack_bytes is None
    verdict = judge(parse_expectation("stack_bytes <= 4096"), report)
    assert not verdict.passed
    assert "not known" in verdict.reason


def test_a_table_has_the_columns_that_its_loops_need() -> None:
    """Stores and matrix instructions have a column where there are such, and none elsewhere."""
    (tensor,) = (r for r in inspect_build(build("tensor", "sm_80")) if r.loops)
    assert "| HMMA |" in sass_markdown([tensor])
    (plain, *_) = inspect_build(build("ex3", "sm_80"))
    head = sass_markdown([plain]).partition("|---")[0]
    assert "HMMA" not in head
    assert "| FFMA |" in head


SWITCH = """
__global__ void k(float* o, const float* x, int n, int w) {
    float s = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i)
        switch (w + i) {
            case 0: s += x[i]; break;
            case 1: s *= x[i]; break;
            case 2: s = s * s + x[i]; break;
            case 3: s = sqrtf(s); break;
            case 4: o[i] = s; break;
            case 5: s = __expf(s); break;
            case 6: s = 1.0f / (s + x[2 * i]); break;
            case 7: atomicAdd(o + i, s); break;
        }
    o[threadIdx.x] = s;
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
@pytest.mark.parametrize("option", ["--fmad=true", "-rdc=true"])
def test_a_branch_through_a_table_is_followed_without_nvdisasm(arch: str, option: str) -> None:
    """The cubin itself says where such a branch goes: its loop is whole and its cases reached."""
    cubin = compile_source(SWITCH, arch=arch, options=(option,)).cubin
    (kernel,) = read_sass(cubin)
    branches = [i for i in kernel.instructions if i.name in ("BRX", "BRXU")]
    assert branches and all(len(branch.table_targets) > 1 for branch in branches)
    report = analyse_kernel(kernel)
    inside = sum(loop.mix.get(name, 0) for loop in report.loops for name in ("BRX", "BRXU"))
    assert inside == len(branches)
    assert report.mix["MUFU"] == sum(i.name == "MUFU" for i in kernel.instructions)
    # nvdisasm names the targets by labels of its own.
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = run_tool("nvdisasm", ["-c", file.name], 60)
    listed = re.findall(r'BRANCH_TARGETS ([^"]*)"', listing)
    assert [len(set(labels.split(","))) for labels in listed] == [
        len(branch.table_targets) for branch in branches
    ]


def test_all_of_a_kernel_is_reached_where_nobody_knows_a_table() -> None:
    """Without its targets a branch may go to any block that nothing else leads to."""
    (kernel,) = read_sass(compile_source(SWITCH, arch=90).cubin)
    blind = replace(
        kernel, instructions=tuple(replace(i, table_targets=()) for i in kernel.instructions)
    )
    known, guessed = analyse_kernel(kernel), analyse_kernel(blind)
    assert (guessed.instructions, guessed.mix) == (known.instructions, known.mix)
