"""The CPU's side: functions of ELF libraries, their loops and register tiles."""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lowgemm.cli.host
from lowgemm.analysis.host import HostReport, RegisterTile, analyse_host
from lowgemm.binary.host import HostFunction, HostLibrary, Machine, decode_host, read_library
from lowgemm.cli.common import app
from lowgemm.errors import (
    HostLibraryError,
    LowgemmError,
    SourceNotFoundError,
    SymbolNotFoundError,
)
from lowgemm.studies.openblas import numpy_openblas, openblas_kernels, pick_kernel, selected_core
from lowgemm.view.host import host_view

assert lowgemm.cli.host  # registers the command

# An 8 x 4 tile: two vectors of A, four elements of B as lanes of one register.
ARM_WORDS = (
    0xB40001C0,  # 0x00 cbz x0, #0x38
    0xACC10420,  # 0x04 ldp q0, q1, [x1], #0x20
    0x3CC10444,  # 0x08 ldr q4, [x2], #0x10
    0x4F841010,  # 0x0c fmla v16.4s, v0.4s, v4.s[0]
    0x4F841031,  # 0x10 fmla v17.4s, v1.4s, v4.s[0]
    0x4FA41012,  # 0x14 fmla v18.4s, v0.4s, v4.s[1]
    0x4FA41033,  # 0x18 fmla v19.4s, v1.4s, v4.s[1]
    0x4F841814,  # 0x1c fmla v20.4s, v0.4s, v4.s[2]
    0x4F841835,  # 0x20 fmla v21.4s, v1.4s, v4.s[2]
    0x4FA41816,  # 0x24 fmla v22.4s, v0.4s, v4.s[3]
    0x4FA41837,  # 0x28 fmla v23.4s, v1.4s, v4.s[3]
    0xF9808020,  # 0x2c prfm pldl1keep, [x1, #0x100]
    0xF1000400,  # 0x30 subs x0, x0, #1
    0x54FFFE81,  # 0x34 b.ne #4
    0xD65F03C0,  # 0x38 ret
)
EM_AARCH64, EM_X86_64, EM_RISCV = 183, 62, 243

# AVX2 code, so that these tests need no assembler; each loop ends with a counter, JNZ and RET.
X86_CODE = {
    "rotated": """
        c5fc1006             vmovups ymm0, [rsi]
        c4e27d180a           vbroadcastss ymm1, [rdx]
        c4e27d185204         vbroadcastss ymm2, [rdx+0x4]
        c4e27db8e1           vfmadd231ps ymm4, ymm0, ymm1
        c4e25598d0           vfmadd132ps ymm2, ymm5, ymm0
        c5fc28ea             vmovaps ymm5, ymm2
        4883c620             add rsi, 0x20
        4883c208             add rdx, 0x8
        48ffcf               dec rdi
        75d6                 jne 0
        c3                   ret
    """,
    "spilled": """
        c4e27d180a           vbroadcastss ymm1, [rdx]
        c5fc285424d8         vmovaps ymm2, [rsp-0x28]
        c4e275b826           vfmadd231ps ymm4, ymm1, [rsi]
        c4e275b85620         vfmadd231ps ymm2, ymm1, [rsi+0x20]
        c5fc295424d8         vmovaps [rsp-0x28], ymm2
        4883c640             add rsi, 0x40
        c4e27d184a04         vbroadcastss ymm1, [rdx+0x4]
        c4e275b86ec0         vfmadd231ps ymm5, ymm1, [rsi-0x40]
        c5fc1046e0           vmovups ymm0, [rsi-0x20]
        c4e27d184a04         vbroadcastss ymm1, [rdx+0x4]
        c4e275a84424b0       vfmadd213ps ymm0, ymm1, [rsp-0x50]
        c5fc294424b0         vmovaps [rsp-0x50], ymm0
        48ffcf               dec rdi
        75b7                 jne 2b
        c3                   ret
    """,
    "swapped": """
        c5fc1006             vmovups ymm0, [rsi]
        c4e27d180a           vbroadcastss ymm1, [rdx]
        c4e27d185204         vbroadcastss ymm2, [rdx+0x4]
        c4e27da8cc           vfmadd213ps ymm1, ymm0, ymm4
        c4e27da8d5           vfmadd213ps ymm2, ymm0, ymm5
        c5fc28e2             vmovaps ymm4, ymm2
        c5fc28e9             vmovaps ymm5, ymm1
        4883c620             add rsi, 0x20
        4883c208             add rdx, 0x8
        48ffcf               dec rdi
        75d2                 jne 75
        c3                   ret
    """,
    "both": """
        c5fc1006             vmovups ymm0, [rsi]
        c4e27d180a           vbroadcastss ymm1, [rdx]
        c4e27db8e1           vfmadd231ps ymm4, ymm0, ymm1
        c4e27da809           vfmadd213ps ymm1, ymm0, [rcx]
        c5fc2909             vmovaps [rcx], ymm1
        c4e27d185204         vbroadcastss ymm2, [rdx+0x4]
        c4e27da85120         vfmadd213ps ymm2, ymm0, [rcx+0x20]
        c5fc295120           vmovaps [rcx+0x20], ymm2
        4883ef02             sub rdi, 0x2
        7fd2                 jg a4
        c5fc1006             vmovups ymm0, [rsi]
        c4e27d180a           vbroadcastss ymm1, [rdx]
        c4e27db8e1           vfmadd231ps ymm4, ymm0, ymm1
        c4e27d184a04         vbroadcastss ymm1, [rdx+0x4]
        c4e27db8e9           vfmadd231ps ymm5, ymm0, ymm1
        48ffcf               dec rdi
        75e2                 jne d2
        c3                   ret
    """,
}

X86_SOURCE = """
    .intel_syntax noprefix
    .text
# A 16 x 2 tile, each factor of B in the multiply-add itself; two k-steps; two sets of accumulators.
    .globl embedded
    .type embedded, @function
embedded:
1:  vmovups zmm0, [rsi]
    vfmadd231ps zmm8, zmm0, dword ptr [rdx]{1to16}
    vfmadd231ps zmm9, zmm0, dword ptr [rdx+4]{1to16}
    vmovups zmm1, [rsi+64]
    vfmadd231ps zmm10, zmm1, dword ptr [rdx+8]{1to16}
    vfmadd231ps zmm11, zmm1, dword ptr [rdx+12]{1to16}
    prefetcht0 [rsi+512]
    add rsi, 128
    add rdx, 16
    dec rdi
    jnz 1b
    vaddps zmm8, zmm8, zmm10
    ret
    .size embedded, .-embedded
# An 8 x 3 tile whose vector of A is loaded for the next pass.
    .globl ahead
    .type ahead, @function
ahead:
    vmovups ymm0, [rsi]
1:  vbroadcastss ymm1, [rdx]
    vfmadd231ps ymm8, ymm0, ymm1
    vbroadcastss ymm2, [rdx+4]
    vfmadd231ps ymm9, ymm0, ymm2
    vbroadcastss ymm3, [rdx+8]
    vfmadd231ps ymm10, ymm0, ymm3
    vmovups ymm0, [rsi+32]
    add rsi, 32
    add rdx, 12
    dec rdi
    jnz 1b
    ret
    .size ahead, .-ahead
# Two dot products: vectors on both sides, no outer product.
    .globl dot
    .type dot, @function
dot:
1:  vmovups ymm0, [rsi]
    vmovups ymm1, [rdx]
    vfmadd231ps ymm8, ymm0, ymm1
    vfmadd231ps ymm9, ymm0, [rcx]
    vmovups [r8], ymm0
    add rsi, 32
    add rdx, 32
    dec rdi
    jnz 1b
    ret
    .size dot, .-dot
# Cases behind a jump table; data that is no code follows.
    .globl table
    .type table, @function
table:
    lea rax, [rip+places]
    jmp [rax+rdi*8]
2:  vmovaps ymm4, ymm5
    vbroadcastss ymm1, [rdx]
    vfmadd231ps ymm8, ymm4, ymm1
    dec rsi
    jnz 2b
    ret
    .byte 0x06, 0x06, 0x06
    .size table, .-table
    .data
places: .quad 0
"""

# An IFUNC, a function in two versions, a local one that only jumps to another.
NAMESAKES = """
    .intel_syntax noprefix
    .text
    .type chosen, @gnu_indirect_function
    .globl chosen
chosen:
    lea rax, [rip+work]
    ret
    .size chosen, .-chosen
    .globl old, new
    .type old, @function
old: ret
    .size old, .-old
    .type new, @function
new: nop
    ret
    .size new, .-new
    .symver old, twice@V1
    .symver new, twice@@V2
    .type stub, @function
stub: jmp work
    .size stub, .-stub
    .type work, @function
work: ret
    .size work, .-work
"""


def _elf(code: bytes, machine: int = EM_AARCH64, size: int | None = None) -> bytes:
    """A minimal ELF library with one function, ``kernel``, at 0x1000."""
    names = b"\0.text\0.symtab\0.strtab\0"
    strings = b"\0kernel\0"
    symbols = bytes(24) + struct.pack(
        "<IBBHQQ", 1, 0x12, 0, 1, 0x1000, len(code) if size is None else size
    )
    parts = [code, symbols, strings, names]
    offsets = [64 + sum(map(len, parts[:i])) for i in range(5)]
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, offsets[4], 0, 64, 0, 0, 64, 5, 4
    )

    def section(name: int, kind: int, flags: int, index: int, link: int, entry: int) -> bytes:
        address = 0x1000 if index == 0 else 0
        place = (offsets[index], len(parts[index]))
        return struct.pack("<IIQQQQIIQQ", name, kind, flags, address, *place, link, 0, 1, entry)

    table = (
        bytes(64)
        + section(1, 1, 6, 0, 0, 0)
        + section(7, 2, 0, 1, 3, 24)
        + section(15, 3, 0, 2, 0, 0)
        + section(15, 3, 0, 3, 0, 0)
    )
    return header + b"".join(parts) + table


def _arm_code() -> bytes:
    return struct.pack(f"<{len(ARM_WORDS)}I", *ARM_WORDS)


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    path = tmp_path / "libarm.so"
    path.write_bytes(_elf(_arm_code()))
    return path


@pytest.fixture(scope="module")
def x86(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _assembled(tmp_path_factory.mktemp("x86"), X86_SOURCE)


@pytest.fixture(scope="module")
def namesakes(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    folder = tmp_path_factory.mktemp("namesakes")
    (folder / "versions").write_text("V1 { global: twice; }; V2 { global: twice; chosen; } V1;\n")
    script = f"-Wl,--version-script={folder / 'versions'}"
    return read_library(_assembled(folder, NAMESAKES, script))


def _assembled(folder: Path, source: str, *options: str) -> Path:
    gcc = shutil.which("gcc")
    (folder / "kernels.s").write_text(source)
    library = folder / "libkernels.so"
    if gcc is None:
        pytest.skip("no gcc to assemble with")
    command = [gcc, "-shared", "-nostdlib", *options, "-o", str(library)]
    command.append(str(folder / "kernels.s"))
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if made.returncode:
        pytest.skip(f"this gcc does not assemble AVX-512: {made.stderr[:200]}")
    return library


@pytest.fixture(scope="module")
def openblas() -> HostLibrary:
    try:
        library = read_library(numpy_openblas())
    except LowgemmError as error:
        pytest.skip(f"numpy's OpenBLAS is no ELF library here: {error.what}")
    return library


def _report(library: Path, name: str) -> HostReport:
    return analyse_host(read_library(library).function(name))


def _tile(report: HostReport) -> RegisterTile:
    assert report.hot is not None
    assert report.hot.tile is not None
    return report.hot.tile


# ---- OpenBLAS


@pytest.mark.parametrize(
    ("core", "bits", "rows", "columns", "k_steps"),
    [
        # Stated by the names of the macros that make up the loops, KERNEL_k1m<rows>n<columns>:
        # KERNEL_L_k2m16n6, four times, in kernel/x86_64/sgemm_kernel_8x4_haswell_2.c;
        ("HASWELL", 256, 16, 6, 8),
        # KERNEL_k1m16n24, four times, in kernel/x86_64/sgemm_kernel_16x4_skylakex_3.c.
        ("SKYLAKEX", 512, 16, 24, 4),
    ],
)
def test_openblas_tile_is_the_one_that_its_source_states(
    openblas: HostLibrary, core: str, bits: int, rows: int, columns: int, k_steps: int
) -> None:
    """The FMA loop is found whatever the CPU, and its data flow gives the source's tile."""
    if openblas.machine is not Machine.X86_64:
        pytest.skip("this OpenBLAS is for another instruction set")
    kernel = pick_kernel(openblas, core)
    report = analyse_host(openblas.function(kernel.symbol))
    hot = report.hot
    assert hot is not None
    lanes = bits // 32
    assert _tile(report) == RegisterTile(rows, columns, 32, k_steps, 1)
    assert hot.mix["vfmadd231ps"] == hot.fmas == rows * columns * k_steps // lanes
    assert (hot.vector_bits, hot.accumulators) == (bits, rows * columns // lanes)
    assert hot.stores == 0
    assert not report.unknown_bytes


@pytest.mark.parametrize(("core", "panel"), [("HASWELL", (8, 4)), ("SKYLAKEX", (16, 4))])
def test_openblas_table_states_the_panels_that_the_tile_is_made_of(
    openblas: HostLibrary, core: str, panel: tuple[int, int]
) -> None:
    """SGEMM_UNROLL_M and N are read from the core's table, and the tile takes whole panels of A."""
    if openblas.machine is not Machine.X86_64:
        pytest.skip("this OpenBLAS is for another instruction set")
    kernel = pick_kernel(openblas, core)
    assert (kernel.panel_rows, kernel.panel_columns) == panel
    tile = _tile(analyse_host(openblas.function(kernel.symbol)))
    assert tile.rows % panel[0] == 0
    # HASWELL's three panels of B, twelve columns, are computed in two passes of six.
    assert tile.columns * (2 if core == "HASWELL" else 1) % panel[1] == 0


def test_every_shape_of_the_skylakex_kernel_is_derived(openblas: HostLibrary) -> None:
    """The loops for 16 rows and 24, 20, ... 4 columns are all told apart, and those of 8 rows."""
    if "sgemm_kernel_SKYLAKEX" not in openblas.symbols:
        pytest.skip("this OpenBLAS has no SKYLAKEX kernel")
    report = analyse_host(openblas.function("sgemm_kernel_SKYLAKEX"))
    tiles = {(loop.tile.rows, loop.tile.columns) for loop in report.loops if loop.tile}
    assert {(16, n) for n in (2, 4, 8, 12, 16, 20, 24)} <= tiles
    assert {(8, n) for n in (4, 8, 12, 16, 20, 24)} <= tiles


def test_the_selected_core_is_one_of_the_library(openblas: HostLibrary) -> None:
    """The core that runs here has a kernel in the file."""
    core = selected_core(numpy_openblas(), openblas)
    assert core in {kernel.core for kernel in openblas_kernels(openblas)}


def test_an_unknown_core_is_answered_with_those_there_are(openblas: HostLibrary) -> None:
    """The error names the cores that the library has."""
    with pytest.raises(SymbolNotFoundError, match="PENTIUM") as caught:
        pick_kernel(openblas, "PENTIUM")
    assert set(caught.value.available) == {k.core for k in openblas_kernels(openblas)}


# ---- any library


def test_aarch64_lanes_are_columns(arm: Path) -> None:
    """Two loaded vectors times four lanes of a third are a tile of 8 x 4."""
    report = _report(arm, "kernel")
    hot = report.hot
    assert hot is not None
    assert _tile(report) == RegisterTile(8, 4, 32, 1, 1)
    assert (report.machine, hot.start, hot.end) == ("aarch64", 0x1004, 0x1038)
    assert (hot.fmas, hot.lane_fmas, hot.loads, hot.prefetches) == (8, 8, 2, 1)
    assert (hot.vector_bits, hot.vector_registers, hot.accumulators) == (128, 11, 8)
    assert hot.general_registers == 3


def test_a_function_without_size_is_read_to_its_section_end(tmp_path: Path) -> None:
    """Hand-written assembly often has no size; its code is found all the same, and that is said."""
    path = tmp_path / "libarm.so"
    path.write_bytes(_elf(_arm_code(), size=0))
    report = _report(path, "kernel")
    assert report.code_bytes == len(_arm_code())
    assert "no size" in report.identified_by


def test_broadcasts_inside_multiply_adds_and_two_sets_of_accumulators(x86: Path) -> None:
    """A factor {1to16} is a load and a broadcast; sets that take turns make no larger tile."""
    report = _report(x86, "embedded")
    hot = report.hot
    assert hot is not None
    assert _tile(report) == RegisterTile(16, 2, 32, k_steps=2, copies=2)
    assert (hot.fmas, hot.loads, hot.broadcasts, hot.stores) == (4, 6, 4, 0)
    assert (hot.prefetches, hot.accumulators, hot.vector_bits) == (1, 4, 512)
    assert hot.loads_per_fma == 1.5


def test_a_vector_loaded_for_the_next_pass_belongs_to_the_tile(x86: Path) -> None:
    """A value that enters the loop in a register is what the pass before left there."""
    assert _tile(_report(x86, "ahead")) == RegisterTile(8, 3, 32, 1, 1)


def test_a_dot_product_has_no_tile(x86: Path) -> None:
    """Vectors on both sides are no outer product: the loop is reported, without a tile."""
    hot = _report(x86, "dot").hot
    assert hot is not None
    assert hot.tile is None
    assert (hot.fmas, hot.loads, hot.stores, hot.broadcasts) == (2, 3, 1, 0)


def _coded(name: str) -> HostReport:
    """The report on one of the functions of X86_CODE."""
    code = "".join(line.split()[0] for line in X86_CODE[name].strip().splitlines())
    return analyse_host(HostFunction("", name, Machine.X86_64, 0, bytes.fromhex(code), ""))


@pytest.mark.parametrize("name", ["rotated", "swapped"])
def test_a_sum_may_change_its_register(name: str) -> None:
    """A sum written over a factor and copied back, or to another place, is one accumulator."""
    report = _coded(name)
    assert _tile(report) == RegisterTile(8, 2, 32, k_steps=1, copies=1)
    assert report.hot is not None
    assert (report.hot.accumulators, report.hot.fma_elements) == (2, 16)


def test_a_sum_may_be_kept_on_the_stack() -> None:
    """What registers cannot hold is followed through memory, however its address is spelt."""
    report = _coded("spilled")
    assert _tile(report) == RegisterTile(16, 2, 32, k_steps=1, copies=1)
    assert report.hot is not None
    assert report.hot.accumulators == 4


def test_a_remainder_loop_is_not_hot() -> None:
    """The loop with the most multiply-adds is hot, and has no tile if some accumulate nothing."""
    report = _coded("both")
    hot, remainder = report.loops
    assert report.hot == hot
    assert (hot.fmas, hot.all_fma_elements, hot.fma_elements, hot.tile) == (3, 24, 8, None)
    assert remainder.tile == RegisterTile(8, 2, 32, k_steps=1, copies=1)


def test_code_behind_a_jump_table_and_bytes_that_are_no_code(x86: Path) -> None:
    """Cases that only a table leads to are seen; undecodable bytes are counted, never fatal."""
    report = _report(x86, "table")
    assert report.hot is not None
    assert report.hot.fmas == 1
    assert report.unknown_bytes == 3


def test_x86_operands_are_read_by_place(x86: Path) -> None:
    """A store is a store and a load a load, also where the decoder's own flags are wrong."""
    code = decode_host(read_library(x86).function("dot"))
    store = next(i for i in code if i.memory and i.memory.stores)
    assert (store.mnemonic, store.operands) == ("vmovups", "ymmword ptr [r8], ymm0")
    assert store.memory is not None
    assert (store.memory.loads, store.memory.width_bits) == (False, 256)
    assert not store.written
    assert store.read == {"r8", "v0"}


def test_a_stripped_library_keeps_its_exported_functions(x86: Path, tmp_path: Path) -> None:
    """Without .symtab the dynamic symbols are enough."""
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip")
    bare = tmp_path / "bare.so"
    subprocess.run([strip, "-o", str(bare), str(x86)], check=True, timeout=60)
    assert _tile(_report(bare, "embedded")) == _tile(_report(x86, "embedded"))


def test_of_two_versions_the_default_one_is_meant(namesakes: HostLibrary) -> None:
    """A bare name is what a program gets that is linked today; the other goes by its version."""
    function = namesakes.function("twice")
    assert len(function.code) == 2
    assert "others of that name: twice@V1" in function.identified_by
    assert len(namesakes.function("twice@V1").code) == 1


def test_a_resolver_and_a_jump_to_the_work_are_told(namesakes: HostLibrary) -> None:
    """An IFUNC's own code only chooses; a function that jumps on names where to."""
    assert "an IFUNC" in namesakes.function("chosen").identified_by
    stub = analyse_host(namesakes.function("stub"))
    assert [namesakes.name_at(address) for address in stub.jumps_out] == ["work"]
    assert analyse_host(namesakes.function("work")).jumps_out == ()
    done = CliRunner().invoke(app, ["host", namesakes.path, "stub"])
    assert "it jumps on to work" in done.output


def test_what_is_no_openblas_wants_the_name_of_a_function(namesakes: HostLibrary) -> None:
    """Without one there is nothing to look at, whatever core is named."""
    for options in ([], ["--core", "HASWELL"]):
        done = CliRunner().invoke(app, ["host", namesakes.path, *options])
        assert isinstance(done.exception, HostLibraryError)
        assert "is no OpenBLAS" in done.exception.what
        assert done.exception.remedy == "name a function of the library"


# ---- bad input


def test_a_missing_symbol_is_answered_with_similar_ones(arm: Path) -> None:
    """A typing error in a symbol's name is answered with the right one."""
    with pytest.raises(SymbolNotFoundError, match="kernl") as caught:
        read_library(arm).function("kernl")
    assert caught.value.available == ("kernel",)
    with pytest.raises(SymbolNotFoundError) as caught:
        read_library(arm).function("KERN")
    assert caught.value.available == ("kernel",)


def test_a_librarys_bare_name_is_answered_with_the_full_path() -> None:
    """Nothing is looked up in the system's folders, and the remedy says so."""
    with pytest.raises(SourceNotFoundError) as caught:
        read_library("libnothing.so.6")
    assert "full path" in caught.value.remedy


def test_another_machine_is_refused(tmp_path: Path) -> None:
    """A library for a machine that lowgemm does not read is named as such."""
    path = tmp_path / "libriscv.so"
    path.write_bytes(_elf(_arm_code(), EM_RISCV))
    with pytest.raises(HostLibraryError, match="EM_RISCV"):
        read_library(path)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not a library", bytes(100)])
def test_what_is_no_elf_is_refused(tmp_path: Path, data: bytes) -> None:
    """Files of other kinds give a typed error."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(HostLibraryError):
        read_library(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A path with nothing there, and a folder, give a typed error."""
    for path in (tmp_path / "none.so", tmp_path):
        with pytest.raises(SourceNotFoundError):
            read_library(path)


def test_a_size_beyond_the_section_is_refused(tmp_path: Path) -> None:
    """A symbol cannot claim more code than there is."""
    path = tmp_path / "lib.so"
    path.write_bytes(_elf(_arm_code(), size=1 << 40))
    with pytest.raises(HostLibraryError, match="not in the file"):
        read_library(path).function("kernel")


def test_truncated_and_damaged_libraries_give_typed_errors(tmp_path: Path) -> None:
    """Any cut and any changed bytes: a report or an error of lowgemm, nothing else."""
    whole = _elf(_arm_code())
    path = tmp_path / "lib.so"
    chance = random.Random(3)
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        damaged.append(bytes(changed))
    reported = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            _report(path, "kernel")
            reported += 1
        except LowgemmError:
            pass
    assert 0 < reported < len(damaged)


def test_random_bytes_are_code_of_no_meaning(tmp_path: Path) -> None:
    """Bytes that are no program are decoded and reported without fail, for both machines."""
    chance = random.Random(5)
    path = tmp_path / "lib.so"
    for machine in (EM_AARCH64, EM_X86_64):
        for _ in range(20):
            path.write_bytes(_elf(chance.randbytes(4000), machine))
            assert _report(path, "kernel").code_bytes == 4000


# ---- the command


def test_the_command_reports_in_json(arm: Path) -> None:
    """--json prints a list with an object per function, its loops and their tiles."""
    done = CliRunner().invoke(app, ["host", str(arm), "kernel", "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    loop = row["loops"][row["hot_loop"]]
    assert (loop["tile"]["rows"], loop["tile"]["columns"]) == (8, 4)
    assert (loop["fmas"], loop["loads_per_fma"]) == (8, 0.25)
    assert row["openblas"] is None


def test_the_command_shows_the_hot_loop(arm: Path) -> None:
    """The table marks the hot loop and gives its tile."""
    done = CliRunner().invoke(app, ["host", str(arm), "kernel"])
    assert done.exit_code == 0, done.output
    assert "0x1004 hot" in done.stdout
    assert "8 x 4" in done.stdout
    assert "8 fmla" in done.stdout


def test_the_command_takes_cores(openblas: HostLibrary) -> None:
    """Each --core adds a kernel, in any case; the panels of OpenBLAS's table stand beside it."""
    names = [kernel.core for kernel in openblas_kernels(openblas)][:2]
    options = [option for name in names for option in ("--core", name.lower())]
    done = CliRunner().invoke(app, ["host", *options, "--json"])
    assert done.exit_code == 0, done.output
    assert [row["openblas"]["core"] for row in json.loads(done.stdout)] == names


def test_a_view_of_a_function_without_loops(tmp_path: Path) -> None:
    """A function without a loop is shown as that."""
    from rich.console import Console

    path = tmp_path / "lib.so"
    path.write_bytes(_elf(struct.pack("<I", 0xD65F03C0)))
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(host_view(_report(path, "kernel")))
    assert "no loop" in console.export_text()
