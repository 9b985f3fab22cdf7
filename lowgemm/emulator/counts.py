"""What a run of a kernel counted, instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.binary.sass import SassKernel

__all__ = ["Counts", "WorstAccess"]

Counter = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WorstAccess:
    """The access to shared memory of one warp with the most conflicts of an instruction.

    ``offsets`` are the byte offsets of the 32 lanes, -1 for one that took no part; ``ways`` is how
    many words one bank had to serve.
    """

    index: int
    width_bytes: int
    ways: int
    wavefronts: int
    offsets: tuple[int, ...]


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
        The worst access of each instruction that had bank conflicts.
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

    def of_opcode(self, name: str, *, threads: bool = False) -> int:
        """Warps or threads that executed an operation."""
        values = self.threads if threads else self.warps
        chosen = [each.name == name for each in self.kernel.instructions]
        return int(values[chosen].sum())
