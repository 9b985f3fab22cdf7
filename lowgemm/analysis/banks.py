"""Register-bank conflicts of FFMAs, as modelled cycles."""

from __future__ import annotations

from collections.abc import Sequence

from lowgemm.binary.instruction import Instruction
from lowgemm.hardware.register_banks import operand_cycles

__all__ = ["conflict_cycles"]

_SOURCES = "abc"


def conflict_cycles(block: Sequence[Instruction]) -> int:
    """Cycles beyond one per FFMA that a straight run of instructions loses to bank conflicts.

    A ``.reuse`` helps only the next instruction, in the same slot: an instruction of another kind
    in between ends it, and so does the beginning of the run.
    """
    lost = 0
    kept: dict[str, int] = {}
    for instruction in block:
        if instruction.name != "FFMA":
            kept = {}
            continue
        sources = [r for r in instruction.registers if r.slot in _SOURCES and not r.uniform]
        fresh = [r.number for r in sources if kept.get(r.slot) != r.number]
        lost += operand_cycles(fresh) - 1
        kept = {r.slot: r.number for r in sources if r.reuse} if instruction.control.stay else {}
    return lost
