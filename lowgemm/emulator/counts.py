"""What a run of a kernel counted, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.binary.sass import SassKernel
from lowgemm.emulator.worst import WorstAccess

__all__ = ["Counts", "ExecutedTotals"]

Counter = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExecutedTotals:
    """Sums of :class:`Counts` over a kernel, a loop or an instruction.

    ``instructions`` are those that warps executed, ``ffma_warps`` the FFMAs among them, packed ones
    (FFMA2) too. ``ffma_threads`` are the multiply-adds: two for a thread's FFMA2.
    """

    instructions: int
    threads: int
    ffma_warps: int
    ffma_threads: int
    divergent_branches: int
    shared_wavefronts: int
    ideal_shared_wavefronts: int
    global_requests: int
    global_sectors: int
    ideal_global_sectors: int
    worst_conflict_ways: int

    @property
    def shared_excess(self) -> float | None:
        """Wavefronts over the fewest possible; None without an access."""
        return _ratio(self.shared_wavefronts, self.ideal_shared_wavefronts)

    @property
    def global_excess(self) -> float | None:
        """Sectors over the fewest possible; None without an access."""
        return _ratio(self.global_sectors, self.ideal_global_sectors)

    @property
    def ffma_share(self) -> float:
        """The part of the executed instructions that are FFMAs."""
        return self.ffma_warps / self.instructions if self.instructions else 0.0


def _ratio(actual: int, ideal: int) -> float | None:
    return actual / ideal if ideal else None


@dataclass(slots=True)
class Counts:
    """Counters by instruction, in address order, summed over all launches that they are given to.

    Attributes
    ----------
    warps
        Warps that executed it, predicated off or not: ``sass__inst_executed_per_opcode``.
    threads
        Threads that executed it with a true predicate.
    divergent
        Warps of which only a part took the branch.
    shared_wavefronts, ideal_shared_wavefronts
        Passes through shared memory (``memory_l1_wavefronts_shared``), and without conflicts.
    shared_bytes, global_bytes
        Bytes asked for by executing threads.
    global_requests
        Accesses of warps to global memory.
    global_sectors, ideal_global_sectors
        32-byte pieces of these (``memory_l2_theoretical_sectors_global``), and the fewest possible.
    worst
        The worst access of each instruction that had bank conflicts, by its index; printed, it is a
        picture.
    """

    kernel: SassKernel
    warps: Counter
    threads: Counter
    divergent: Counter
    shared_wavefronts: Counter
    ideal_shared_wavefronts: Counter
    shared_bytes: Counter
    global_requests: Counter
    global_sectors: Counter
    ideal_global_sectors: Counter
    global_bytes: Counter
    worst: dict[int, WorstAccess] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: SassKernel) -> Counts:
        """All zero."""
        names = [each.name for each in fields(cls) if each.name not in ("kernel", "worst")]
        zeros: dict[str, Any] = {
            name: np.zeros(len(kernel.instructions), np.int64) for name in names
        }
        return cls(kernel, **zeros)

    def by_opcode(self) -> Mapping[str, int]:
        """Warps that executed each operation, by its name without modifiers."""
        totals: dict[str, int] = {}
        for instruction, warps in zip(self.kernel.instructions, self.warps, strict=True):
            if warps:
                totals[instruction.name] = totals.get(instruction.name, 0) + int(warps)
        return totals

    def totals(self, indices: Iterable[int] | None = None) -> ExecutedTotals:
        """Sums over instructions, by their indices in address order; over all if none are given."""
        every = range(len(self.kernel.instructions))
        chosen = np.fromiter(every if indices is None else indices, np.intp)
        names = {index: self.kernel.instructions[index].name for index in chosen}
        packed = [index for index in chosen if names[index] == "FFMA2"]
        ffma = [index for index in chosen if names[index] == "FFMA"] + packed
        ways = [self.worst[index].ways for index in chosen if index in self.worst]
        return ExecutedTotals(
            instructions=int(self.warps[chosen].sum()),
            threads=int(self.threads[chosen].sum()),
            ffma_warps=int(self.warps[ffma].sum()),
            ffma_threads=int(self.threads[ffma].sum() + self.threads[packed].sum()),
            divergent_branches=int(self.divergent[chosen].sum()),
            shared_wavefronts=int(self.shared_wavefronts[chosen].sum()),
            ideal_shared_wavefronts=int(self.ideal_shared_wavefronts[chosen].sum()),
            global_requests=int(self.global_requests[chosen].sum()),
            global_sectors=int(self.global_sectors[chosen].sum()),
            ideal_global_sectors=int(self.ideal_global_sectors[chosen].sum()),
            worst_conflict_ways=max(ways, default=1),
        )

    def worst_access(self) -> WorstAccess | None:
        """The worst access of the instruction that lost most passes to conflicts, if any did."""
        lost = self.shared_wavefronts - self.ideal_shared_wavefronts
        conflicts = [access for access in self.worst.values() if lost[access.index] > 0]
        return max(conflicts, key=lambda access: int(lost[access.index]), default=None)

    def of_opcode(self, name: str, *, threads: bool = False) -> int:
        """Warps or threads that executed an operation."""
        values = self.threads if threads else self.warps
        chosen = [each.name == name for each in self.kernel.instructions]
        return int(values[chosen].sum())
