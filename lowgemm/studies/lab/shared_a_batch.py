"""A batch of products with one A: launches of their own against one launch that reads A once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.dram import READ_SHARE, gb_per_s_of_cycles
from lowgemm.hardware.memory_levels import bandwidth
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.runtime import Array
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import lost_cycles
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["SharedABatch"]

# A of 512 MiB: no L2 keeps any of it until the next launch.
_M, _K = 65536, 2048
_BATCH, _COLUMNS = 8, 4
_N = _BATCH * _COLUMNS
_BM, _BK, _FLOAT = 128, 32, 4
_QUADS = _BK // 4


@dataclass(frozen=True, slots=True)
class _Way:
    """How the batch is computed: tile and thread tile, launches, and columns of a launch."""

    what: str
    bn: int
    tm: int
    tn: int
    launches: int

    @property
    def kernel(self) -> str:
        """The instance."""
        return f"lab_shared_a_batch<{self.bn}, {self.tm}, {self.tn}>"

    @property
    def columns(self) -> int:
        """Columns of B and C in one launch."""
        return _N // self.launches

    @property
    def lanes_n(self) -> int:
        """Lanes of a warp along N."""
        return self.bn // self.tn

    @property
    def lanes_m(self) -> int:
        """Lanes of a warp along M."""
        return 32 // self.lanes_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _BM // (self.lanes_m * self.tm) * 32

    @property
    def blocks(self) -> int:
        """Blocks of one launch."""
        return self.blocks_for(_M)

    def blocks_for(self, m: int) -> int:
        """Blocks of one launch where A has so many rows."""
        return m // _BM * (self.columns // self.bn)

    def dram_bytes(self) -> int:
        """Of one launch: A, its columns of B and of C, once each."""
        return _FLOAT * (_M * _K + _K * self.columns + _M * self.columns)

    def l2_bytes(self) -> int:
        """Of one launch: A for each column of tiles, B for each row of tiles, C."""
        of_a = _M * _K * (self.columns // self.bn)
        return _FLOAT * (of_a + _K * self.columns * (_M // _BM) + _M * self.columns)

    def wavefronts_per_ffma(self) -> float:
        """Wavefronts of a warp for four k-steps, over its multiply-adds."""
        of_a = sum(wavefronts([self.a_address(lane, i) for lane in range(32)], 16)
                   for i in range(self.tm))  # fmt: skip
        of_b = sum(wavefronts([self.b_address(lane, j) for lane in range(32)], 16)
                   for j in range(0, self.tn, 4))  # fmt: skip
        return (of_a + 4 * of_b) / (4 * self.tm * self.tn)

    def a_address(self, lane: int, i: int, quad: int = 0) -> int:
        """Byte address in the tile of A of a lane's row i (of warp 0), four k-steps from 4 quad."""
        row = lane // self.lanes_n
        first = quad ^ row % _QUADS
        at = (row + i * self.lanes_m) * _BK + (first ^ i * self.lanes_m % _QUADS) * 4
        return _FLOAT * at

    def b_address(self, lane: int, j: int, k: int = 0) -> int:
        """Byte address in the tile of B of a lane's columns j to j + 3 in step k."""
        return _FLOAT * (k * self.bn + lane % self.lanes_n * 4 + j // 4 * self.lanes_n * 4)


_SEPARATE = "separate launches"
_WAYS = {
    _SEPARATE: _Way(f"{_BATCH} launches of {_COLUMNS} columns: DRAM gives A each time", 4, 2, 4, 8),
    "one launch, the same tile": _Way(
        f"side by side, tiles {_COLUMNS} wide: DRAM gives A once, L2 {_BATCH} times", 4, 2, 4, 1
    ),
    "one launch, a wide tile": _Way(
        f"side by side, a tile {_N} wide: A once from DRAM and L2", _N, 8, 4, 1
    ),
}


class SharedABatch(Experiment):
    """C_b = A B_b for eight B_b of four columns."""

    name = "shared-a-batch"
    title = "A batch that shares A: fusion"
    claim = (
        "Products with the same A that are launched one by one read A from DRAM each time; fused "
        "into one launch they read it once. What that gains depends on what binds next: what L2 "
        "delivers where the tile is as narrow as one product, the multiply-adds where it is wide."
    )
    quantity = f"time of {_BATCH} products of {_M} x {_COLUMNS} x {_K}"
    unit = "us"
    counted = ("FFMA", "LDS.128", "LDGSTS.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Two tiles, one of them launched in two ways."""
        return tuple(
            Variant(name, way.what, "lab_shared_a_batch.cu", way.kernel)
            for name, way in _WAYS.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """Each launch takes as long as its slowest level."""
        notes = {"L2": bandwidth(gpu, "l2").note}
        found = {}
        for name, way in _WAYS.items():
            levels = _levels_us(gpu, way, codes.get(name))
            slowest = max(levels, key=lambda level: levels[level])
            times = ", ".join(
                f"{level} {time_us:.0f}{notes.get(level, '')}" for level, time_us in levels.items()
            )
            reason = f"{way.launches} x {slowest}; of one launch, in us: {times}"
            found[name] = Prediction(way.launches * levels[slowest], reason)
        return found

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """All ways on the same A and B; each way's C is checked."""
        m, k = setup.pick((_M, _K), (_BM * setup.scale, _BK * (setup.scale + 1)))
        rng = np.random.default_rng(0)
        # 2048 products of at most 3 x 3: every partial sum is exact in FP32, in any order.
        host_a = rng.integers(-3, 4, (m, k), dtype=np.int8).astype(np.float32)
        host_b = rng.integers(-3, 4, (k, _N), dtype=np.int8).astype(np.float32)
        wanted = (host_a @ host_b).ravel()
        a, b = setup.device.upload(host_a.ravel()), setup.device.upload(host_b.ravel())
        trials = {}
        for name in _WAYS:
            c = setup.device.empty(m * _N)
            launch = _batch(setup, name, (m, k), a, b, c)
            trials[name] = Trial.of(launch, c, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """The time of the whole batch, each way."""
        checked = "every element against whole numbers"
        found = {name: Measurement.wrong(checked) for name in _WAYS}
        timings = bench.time_right(self.trials(bench))
        for name, timing in timings.items():
            time_us = timing.median_us
            details = {"tflops": 2 * _M * _N * _K / time_us / 1e6}
            if _SEPARATE in timings:
                details["of_separate"] = timings[_SEPARATE].median_us / time_us
            found[name] = Measurement.timed(time_us, timing, checked, **details)
        return found


def _levels_us(gpu: GpuRecord, way: _Way, code: MachineCode | None) -> dict[str, float]:
    """What one launch takes at each level alone."""
    cc = gpu.capability
    cycles_per_us = gpu.clock_ghz * 1e3
    ffmas_per_sm = _M * way.columns * _K / 32 / gpu.sms
    levels = {"DRAM": way.dram_bytes() / (READ_SHARE * gpu.dram_gb_per_s) / 1e3}
    l2_gb_per_s = gb_per_s_of_cycles(bandwidth(gpu, "l2").value, gpu.sms, gpu.clock_ghz)
    levels["L2"] = way.l2_bytes() / l2_gb_per_s / 1e3
    levels["shared memory"] = ffmas_per_sm * way.wavefronts_per_ffma() / cycles_per_us
    slots = 1.0
    if code is not None and code.mix.get("FFMA"):
        slots = (code.instructions + lost_cycles(gpu, code)) / code.mix["FFMA"]
    issued = ffmas_per_sm * max(32 / cc.ffma_lanes_per_sm, slots / cc.partitions_per_sm)
    # The fullest SM has a whole number of blocks.
    blocks_per_sm = way.blocks / gpu.sms
    levels["multiply-adds"] = issued / cycles_per_us * math.ceil(blocks_per_sm) / blocks_per_sm
    return levels


def _batch(
    setup: Setup, name: str, size: tuple[int, int], a: Array, b: Array, c: Array
) -> Callable[[], object]:
    """One call that computes all products, of an A of M x K."""
    kernel, way, (m, k) = setup.kernel(name), _WAYS[name], size
    launches = []
    for first in range(0, _N, way.columns):
        columns_b, columns_c = b.view(first, b.size - first), c.view(first, c.size - first)
        launches.append(
            kernel.prepare(
                *(m, way.columns, k, a, k, columns_b, _N, columns_c, _N),
                grid=way.blocks_for(m),
                block=way.threads,
                stream=setup.stream,
            )
        )

    def launch() -> None:
        for one in launches:
            one()

    return launch
