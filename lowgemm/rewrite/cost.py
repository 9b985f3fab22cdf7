"""What an iteration of a loop costs: issue slots, register banks, wavefronts.

A warp scheduler issues one instruction a cycle. An instruction whose operands lie in one bank waits
for the second (:func:`lowgemm.hardware.register_banks.read_cycles`). A load from shared memory
writes its registers through the same banks: on an H200 an LDS.128 takes a cycle beyond its issue
slot, measured as the time of a loop with its loads against the same loop with NOPs for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowgemm.binary.instruction import Instruction
from lowgemm.hardware.register_banks import read_cycles

__all__ = ["LoopCost", "loop_cost"]

#: Warp schedulers of an SM.
_SCHEDULERS = 4
#: Cycles beyond the issue slot for each 32-bit register that a load from shared memory writes.
_WRITE_CYCLES = 0.25


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Modelled cycles of one iteration on one warp scheduler, for one warp.

    ``issue_slots`` are the instructions, ``bank_cycles`` what register banks add, ``load_cycles``
    what loads from shared memory add beyond their slots. ``wavefronts`` are those of shared memory,
    one a cycle for all four schedulers of an SM, if none conflicts and none merges. ``ffmas`` is
    how many instructions are FFMAs: the fewest cycles that the loop could take.
    """

    ffmas: int
    issue_slots: int
    bank_cycles: int
    load_cycles: float
    wavefronts: int

    @property
    def cycles(self) -> float:
        """The schedulers' or those of shared memory, whichever are more."""
        own = self.issue_slots + self.bank_cycles + self.load_cycles
        return max(own, _SCHEDULERS * self.wavefronts)

    @property
    def ffma_share(self) -> float:
        """The part of the FFMA pipe's peak that the loop can reach."""
        return self.ffmas / self.cycles


def loop_cost(instructions: Sequence[Instruction]) -> LoopCost:
    """Model a loop body.

    Parameters
    ----------
    instructions
        The body in its order, the branch back included.
    """
    reads = []
    before: Instruction | None = None
    loads = 0.0
    wavefronts = 0
    for each in instructions:
        reads.append(_fresh(each, before))
        if each.name == "LDS" and not each.is_filler:
            loads += _WRITE_CYCLES * (each.width_bits or 32) / 32
        if each.name in ("LDS", "STS") and not each.is_filler:
            wavefronts += max(1, (each.width_bits or 32) // 32)
        before = each
    cycles = read_cycles(reads)
    return LoopCost(
        ffmas=sum(each.name == "FFMA" for each in instructions),
        issue_slots=len(instructions),
        bank_cycles=cycles - len(instructions),
        load_cycles=loads,
        wavefronts=wavefronts,
    )


def _fresh(instruction: Instruction, before: Instruction | None) -> list[int]:
    """The general registers that must be read: not those which the operand collector has."""
    kept = (
        {(r.slot, r.number) for r in before.registers if r.reuse}
        if before is not None and before.control.stay
        else set()
    )
    return [
        r.number
        for r in instruction.registers
        if not r.written and not r.uniform and (r.slot, r.number) not in kept
    ]
