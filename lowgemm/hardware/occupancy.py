"""How many blocks an SM holds at once: the driver's rules, with their rounding."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware.capability import ComputeCapability

__all__ = ["Occupancy", "occupancy"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks and warps of one SM, and what keeps them from being more.

    ``limiter`` is ``"registers"``, ``"shared memory"``, ``"threads"``, ``"blocks"`` or
    ``"barriers"``; where several bind, the first of that list.
    """

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limiter: str


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(
    cc: ComputeCapability,
    *,
    threads: int,
    registers: int,
    shared_bytes: int = 0,
    barriers: int = 1,
) -> Occupancy:
    """Compute the occupancy of a kernel.

    Parameters
    ----------
    cc
        The SM's limits.
    threads
        Threads per block.
    registers
        Registers per thread.
    shared_bytes
        Static and dynamic shared memory of a block, without the system's reserve.
    barriers
        Named barriers that the kernel uses (``ptxas -v`` prints it).

    Raises
    ------
    ArgumentValueError
        A value that no kernel can have.

    Notes
    -----
    The rules are those of ``cuda_occupancy.h`` (CUDA 13.x): registers are handed out per warp in
    units of 256 from the quarter of the register file that the warp's sub-partition owns; shared
    memory in units of 128 bytes, 1024 of them the system's.
    """
    if not 1 <= threads <= cc.threads_per_block:
        raise ArgumentValueError(
            f"a block of {threads} threads", f"use 1 to {cc.threads_per_block} threads"
        )
    if not 0 <= registers <= cc.registers_per_thread:
        raise ArgumentValueError(
            f"{registers} registers per thread", f"use 0 to {cc.registers_per_thread}"
        )
    if shared_bytes < 0 or barriers < 0:
        raise ArgumentValueError(
            f"shared_bytes={shared_bytes}, barriers={barriers}", "use values of zero or more"
        )
    warps = -(-threads // cc.threads_per_warp)
    limits = {
        "registers": _blocks_by_registers(cc, warps, registers),
        "shared memory": _blocks_by_shared(cc, shared_bytes),
        "threads": cc.warps_per_sm // warps,
        "blocks": cc.blocks_per_sm,
    }
    if cc.barrier_pool_limits_blocks and barriers:
        limits["barriers"] = cc.blocks_per_sm * cc.barriers_per_block_slot // barriers
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / cc.warps_per_sm, limiter)


def _blocks_by_registers(cc: ComputeCapability, warps: int, registers: int) -> int:
    if registers == 0:
        return cc.blocks_per_sm
    per_warp = _round_up(registers * cc.threads_per_warp, cc.registers_per_warp_granularity)
    # Warps are handed out per sub-partition: a block of 5 warps needs room for 8.
    if per_warp * _round_up(warps, cc.partitions_per_sm) > cc.registers_per_block:
        return 0
    warps_per_partition = cc.registers_per_sm // cc.partitions_per_sm // per_warp
    return warps_per_partition * cc.partitions_per_sm // warps


def _blocks_by_shared(cc: ComputeCapability, shared_bytes: int) -> int:
    if shared_bytes > cc.shared_bytes_per_block_optin:
        return 0
    per_block = _round_up(
        shared_bytes + cc.shared_bytes_reserved_per_block, cc.shared_bytes_granularity
    )
    # Before 8.0 the system reserves nothing: a block may need none.
    return cc.shared_bytes_per_sm // per_block if per_block else cc.blocks_per_sm
