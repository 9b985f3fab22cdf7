"""Machine code written: other registers, control words and code in a cubin."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from corpus import build

from lowgemm.binary import read_cubin
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.patch import with_code, with_registers
from lowgemm.binary.sass import disassemble, read_sass
from lowgemm.errors import CubinError, EncodingError, KernelNotFoundError

ARCHS = ("sm_80", "sm_90", "sm_120")


def first_ffma(cubin: bytes) -> tuple[str, Instruction]:
    """A kernel's name and its first FFMA of registers alone."""
    for kernel in read_sass(cubin):
        for instruction in kernel.instructions:
            if instruction.name == "FFMA" and len(instruction.registers) == 4:
                return kernel.name, instruction
    raise AssertionError("no FFMA")


@pytest.mark.parametrize("arch", ARCHS)
def test_changed_registers_are_what_nvdisasm_reads(arch: str) -> None:
    """Operands, reuse, stall and stay of one FFMA change, and nothing else in the kernel does."""
    cubin = build("ex8", arch).cubin
    name, old = first_ffma(cubin)
    control = replace(old.control, stall=3, stay=True, reuse=1)
    new = with_registers(old, {"d": 4, "a": 5, "b": 6, "c": 7}, control, read_cubin(cubin).arch)
    code = bytearray(read_cubin(cubin).code[name].content)
    code[old.address : old.address + 16] = struct.pack("<QQ", new.low, new.high)
    patched = with_code(cubin, name, bytes(code))
    before, after = (
        next(k for k in disassemble(data, live_registers=False) if k.name == name).instructions
        for data in (cubin, patched)
    )
    changed = [b for a, b in zip(before, after, strict=True) if (a.low, a.high) != (b.low, b.high)]
    assert [i.text for i in changed] == ["FFMA R4, R5.reuse, R6, R7"]
    assert changed[0].control == control
    assert changed[0].address == new.address == old.address
    assert read_cubin(patched).kernels == read_cubin(cubin).kernels


def test_the_same_code_gives_the_same_cubin() -> None:
    """Writing back what was read changes no byte."""
    cubin = build("ex8", "sm_90").cubin
    for name, code in read_cubin(cubin).code.items():
        assert with_code(cubin, name, code.content) == cubin


def test_code_that_does_not_fit_is_refused() -> None:
    """Another length, another kernel, and what is no machine code are typed errors."""
    cubin = build("ex8", "sm_90").cubin
    name, read = next(iter(read_cubin(cubin).code.items()))
    code = read.content
    with pytest.raises(CubinError, match="bytes of code"):
        with_code(cubin, name, code[:-16])
    with pytest.raises(KernelNotFoundError, match="nothing"):
        with_code(cubin, "nothing", code)
    with pytest.raises(CubinError, match="0x0000"):
        with_code(cubin, name, b"\xff" * len(code))
    with pytest.raises(CubinError):
        with_code(b"no cubin", name, code)


def test_registers_that_cannot_be_are_refused() -> None:
    """A slot or number that does not exist, and instructions with other operands."""
    cubin = build("ex8", "sm_90").cubin
    arch = read_cubin(cubin).arch
    _, ffma = first_ffma(cubin)
    for registers in ({"e": 1}, {"d": 256}, {"a": -1}):
        with pytest.raises(EncodingError, match="slot"):
            with_registers(ffma, registers, ffma.control, arch)
    code = read_sass(cubin)[0].instructions
    other = next(i for i in code if i.opcode and i.form is not None and i.form.name == "Ri")
    with pytest.raises(EncodingError, match="registers alone"):
        with_registers(other, {"d": 1}, other.control, arch)
