"""Register-bank conflicts of FFMAs, as modelled cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowgemm.binary.instruction import Instruction
from lowgemm.hardware.register_banks import read_cycles

__all__ = ["conflict_cycles"]

_SOURCES = "abc"


def conflict_cycles(block: Sequence[Instruction]) -> int:
    """Cycles beyond one per instruction that a straight run loses to bank conflicts of its FFMAs.

    A ``.reuse`` helps only the next instruction, in the same slot: an instruction of another kind
    in between ends it, and so does the beginning of the run. What other instructions read is left
    out; they give the banks a cycle.
    """
    return read_cycles(_fresh_reads(block)) - len(block)


def _fresh_reads(block: Sequence[Instruction]) -> Iterator[list[int]]:
    """The registers that each instruction reads anew; none for what is no FFMA."""
    kept: dict[str, int] = {}
    for instruction in block:
        if instruction.name != "FFMA":
            kept = {}
            yield []
            continue
        sources = [r for r in instruction.registers if r.slot in _SOURCES and not r.uniform]
        yield [r.number for r in sources if kept.get(r.slot) != r.number]
        kept = {r.slot: r.number for r in sources if r.reuse} if instruction.control.stay else {}
