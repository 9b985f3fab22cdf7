"""Write machine code: other registers and control words, other code in a cubin."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from lowgemm.binary.cubin import code_span, names_of_symbols, read_elf
from lowgemm.binary.instruction import Instruction, decode
from lowgemm.errors import CubinError, EncodingError
from lowgemm.hardware import Architecture
from lowgemm.isa import ControlWord, Form

__all__ = ["with_code", "with_grown_code", "with_registers"]

# Operand slot: half of the instruction, first bit in it.
_PLACES = {"d": ("low", 16), "a": ("low", 24), "b": ("low", 32), "c": ("high", 0)}


def with_code(cubin: bytes, kernel: str, code: bytes) -> bytes:
    """A copy of a cubin in which a kernel has other machine code of the same length.

    Registers, shared memory and parameters stay what the cubin says: the new code must keep to
    them.

    Parameters
    ----------
    cubin
        The whole file.
    kernel
        The kernel's (mangled) name.
    code
        The new contents of its ``.text`` section.

    Raises
    ------
    CubinError
        The bytes are no cubin, the code has another length than the kernel's, or it is no machine
        code.
    KernelNotFoundError
        The cubin has no kernel of that name.
    """
    start, end, arch = code_span(cubin, kernel)
    if len(code) != end - start:
        raise CubinError(
            f"{len(code)} bytes of code for kernel {kernel!r}, which has {end - start}",
            "give code of the same length, filled up with NOPs",
        )
    decode(code, arch)  # refuses what no GPU may be given
    return cubin[:start] + code + cubin[end:]


def with_registers(
    instruction: Instruction,
    registers: Mapping[str, int],
    control: ControlWord,
    arch: Architecture,
) -> Instruction:
    """An instruction with other general registers and another control word.

    Parameters
    ----------
    instruction
        One whose operands all are registers, such as ``FFMA R0, R1, R2, R3``.
    registers
        The new numbers by slot (``d``, ``a``, ``b``, ``c``); slots that are not named stay.
    control
        The control word.
    arch
        The architecture it is for.

    Raises
    ------
    EncodingError
        The instruction has another form, a slot or number does not exist, or the control word is
        not legal.
    """
    if instruction.form is not Form.rr:
        raise EncodingError(
            f"{instruction.text or instruction.name} at {instruction.address:#06x} does not have "
            "registers alone",
            "change instructions whose operands all are registers",
        )
    halves = {"low": instruction.low, "high": control.encode(instruction.high)}
    for slot, number in registers.items():
        if slot not in _PLACES or not 0 <= number < 256:
            raise EncodingError(
                f"register {number} in slot {slot!r}", "slots are d, a, b, c; numbers 0 to 255"
            )
        half, bit = _PLACES[slot]
        halves[half] = halves[half] & ~(255 << bit) | number << bit
    (changed,) = decode(struct.pack("<QQ", halves["low"], halves["high"]), arch)
    return replace(changed, address=instruction.address, line=instruction.line)


def with_grown_code(cubin: bytes, kernel: str, code: bytes, registers: int | None = None) -> bytes:
    """A copy of a cubin in which a kernel's machine code is longer than before.

    What the longer code begins with must keep its addresses: what else in the cubin names places
    in it is not changed.

    Parameters
    ----------
    cubin
        The whole file.
    kernel
        The kernel's (mangled) name.
    code
        The new contents of its ``.text`` section; filled up with NOPs to a whole number of
        the file's alignments.
    registers
        How many registers per thread the driver shall give; None leaves the number.

    Raises
    ------
    CubinError
        The bytes are no cubin, the code is shorter than the kernel's, or it is no machine code.
    KernelNotFoundError
        The cubin has no kernel of that name.
    """
    start, end, arch = code_span(cubin, kernel)
    if len(code) < end - start:
        raise CubinError(
            f"{len(code)} bytes of code for kernel {kernel!r}, which has {end - start}",
            "give code that is longer",
        )
    decode(code, arch)
    grown = bytearray(cubin)
    if registers is not None:
        _set_registers(grown, kernel, registers)
    room = -(-(len(code) - (end - start)) // _GROWTH) * _GROWTH
    _move_headers(grown, start, end, room)
    padded = code + _PADDING * ((end - start + room - len(code)) // len(_PADDING))
    return bytes(grown[:start]) + padded + bytes(grown[end:])


#: Sections of a cubin are aligned to at most as much.
_GROWTH = 1024
# NOP with a stall count of 0.
_PADDING = struct.pack("<QQ", 0x7918, 0x000FC00000000000)
_EHDR, _SHDR, _PHDR, _SYM = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IIQQQQQQ", "<IBBHQQ"


def _move_headers(data: bytearray, start: int, end: int, room: int) -> None:
    """Add room behind a section: in its header and symbol, and in what lies behind it."""
    header = list(struct.unpack_from(_EHDR, data, 0))
    programs, sections = header[5], header[6]
    for number in range(header[10]):
        at = programs + number * header[9]
        fields = list(struct.unpack_from(_PHDR, data, at))
        if fields[2] <= start and end <= fields[2] + fields[5]:
            fields[5] += room
            fields[6] += room
        elif fields[2] >= end:
            fields[2] += room
        struct.pack_into(_PHDR, data, at, *fields)
    own = None
    tables = []
    for number in range(header[12]):
        at = sections + number * header[11]
        fields = list(struct.unpack_from(_SHDR, data, at))
        if fields[1] == _SHT_SYMTAB:
            tables.append((fields[4], fields[5]))
        if fields[4] == start and fields[1] == _SHT_PROGBITS and fields[5] == end - start:
            own = number
            fields[5] += room
        elif fields[4] >= end:
            fields[4] += room
        struct.pack_into(_SHDR, data, at, *fields)
    for offset, size in tables:
        for at in range(offset, offset + size, struct.calcsize(_SYM)):
            symbol = list(struct.unpack_from(_SYM, data, at))
            if symbol[3] == own and symbol[4] + symbol[5] == end - start:
                symbol[5] += room
                struct.pack_into(_SYM, data, at, *symbol)
    header[5] += room if programs >= end else 0
    header[6] += room if sections >= end else 0
    struct.pack_into(_EHDR, data, 0, *header)


_SHT_PROGBITS, _SHT_SYMTAB = 1, 2
_EIATTR_REGCOUNT = 0x2F


def _set_registers(data: bytearray, kernel: str, registers: int) -> None:
    """Change EIATTR_REGCOUNT of a kernel in ``.nv.info``: the symbol's number, then the count."""
    elf = read_elf(bytes(data))
    section = elf.named[".nv.info"]
    symbols = {each.name: each.index for each in names_of_symbols(elf)}
    at = section.start
    while at < section.end:
        form, attribute = data[at], data[at + 1]
        (size,) = struct.unpack_from("<H", data, at + 2)
        if form == _WITH_CONTENT and attribute == _EIATTR_REGCOUNT:
            (symbol,) = struct.unpack_from("<I", data, at + 4)
            if symbol == symbols[kernel]:
                struct.pack_into("<I", data, at + 8, registers)
        at += 4 + (size if form == _WITH_CONTENT else 0)


_WITH_CONTENT = 4
