"""Decoding machine code: what the bytes say is what nvdisasm's text says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from corpus import ARCHS, EVERYWHERE, SPECIFIC, build, case_name, kernels
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.binary.instruction import INSTRUCTION_BYTES, Instruction, SourceLine, decode
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.errors import CubinError, EncodingError
from lowgemm.gemm import RUNG_NAMES
from lowgemm.hardware import Architecture
from lowgemm.isa import Access, ControlWord, Pipe

_REGISTER = re.compile(r"(?<![A-Za-z_\d])(UR|R)(\d+)")
_PREDICATE = re.compile(r"(?<![\w.!])!?U?P\d(?!\w)")
_TEXT_WIDTHS = {"256": 256, "128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}


def body(instruction: Instruction) -> tuple[str, str]:
    """nvdisasm's mnemonic with modifiers, and the operands, without the guard."""
    text = re.sub(r"^@!?U?P\w+\s+", "", instruction.text)
    mnemonic, _, operands = text.partition(" ")
    return mnemonic.rstrip(";"), operands


def test_a_source_line_is_shown_from_here_where_that_is_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are without detours, and relative to the working directory where that is shorter."""
    monkeypatch.chdir(tmp_path)
    assert SourceLine(f"{tmp_path}/kernel.cu", 3).short == "kernel.cu:3"
    assert SourceLine(f"{tmp_path}/a/../b/k.cu", 3).short == "b/k.cu:3"
    assert SourceLine("/k.cu", 3).short == "/k.cu:3"


@pytest.mark.parametrize(("name", "arch"), EVERYWHERE)
def test_the_bytes_say_what_nvdisasm_says(name: str, arch: str) -> None:
    """Mnemonic, width, guard, reuse flags, registers and predicates agree for every instruction."""
    for kernel in kernels(name, arch):
        assert_text(kernel)


@pytest.mark.parametrize("arch", SPECIFIC)
def test_so_do_those_of_one_architecture_alone(arch: str) -> None:
    """Warp-group and tensor-memory products and their like agree, and each has a record."""
    for name in SPECIFIC[arch]:
        for kernel in kernels(name, arch):
            assert_text(kernel)


def assert_text(kernel: SassKernel) -> None:
    for i in kernel.instructions:
        where = (kernel.name, str(kernel.arch), hex(i.address), i.text)
        mnemonic, operands = body(i)
        assert i.opcode is not None, where
        assert i.name == mnemonic.split(".")[0], where
        assert_reuse(i, where)
        guard = re.match(r"@(!?)U?P(\w+)", i.text)
        number = 7 if guard is None or guard[2] == "T" else int(guard[2])
        assert i.guard == number + (8 if guard and guard[1] else 0), where
        assert_width(i, mnemonic, where)
        assert_registers(i, operands, kernel.arch, where)
        assert_predicates(i, operands, where)


def assert_reuse(i: Instruction, where: object) -> None:
    assert i.opcode is not None
    if i.opcode.pipe is Pipe.TEXTURE:
        return  # nvdisasm shows none of theirs
    slots = sum(str(i.control).count(slot) for slot in "ABC")
    others = sum(r.reuse for r in i.registers if r.slot not in "abc")
    assert slots + others == i.text.count(".reuse"), where


def assert_width(i: Instruction, mnemonic: str, where: object) -> None:
    assert i.opcode is not None, where
    if not i.opcode.is_sized:
        assert i.width_bits is None, where
        return
    found = [w for m in mnemonic.split(".") if (w := _TEXT_WIDTHS.get(m))]
    assert i.width_bits == (found[0] if found else 32), where


def assert_registers(i: Instruction, operands: str, arch: Architecture, where: object) -> None:
    text = Counter(f"{kind}{number}" for kind, number in _REGISTER.findall(operands))
    mine = Counter(f"{'UR' if r.uniform else 'R'}{r.number}" for r in i.registers)
    if i.name == "BAR":
        # One register that holds the number and the count is printed for each.
        text = Counter(dict.fromkeys(text, 1))
    if arch.major < 9 and has_descriptor(i):
        # nvdisasm shows the register from sm_90 on.
        hidden = mine - text
        assert all(register.startswith("UR") for register in hidden) and len(hidden) <= 1, where
        mine -= hidden
    assert text == mine, where


def assert_predicates(i: Instruction, operands: str, where: object) -> None:
    text = Counter(_PREDICATE.findall(operands))
    # P2R and R2P say PR for all of them.
    assert text == Counter(str(p) for p in i.predicates if p.slot != "z"), where


def has_descriptor(i: Instruction) -> bool:
    """Whether a memory access reads a descriptor: bit 76, of atomics bit 71."""
    if i.opcode is None or i.opcode.space is None:
        return False
    bit = 71 if i.opcode.access in (Access.ATOMIC, Access.REDUCE) else 76
    return bool(i.high >> (bit - 64) & 1)


@pytest.mark.parametrize(("name", "arch"), [c for c in EVERYWHERE if case_name(c) in RUNG_NAMES])
def test_moves_are_recognised_under_any_name(name: str, arch: str) -> None:
    """IMAD.MOV, HFMA2 of zeros and CS2R are moves; IMAD with factors is none."""
    for kernel in kernels(name, arch):
        for i in kernel.instructions:
            mnemonic, operands = body(i)
            moves = re.match(r"(U?MOV|CS2R|IMAD\.MOV)\b", mnemonic) is not None
            moves |= mnemonic == "IMAD.U32" and ", RZ, RZ, " in operands
            moves |= mnemonic.startswith("HFMA2") and "-RZ, RZ" in operands
            assert i.is_move is moves, (kernel.name, hex(i.address), i.text)


@pytest.mark.parametrize("arch", ARCHS)
def test_strong_accesses_are_those_that_nvdisasm_calls_so(arch: str) -> None:
    """Of loads and stores of global memory."""
    found = set()
    for i in (
        i
        for name in ("atomics", "memory", "ex13")
        for k in kernels(name, arch)
        for i in k.instructions
    ):
        if i.name in ("LDG", "STG"):
            assert i.is_strong is (".STRONG" in i.text), i.text
            found.add(i.is_strong)
        else:
            assert not i.is_strong
    assert found == {True, False}


def test_branch_targets_are_instructions() -> None:
    """A relative target lies on an instruction of the kernel, on every architecture."""
    for arch in ARCHS:
        for name in ("calls", "doubles", "atomics", "mandelbrot", "divergent", "ex9"):
            for kernel in kernels(name, arch):
                addresses = {i.address for i in kernel.instructions}
                branches = [i for i in kernel.instructions if i.name == "BRA"]
                assert branches
                for i in branches:
                    assert i.target in addresses, (arch, name, hex(i.address))


def test_an_operation_that_is_not_known_is_kept() -> None:
    """A number without an entry decodes to an instruction with its number as its name."""
    low, high = 0x1F7 | 7 << 12, 1 << 41 | 7 << 46 | 7 << 49
    (instruction,) = decode(low.to_bytes(8, "little") + high.to_bytes(8, "little"), ARCH)
    assert instruction.opcode is None
    assert instruction.name == instruction.mnemonic == "0x1f7"


def test_half_an_instruction_is_refused() -> None:
    """Machine code comes in 16 bytes; the error names the length."""
    with pytest.raises(CubinError, match="24 bytes"):
        decode(bytes(24), ARCH)


# ---- the control word

ARCH = Architecture(9, 0)
LEGAL = [*range(16), *range(17, 28)]


@pytest.mark.parametrize("value", sorted(set(range(32)) - set(LEGAL)))
def test_each_illegal_stall_is_refused(value: int) -> None:
    """Values 16 and 28 to 31 of bits 105-109 are no instruction; the address is named."""
    high = value << 41
    with pytest.raises(EncodingError, match=str(value)):
        ControlWord.decode(high)
    code = bytes(INSTRUCTION_BYTES) + bytes(8) + high.to_bytes(8, "little")
    with pytest.raises(CubinError, match="0x0010"):
        decode(code, ARCH)


@given(
    st.sampled_from(LEGAL),
    st.integers(0, 7),
    st.integers(0, 7),
    st.integers(0, 63),
    st.integers(0, 7),
    st.integers(0, 2**64 - 1),
)
def test_a_control_word_survives_encoding(
    issue: int, write: int, read: int, wait: int, reuse: int, rest: int
) -> None:
    """Decoding and encoding give the same bits, and no other bit of the instruction changes."""
    mask = ((1 << 21) - 1) << 41
    bits = (issue | write << 5 | read << 8 | wait << 11 | reuse << 17) << 41
    high = rest & ~mask | bits
    word = ControlWord.decode(high)
    assert word.encode(rest) == high
    assert word.waits_for == tuple(sb for sb in range(6) if wait >> sb & 1)


def test_fields_that_do_not_fit_are_refused() -> None:
    """A stall, scoreboard or mask out of range cannot be written into an instruction."""
    good = ControlWord(1, True, None, None, 0, 0)
    assert ControlWord.decode(good.encode(0)) == good
    for wrong in (
        ControlWord(16, False, None, None, 0, 0),
        ControlWord(12, True, None, None, 0, 0),
        ControlWord(0, True, None, None, 0, 0),
        ControlWord(1, True, 8, None, 0, 0),
        ControlWord(1, True, None, None, 64, 0),
        ControlWord(1, True, None, None, 0, 8),
    ):
        with pytest.raises(EncodingError):
            wrong.encode(0)


def test_a_control_word_reads_in_one_glance() -> None:
    """Wait mask, scoreboards, stay or yield, stall and reuse stand in one short text."""
    word = ControlWord(4, True, 2, None, 0b000101, 0b011)
    assert str(word) == "0-2---:W2:R-:S:04:AB-"


def test_every_legal_value_occurs_or_is_at_least_read() -> None:
    """ptxas's own code holds no illegal control word, in any rung on any architecture."""
    for arch in ARCHS:
        for name in (each for each in RUNG_NAMES if "rewritten" not in each):
            for kernel in read_sass(build(name, arch).cubin):
                assert all(i.control.stall < 16 for i in kernel.instructions)
