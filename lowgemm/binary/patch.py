"""Write machine code: other registers and control words, other code in a cubin."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from lowgemm.binary.cubin import code_span
from lowgemm.binary.instruction import Instruction, decode
from lowgemm.errors import CubinError, EncodingError
from lowgemm.hardware import Architecture
from lowgemm.isa import ControlWord, Form

__all__ = ["with_code", "with_registers"]

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
