"""One machine instruction, decoded from its 128 bits."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from lowgemm.errors import CubinError, EncodingError
from lowgemm.hardware import Architecture
from lowgemm.isa import Access, ControlWord, Form, Opcode, Pipe, Predicate, lookup

__all__ = ["INSTRUCTION_BYTES", "Instruction", "Register", "SourceLine", "decode", "decode_at"]

INSTRUCTION_BYTES = 16
#: Decoded instructions that are kept: those of a kernel and of its variants.
_KEPT = 1 << 15
_ALWAYS = 7
_NEVER = 15
# Size field of loads and stores (bits 73-75).
_WIDTH_BITS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}
# Size field of LDGSTS from sm_100 on (bits 74-75).
_COPY_BITS = {0: 32, 1: 64, 2: 128}
_FACTORS_IN_REGISTERS = frozenset((Form.rr, Form.Ri, Form.Rc, Form.Ru))
# Bits 73-75 of an IMAD without carry-in and negation.
_IMAD_PLAIN = (0, 1, 5)
# LDG and STG of 256 bits have operations of their own.
_WIDE_ACCESS = (0x17E, 0x17F)
_METADATA_REUSE_BIT, _SCALE_REUSE_BIT = 50, 51
# Bit 91 of a BRA: it branches where lanes diverge (BRA.DIV) or do not (BRA.CONV).
_DIVERGENCE_BIT = 27
# LDG and STG: 0 is weak, 4 .CONSTANT; 5, 7 and 10 are .STRONG.SM, .GPU and .SYS. Established with
# ptxas 13.5 for sm_80 to sm_120.
_ORDER_BIT, _UNORDERED = 13, (0, 4)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source file, as the compiler's line table names it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """The same with the file's path from the working directory, where that is shorter."""
        path = os.path.normpath(self.file)
        return f"{min(os.path.relpath(path), path, key=len)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A register operand: its slot (``d``, ``a``, ``b``, ``c``, rarely others) and number.

    It is the first of several where the operand is wider than 32 bits. ``reuse`` says that the
    operand collector keeps it for the next instruction's same slot, ``written`` that the
    instruction writes it; otherwise it reads it.
    """

    slot: str
    number: int
    uniform: bool = False
    reuse: bool = False
    written: bool = False

    def __str__(self) -> str:
        return f"{'UR' if self.uniform else 'R'}{self.number}{'.reuse' if self.reuse else ''}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    ``low`` and ``high`` are its bits 0-63 and 64-127. ``opcode`` is None for an operation that
    :mod:`lowgemm.isa` does not know. ``registers`` are the operands in general and uniform
    registers that hold something (not RZ), ``predicates`` those in predicates but PT, without the
    guard. ``width_bits`` is that of a load, store or asynchronous
    copy; ``target`` the address of a relative branch or call. ``text``, ``line`` and
    ``live_registers`` come from nvdisasm and may be missing.
    """

    address: int
    low: int
    high: int
    opcode: Opcode | None
    control: ControlWord
    registers: tuple[Register, ...]
    predicates: tuple[Predicate, ...] = ()
    width_bits: int | None = None
    target: int | None = None
    text: str = ""
    line: SourceLine | None = None
    live_registers: int | None = None
    table_targets: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The mnemonic without modifiers.

        For an operation that is not known, nvdisasm's; without its text the number.
        """
        if self.opcode:
            return self.opcode.name
        mnemonic = re.sub(r"^@!?U?P\w+\s+", "", self.text).partition(" ")[0].partition(".")[0]
        return mnemonic or f"0x{self.low & 0x1FF:03x}"

    @property
    def mnemonic(self) -> str:
        """The mnemonic by which it is counted: with the width for a load, store or copy."""
        return f"{self.name}.{self.width_bits}" if self.width_bits else self.name

    @property
    def guard(self) -> int:
        """The predicate that guards it: 7 is always, 8 added negates (15 is never)."""
        return self.low >> 12 & 15

    @property
    def is_conditional(self) -> bool:
        """Whether a predicate decides if it executes."""
        return self.guard not in (_ALWAYS, _NEVER)

    @property
    def branches_on_divergence(self) -> bool:
        """Whether it is a branch that some lanes of a warp decide (BRA.DIV, BRA.CONV)."""
        return self.name == "BRA" and _on_divergence(self.low, self.high)

    @property
    def form(self) -> Form | None:
        """What operand slots B and C hold."""
        value = self.low >> 9 & 7
        return Form(value) if value else None

    @property
    def is_strong(self) -> bool:
        """Whether it is a strong LDG or STG: volatile, relaxed, acquire or release.

        nvdisasm says ``.STRONG`` with a scope. Accesses to shared memory have no such mark.
        """
        return self.name in ("LDG", "STG") and self.high >> _ORDER_BIT & 15 not in _UNORDERED

    @property
    def is_filler(self) -> bool:
        """Whether it does nothing: NOP, or guarded by a predicate that is never true.

        ptxas puts ``@!PT LDS RZ, [RZ]`` in front of LDGSTS.
        """
        return self.name == "NOP" or self.guard == _NEVER

    @property
    def is_move(self) -> bool:
        """Whether it only puts a value into a register, whatever its name says.

        IMAD with two zero factors, HFMA2 of zeros with an immediate, and CS2R of the zero register
        stand for moves: ptxas uses them to balance the pipes.
        """
        if self.name in ("MOV", "UMOV", "CS2R"):
            return True
        sources = {register.slot for register in self.registers} - {"d"}
        if self.name == "IMAD" and self.low & 0x1FF == 0x024:
            zero_factors = not sources & {"a", "b"} and self.form in _FACTORS_IN_REGISTERS
            negated = self.form is Form.Ru and bool(self.low >> 63)
            return zero_factors and self.high >> 9 & 7 in _IMAD_PLAIN and not negated
        return self.name == "HFMA2" and self.form is Form.Ri and not sources

    def register(self, slot: str) -> Register | None:
        """The register in a slot, if one is there."""
        return next((r for r in self.registers if r.slot == slot), None)


def decode(code: bytes, arch: Architecture) -> tuple[Instruction, ...]:
    """Decode a kernel's machine code.

    Parameters
    ----------
    code
        The contents of a ``.text`` section.
    arch
        The architecture it is for, sm_75 or later.

    Raises
    ------
    CubinError
        The code is no whole number of instructions, or a control word is illegal; the message
        names the address.
    """
    if len(code) % INSTRUCTION_BYTES:
        raise CubinError(
            f"machine code of {len(code)} bytes, no multiple of {INSTRUCTION_BYTES}",
            "compile or copy the cubin again",
        )
    return tuple(_instructions(code, arch))


def _instructions(code: bytes, arch: Architecture) -> Iterator[Instruction]:
    for index, (low, high) in enumerate(struct.iter_unpack("<QQ", code)):
        yield decode_at(index * INSTRUCTION_BYTES, low, high, arch)


@lru_cache(maxsize=_KEPT)
def decode_at(address: int, low: int, high: int, arch: Architecture) -> Instruction:
    """Decode the instruction at an address from its lower and its upper 64 bits.

    Raises
    ------
    CubinError
        Its control word is illegal.
    """
    try:
        control = ControlWord.decode(high)
    except EncodingError as error:
        raise CubinError(f"at {address:#06x}: {error.what}", error.remedy) from error
    opcode = lookup(low, high, arch.major)
    return Instruction(
        address=address,
        low=low,
        high=high,
        opcode=opcode,
        control=control,
        registers=tuple(_registers(low, high, opcode, control, arch)),
        predicates=tuple(opcode.predicates_in(low | high << 64)) if opcode else (),
        width_bits=_width(low, high, opcode, arch),
        target=_target(address, low, high, opcode, arch),
    )


def _registers(
    low: int, high: int, opcode: Opcode | None, control: ControlWord, arch: Architecture
) -> Iterator[Register]:
    if opcode is None:
        return
    for operand in opcode.operands_in(low | high << 64, wide=arch.major >= 10):
        kept = not operand.uniform and _is_kept(operand.slot, low, opcode, control, arch)
        yield Register(operand.slot, operand.number, operand.uniform, kept, operand.written)


def _is_kept(slot: str, low: int, opcode: Opcode, control: ControlWord, arch: Architecture) -> bool:
    if slot in "abc":
        return bool(control.reuse >> "abc".index(slot) & 1)
    if opcode.pipe is not Pipe.TENSOR:
        return False
    # Metadata of sparse products and scales have a bit of their own.
    if slot == "g":
        return bool(low >> _SCALE_REUSE_BIT & 1)
    return slot == "e" and arch.major < 12 and bool(low >> _METADATA_REUSE_BIT & 1)


def _on_divergence(low: int, high: int) -> bool:
    """BRA.DIV and BRA.CONV; BRA.U has the bit as well, and another form."""
    return low >> 9 & 7 == Form.ir.value and bool(high >> _DIVERGENCE_BIT & 1)


def _width(low: int, high: int, opcode: Opcode | None, arch: Architecture) -> int | None:
    if opcode is None or not opcode.is_sized:
        return None
    if low & 0x1FF in _WIDE_ACCESS:
        return 256
    if opcode.access is Access.COPY and arch.major >= 10:
        return _COPY_BITS.get(high >> 10 & 3)
    return _WIDTH_BITS.get(high >> 9 & 7)


def _target(
    address: int, low: int, high: int, opcode: Opcode | None, arch: Architecture
) -> int | None:
    """The target of BRA and CALL.REL: relative to the next instruction.

    The offset in words of four bytes stands in bits 34-81; from sm_90 on its lowest eight bits
    stand in bits 16-23 instead, and bits 34-81 hold the rest.
    """
    if opcode is None or opcode.name not in ("BRA", "CALL") or low & 0x1FF == 0x143:
        return None
    if low >> 9 & 7 not in (Form.ir.value, Form.Ri.value):
        return None  # through a register
    bits = low | high << 64
    if arch.major >= 9:
        offset = _signed(bits >> 34 << 8 & (1 << 56) - 1 | bits >> 16 & 255, 56) * 4
    else:
        offset = _signed(bits >> 34 & (1 << 48) - 1, 48) * 4
    return address + INSTRUCTION_BYTES + offset


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) & 1 else value
