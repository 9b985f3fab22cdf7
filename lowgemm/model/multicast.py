"""Multicast: what blocks that run together have in common, and what L2 keeps for the next.

Second seed, section 5.2. What several SMs ask for at the same time leaves DRAM once (the L2 request
coalescer, or a cluster), so requested bytes over unique ones is a factor on DRAM's bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.model.levels import FLOAT_BYTES, OPERANDS_PER_FMA, Machine
from lowgemm.model.raster import Block, Raster, raster_order
from lowgemm.model.tiling import reuse
from lowgemm.model.values import ceil_div, count, positive, several, share

__all__ = [
    "LARGEST_CLUSTER",
    "RASTER_CANDIDATES",
    "CooperationCycles",
    "MulticastShare",
    "RasterChoice",
    "RasterReport",
    "Wave",
    "best_rasters",
    "check_cluster",
    "cluster_reuse",
    "cooperation_cycles",
    "multicast_share",
    "rasterise",
]


@dataclass(frozen=True, slots=True)
class Wave:
    """The blocks that run at the same time, and the input bytes that they ask for.

    ``kept_bytes`` of the ``unique_bytes`` lie in L2 from earlier waves; the rest comes from DRAM.
    """

    blocks: int
    tile_rows: int
    tile_columns: int
    requested_bytes: int
    unique_bytes: int
    kept_bytes: int

    @property
    def multicast_factor(self) -> float:
        """Requested over unique bytes."""
        return self.requested_bytes / self.unique_bytes


@dataclass(frozen=True, slots=True)
class RasterReport:
    """A rasterisation of a problem, wave by wave.

    ``multicast_factor`` is requested over unique bytes of all waves, ``dram_factor`` requested
    bytes over those that DRAM delivers when L2 keeps what fits. ``largest_factor`` is what a single
    fetch of each matrix would give: no order exceeds it.
    """

    grid_rows: int
    grid_columns: int
    blocks_per_wave: int
    waves: tuple[Wave, ...]
    requested_bytes: int
    unique_bytes: int
    dram_bytes: int
    compulsory_bytes: int

    @property
    def multicast_factor(self) -> float:
        """How much more the SMs receive than leaves L2's far side, wave by wave."""
        return self.requested_bytes / self.unique_bytes

    @property
    def dram_factor(self) -> float:
        """How much more the SMs receive than leaves DRAM."""
        return self.requested_bytes / self.dram_bytes

    @property
    def largest_factor(self) -> float:
        """The factor if each matrix left DRAM once."""
        return self.requested_bytes / self.compulsory_bytes


def rasterise(
    raster: str | Raster,
    m: int,
    n: int,
    k: int,
    bm: int,
    bn: int,
    *,
    blocks_per_wave: int,
    l2_bytes: int | None = None,
    usable_l2_share: float = 1.0,
) -> RasterReport:
    """Count, wave by wave, what the blocks request and what of it is distinct.

    Parameters
    ----------
    raster
        The order: see :func:`lowgemm.model.raster.raster_order`.
    m, n, k, bm, bn
        The problem and the block tile. Tiles at the edges load what is there.
    blocks_per_wave
        SMs times resident blocks.
    l2_bytes
        Capacity of L2; None: nothing is kept between waves.
    usable_l2_share
        The part of L2 that A and B get.

    Raises
    ------
    ArgumentValueError
        A size below 1, an order that is none, or a grid that takes too long to walk.

    Notes
    -----
    Within a wave the blocks walk along k together, so a panel that several share is fetched once
    however small L2 is. Between waves a panel (bm rows of A, or bn columns of B, over all of k) is
    found in L2 if all that was touched since its last use fits there: the distinct panels of the
    waves since then, that wave's own included, and the tiles of C that they wrote. That is the LRU
    stack distance at the grain of a wave. A wave that walks along k evicts the first slices of its
    panels before the next wave needs them unless the whole wave fits, hence whole waves and no
    fractions.
    """
    m, n, k = count("m", m), count("n", n), count("k", k)
    bm, bn = count("bm", bm), count("bn", bn)
    per_wave = count("blocks_per_wave", blocks_per_wave)
    rows, columns = ceil_div(m, bm), ceil_div(n, bn)
    capacity = 0.0
    if l2_bytes is not None:
        capacity = count("l2_bytes", l2_bytes) * share("usable_l2_share", usable_l2_share)
    _check_walk(rows, columns, per_wave, orders=1)
    order = raster_order(raster, rows, columns)
    panels = _Panels(m, n, k, bm, bn)
    cache = _L2(capacity)
    found = [
        panels.wave(order[first : first + per_wave], cache)
        for first in range(0, len(order), per_wave)
    ]
    unique = sum(wave.unique_bytes for wave in found)
    return RasterReport(
        grid_rows=rows,
        grid_columns=columns,
        blocks_per_wave=per_wave,
        waves=tuple(found),
        requested_bytes=sum(wave.requested_bytes for wave in found),
        unique_bytes=unique,
        dram_bytes=unique - sum(wave.kept_bytes for wave in found),
        compulsory_bytes=FLOAT_BYTES * (m * k + k * n),
    )


# What a walk may come to, in blocks, where a wave costs as much as several: some seconds.
_LONGEST_WALK = 5_000_000
_BLOCKS_PER_WAVE = 8


def _check_walk(rows: int, columns: int, per_wave: int, *, orders: int) -> None:
    blocks = rows * columns
    steps = orders * (blocks + _BLOCKS_PER_WAVE * ceil_div(blocks, per_wave))
    if steps > _LONGEST_WALK:
        raise ArgumentValueError(
            f"walking a grid of {rows} x {columns} blocks in waves of {per_wave}, "
            f"in {orders} orders, takes too long",
            "take a smaller grid, larger waves or fewer orders",
        )


class _Panels:
    """The panels of A and B that tiles of C need, and their sizes."""

    def __init__(self, m: int, n: int, k: int, bm: int, bn: int) -> None:
        self._heights = [min(bm, m - first) for first in range(0, m, bm)]
        self._widths = [min(bn, n - first) for first in range(0, n, bn)]
        self._slice_bytes = FLOAT_BYTES * k

    def wave(self, blocks: Sequence[Block], cache: _L2) -> Wave:
        heights, widths, slice_bytes = self._heights, self._widths, self._slice_bytes
        # A panel's number: a row of tiles for A; for B a column, counted on behind the rows.
        behind = len(heights)
        sizes = {m: heights[m] * slice_bytes for m, _ in blocks}
        a_panels = len(sizes)
        sizes |= {behind + n: widths[n] * slice_bytes for _, n in blocks}
        sides = sum(heights[m] + widths[n] for m, n in blocks)
        outputs = FLOAT_BYTES * sum(heights[m] * widths[n] for m, n in blocks)
        return Wave(
            blocks=len(blocks),
            tile_rows=a_panels,
            tile_columns=len(sizes) - a_panels,
            requested_bytes=sides * slice_bytes,
            unique_bytes=sum(sizes.values()),
            kept_bytes=cache.pass_wave(sizes, outputs),
        )


class _L2:
    """Panels by the wave of their last use; LRU at the grain of a wave.

    What was touched from some wave on only grows, so the oldest wave from which on all fits only
    moves forward, and a running sum follows it.
    """

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._last: dict[int, int] = {}  # the wave of a panel's last use
        self._held: list[int] = []  # of each wave: its outputs, and the panels last used in it
        self._oldest = 0  # what was touched from this wave on fits,
        self._total = 0  # and is so many bytes

    def pass_wave(self, sizes: dict[int, int], outputs: int) -> int:
        """Bytes of a wave's panels that are there already; then remember the wave."""
        last, now, hit = self._last, len(self._held), 0
        for panel, size in sizes.items():
            used = last.get(panel, -1)
            if used >= self._oldest:
                self._held[used] -= size
                hit += size
            last[panel] = now
        touched = outputs + sum(sizes.values())
        self._held.append(touched)
        self._total += touched - hit
        while self._total > self._capacity:
            self._total -= self._held[self._oldest]
            self._oldest += 1
        return hit


# ---- clusters

#: Blocks of the largest cluster. More than 8 need the kernel's consent ("non-portable cluster
#: size", CUDA C++ Programming Guide).
LARGEST_CLUSTER = 16


def check_cluster(cluster_m: int, cluster_n: int) -> None:
    """Refuse a cluster that no GPU has.

    Raises
    ------
    ArgumentValueError
        A side below 1, or more than :data:`LARGEST_CLUSTER` blocks.
    """
    if count("cluster_m", cluster_m) * count("cluster_n", cluster_n) > LARGEST_CLUSTER:
        raise ArgumentValueError(
            f"a cluster of {cluster_m} x {cluster_n} blocks",
            f"use at most {LARGEST_CLUSTER} blocks, or 8 where every GPU with clusters must do",
        )


def cluster_reuse(bm: int, bn: int, cluster_m: int = 1, cluster_n: int = 1) -> float:
    """Reuse of a cluster of blocks whose loads are multicast: that of one larger tile (5.2.2).

    Raises
    ------
    ArgumentValueError
        A size below 1, or a cluster of more than :data:`LARGEST_CLUSTER` blocks.

    Examples
    --------
    >>> cluster_reuse(32, 32, 2, 2)
    64.0
    """
    check_cluster(cluster_m, cluster_n)
    return reuse(count("bm", bm) * cluster_m, count("bn", bn) * cluster_n)


@dataclass(frozen=True, slots=True)
class CooperationCycles:
    """Cycles per step along k of blocks on as many SMs, with and without sharing their loads."""

    requested_bytes_per_k: int
    unique_bytes_per_k: int
    separate_cycles_per_k: float
    shared_cycles_per_k: float
    compute_cycles_per_k: float

    @property
    def separate_bound(self) -> str:
        """What binds when every SM fetches for itself."""
        return "memory" if self.separate_cycles_per_k > self.compute_cycles_per_k else "compute"

    @property
    def shared_bound(self) -> str:
        """What binds when common tiles are fetched once."""
        return "memory" if self.shared_cycles_per_k > self.compute_cycles_per_k else "compute"


def cooperation_cycles(
    machine: Machine, bm: int, bn: int, blocks_m: int, blocks_n: int
) -> CooperationCycles:
    """The seed's example of 2 x 2 blocks of 32 x 32 (section 5.2): 19.2, 9.6 and 16 cycles.

    Raises
    ------
    ArgumentValueError
        A size below 1.
    """
    bm, bn = count("bm", bm), count("bn", bn)
    blocks_m, blocks_n = count("blocks_m", blocks_m), count("blocks_n", blocks_n)
    blocks = blocks_m * blocks_n
    requested = FLOAT_BYTES * blocks * (bm + bn)
    unique = FLOAT_BYTES * (blocks_m * bm + blocks_n * bn)
    supply = blocks * machine.dram_bytes_per_cycle_per_sm
    eaten = FLOAT_BYTES * OPERANDS_PER_FMA * blocks * bm * bn
    return CooperationCycles(
        requested_bytes_per_k=requested,
        unique_bytes_per_k=unique,
        separate_cycles_per_k=requested / supply,
        shared_cycles_per_k=unique / supply,
        compute_cycles_per_k=eaten / (blocks * machine.need_bytes_per_cycle_per_sm),
    )


@dataclass(frozen=True, slots=True)
class MulticastShare:
    """What of the amplification a tile gives, and what multicast must (section 5.2.1)."""

    amplification: float
    tile_reuse: float
    multicast_needed: float
    multicast_given: float

    @property
    def enough(self) -> bool:
        """Whether tile and multicast together reach the amplification: L1 L2 >= what is needed."""
        return self.tile_reuse * self.multicast_given >= self.amplification


def multicast_share(
    amplification: float, bm: int, bn: int, multicast_factor: float = 1.0
) -> MulticastShare:
    """Split a level's amplification between a tile's reuse and a multicast factor.

    Raises
    ------
    ArgumentValueError
        A value that is not positive.
    """
    needed = positive("amplification", amplification)
    given = positive("multicast_factor", multicast_factor)
    tile = reuse(bm, bn)
    return MulticastShare(needed, tile, max(1.0, needed / tile), given)


# ---- which order is best


@dataclass(frozen=True, slots=True)
class RasterChoice:
    """An order and what it costs: ``dram_bytes`` with L2, ``unique_bytes`` without."""

    raster: str
    multicast_factor: float
    dram_factor: float
    unique_bytes: int
    dram_bytes: int


#: The orders that are compared where none are named.
RASTER_CANDIDATES = (
    "row", "column", "morton", "diagonal",
    *(f"grouped:{size}" for size in (2, 4, 8, 16, 32)),
    *(f"blocks:{size}x{size}" for size in (2, 4, 8)),
)  # fmt: skip


def best_rasters(
    m: int,
    n: int,
    k: int,
    bm: int,
    bn: int,
    *,
    blocks_per_wave: int,
    l2_bytes: int | None = None,
    usable_l2_share: float = 1.0,
    candidates: Sequence[str] = RASTER_CANDIDATES,
) -> tuple[RasterChoice, ...]:
    """Orders by the bytes that DRAM must deliver, the fewest first; ties as ``candidates`` lists.

    Row-major is the order of a plain kernel and stands first among the candidates: another is
    worth its index arithmetic only where it is really better.

    Raises
    ------
    ArgumentValueError
        A size below 1, an unknown order, no candidate, or a grid that takes too long to walk.
    """
    candidates = several("candidates", candidates)
    rows, columns = (
        ceil_div(count(name, size), count(f"b{name}", tile))
        for name, size, tile in (("m", m, bm), ("n", n, bn))
    )
    per_wave = count("blocks_per_wave", blocks_per_wave)
    _check_walk(rows, columns, per_wave, orders=len(candidates))
    choices = []
    for raster in candidates:
        report = rasterise(
            raster, m, n, k, bm, bn,
            blocks_per_wave=blocks_per_wave, l2_bytes=l2_bytes, usable_l2_share=usable_l2_share,
        )  # fmt: skip
        choices.append(
            RasterChoice(
                raster,
                report.multicast_factor,
                report.dram_factor,
                report.unique_bytes,
                report.dram_bytes,
            )
        )
    return tuple(sorted(choices, key=lambda choice: (choice.dram_bytes, choice.unique_bytes)))
