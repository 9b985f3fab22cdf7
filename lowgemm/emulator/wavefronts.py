"""Wavefronts and sectors of many warps at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware.shared_memory import BANK_BYTES, BANKS, WARP_LANES

__all__ = [
    "PatternCache",
    "atomic_wavefronts",
    "copied_lanes",
    "copy_sectors",
    "copy_wavefronts",
    "global_sectors",
    "ideal_global_sectors",
    "ideal_shared_wavefronts",
    "shared_conflict_ways",
    "shared_wavefronts",
]

#: The piece of a cache line that global memory moves (Nsight Compute, "sector").
_SECTOR_BYTES = 32
#: A cache line, and one pass over all banks of shared memory.
_LINE_BYTES = 128
#: Marks a lane that is not active; no pattern holds such a distance.
_INACTIVE = np.iinfo(np.int64).min

_Counts = NDArray[np.int64]
_Places = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(slots=True)
class PatternCache:
    """What one instruction's last patterns cost: one cache per instruction.

    Attributes
    ----------
    entries
        For each question, the latest patterns with their answers: one row if all warps had the
        same, else one row for each warp.
    capacity
        How many patterns are kept for each question.
    """

    entries: dict[object, list[tuple[_Places, _Counts]]] = field(default_factory=dict)
    capacity: int = 4

    def answer(
        self, question: object, pattern: _Places, count: Callable[[_Places], _Counts]
    ) -> _Counts:
        """The counts of a pattern [warps, 32]: kept from an earlier call, or counted."""
        known = self.entries.setdefault(question, [])
        warps = len(pattern)
        for rows, counts in known:
            if len(rows) in (1, warps) and bool((rows == pattern).all()):
                return np.broadcast_to(counts, (warps,)).copy()
        if warps and bool((pattern == pattern[:1]).all()):
            rows, counts = pattern[:1].copy(), count(pattern[:1])
        else:
            rows, counts = pattern, count(pattern)
        known.insert(0, (rows, counts))
        del known[self.capacity :]
        return np.broadcast_to(counts, (warps,)).copy()


def shared_wavefronts(
    offsets: _Places,
    active: _Flags,
    width: int,
    *,
    store: bool,
    merge: bool = True,
    cache: PatternCache | None = None,
) -> _Counts:
    """Passes through shared memory that an access of each warp takes.

    Parameters
    ----------
    offsets
        int64[warps, 32]: byte offsets in shared memory, multiples of the width. Those of lanes that
        are not active are not looked at.
    active
        bool[warps, 32].
    width
        Bytes per lane: 1, 2, 4, 8 or 16; narrower accesses count as 4.
    store
        Whether it is a store; stores never merge.
    merge
        Whether loads merge; for an instruction that never does, say no.
    cache
        The instruction's, to answer the patterns of earlier calls from.

    Returns
    -------
    NDArray[np.int64]
        [warps]; 0 for a warp with no active lane.

    Notes
    -----
    The rules are those of `lowgemm.hardware.shared_memory.wavefronts`, and hold for accesses of 1
    and 2 bytes and for generic loads and stores too.
    """
    merges = merge and not store and width > BANK_BYTES

    def count(pattern: _Places) -> _Counts:
        counts: _Counts = _by_group(pattern, width, merges=merges).sum(axis=1)
        return counts

    return _answer(("wavefronts", width, merges), offsets, active, _narrowest(width), count, cache)


def atomic_wavefronts(
    offsets: _Places,
    active: _Flags,
    width: int,
    *,
    compare: bool = False,
    cache: PatternCache | None = None,
) -> _Counts:
    """Passes through shared memory that an atomic operation (ATOMS) of each warp takes.

    Parameters
    ----------
    offsets, active, cache
        As for `shared_wavefronts`.
    width
        Bytes per lane: 4 or 8.
    compare
        Whether it is a compare-and-swap, which passes twice.

    Notes
    -----
    Lanes that name one word do not share a pass; ATOMS.POPC.INC is taken to be as ATOMS.ADD. Equal
    to ``memory_l1_wavefronts_shared`` of Nsight Compute 2025.3.1 on an H200 for all patterns of
    ``h200_access_patterns.json``.
    """

    def count(pattern: _Places) -> _Counts:
        lanes = BANKS * BANK_BYTES // width
        passes: _Counts = _groups(_apart(pattern), width, lanes).sum(axis=1)
        return passes * (2 if compare else 1)

    return _answer(("atomic", width, compare), offsets, active, width, count, cache)


def shared_conflict_ways(
    offsets: _Places,
    active: _Flags,
    width: int,
    *,
    store: bool,
    merge: bool = True,
    atomic: bool = False,
    cache: PatternCache | None = None,
) -> _Counts:
    """The most distinct words that one bank must serve for one group of lanes of each warp.

    1 is an access without a bank conflict. Of an ``atomic`` lanes count, not words. The other
    parameters are those of `shared_wavefronts`.
    """
    merges = merge and not store and width > BANK_BYTES

    def count(pattern: _Places) -> _Counts:
        apart = _apart(pattern) if atomic else pattern
        counts: _Counts = _by_group(apart, width, merges=merges).max(axis=1)
        return counts

    return _answer(
        ("ways", width, merges, atomic), offsets, active, _narrowest(width), count, cache
    )


def ideal_shared_wavefronts(active_lanes: NDArray[np.integer], width: int) -> _Counts:
    """Passes without a bank conflict and without merging: what the bytes alone need.

    ``memory_l1_wavefronts_shared_ideal`` of Nsight Compute is this or the wavefronts taken, if
    those are fewer; twice this for a compare-and-swap.
    """
    lanes: _Counts = np.asarray(active_lanes, np.int64)
    return -(-lanes * max(width, BANK_BYTES) // (BANKS * BANK_BYTES))


def global_sectors(
    addresses: NDArray[np.uint64],
    active: _Flags,
    width: int,
    *,
    cache: PatternCache | None = None,
) -> _Counts:
    """Distinct aligned 32-byte pieces that an access of each warp touches.

    Parameters
    ----------
    addresses
        uint64[warps, 32], multiples of the width. Those of lanes that are not active are not looked
        at.
    active
        bool[warps, 32].
    width
        Bytes per lane: at most 32.
    cache
        The instruction's, to answer the patterns of earlier calls from.
    """
    # An aligned access of at most 32 bytes lies in one sector.
    del width
    return _answer("sectors", addresses.view(np.int64), active, _SECTOR_BYTES, _sectors, cache)


def ideal_global_sectors(active_lanes: NDArray[np.integer], width: int) -> _Counts:
    """Sectors that the bytes alone need.

    ``memory_l2_theoretical_sectors_global_ideal`` of Nsight Compute is this or the sectors taken,
    if those are fewer.
    """
    lanes: _Counts = np.asarray(active_lanes, np.int64)
    return -(-lanes * width // _SECTOR_BYTES)


def _narrowest(width: int) -> int:
    return max(width, BANK_BYTES)


def _answer(
    question: object,
    places: _Places,
    active: _Flags,
    period: int,
    count: Callable[[_Places], _Counts],
    cache: PatternCache | None,
) -> _Counts:
    pattern = _pattern(places, active, period)
    return count(pattern) if cache is None else cache.answer(question, pattern, count)


def _pattern(places: _Places, active: _Flags, period: int) -> _Places:
    """Distances from the start of the period in which each warp's first active lane lies.

    A warp moved by whole periods keeps its pattern, and what it costs: banks are merely renamed.
    """
    if active.all():
        return places - (places[:, :1] & -period)
    first = np.take_along_axis(places, active.argmax(axis=1)[:, None], axis=1) & -period
    return np.where(active, places - first, _INACTIVE)


def _sectors(pattern: _Places) -> _Counts:
    counts: _Counts = _distinct(pattern, _SECTOR_BYTES)[1].sum(axis=1)
    return counts


def _distinct(pattern: _Places, size: int) -> tuple[_Places, _Flags]:
    """The places of each row in units of the size, sorted, and which differ from their left."""
    unit = np.sort(np.where(pattern == _INACTIVE, pattern, pattern // size), axis=1)
    first = unit != _INACTIVE
    first[:, 1:] &= unit[:, 1:] != unit[:, :-1]
    return unit, first


def _by_group(pattern: _Places, width: int, *, merges: bool) -> _Counts:
    """Wavefronts of each group of lanes; of a load that merges, of every second group."""
    size = _narrowest(width)
    lanes = BANKS * BANK_BYTES // size
    counts = _groups(pattern, size, lanes)
    if not merges:
        return counts
    together = _same_as(pattern, 1) | _same_as(pattern, 2)
    doubled = _groups(pattern, size, 2 * lanes)
    merged = np.stack([doubled, np.zeros_like(doubled)], axis=2).reshape(counts.shape)
    return np.where(together[:, None], merged, counts)


def _apart(pattern: _Places) -> _Places:
    """The same banks, with a word for each lane: no two share."""
    apart = pattern + np.arange(WARP_LANES) * (_LINE_BYTES << 32)
    return np.where(pattern == _INACTIVE, pattern, apart)


def _same_as(pattern: _Places, partner: int) -> _Flags:
    """Whether all lanes of a warp name what their partners do; inactive partners do not matter."""
    others = pattern[:, np.arange(WARP_LANES) ^ partner]
    agree = (pattern == others) | (pattern == _INACTIVE) | (others == _INACTIVE)
    same: _Flags = agree.all(axis=1)
    return same


def _groups(pattern: _Places, size: int, lanes: int) -> _Counts:
    """Wavefronts of each group of lanes by itself: [warps, groups]."""
    # An aligned element lies in as many neighbouring banks as it has words, so that elements
    # compete as words in fewer, wider banks do.
    banks = BANKS * BANK_BYTES // size
    unit, first = _distinct(pattern.reshape(-1, lanes), size)
    row, column = np.nonzero(first)
    bank = row * banks + unit[row, column] % banks
    served = np.bincount(bank, minlength=len(unit) * banks).reshape(len(unit), banks)
    counts: _Counts = served.max(axis=1).reshape(len(pattern), WARP_LANES // lanes).astype(np.int64)
    return counts


# ---- copies from global to shared memory


def copy_sectors(
    addresses: NDArray[np.uint64],
    offsets: _Places,
    active: _Flags,
    width: int,
    *,
    bypass: bool,
    cache: PatternCache | None = None,
) -> _Counts:
    """Sectors that an asynchronous copy (LDGSTS) of each warp takes.

    Parameters
    ----------
    addresses
        uint64[warps, 32] in global memory, multiples of the width.
    offsets
        int64[warps, 32] in shared memory, multiples of the width.
    active
        bool[warps, 32].
    width
        Bytes per lane: 4, 8 or 16.
    bypass
        Whether the copy goes around L1 (``.BYPASS``, cp.async.cg).
    cache
        The instruction's, to answer the patterns of earlier calls from.

    Notes
    -----
    Through L1 these are the distinct sectors read. Around L1 a sector counts once for each 32-byte
    piece of shared memory that it goes to, and once for each exchange (exclusive or) of the 16-byte
    places in 64 bytes that takes it there; of lanes that write one place only the first counts.
    Equal to ``memory_l2_theoretical_sectors_global`` of Nsight Compute 2025.3.1 on an H200 for all
    patterns of ``h200_access_patterns.json``.
    """
    if not bypass:
        return global_sectors(addresses, active, width, cache=cache)

    def count(pattern: _Places) -> _Counts:
        warp, source, place = _copied(pattern)
        pieces = np.unique(_pieces(warp, source, place), axis=0)
        return np.bincount(pieces[:, 0], minlength=len(pattern)).astype(np.int64)

    return _answer_copy("copy sectors", addresses, offsets, active, count, cache)


def copy_wavefronts(
    addresses: NDArray[np.uint64],
    offsets: _Places,
    active: _Flags,
    width: int,
    *,
    bypass: bool,
    cache: PatternCache | None = None,
) -> _Counts:
    """Passes through shared memory that an asynchronous copy (LDGSTS) of each warp takes.

    Parameters are those of `copy_sectors`.

    Notes
    -----
    Around L1 a pass moves sectors of one line to one line of shared memory: all by the same
    exchange, all with the same bytes, and a sector to one place only. Through L1 each group of 128
    bytes passes as often as its lanes compete for a bank of the line read or of the one written:
    of the lanes left, the last of each bank written, and of those the first of each bank read, go
    first. ``memory_l1_wavefronts_shared`` of Nsight Compute 2025.3.1 on an H200 differs for some
    patterns, most of them random; ``h200_access_patterns.json`` names them.
    """

    def around(pattern: _Places) -> _Counts:
        return _passes_around(pattern)

    def through(pattern: _Places) -> _Counts:
        return _passes_through(pattern, width)

    question = ("copy wavefronts", width, bypass)
    count = around if bypass else through
    return _answer_copy(question, addresses, offsets, active, count, cache)


def copied_lanes(offsets: _Places, active: _Flags, *, bypass: bool) -> _Counts:
    """Lanes whose bytes an ideal copy moves: around L1 those that write places of their own."""
    if not bypass:
        every: _Counts = np.asarray(np.count_nonzero(active, axis=1), np.int64)
        return every
    pattern = np.where(active, offsets, _INACTIVE)
    counts: _Counts = _distinct(pattern, 1)[1].sum(axis=1)
    return counts


def _answer_copy(
    question: object,
    addresses: NDArray[np.uint64],
    offsets: _Places,
    active: _Flags,
    count: Callable[[_Places], _Counts],
    cache: PatternCache | None,
) -> _Counts:
    sources = _pattern(addresses.view(np.int64), active, _LINE_BYTES)
    places = _pattern(offsets, active, _LINE_BYTES)
    pattern = np.concatenate([sources, places], axis=1)
    return count(pattern) if cache is None else cache.answer(question, pattern, count)


def _copied(pattern: _Places) -> tuple[_Places, _Places, _Places]:
    """The warp, source and place of each lane that copies; of one place only the first lane."""
    sources, places = pattern[:, :WARP_LANES], pattern[:, WARP_LANES:]
    order = np.argsort(places, axis=1, kind="stable")
    ordered = np.take_along_axis(places, order, axis=1)
    first = ordered != _INACTIVE
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    warp, column = np.nonzero(first)
    return warp, sources[warp, order[warp, column]], ordered[warp, column]


def _pieces(warp: _Places, source: _Places, place: _Places) -> _Places:
    exchange = (source ^ place) & 63
    return np.stack([warp, source // _SECTOR_BYTES, place // _SECTOR_BYTES, exchange], axis=1)


def _passes_around(pattern: _Places) -> _Counts:
    warp, source, place = _copied(pattern)
    pieces, which = np.unique(_pieces(warp, source, place), axis=0, return_inverse=True)
    halves = np.zeros(len(pieces), np.int64)
    np.bitwise_or.at(halves, which.reshape(-1), 1 << (place % _SECTOR_BYTES >> 4))
    sectors = _LINE_BYTES // _SECTOR_BYTES
    kind = np.stack(
        [pieces[:, 0], pieces[:, 1] // sectors, pieces[:, 2] // sectors, pieces[:, 3], halves],
        axis=1,
    )
    by_sector, times = np.unique(
        np.concatenate([kind, pieces[:, 1:2]], axis=1), axis=0, return_counts=True
    )
    kinds, member = np.unique(by_sector[:, :-1], axis=0, return_inverse=True)
    most = np.zeros(len(kinds), np.int64)
    np.maximum.at(most, member.reshape(-1), times)
    counts = np.zeros(len(pattern), np.int64)
    np.add.at(counts, kinds[:, 0], most)
    return counts


def _passes_through(pattern: _Places, width: int) -> _Counts:
    banks = lanes = BANKS * BANK_BYTES // width
    sources, places = pattern[:, :WARP_LANES], pattern[:, WARP_LANES:]
    read = sources.reshape(-1, lanes) // width % banks
    written = places.reshape(-1, lanes) // width % banks
    left = places.reshape(-1, lanes) != _INACTIVE
    passes = np.zeros(len(left), np.int64)
    while left.any():
        passes += left.any(axis=1)
        group, lane = np.nonzero(left)
        last = np.full((len(left), banks), -1)
        np.maximum.at(last, (group, written[group, lane]), lane)
        chosen = last[group, written[group, lane]] == lane
        group, lane = group[chosen], lane[chosen]
        first = np.full((len(left), banks), lanes)
        np.minimum.at(first, (group, read[group, lane]), lane)
        goes = first[group, read[group, lane]] == lane
        left[group[goes], lane[goes]] = False
    counts: _Counts = passes.reshape(len(pattern), -1).sum(axis=1)
    return counts
