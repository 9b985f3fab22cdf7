"""Limits and rates per compute capability, as frozen tables.

Sources: ``cuda_occupancy.h`` of CUDA 13.x and CCCL's ``arch_traits.h`` for the limits; the table
"Arithmetic Instructions" of the CUDA C++ Programming Guide and ``helper_cuda.h`` of NVIDIA's
cuda-samples for the FFMA lanes. 8.8 has no row there: ``arch_traits.h`` gives it the SM of 8.6.
10.7 is missing: only a part of its figures is published.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.errors import UnknownArchitectureError

__all__ = ["CAPABILITIES", "ComputeCapability", "capability"]

_KIB = 1024
_CARVEOUTS_64 = (32, 64)
_CARVEOUTS_96 = (0, 8, 16, 32, 64, 96)
_CARVEOUTS_164 = (0, 8, 16, 32, 64, 100, 132, 164)
_CARVEOUTS_100 = (0, 8, 16, 32, 64, 100)
_CARVEOUTS_228 = (*_CARVEOUTS_164, 196, 228)


@dataclass(frozen=True, slots=True)
class ComputeCapability:
    """What every SM of a compute capability has.

    ``barriers_per_block_slot`` times ``blocks_per_sm`` is the pool of named barriers of an SM; it
    limits the resident blocks from compute capability 9.0 on.
    """

    major: int
    minor: int
    blocks_per_sm: int
    threads_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block_optin: int
    shared_carveouts_kib: tuple[int, ...]
    ffma_lanes_per_sm: int
    barriers_per_block_slot: int
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    threads_per_warp: int = 32
    shared_bytes_per_block: int = 48 * _KIB
    shared_bytes_reserved_per_block: int = _KIB
    shared_bytes_granularity: int = 128
    registers_per_warp_granularity: int = 256
    partitions_per_sm: int = 4

    @property
    def warps_per_sm(self) -> int:
        """Resident warps of an SM."""
        return self.threads_per_sm // self.threads_per_warp

    @property
    def barrier_pool_limits_blocks(self) -> bool:
        """Whether the pool of named barriers limits the resident blocks (9.0 and later)."""
        return self.major >= 9

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def _row(
    cc: tuple[int, int],
    blocks: int,
    threads: int,
    shared_kib: int,
    carveouts: tuple[int, ...],
    lanes: int,
    barriers: int,
) -> ComputeCapability:
    # From 8.0 on one KiB for every block, and so of the opt-in maximum, is the system's.
    reserved_kib = 1 if cc >= (8, 0) else 0
    return ComputeCapability(
        major=cc[0],
        minor=cc[1],
        blocks_per_sm=blocks,
        threads_per_sm=threads,
        shared_bytes_per_sm=shared_kib * _KIB,
        shared_bytes_per_block_optin=(shared_kib - reserved_kib) * _KIB,
        shared_carveouts_kib=carveouts,
        ffma_lanes_per_sm=lanes,
        barriers_per_block_slot=barriers,
        shared_bytes_reserved_per_block=reserved_kib * _KIB,
        shared_bytes_granularity=128 if cc >= (8, 0) else 256,
    )


#: Every compute capability that lowgemm knows, by (major, minor).
CAPABILITIES: dict[tuple[int, int], ComputeCapability] = {
    (row.major, row.minor): row
    for row in (
        _row((7, 0), 32, 2048, 96, _CARVEOUTS_96, 64, 2),
        _row((7, 5), 16, 1024, 64, _CARVEOUTS_64, 64, 2),
        _row((8, 0), 32, 2048, 164, _CARVEOUTS_164, 64, 2),
        _row((8, 6), 16, 1536, 100, _CARVEOUTS_100, 128, 1),
        _row((8, 7), 16, 1536, 164, _CARVEOUTS_164, 128, 1),
        _row((8, 8), 16, 1536, 100, _CARVEOUTS_100, 128, 1),
        _row((8, 9), 24, 1536, 100, _CARVEOUTS_100, 128, 1),
        _row((9, 0), 32, 2048, 228, _CARVEOUTS_228, 128, 2),
        _row((10, 0), 32, 2048, 228, _CARVEOUTS_228, 128, 2),
        _row((10, 3), 32, 2048, 228, _CARVEOUTS_228, 128, 1),
        _row((11, 0), 24, 1536, 228, _CARVEOUTS_228, 128, 1),
        _row((12, 0), 24, 1536, 100, _CARVEOUTS_100, 128, 1),
        _row((12, 1), 24, 1536, 100, _CARVEOUTS_100, 128, 1),
    )
}


def capability(major: int, minor: int) -> ComputeCapability:
    """Return the limits of a compute capability.

    Raises
    ------
    UnknownArchitectureError
        lowgemm has no table for it.
    """
    try:
        return CAPABILITIES[major, minor]
    except KeyError:
        known = ", ".join(str(row) for row in CAPABILITIES.values())
        raise UnknownArchitectureError(
            f"no limits are known for compute capability {major}.{minor} (sm_{major}{minor})",
            f"use one of {known}",
        ) from None
