"""Shared memory: how many wavefronts an access of a warp takes."""

from __future__ import annotations

from collections.abc import Sequence

from lowgemm.errors import ArgumentValueError

__all__ = [
    "BANKS",
    "BANK_BYTES",
    "LOAD_EXTRA_CYCLES_PER_ROW",
    "WARP_LANES",
    "ideal_wavefronts",
    "load_cycles",
    "wavefronts",
]

#: 32 banks of 4 bytes; each gives or takes one word per cycle.
BANKS = 32
BANK_BYTES = 4
WARP_LANES = 32
#: What a load costs its sub-partition's FFMAs beyond its issue slot, for each register that it
#: writes: 1.4 cycles for LDS.128 (H200: a GEMM's loop with its loads left out), presumably while
#: the rows are written into the two banks.
LOAD_EXTRA_CYCLES_PER_ROW = 1.4 / 4
_WIDTHS = (4, 8, 16)


def wavefronts(
    addresses: Sequence[int | None], width_bytes: int = 4, *, store: bool = False
) -> int:
    """Passes through shared memory that one access of a warp takes.

    Parameters
    ----------
    addresses
        The byte address of each of the 32 lanes, None for a lane that is not active.
    width_bytes
        Bytes per lane: 4, 8 or 16. Narrower accesses count as 4.
    store
        Whether it is a store; stores never merge.

    Returns
    -------
    int
        0 if no lane is active.

    Raises
    ------
    ArgumentValueError
        There are not 32 addresses, one is negative or not a multiple of the width, or no access is
        that wide.

    Notes
    -----
    A warp's 4-byte accesses go together; of 8-byte accesses a half warp, of 16-byte accesses eight
    neighbouring lanes. Such a group takes as many wavefronts as the bank with the most distinct
    words has; lanes that name one word share it. A load in which every lane n reads what lane n^1
    reads, or every lane n what n^2 reads, goes through in groups twice as large; lanes that are not
    active do not matter. See `load_cycles` for how it was checked. The counter
    ``memory_l1_wavefronts_shared`` of Nsight Compute's source page is an estimate from addresses:
    where only some of a load's groups could merge it says less than the hardware takes.
    """
    _check(addresses, width_bytes)
    group = _lanes_together(addresses, width_bytes, store=store)
    return sum(
        _group_wavefronts(addresses[first : first + group], width_bytes)
        for first in range(0, WARP_LANES, group)
    )


def load_cycles(addresses: Sequence[int | None], width_bytes: int = 4) -> int:
    """Cycles for which one load of a warp keeps shared memory busy.

    Parameters
    ----------
    addresses, width_bytes
        As for `wavefronts`.

    Returns
    -------
    int
        The wavefronts, and at least one cycle for each group of lanes that goes through together,
        also if none of its lanes is active; 0 if the whole warp has no active lane.

    Raises
    ------
    ArgumentValueError
        As for `wavefronts`.

    Notes
    -----
    Checked on an H200 (sm_90) by the time of 32 warps that do nothing else, for all patterns of
    ``h200_load_cycles.json``.
    """
    passes = wavefronts(addresses, width_bytes)
    if not passes:
        return 0
    return max(passes, WARP_LANES // _lanes_together(addresses, width_bytes, store=False))


def ideal_wavefronts(active_lanes: int, width_bytes: int = 4) -> int:
    """Passes without a bank conflict and without merging: what the bytes alone need."""
    return -(-active_lanes * width_bytes // (BANKS * BANK_BYTES))


def _check(addresses: Sequence[int | None], width_bytes: int) -> None:
    if width_bytes not in _WIDTHS:
        raise ArgumentValueError(
            f"an access of {width_bytes} bytes per lane", "lanes access 4, 8 or 16 bytes"
        )
    if len(addresses) != WARP_LANES:
        raise ArgumentValueError(f"{len(addresses)} addresses", "give one for each of 32 lanes")
    for lane, address in enumerate(addresses):
        if address is not None and (address < 0 or address % width_bytes):
            raise ArgumentValueError(
                f"lane {lane} accesses {width_bytes} bytes at {address}",
                "addresses are multiples of the width, 0 or more",
            )


def _lanes_together(addresses: Sequence[int | None], width_bytes: int, *, store: bool) -> int:
    """How many neighbouring lanes go through shared memory together."""
    lanes = WARP_LANES * BANK_BYTES // width_bytes
    return 2 * lanes if lanes < WARP_LANES and not store and _merges(addresses) else lanes


def _merges(addresses: Sequence[int | None]) -> bool:
    return any(
        all(
            address is None or addresses[lane ^ partner] in (None, address)
            for lane, address in enumerate(addresses)
        )
        for partner in (1, 2)
    )


def _group_wavefronts(addresses: Sequence[int | None], width_bytes: int) -> int:
    words: dict[int, set[int]] = {}
    for address in addresses:
        if address is None:
            continue
        for word in range(address // BANK_BYTES, (address + width_bytes) // BANK_BYTES):
            words.setdefault(word % BANKS, set()).add(word)
    return max((len(distinct) for distinct in words.values()), default=0)
