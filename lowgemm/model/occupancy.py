"""Occupancy with what limits it, and how far it is to one block more.

The rules are :func:`lowgemm.hardware.occupancy`'s; the hand formula is the first seed's ninth
question.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import ComputeCapability, occupancy
from lowgemm.model.values import count

__all__ = [
    "HandOccupancy",
    "OccupancyReport",
    "OccupancyStep",
    "estimate_registers",
    "hand_occupancy",
    "occupancy_report",
]


@dataclass(frozen=True, slots=True)
class HandOccupancy:
    """The seed's formula, without the hardware's rounding."""

    by_registers: int
    by_shared: int | None
    by_threads: int
    blocks_per_sm: int
    occupancy: float


@dataclass(frozen=True, slots=True)
class OccupancyStep:
    """One resource of a block: its use, and what another use of it alone would give.

    ``free_more`` is how much more costs no block; ``less_for_next`` how much less gives one block
    more, None where no use of this resource does.
    """

    resource: str
    used: int
    free_more: int
    less_for_next: int | None


@dataclass(frozen=True, slots=True)
class OccupancyReport:
    """Resident blocks and warps, the limiter, the steps around, and the hand formula's answer."""

    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float
    limiter: str
    steps: tuple[OccupancyStep, ...]
    hand: HandOccupancy


def estimate_registers(tm: int, tn: int) -> int:
    """The seed's estimate (first seed, question 9): fragments of A and B, and the accumulators.

    Raises
    ------
    ArgumentValueError
        A side below 1.

    Examples
    --------
    >>> estimate_registers(8, 8)
    80
    """
    tm, tn = count("tm", tm), count("tn", tn)
    return tm + tn + tm * tn


def hand_occupancy(
    cc: ComputeCapability, *, threads: int, registers: int, shared_bytes: int = 0
) -> HandOccupancy:
    """Blocks by the seed's formula: the least of three quotients.

    The formula divides by 2048 threads; here it is what the chip has.

    Raises
    ------
    ArgumentValueError
        A value that no kernel has.
    """
    threads, registers = count("threads", threads), count("registers", registers)
    shared_bytes = count("shared_bytes", shared_bytes, least=0)
    by_registers = cc.registers_per_sm // (registers * threads)
    by_shared = cc.shared_bytes_per_sm // shared_bytes if shared_bytes else None
    by_threads = cc.threads_per_sm // threads
    limits = [by_registers, by_threads, *([] if by_shared is None else [by_shared])]
    blocks = min(limits)
    return HandOccupancy(
        by_registers, by_shared, by_threads, blocks, blocks * threads / cc.threads_per_sm
    )


def _at_least(blocks: Callable[[str, int], int], resource: str, wanted: int, value: int) -> bool:
    return blocks(resource, value) >= wanted


def _last(values: range, holds: Callable[[int], bool]) -> int | None:
    """The last of the values for which a condition holds that, once false, stays false."""
    found = bisect_left(values, True, key=lambda value: not holds(value))
    return values[found - 1] if found else None


def occupancy_report(
    cc: ComputeCapability,
    *,
    threads: int,
    registers: int,
    shared_bytes: int = 0,
    barriers: int = 1,
) -> OccupancyReport:
    """Occupancy by the driver's rules, and for each resource the way to the next step.

    Parameters
    ----------
    cc
        The SM's limits.
    threads, registers, shared_bytes, barriers
        Threads of a block, registers of a thread, shared memory of a block without the system's
        reserve, named barriers of the kernel.

    Raises
    ------
    ArgumentValueError
        A value that no kernel has.
    """
    threads, registers = count("threads", threads), count("registers", registers)
    shared_bytes = count("shared_bytes", shared_bytes, least=0)
    barriers = count("barriers", barriers, least=0)
    kernel = {"threads": threads, "registers": registers, "shared_bytes": shared_bytes}

    def blocks(resource: str, value: int) -> int:
        changed = {**kernel, resource: value}
        try:
            return occupancy(cc, **changed, barriers=barriers).blocks_per_sm
        except ArgumentValueError:
            return -1  # more than a kernel can have

    now = occupancy(cc, **kernel, barriers=barriers)
    unit = cc.threads_per_warp
    granule = cc.shared_bytes_granularity
    ranges = {
        "registers": range(1, cc.registers_per_thread + 1),
        "threads": range(unit, cc.threads_per_block + 1, unit),
        # The reserve and the granularity make whole granules the only steps.
        "shared_bytes": range(0, cc.shared_bytes_per_block_optin + 1, granule),
    }
    steps = []
    for resource, values in ranges.items():
        here = kernel[resource]
        same = _last(values, partial(_at_least, blocks, resource, now.blocks_per_sm))
        more = _last(values, partial(_at_least, blocks, resource, now.blocks_per_sm + 1))
        steps.append(
            OccupancyStep(
                resource,
                here,
                free_more=max(0, same - here) if same is not None else 0,
                less_for_next=here - more if more is not None else None,
            )
        )
    return OccupancyReport(
        blocks_per_sm=now.blocks_per_sm,
        warps_per_sm=now.warps_per_sm,
        occupancy=now.fraction,
        limiter=now.limiter,
        steps=tuple(steps),
        hand=hand_occupancy(cc, threads=threads, registers=registers, shared_bytes=shared_bytes),
    )
