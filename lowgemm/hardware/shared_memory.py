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
    words has; lanes that name one word share it. Of a load, two groups go through together in one
    wavefront if every lane n reads what lane n^1 reads, or every lane n what n^2 reads, and no bank
    is asked for two words; lanes that are not active do not matter. Checked against
    ``memory_l1_wavefronts_shared`` of Nsight Compute on an H200 (sm_90); it differs for some loads
    of 16 bytes with inactive lanes, which ``h200_access_patterns.json`` names.
    """
    _check(addresses, width_bytes)
    group = WARP_LANES * BANK_BYTES // width_bytes
    each = [
        _group_wavefronts(addresses[first : first + group], width_bytes)
        for first in range(0, WARP_LANES, group)
    ]
    if store or width_bytes == BANK_BYTES:
        return sum(each)
    total = 0
    for pair in range(0, len(each), 2):
        both = addresses[pair * group : (pair + 2) * group]
        merged = _merges(both) and _group_wavefronts(both, width_bytes) == 1
        total += 1 if merged else sum(each[pair : pair + 2])
    return total


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
