"""Rasterisation: in which order the blocks take the tiles of C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord, shared_bytes_for
from lowgemm.hardware.dram import gb_per_s_of_cycles
from lowgemm.hardware.memory_levels import bandwidth
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import issue_cycles_per_ffma
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

if TYPE_CHECKING:
    from lowgemm.measure import Timing
    from lowgemm.runtime import PreparedLaunch

__all__ = ["ORDERS", "Rasterisation", "grouped", "squares", "unique_panels"]

_TILE, _THREADS, _WARPS = 128, 256, 8
_BLOCKS_PER_SM = 2
_GROUP, _SIDE = 8, 16
_FLOAT = 4
_K_STEP = 32  # as in the kernels' file
_FFMAS_PER_K_STEP = 64  # of a warp: 8 x 8 a thread

Numbers = NDArray[np.int64]
Order = Callable[[Numbers, int, int], tuple[Numbers, Numbers]]


# ---- orders: the row and column of a block's tile, in tiles, as in cu/lab_rasterisation.cu


def _rows(block: Numbers, tiles_m: int, tiles_n: int) -> tuple[Numbers, Numbers]:
    return block // tiles_n, block % tiles_n


def _columns(block: Numbers, tiles_m: int, tiles_n: int) -> tuple[Numbers, Numbers]:
    return block % tiles_m, block // tiles_m


def grouped(group: int) -> Order:
    """``group`` rows of tiles at a time, column by column within them."""

    def order(block: Numbers, tiles_m: int, tiles_n: int) -> tuple[Numbers, Numbers]:
        first, within = block // (group * tiles_n) * group, block % (group * tiles_n)
        return first + within % group, within // group

    return order


def squares(side: int) -> Order:
    """``side`` x ``side`` tiles at a time, by rows within them."""

    def order(block: Numbers, tiles_m: int, tiles_n: int) -> tuple[Numbers, Numbers]:
        square, within = block // side**2, block % side**2
        per_row = tiles_n // side
        row = square // per_row * side + within // side
        return row, square % per_row * side + within % side

    return order


def _diagonals(block: Numbers, tiles_m: int, tiles_n: int) -> tuple[Numbers, Numbers]:
    return block % tiles_m, (block + block // tiles_m) % tiles_m


#: The orders in the order of their numbers in the kernels' file.
ORDERS: dict[str, Order] = {
    "rows": _rows,
    "columns": _columns,
    "grouped by 8": grouped(_GROUP),
    "squares of 16": squares(_SIDE),
    "no sharing": _diagonals,
}

_LOADS = ", loads alone"
_WHAT = {
    "rows": "along N first",
    "columns": "along M first",
    "grouped by 8": "8 rows of tiles at a time, column by column",
    "squares of 16": "16 x 16 tiles at a time",
    "no sharing": "along the diagonals",
}


def unique_panels(order: Order, tiles_m: int, tiles_n: int, wave: int) -> int:
    """Panels of A and of B that the waves need, each counted once a wave, over all waves.

    Parameters
    ----------
    order
        Block numbers, tiles along M and along N to the rows and columns of the blocks' tiles.
    tiles_m, tiles_n
        The grid of tiles.
    wave
        Blocks that run at once.
    """
    row, col = order(np.arange(tiles_m * tiles_n), tiles_m, tiles_n)
    cuts = range(wave, tiles_m * tiles_n, wave)
    parts = zip(np.split(row, cuts), np.split(col, cuts), strict=True)
    return sum(len(np.unique(rows)) + len(np.unique(cols)) for rows, cols in parts)


# ---- the experiment


@dataclass(frozen=True, slots=True)
class _Size:
    """A product of 128 x 128 tiles that is larger than L2, on a square of tiles."""

    tiles: int  # along M and along N
    k: int
    wave: int

    @classmethod
    def of(cls, sms: int, l2_bytes: float) -> _Size:
        """At least as many rows of tiles as blocks run at once, and B half as large again as L2."""
        wave = _BLOCKS_PER_SM * sms
        tiles = -(-wave // _SIDE) * _SIDE
        steps = 1.5 * l2_bytes / (_FLOAT * tiles * _TILE)
        return cls(tiles, int(-(-steps // 256)) * 256, wave)

    @property
    def panel_bytes(self) -> int:
        return _FLOAT * _TILE * self.k

    @property
    def blocks(self) -> int:
        return self.tiles**2

    @property
    def side(self) -> int:
        return self.tiles * _TILE


class Rasterisation(Experiment):
    """One SGEMM in five orders of its blocks, and its loads alone."""

    name = "rasterisation"
    title = "Rasterisation: the order of the blocks"
    claim = (
        "The blocks of a wave share panels of A and B, and the order of the blocks decides how "
        "many: a panel goes to all of them for one read of DRAM. By rows a wave shares A alone, in "
        "groups or squares both, along diagonals nothing. Whether that shows in the time depends "
        "on what binds: with a tile of 128 x 128 FP32 products need so little that on a GPU with "
        "much bandwidth only the loads alone tell the orders apart."
    )
    quantity = "time of a launch"
    unit = "us"
    counted = ("FFMA", "LDG.128", "LDS.128", "BAR")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Each order, of the product and of its loads alone."""
        source = "lab_rasterisation.cu"
        return tuple(
            Variant(name + suffix, _WHAT[name] + tail, source, f"{kernel}<{number}>")
            for suffix, tail, kernel in (
                ("", "", "lab_rasterisation"),
                (_LOADS, "; panels read and summed", "lab_rasterisation_loads"),
            )
            for number, name in enumerate(ORDERS)
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """A launch takes the longest of the FFMAs, what DRAM delivers and what L2 delivers."""
        size = _Size.of(gpu.sms, gpu.l2_mib * 2**20)
        l2 = bandwidth(gpu, "l2")
        requested = 2 * size.blocks * size.panel_bytes
        l2_us = requested / gb_per_s_of_cycles(l2.value, gpu.sms, gpu.clock_ghz) / 1e3
        predictions = {}
        for name, order in ORDERS.items():
            unique = unique_panels(order, size.tiles, size.tiles, size.wave) * size.panel_bytes
            written = _FLOAT * size.side**2
            for multiplies, variant in ((True, name), (False, name + _LOADS)):
                dram = unique + (written if multiplies else 0)
                times = {"DRAM": dram / gpu.dram_gb_per_s / 1e3, "L2": l2_us}
                if multiplies:
                    times["FFMA"] = _ffma_us(gpu, codes.get(variant), size)
                binding = max(times, key=lambda level: times[level])
                notes = {"L2": l2.note}
                listed = ", ".join(
                    f"{level} {us:,.0f} us{notes.get(level, '')}" for level, us in times.items()
                )
                predictions[variant] = Prediction(
                    times[binding],
                    f"{unique / 1e9:.1f} GB unique within the waves of {size.wave} blocks for "
                    f"{requested / 1e9:.1f} GB requested (shared {requested / unique:.2f} times): "
                    f"{listed}; {binding} binds",
                )
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Two blocks on every SM throughout; the loads alone are held to two by shared memory."""
        return _Run(setup).trials()

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """The time of each, with the rates that follow from it."""
        size = _Size.of(bench.multiprocessors, bench.l2_bytes)
        trials = self.trials(bench)
        found = {name: Measurement.wrong(_checked(name)) for name in trials}
        for name, timing in bench.time_right(trials).items():
            found[name] = _measurement(name, size, timing)
        return found


def _ffma_us(gpu: GpuRecord, code: MachineCode | None, size: _Size) -> float:
    """Whole waves of blocks, whose warps share four sub-partitions."""
    waves = -(-size.blocks // size.wave)
    warps = _BLOCKS_PER_SM * _WARPS / gpu.capability.partitions_per_sm
    ffmas = waves * warps * _FFMAS_PER_K_STEP * size.k
    return ffmas * issue_cycles_per_ffma(gpu, code) / gpu.clock_ghz / 1e3


def _checked(variant: str) -> str:
    """What the check of a variant compares."""
    if variant in ORDERS:
        return "a row of every row of tiles of C against whole numbers"
    return "the sum of every tile's panels against whole numbers"


def _measurement(variant: str, size: _Size, timing: Timing) -> Measurement:
    us = timing.median_us
    order = ORDERS[variant.removesuffix(_LOADS)]
    unique = unique_panels(order, size.tiles, size.tiles, size.wave) * size.panel_bytes
    details = {
        "unique_gb": unique / 1e9,
        "unique_gb_per_s": unique / us / 1e3,
        "requested_gb_per_s": 2 * size.blocks * size.panel_bytes / us / 1e3,
    }
    if variant in ORDERS:
        details["tflops"] = 2 * size.side**2 * size.k / us / 1e6
    return Measurement.timed(us, timing, _checked(variant), **details)


class _Run:
    """The operands on the device, and the launches on them with their checks."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        device = setup.device
        full = _Size.of(setup.multiprocessors, setup.l2_bytes)
        self.size = setup.pick(full, _Size(_SIDE, _K_STEP * setup.scale, full.wave))
        side, k = self.size.side, self.size.k
        rng = np.random.default_rng(0)
        self._a = rng.integers(-4, 5, (side, k), dtype=np.int8).astype(np.float32)
        self._b = rng.integers(-4, 5, (k, side), dtype=np.int8).astype(np.float32)
        # A row of every row of tiles, so that each tile of C is looked at.
        tiles = np.arange(self.size.tiles)
        self._rows = tiles * _TILE + rng.integers(0, _TILE, self.size.tiles)
        self._a_on_device, self._b_on_device = device.upload(self._a), device.upload(self._b)
        self._c = device.empty((side, side))
        # Whole numbers below 2^24: exact in FP32, in any order.
        self._depth = setup.pick(k, k // 4)  # the product of so many blocks takes the longest
        self._wanted_rows = self._a[self._rows, : self._depth] @ self._b[: self._depth]
        sums_a = self._a.reshape(self.size.tiles, -1).sum(1)
        sums_b = self._b.sum(0).reshape(self.size.tiles, -1).sum(1)
        self._wanted_sums = sums_a[:, None] + sums_b[None, :]

    def trials(self) -> dict[str, Trial]:
        """Each order, of the product and of its loads alone, on one C."""
        return {
            name + suffix: self._product(name) if not suffix else self._loads(name + suffix)
            for name in ORDERS
            for suffix in ("", _LOADS)
        }

    def _prepare(self, variant: str, depth: int) -> PreparedLaunch:
        size, setup = self.size, self.setup
        side = size.side
        kernel = setup.kernel(variant)
        room = shared_bytes_for(setup.chip, _BLOCKS_PER_SM)
        return kernel.prepare(
            *(side, side, depth, self._a_on_device, size.k),
            *(self._b_on_device, side, self._c, side),
            grid=size.blocks,
            block=_THREADS,
            shared_bytes=room - kernel.shared_bytes,
            stream=setup.stream,
        )

    def _product(self, variant: str) -> Trial:
        stream, side = self.setup.stream, self.size.side

        def read() -> NDArray[np.float32]:
            rows = (self._c.view(int(row) * side, side) for row in self._rows)
            return np.stack([row.download(stream=stream) for row in rows])

        return Trial(
            self._prepare(variant, self._depth),
            lambda: self._c.fill_bytes(0xFF, stream=stream),
            read,
            lambda found: bool((found == self._wanted_rows).all()),
            (stream,),
        )

    def _loads(self, variant: str) -> Trial:
        tiles = self.size.tiles
        return replace(
            Trial.of(
                self._prepare(variant, self.size.k),
                self._c.view(0, (tiles, tiles, _WARPS)),
                self._wanted_sums,
                stream=self.setup.stream,
            ),
            judge=lambda sums: bool((sums.sum(2) == self._wanted_sums).all()),
        )
