"""The bits of one instruction, read field by field: what nobody reads, nobody knows.

Semantics take every bit that they give a meaning to. A bit that is set and was never taken is a
modifier that the emulator does not know, and the instruction is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowgemm.errors import UnknownInstructionError
from lowgemm.isa import Form

if TYPE_CHECKING:
    from lowgemm.binary.instruction import Instruction
    from lowgemm.emulator.front import Front
    from lowgemm.hardware import Architecture

__all__ = ["Bits32", "Bits64", "Predicates", "Read", "ReadPredicate", "Word"]

Bits32: TypeAlias = NDArray[np.uint32]
Bits64: TypeAlias = NDArray[np.uint64]
Predicates: TypeAlias = NDArray[np.bool_]
Read: TypeAlias = "Callable[[Front], NDArray[np.uint32]]"
Read64: TypeAlias = "Callable[[Front], NDArray[np.uint64]]"
ReadPredicate: TypeAlias = "Callable[[Front], NDArray[np.bool_]]"

RZ = 255
PT = 7
_SIGN32 = np.uint32(0x80000000)
_MAGNITUDE32 = np.uint32(0x7FFFFFFF)
_SIGN64 = np.uint64(1 << 63)
_MAGNITUDE64 = np.uint64((1 << 63) - 1)
_ONE = np.uint32(1)
#: Bits of every instruction: operation and form, guard, control word.
_FRAME = (1 << 16) - 1 | ((1 << 23) - 1) << 105
_UNIFORM_BIT = 91
#: A constant operand has bit 59 set in some forms: it says nothing more.
_WIDE = 32


class Word:
    """The bits of an instruction, and what of them has been read.

    Parameters
    ----------
    instruction
        The instruction.
    arch
        Its architecture: uniform registers have six bits before sm_100, eight from there on.
    uniform
        Whether its registers and predicates are the uniform ones.
    """

    def __init__(self, instruction: Instruction, arch: Architecture, *, uniform: bool) -> None:
        self.instruction = instruction
        self.bits = instruction.low | instruction.high << 64
        self.arch = arch
        self.uniform = uniform
        self.taken = _FRAME | 1 << _UNIFORM_BIT
        self.reads: list[tuple[int, int, bool]] = []
        self.writes: list[tuple[int, int, bool]] = []
        self.reads_predicates: list[tuple[int, bool]] = []
        self.writes_predicates: list[tuple[int, bool]] = []

    # ---- bits

    def take(self, at: int, width: int = 1) -> int:
        """The value of a field, which is known from now on."""
        self.taken |= ((1 << width) - 1) << at
        return self.bits >> at & (1 << width) - 1

    def flag(self, at: int) -> bool:
        """A field of one bit."""
        return bool(self.take(at))

    def signed(self, at: int, width: int) -> int:
        """The value of a field in two's complement."""
        value = self.take(at, width)
        return value - (1 << width) if value >> (width - 1) else value

    def ignore(self, at: int, width: int = 1) -> None:
        """A field that changes nothing of what the instruction computes."""
        self.taken |= ((1 << width) - 1) << at

    def finish(self) -> None:
        """Refuse an instruction with bits that nothing has read.

        Raises
        ------
        UnknownInstructionError
            There are such bits.
        """
        rest = self.bits & ~self.taken
        if rest:
            places = [str(bit) for bit in range(128) if rest >> bit & 1]
            raise self.unknown(f"{self._modifiers()} (bits {', '.join(places)})")

    def _modifiers(self) -> str:
        """What may not be known of an instruction whose operation is."""
        item = self.instruction
        mnemonic = next((part for part in item.text.split() if part[0] != "@"), "")
        modifiers = mnemonic.split(".")[1:]
        shown = f" .{', .'.join(modifiers)}" if modifiers else ""
        return f"the emulator knows {item.name}, but not one of its modifiers{shown} or operands"

    def unknown(self, why: str) -> UnknownInstructionError:
        """The error for this instruction."""
        item = self.instruction
        return UnknownInstructionError(
            f"at {item.address:#06x}: {item.text or item.name}: {why}",
            "take this part out of the kernel, or run it on a GPU",
            address=item.address,
        )

    @property
    def form(self) -> Form:
        """What the operand slots hold."""
        value = self.take(9, 3)
        if not value:
            raise self.unknown("an operation without a form")
        return Form(value)

    @property
    def has_uniform(self) -> bool:
        """Whether one of its operands is a uniform register."""
        return self.flag(_UNIFORM_BIT)

    # ---- registers

    def _number(self, at: int, uniform: bool) -> int:
        number = self.take(at, 8)
        if uniform and self.arch.major < 10:
            number &= 63
            return RZ if number == 63 else number
        return number

    def register(
        self, at: int, *, uniform: bool | None = None, count: int = 1, note: bool = True
    ) -> int:
        """The number of a register that is read; 255 is the zero register."""
        uniform = self.uniform if uniform is None else uniform
        number = self._number(at, uniform)
        if note and number != RZ:
            self.reads.append((number, count, uniform))
        return number

    def destination(self, at: int = 16, *, uniform: bool | None = None, count: int = 1) -> int:
        """The number of a register that is written; 255 takes nothing."""
        uniform = self.uniform if uniform is None else uniform
        number = self._number(at, uniform)
        if number != RZ:
            self.writes.append((number, count, uniform))
        return number

    def reader(self, at: int, *, uniform: bool | None = None) -> Read:
        """A function that reads the 32-bit register in a field."""
        uniform = self.uniform if uniform is None else uniform
        return read32(self.register(at, uniform=uniform), uniform)

    def reader64(self, at: int, *, uniform: bool | None = None) -> Read64:
        """A function that reads the pair of registers in a field."""
        uniform = self.uniform if uniform is None else uniform
        return read64(self.register(at, uniform=uniform, count=2), uniform)

    # ---- operands by form

    def a(self) -> Read:
        """Operand A: always a register."""
        return self.reader(24)

    def place_of(self, slot: str, *, sources: int) -> int:
        """The bit where operand B or C begins: 32 or 64."""
        in_wide = "c" if sources == 3 and self.form in (Form.Ri, Form.Rc, Form.Ru) else "b"
        if self.form is Form.rr:
            return _WIDE if slot == "b" else 64
        return _WIDE if slot == in_wide else 64

    def operand(self, slot: str, *, sources: int) -> Read:
        """Operand B or C of 32 bits, wherever the form has it, without signs."""
        at = self.place_of(slot, sources=sources)
        if at == 64:
            return self.reader(64)
        form = self.form
        if form is Form.rr:
            return self.reader(32, uniform=self.uniform or self.has_uniform)
        if form in (Form.Ri, Form.ir):
            return constant32(self.take(32, 32))
        if form in (Form.Rc, Form.cr):
            bank, offset = self._constant()
            return lambda f: f.constant32(bank, offset)
        return self.reader(32, uniform=True)

    def operand64(self, slot: str, *, sources: int, extend: str = "zero") -> Read64:
        """The same of 64 bits; an immediate has 32 and is extended (``zero``, ``sign``, ``high``).

        ``high``: the immediate is the upper word, as that of a double is.
        """
        at = self.place_of(slot, sources=sources)
        if at == 64:
            return self.reader64(64)
        form = self.form
        if form is Form.rr:
            return self.reader64(32, uniform=self.uniform or self.has_uniform)
        if form in (Form.Ri, Form.ir):
            value = self.take(32, 32)
            if extend == "high":
                value <<= 32
            elif extend == "sign" and value >> 31:
                value |= 0xFFFFFFFF << 32
            return constant64(value)
        if form in (Form.Rc, Form.cr):
            bank, offset = self._constant()
            return lambda f: f.constant64(bank, offset)
        return self.reader64(32, uniform=True)

    def _constant(self) -> tuple[int, int]:
        """The bank and the byte offset of a constant operand."""
        if self.has_uniform:
            raise self.unknown("a constant bank through a descriptor")
        self.ignore(59)
        return self.take(54, 5), self.signed(38, 16)

    def is_immediate(self, slot: str, *, sources: int) -> bool:
        """Whether an operand is an immediate: its sign is its own."""
        wide = self.place_of(slot, sources=sources) == _WIDE
        return wide and self.form in (Form.Ri, Form.ir)

    def sign_bits(self, slot: str, *, sources: int) -> tuple[int, int] | None:
        """Where negation and absolute value of an operand stand; None for an immediate."""
        if slot == "a":
            return 72, 73
        if self.place_of(slot, sources=sources) == 64:
            return 75, 74
        return None if self.is_immediate(slot, sources=sources) else (63, 62)

    def float_operand(self, slot: str, *, sources: int, wide: bool = False) -> Read | Read64:
        """An operand of a floating-point operation, with its signs applied."""
        read: Read | Read64
        if slot == "a":
            read = self.reader64(24) if wide else self.a()
        elif wide:
            read = self.operand64(slot, sources=sources, extend="high")
        else:
            read = self.operand(slot, sources=sources)
        signs = self.sign_bits(slot, sources=sources)
        if signs is None:
            return read
        signed: Read | Read64 = with_signs(
            read, self.flag(signs[0]), self.flag(signs[1]), wide=wide
        )
        return signed

    def negation(self, slot: str, *, sources: int) -> bool:
        """Whether an integer operand is negated."""
        signs = self.sign_bits(slot, sources=sources)
        return signs is not None and self.flag(signs[0])

    # ---- predicates

    def predicate(self, at: int, *, uniform: bool | None = None) -> ReadPredicate:
        """A function that reads a predicate, with its negation in the fourth bit."""
        uniform = self.uniform if uniform is None else uniform
        number, negated = self.take(at, 3), self.flag(at + 3)
        if number != PT:
            self.reads_predicates.append((number, uniform))
        return read_predicate(number, negated, uniform)

    def predicate_is_true(self, at: int) -> bool:
        """Whether a predicate field says PT."""
        return self.take(at, 4) == PT

    def destination_predicate(self, at: int, *, uniform: bool | None = None) -> int:
        """The number of a predicate that is written; 7 takes nothing."""
        number = self.take(at, 3)
        if number != PT:
            self.writes_predicates.append((number, self.uniform if uniform is None else uniform))
        return number


def read32(number: int, uniform: bool) -> Read:
    """A function that reads a register."""
    if number == RZ:
        return constant32(0)
    if uniform:
        return lambda f: f.uniform_register(number)
    return lambda f: f.register(number)


def read64(number: int, uniform: bool) -> Read64:
    """A function that reads a pair of registers; the zero register is a pair of zeros."""
    if number == RZ:
        return constant64(0)
    if uniform:
        return lambda f: f.uniform_register64(number)
    return lambda f: f.register64(number)


def constant32(value: int) -> Read:
    """A function that gives an immediate."""
    array = np.full((1, 1), value & 0xFFFFFFFF, np.uint32)
    array.flags.writeable = False
    return lambda f: array


def constant64(value: int) -> Read64:
    """A function that gives an immediate of 64 bits."""
    array = np.full((1, 1), value & (1 << 64) - 1, np.uint64)
    array.flags.writeable = False
    return lambda f: array


def with_signs(read: Any, negate: bool, absolute: bool, *, wide: bool) -> Any:
    """The operand with its absolute value taken first, then negated."""
    if not negate and not absolute:
        return read
    sign, magnitude = (_SIGN64, _MAGNITUDE64) if wide else (_SIGN32, _MAGNITUDE32)
    if negate and absolute:
        return lambda f: read(f) | sign
    if absolute:
        return lambda f: read(f) & magnitude
    return lambda f: read(f) ^ sign


def read_predicate(number: int, negated: bool, uniform: bool) -> ReadPredicate:
    """A function that reads a predicate; PT is a constant."""
    if number == PT:
        always = np.full((1, 1), not negated)
        return lambda f: always
    if uniform:
        if negated:
            return lambda f: ~f.uniform_predicate(number)
        return lambda f: f.uniform_predicate(number)
    if negated:
        return lambda f: ~f.predicate(number)
    return lambda f: f.predicate(number)
