"""What an iteration of a loop costs: issue slots, register banks, wavefronts.

A warp scheduler issues one instruction a cycle. An instruction whose operands lie in one bank waits
for the second (:func:`lowgemm.hardware.register_banks.read_cycles`). A load from shared memory
writes its registers through the same banks: on an H200 an LDS.128 takes a cycle beyond its issue
slot, measured as the time of a loop with its loads against the same loop with NOPs for them.

Other warps fill the time in which one waits, as far as there are others that do not wait as well:
those of a block meet at its barriers and wait for memory together. On an H200 a loop that waited
for a load it had just issued ran 8 % slower although it took 9 % fewer cycles of a scheduler, with
two blocks an SM. So a loop has a second cost: the time that a warp takes for an iteration alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowgemm.binary.instruction import Instruction
from lowgemm.emulator.rules import SCOREBOARDS
from lowgemm.hardware.register_banks import read_cycles
from lowgemm.isa import Space
from lowgemm.isa.latency import DRAIN_CYCLES

__all__ = ["LoopCost", "latency_of", "loop_cost"]

#: Warp schedulers of an SM.
_SCHEDULERS = 4
#: Cycles beyond the issue slot for each 32-bit register that a load from shared memory writes.
_WRITE_CYCLES = 0.25
#: Cycles from a load to its data, from global and from other memory, and from any access to when
#: its sources have been read. That of global memory is about what L2 takes under load.
_GLOBAL_LATENCY, _LATENCY, _READ_LATENCY = 600, 30, 12
#: Iterations after which a warp alone takes the same time for each.
_WARM = 3


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Modelled cycles of one iteration on one warp scheduler, for one warp.

    ``issue_slots`` are the instructions, ``bank_cycles`` what register banks add, ``load_cycles``
    what loads from shared memory add beyond their slots. ``wavefronts`` are those of shared memory,
    one a cycle for all four schedulers of an SM, if none conflicts and none merges. ``ffmas`` is
    how many instructions are FFMAs: the fewest cycles that the loop could take. ``latency`` is how
    long a warp takes alone: its stall counts, its register banks, and what it waits for.
    """

    ffmas: int
    issue_slots: int
    bank_cycles: int
    load_cycles: float
    wavefronts: int
    latency: float

    @property
    def cycles(self) -> float:
        """The schedulers' or those of shared memory, whichever are more."""
        own = self.issue_slots + self.bank_cycles + self.load_cycles
        return max(own, self.shared_cycles)

    @property
    def shared_cycles(self) -> int:
        """Those of shared memory alone: each of the four schedulers has its turn."""
        return _SCHEDULERS * self.wavefronts

    def together(self, warps: int) -> float:
        """What so many warps of a scheduler take: one with its waits, the others' cycles beside."""
        return self.latency + (warps - 1) * self.cycles

    def without_conflicts(self, needless: int) -> float:
        """The cycles that are left without bank conflicts and so many of the instructions."""
        return max(self.issue_slots - needless + self.load_cycles, self.shared_cycles)

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
        latency=_latency(instructions) + cycles - len(instructions) + loads,
    )


def latency_of(instruction: Instruction) -> int:
    """Cycles until the result of an instruction with a scoreboard is there, about."""
    opcode = instruction.opcode
    far = opcode is not None and opcode.space is Space.GLOBAL
    return _GLOBAL_LATENCY if far or instruction.name == "LDGDEPBAR" else _LATENCY


def _latency(instructions: Sequence[Instruction]) -> float:
    """How long a warp takes for an iteration by its stall counts and scoreboards."""
    ready: list[list[int]] = [[] for _ in range(SCOREBOARDS)]
    now = started = 0
    for _ in range(_WARM):
        started = now
        for each in instructions:
            now = max(now, _waited(each, ready))
            _ask(each, ready, now)
            now += each.control.stall or DRAIN_CYCLES
    return now - started


def _waited(instruction: Instruction, ready: list[list[int]]) -> int:
    """When what an instruction waits for is there; DEPBAR leaves the last under way."""
    until = 0
    for board in instruction.control.waits_for:
        until = max(until, *ready[board], 0)
        ready[board] = []
    if instruction.name == "DEPBAR":
        low = instruction.low
        board, leaving = low >> 44 & 7, low >> 38 & 63
        if low >> 47 & 1 and board < SCOREBOARDS and len(ready[board]) > leaving:
            pending = sorted(ready[board])
            until = max(until, pending[-leaving - 1])
            ready[board] = pending[len(pending) - leaving :]
    return until


def _ask(instruction: Instruction, ready: list[list[int]], now: int) -> None:
    control, opcode = instruction.control, instruction.opcode
    if instruction.is_filler or opcode is None:
        return
    boards = (
        (control.write_scoreboard, latency_of(instruction)),
        (control.read_scoreboard, _READ_LATENCY),
    )
    for board, cycles in boards:
        if board is not None and board < SCOREBOARDS:
            ready[board].append(now + cycles)


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
