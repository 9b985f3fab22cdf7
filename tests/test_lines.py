"""CUDA source, PTX and machine code side by side."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from corpus import KERNELS, POINTER
from rich.console import Console

from lowgemm.analysis.lines import KernelLines, LineCode, side_by_side
from lowgemm.analysis.sass import analyse_kernel
from lowgemm.binary.cubin import read_elf
from lowgemm.binary.ptx_code import read_ptx
from lowgemm.binary.sass import SassKernel, disassemble, read_sass
from lowgemm.compiler import Build, compile_file, compile_source
from lowgemm.errors import CubinError, LowgemmError
from lowgemm.gemm import compile_rung, rung
from lowgemm.rewrite import rewrite_kernel
from lowgemm.toolchain import run_tool
from lowgemm.view.lines import lines_data, lines_markdown, render_lines

HEADER = """\
#pragma once
__device__ inline float4 twice(float4 v) {
    return make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
}
"""
SOURCE = """\
#include "twice.cuh"
__global__ void k(const float4* in, float4* out, int n) {
    __shared__ float4 tile[64];
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = 0; i < n; ++i) {
        tile[threadIdx.x] = twice(in[i]);
        __syncthreads();
        sum.x += tile[i & 63].y;
    }
    out[threadIdx.x] = sum;
}
"""


# The loop lies in a function that no instruction names.
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel that uses a function from a header."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "k.cu").write_text(SOURCE)
    (folder / "twice.cuh").write_text(HEADER)
    return folder


@pytest.fixture(scope="module")
def compiled(folder: Path) -> tuple[Build, SassKernel]:
    """That kernel with its machine code."""
    build = compile_file(folder / "k.cu", arch="sm_90")
    return build, disassemble(build.cubin, live_registers=False)[0]


@pytest.fixture(scope="module")
def lines(compiled: tuple[Build, SassKernel]) -> KernelLines:
    """That kernel line by line."""
    return side_by_side(*compiled)


@pytest.fixture(scope="module")
def ex8() -> tuple[Build, SassKernel, KernelLines]:
    """The warp-tiled rung for aligned rows."""
    build = compile_rung(rung("ex8", "sm_90"), "sm_90")
    name = build.kernel("ex8_warp_tile<true>").name
    kernels = disassemble(build.cubin, live_registers=False)
    kernel = next(kernel for kernel in kernels if kernel.name == name)
    return build, kernel, side_by_side(build, kernel)


def line(lines: KernelLines, number: int, file: str | None = None) -> LineCode:
    found = lines.at(number, file)
    assert found is not None
    return found


def test_every_instruction_is_in_exactly_one_line(
    ex8: tuple[Build, SassKernel, KernelLines],
) -> None:
    """No instruction of SASS or PTX is lost or shown twice, fillers included."""
    build, kernel, lines = ex8
    addresses = Counter(i.address for code in lines.lines for i in code.sass)
    assert addresses == Counter(i.address for i in kernel.instructions)
    function = read_ptx(build.ptx).function(kernel.name)
    assert function is not None
    indices = sorted(i.index for code in lines.lines for i in code.ptx)
    assert indices == list(range(len(function.instructions)))


def test_the_outer_products_line_holds_the_multiply_adds(
    ex8: tuple[Build, SassKernel, KernelLines],
) -> None:
    """One line of common.cuh becomes 512 FFMAs in ex8's hot loop, and 64 behind it."""
    _, _, lines = ex8
    best = max(lines.lines, key=lambda code: code.sass_mix.get("FFMA", 0))
    assert best.line is not None
    assert best.line.file.endswith("common.cuh")
    assert best.text is not None
    assert "a[i] * b[j]" in best.text
    assert (best.sass_mix["FFMA"], best.ptx_mix["fma.f32"]) == (576, 576)
    assert (best.sass_in_hot_loop, best.ptx_in_hot_loop) == (512, 512)


def test_a_float4_store_is_one_wide_instruction(lines: KernelLines) -> None:
    """The line that stores a float4 to shared memory has one STS.128 and one st.shared.128."""
    store = line(lines, 6, "k.cu")
    assert store.text == "        tile[threadIdx.x] = twice(in[i]);"
    assert store.ptx_mix["st.shared.128"] == store.sass_mix["STS.128"]
    assert store.in_hot_loop
    end = line(lines, 10, "k.cu")
    assert end.ptx_mix["st.global.128"] == 1
    assert not end.in_hot_loop


def test_an_inlined_functions_code_belongs_to_its_own_line(lines: KernelLines) -> None:
    """The header's lines come behind the source's, with the text of the header."""
    files = [code.line.file for code in lines.lines if code.line]
    assert files == sorted(files, key=lambda file: not file.endswith("k.cu"))
    inlined = line(lines, 3, "twice.cuh")
    assert inlined.text is not None
    assert "make_float4" in inlined.text
    # 2 * x is an addition
    assert inlined.sass_mix["FADD"] == inlined.ptx_mix["add.f32"]
    assert inlined.ptx[0].inlined_at is not None
    assert inlined.ptx[0].inlined_at.line == 6


def test_a_source_that_is_gone_has_no_text(tmp_path: Path) -> None:
    """Lines of a file that was deleted or cut keep number and code; their text is None."""
    path = tmp_path / "gone.cu"
    path.write_text("__global__ void k(float* p) {\n    p[threadIdx.x] = 1;\n}\n")
    build = compile_file(path, arch="sm_80", cache=None)
    kernel = disassemble(build.cubin, live_registers=False)[0]
    assert line(side_by_side(build, kernel), 2).text == "    p[threadIdx.x] = 1;"
    path.write_text("__global__ void k(float* p) {")
    assert line(side_by_side(build, kernel), 2).text is None
    path.unlink()
    report = side_by_side(build, kernel)
    assert all(code.text is None for code in report.lines)
    assert line(report, 2).sass_mix["STG.32"] == 1
    assert "(source not found)" in render_lines(report).plain
    assert "(source not found)" in lines_markdown(report)


def test_a_source_that_is_a_folder_or_a_text_has_no_text(tmp_path: Path) -> None:
    """What is no regular file is not read: a text from no file, or a folder in its place."""
    path = tmp_path / "text.cu"
    build = compile_source("__global__ void k(int* p) { *p = 1; }", name=str(path), arch="sm_80")
    kernel = disassemble(build.cubin, live_registers=False)[0]
    assert line(side_by_side(build, kernel), 1).text is None
    path.mkdir()
    assert line(side_by_side(build, kernel), 1).text is None


def test_code_without_lines_comes_last(compiled: tuple[Build, SassKernel]) -> None:
    """Machine code that was read without nvdisasm's lines stands in one entry at the end."""
    build, kernel = compiled
    bare = read_sass(build.cubin)[0]
    report = side_by_side(build, bare)
    assert report.lines[-1].line is None
    assert report.lines[-1].text is None
    assert len(report.lines[-1].sass) == len(kernel.instructions)
    assert "(no source line)" in render_lines(report).plain


def test_a_build_without_line_information_has_only_that_entry(folder: Path) -> None:
    """Without line information source, PTX and machine code cannot be joined, but are shown."""
    build = compile_file(folder / "k.cu", arch="sm_90", line_info=False)
    report = side_by_side(build, disassemble(build.cubin, live_registers=False)[0])
    (only,) = report.lines
    assert only.line is None
    assert only.ptx
    assert only.sass


def test_functions_that_were_not_inlined_are_shown_with_their_kernel() -> None:
    """The code of called functions, also through pointers, is part of the kernel's lines."""
    build = compile_file(Path(__file__).parent / "kernels" / "calls.cu", arch="sm_90")
    report = side_by_side(build, disassemble(build.cubin, live_registers=False)[0])
    total = sum(len(function.instructions) for function in read_ptx(build.ptx).functions)
    assert sum(len(code.ptx) for code in report.lines) == total
    square = line(report, 6)
    assert square.ptx_mix["mul.f32"] == 1
    assert any(instruction.text.startswith("FMUL") for instruction in square.sass)


def test_the_hot_loop_of_a_function_called_through_a_pointer_is_marked() -> None:
    """Code that only a pointer reaches may be the hot loop: its line says so."""
    build = compile_source(POINTER, arch="sm_90")
    (kernel,) = disassemble(build.cubin, live_registers=False)
    assert analyse_kernel(kernel).hot_loop is not None
    report = side_by_side(build, kernel)
    hot = [code for code in report.lines if code.in_hot_loop]
    assert any(i.name == "FFMA" for code in hot for i in code.sass)


# ---- views


def test_the_view_keeps_to_its_width(ex8: tuple[Build, SassKernel, KernelLines]) -> None:
    """No line is longer than asked for, and PTX stands beside SASS."""
    _, _, lines = ex8
    for width in (60, 120, 200):
        rows = render_lines(lines, width).plain.splitlines()
        files = {code.line.file for code in lines.lines if code.line}
        assert max(len(row) for row in rows if row not in files) <= width
    rows = render_lines(lines, 120).plain.splitlines()
    assert any("fma.rn.f32" in row and "FFMA" in row.partition(" | ")[2] for row in rows)


def test_the_view_can_show_the_hot_loop_alone_and_a_few_instructions(
    ex8: tuple[Build, SassKernel, KernelLines],
) -> None:
    """Only lines of the hot loop, and of each at most so many instructions."""
    _, _, lines = ex8
    stores = next(code for code in lines.lines if "STG.32" in code.sass_mix)
    assert stores.text is not None
    assert not stores.in_hot_loop
    everything = render_lines(lines).plain
    short = render_lines(lines, hot_only=True, limit=2).plain
    assert "... 510 more" in short
    assert stores.text.strip() in everything
    assert stores.text.strip() not in short
    assert len(short.splitlines()) < 100


def test_the_hot_loop_alone_has_none_but_its_own_instructions(
    ex8: tuple[Build, SassKernel, KernelLines],
) -> None:
    """Of a line with code in and outside the hot loop only that in it is shown, else marked."""
    _, _, lines = ex8
    assert lines.hot_loop is not None
    inside = sum(code.sass_in_hot_loop for code in lines.lines)
    rows = [
        row.partition(" | ")[2] for row in render_lines(lines, 200, hot_only=True).plain.split("\n")
    ]
    shown = [int(row.split()[0], 16) for row in rows if row]
    assert len(shown) == inside
    assert all(lines.hot_loop[0] <= address < lines.hot_loop[1] for address in shown)
    everything = render_lines(lines, 200).plain
    assert everything.count(" | > 0x") == inside
    assert sum(sum(row["sass_hot"]) for row in lines_data(lines)) == inside


def test_a_kernel_without_a_loop_says_so() -> None:
    """Asked for the hot loop alone, such a kernel is not an empty answer."""
    build = compile_source("__global__ void k(int* p) { *p = 1; }", arch="sm_80")
    (kernel,) = disassemble(build.cubin, live_registers=False)
    report = side_by_side(build, kernel)
    assert report.hot_loop is None
    assert "this kernel has no loop" in render_lines(report, hot_only=True).plain
    assert "This kernel has no loop" in lines_markdown(report, hot_only=True)


def test_wide_and_unprintable_characters_do_not_break_the_columns(lines: KernelLines) -> None:
    """A source line with wide characters, tabs or escape sequences stays within the width."""
    code = replace(line(lines, 6), text="\t\x1b[31m乘法" + "矩陣" * 80)
    view = render_lines(replace(lines, lines=(code,)), 80)
    assert "\x1b" not in view.plain
    console = Console(width=80, record=True, file=None, quiet=True)
    head = view.plain.splitlines()[4]
    assert console.render_str(head, markup=False).cell_len <= 80


def test_markdown_and_plain_data_show_the_same(lines: KernelLines) -> None:
    """A table a file for Markdown, where bars and backquotes are harmless; JSON for programs."""
    markdown = lines_markdown(lines, limit=None)
    assert markdown.count("| line | source | PTX | SASS | |") == 2 + (lines.lines[-1].line is None)
    for row in markdown.splitlines():
        if row.startswith("|"):
            assert row.replace("\\|", "").count("|") == 6, row
    data = json.loads(json.dumps(lines_data(lines)))
    assert [row["line"] for row in data] == [c.line.line if c.line else None for c in lines.lines]
    assert sum(len(row["sass"]) for row in data) == sum(len(c.sass) for c in lines.lines)


@pytest.mark.parametrize(
    "name", ["ké.cu", "日本x.cu", "a b.cu", r"back\slash.cu", r"dig\303its.cu"]
)
def test_a_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    """PTX and machine code of a line are found together, and its text, whatever the name's letters.

    The compiler escapes such letters, and nvdisasm mistakes the last escape for a folder.
    """
    source = tmp_path / "dossier é" / name
    source.parent.mkdir()
    source.write_text("__global__ void k(float* x) {\n    x[0] = x[1] * 3;\n}\n", encoding="utf-8")
    build = compile_file(source, arch="sm_90")
    made = side_by_side(build, disassemble(build.cubin, live_registers=False)[0])
    line = made.at(2)
    assert line is not None and line.line is not None
    assert line.line.file == str(source)
    assert line.text == "    x[0] = x[1] * 3;"
    assert line.ptx and line.sass
    assert {code.line.file for code in made.lines if code.line} == {str(source)}


# ---- where the lines come from


@pytest.mark.parametrize("options", [(), ("-G",), ("-rdc=true",)])
@pytest.mark.parametrize("name", ["calls.cu", "pipeline.cu"])
def test_the_line_table_is_read_as_nvdisasm_reads_it(
    name: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Each instruction's file and line are those that nvdisasm -g shows in front of it."""
    cubin = compile_file(KERNELS / name, arch="sm_90", options=options).cubin
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin)
    shown = _lines_of_nvdisasm(run_tool("nvdisasm", ["-c", "-g", path]))
    for kernel in disassemble(cubin, live_registers=False):
        for part, further in pairwise((*kernel.parts, None)):
            assert part is not None
            end = further.start if further else 16 * len(kernel.instructions)
            read = {
                i.address - part.start: i.line and (i.line.file, i.line.line)
                for i in kernel.instructions
                if part.start <= i.address < end
            }
            assert read == shown[part.function]
        assert any(i.line for i in kernel.instructions)


def _lines_of_nvdisasm(output: str) -> dict[str, dict[int, tuple[str, int] | None]]:
    """The innermost file and line of each instruction by its address, for each section."""
    found: dict[str, dict[int, tuple[str, int] | None]] = {}
    line, inlined, section = None, False, {}
    for text in output.splitlines():
        if name := re.match(r'\s*\.section\s+"?\.text\.([^",]+)"?,', text):
            line, inlined, section = None, False, found.setdefault(name[1], {})
        elif text.lstrip().startswith(".type"):
            line, inlined = None, False
        elif where := re.match(r'\s*//## File "(.*?)", line (\d+)( inlined at)?', text):
            line = line if inlined else (where[1], int(where[2]))
            inlined = bool(where[3])
        elif instruction := re.match(r"\s*/\*([0-9a-f]{4,})\*/", text):
            section[int(instruction[1], 16)] = line
    return found


@pytest.mark.parametrize("change", ["version", "length", "cut"])
def test_a_damaged_line_table_is_named(change: str, compiled: tuple[Build, SassKernel]) -> None:
    """What cannot be a line table is an error that names the section."""
    cubin = bytearray(compiled[0].cubin)
    start = read_elf(bytes(cubin)).named[".debug_line"].start
    if change == "version":
        cubin[start + 4 : start + 6] = b"\x09\0"
    elif change == "length":
        cubin[start : start + 4] = b"\xff\xff\0\0"
    else:
        cubin[start + 15 : start + 79] = b"\x7f" * 64
    with pytest.raises(CubinError, match=r"\.debug_line"):
        disassemble(bytes(cubin))


def test_a_section_without_a_name_is_an_error_of_the_file() -> None:
    """The names of functions that a kernel calls may be damaged, too."""
    cubin = bytearray(compile_source(POINTER, arch="sm_90", options=("-rdc=true",)).cubin)
    elf = read_elf(bytes(cubin))
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    for section in elf.sections:
        if section.name.startswith(".text."):
            changed = bytearray(cubin)
            changed[headers + 64 * section.index + 3] = 0xFF
            with pytest.raises(LowgemmError):
                disassemble(bytes(changed))


def test_code_behind_the_line_table_has_no_line(
    ex8: tuple[Build, SassKernel, KernelLines],
) -> None:
    """A rewritten loop stands behind all that the compiler's table tells of."""
    made = rewrite_kernel(ex8[0].cubin, ex8[1].name)
    (kernel,) = (k for k in disassemble(made.cubin) if k.name == made.kernel)
    lines = {i.address: i.line for i in kernel.instructions}
    assert not any(lines[address] for address in range(made.new_loop.start, made.new_loop.stop, 16))
    assert lines[0] is not None
