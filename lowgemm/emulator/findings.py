"""What an emulated access can get wrong: the kinds, and the lanes that did it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from lowgemm.binary.instruction import SourceLine

__all__ = ["Finding", "FindingKind", "Problem"]


class FindingKind(StrEnum):
    """One kind of wrong; its value is what a reader sees."""

    GLOBAL_OUT_OF_BOUNDS = "global out of bounds"
    SHARED_OUT_OF_BOUNDS = "shared out of bounds"
    LOCAL_OUT_OF_BOUNDS = "local out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED_GLOBAL = "uninitialised global memory"
    UNINITIALISED_SHARED = "uninitialised shared memory"
    RACE = "race between warps"
    ASYNC_NOT_WAITED = "asynchronous copy not waited for"
    DIVERGENT_BARRIER = "divergent barrier"
    BARRIER_NOT_REACHED = "barrier not reached"
    DEADLOCK = "deadlock"
    USE_AFTER_FREE = "use after free"
    READ_ONLY = "store to read-only memory"
    TRAP = "trap"
    HAZARD = "control words allow no such use"

    @property
    def is_fault(self) -> bool:
        """Whether a GPU would stop, rather than go on with wrong data."""
        return self in _FAULTS


_FAULTS = frozenset(
    {
        FindingKind.GLOBAL_OUT_OF_BOUNDS,
        FindingKind.SHARED_OUT_OF_BOUNDS,
        FindingKind.LOCAL_OUT_OF_BOUNDS,
        FindingKind.MISALIGNED,
        FindingKind.USE_AFTER_FREE,
        FindingKind.READ_ONLY,
        FindingKind.DEADLOCK,
        FindingKind.TRAP,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What one memory access found wrong, by lane.

    Attributes
    ----------
    kind
        What is wrong.
    lanes
        Which lanes: indices into the arrays that the access was given.
    addresses
        Where each of them accessed: a global address, or a byte offset in its CTA's shared memory
        (a negative offset in two's complement).
    detail
        More, in words, on the first of the lanes.
    other
        For a race, the other warp of each lane.
    """

    kind: FindingKind
    lanes: NDArray[np.intp]
    addresses: NDArray[np.uint64]
    detail: str = ""
    other: NDArray[np.intp] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a kernel did wrong: what, where, and the first thread that did it.

    Attributes
    ----------
    kind
        What is wrong.
    kernel
        The kernel's name in the cubin.
    address, text, line
        The instruction: its address in the code, its text, its source line where it is known.
    cta, thread
        The block and the thread as (x, y, z).
    memory_address
        Where it accessed: a global address, or a byte of the block's shared memory.
    count
        How many threads' accesses were so in the launch.
    detail
        More, in words.
    """

    kind: FindingKind
    kernel: str
    address: int
    text: str
    line: SourceLine | None
    cta: tuple[int, ...]
    thread: tuple[int, ...]
    memory_address: int | None
    count: int
    detail: str = ""

    def seen_again(self, times: int) -> Finding:
        """The same finding, of more threads."""
        return replace(self, count=self.count + times)

    def __str__(self) -> str:
        where = f" ({self.line.short})" if self.line else ""
        at = "" if self.memory_address is None else f" at {self.memory_address:#x}"
        more = f": {self.detail}" if self.detail else ""
        return (
            f"{self.kind}{at}{more}\n    {self.kernel} {self.address:#06x} {self.text}{where}\n"
            f"    block {self.cta}, thread {self.thread}; {self.count} times in all"
        )
