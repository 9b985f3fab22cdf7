"""One machine instruction, decoded from its 128 bits."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lowgemm.errors import CubinError, EncodingError
from lowgemm.hardware import Architecture
from lowgemm.isa import Access, ControlWord, Form, Opcode, Pipe, Space, lookup

__all__ = ["INSTRUCTION_BYTES", "Instruction", "Register", "SourceLine", "decode"]

INSTRUCTION_BYTES = 16
_RZ = 255
_URZ_BEFORE_SM100, _URZ = 63, 255
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
# Bit 86 of a WARPSYNC: it is a collective one.
_COLLECTIVE_BIT = 22
# Bit 91 of a BRA: it branches where lanes diverge (BRA.DIV) or do not (BRA.CONV).
_DIVERGENCE_BIT = 27
_SIZED = frozenset((Access.LOAD, Access.STORE))


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source file, as the compiler's line table names it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A register operand: its slot (``d``, ``a``, ``b``, ``c``) and number.

    ``reuse`` says that the operand collector keeps it for the next instruction's same slot.
    """

    slot: str
    number: int
    uniform: bool = False
    reuse: bool = False

    def __str__(self) -> str:
        return f"{'UR' if self.uniform else 'R'}{self.number}{'.reuse' if self.reuse else ''}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    ``low`` and ``high`` are its bits 0-63 and 64-127. ``opcode`` is None for an operation that
    :mod:`lowgemm.isa` does not know. ``registers`` are the operands in general and uniform
    registers that hold something (not RZ). ``width_bits`` is that of a load, store or asynchronous
    copy; ``target`` the address of a relative branch or call. ``text``, ``line`` and
    ``live_registers`` come from nvdisasm and may be missing.
    """

    address: int
    low: int
    high: int
    opcode: Opcode | None
    control: ControlWord
    registers: tuple[Register, ...]
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
        address = index * INSTRUCTION_BYTES
        try:
            control = ControlWord.decode(high)
        except EncodingError as error:
            raise CubinError(f"at {address:#06x}: {error.what}", error.remedy) from error
        opcode = lookup(low, arch.major)
        yield Instruction(
            address=address,
            low=low,
            high=high,
            opcode=opcode,
            control=control,
            registers=tuple(_registers(low, high, opcode, control, arch)),
            width_bits=_width(low, high, opcode, arch),
            target=_target(address, low, high, opcode, arch),
        )


def _registers(
    low: int, high: int, opcode: Opcode | None, control: ControlWord, arch: Architecture
) -> Iterator[Register]:
    if opcode is None:
        return
    fields = _fields(low, high, opcode)
    urz = _URZ if arch.major >= 10 else _URZ_BEFORE_SM100
    for letter in opcode.operands:
        slot, uniform = letter.lower(), letter.isupper()
        if slot not in fields:
            continue
        number = fields[slot]
        if number == (urz if uniform else _RZ):
            continue
        kept = slot in "abc" and control.reuse >> "abc".index(slot) & 1
        yield Register(slot, number, uniform, bool(kept))
    uniform_operand = _uniform_operand(low, opcode)
    if uniform_operand is not None and uniform_operand[1] != urz:
        yield Register(uniform_operand[0], uniform_operand[1], uniform=True)


def _fields(low: int, high: int, opcode: Opcode) -> dict[str, int]:
    """The slots that hold registers, with their numbers."""
    form, in_a, in_b = low >> 9 & 7, low >> 24 & 255, low >> 32 & 255
    match opcode.name:
        case "BRA":
            # A branch on divergence has a uniform register, in six of the eight bits.
            mask = in_a & _URZ_BEFORE_SM100
            return {"a": mask} if _on_divergence(low, high) and mask != _URZ_BEFORE_SM100 else {}
        case "WARPSYNC":
            if high >> _COLLECTIVE_BIT & 1:
                return {"a": in_a}
            return {"b": in_b} if form == Form.rr.value else {}
        case "CALL" if form != Form.rr.value:
            return {}  # relative: the target stands in the instruction
        case "ATOMS" if low & 0x1FF == 0x18D and form == Form.Ri.value:
            return {"a": in_a, **_slots_b_and_c(low, high, opcode)}  # CAST.SPIN gives a predicate
        case _:
            fields = {"d": low >> 16 & 255, "a": in_a}
            return fields | _slots_b_and_c(low, high, opcode)


def _on_divergence(low: int, high: int) -> bool:
    """BRA.DIV and BRA.CONV; BRA.U has the bit as well, and another form."""
    return low >> 9 & 7 == Form.ir.value and bool(high >> _DIVERGENCE_BIT & 1)


def _slots_b_and_c(low: int, high: int, opcode: Opcode) -> dict[str, int]:
    """The registers in slots B and C: which are there depends on the form.

    An operation of two sources has its second in the place of C where the form puts B there. Memory
    operations have their data in the place of B whatever the form says: it speaks of the address.
    """
    in_b, in_c = low >> 32 & 255, high & 255
    if opcode.access is not None:
        no_data = opcode.name == "ATOMS" and low >> 9 & 7 == Form.Ru.value  # ATOMS.POPC.INC
        return {} if no_data else {"b": in_b, "c": in_c}
    match low >> 9 & 7:
        case Form.rr.value:
            return {"b": in_b, "c": in_c}
        case Form.ur.value if opcode.pipe is Pipe.UNIFORM:
            return {"b": in_b, "c": in_c}
        case Form.Ri.value if opcode.name == "SHFL":
            return {"b": in_b}
        case Form.Rc.value if opcode.name == "SEL":  # SEL.64
            return {"b": in_b}
        case Form.Ri.value | Form.Rc.value | Form.Ru.value if "c" in opcode.operands.lower():
            return {} if opcode.name == "SHFL" else {"b": in_c}
        case Form.ir.value | Form.cr.value | Form.ur.value:
            return {"c": in_c}
        case _:
            return {}


def _uniform_operand(low: int, opcode: Opcode) -> tuple[str, int] | None:
    """A uniform register among the operands of an operation on general registers."""
    if opcode.pipe in (Pipe.UNIFORM, Pipe.LSU, Pipe.CONTROL):
        return None
    number = low >> 32 & 63
    match low >> 9 & 7:
        case Form.ur.value:
            return "b", number
        case Form.Ru.value:
            return "c", number
        case _:
            return None


def _width(low: int, high: int, opcode: Opcode | None, arch: Architecture) -> int | None:
    if opcode is None:
        return None
    if low & 0x1FF in _WIDE_ACCESS:
        return 256
    if opcode.access is Access.COPY and arch.major >= 10:
        return _COPY_BITS.get(high >> 10 & 3)
    if opcode.access in _SIZED or opcode.access is Access.COPY:
        if opcode.name == "LDSM" or opcode.space is Space.CONSTANT:
            return None
        return _WIDTH_BITS.get(high >> 9 & 7)
    return None


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
