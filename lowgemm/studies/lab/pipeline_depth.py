"""Pipeline depth: how many tiles must be under way to hide the latency of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord, shared_bytes_for
from lowgemm.hardware.memory_levels import bandwidth, latency
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["PipelineDepth"]

_THREADS, _TILE_BYTES = 256, 4096
_SHORT, _LONG = 32, 256
_CHAIN_CYCLES = 4  # an FFMA behind the FFMA that it needs, on every chip of 8.0 and later
_ADDS = 3  # of the float4 that a thread reads from a tile, in the same chain


@dataclass(frozen=True, slots=True)
class _Case:
    """Where the tiles come from, how long the computation on one is, and the stages."""

    level: str
    ffmas: int
    stages: int

    @property
    def name(self) -> str:
        long = ", long computation" if self.ffmas == _LONG else ""
        return f"{_LEVELS[self.level]}{long}, {self.stages} stage{'s' * (self.stages > 1)}"

    @property
    def what(self) -> str:
        ahead = self.stages - 1
        under_way = "copy, wait, compute" if not ahead else f"{ahead} under way while one computes"
        return f"{under_way}; {self.ffmas} FFMAs a tile"

    @property
    def kernel(self) -> str:
        return f"lab_pipeline_depth<{self.stages}, {self.ffmas}>"


_LEVELS = {"dram": "DRAM", "l2": "L2"}
_CASES = (
    *(_Case("dram", _SHORT, stages) for stages in (1, 2, 3, 4, 6, 8)),
    *(_Case("l2", _SHORT, stages) for stages in (1, 2, 3, 4)),
    *(_Case("dram", _LONG, stages) for stages in (1, 2, 3)),
)


class PipelineDepth(Experiment):
    """One block an SM that copies tiles and computes on them, with one to eight stages."""

    name = "pipeline-depth"
    title = "Pipeline depth against latency"
    claim = (
        "The latency of a tile is the memory's own plus tile over bandwidth. One stage pays it "
        "for every tile; with S stages a tile takes the longest of its computation, its transfer "
        "and its latency over S - 1. So DRAM needs more stages than L2, a long computation needs "
        "two, and beyond the depth that Little's law gives more stages win nothing."
    )
    quantity = "time of a tile of 4 KiB"
    unit = "SM cycles"
    counted = ("FFMA", "LDGSTS.128", "LDS.128", "BAR")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Sources, computations and stages."""
        return tuple(
            Variant(case.name, case.what, "lab_pipeline_depth.cu", case.kernel) for case in _CASES
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The longest of computing, transfer, and latency over the tiles under way."""
        return {case.name: _prediction(gpu, case, codes.get(case.name)) for case in _CASES}

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """One block on every SM, held to one by shared memory."""
        sizes, blocks = _sizes(setup), setup.multiprocessors
        rng = np.random.default_rng(0)
        shape = (blocks, sizes.tiles, _THREADS, 4)
        host = rng.integers(0, 8, shape, dtype=np.int8).astype(np.float32)
        source = setup.device.upload(host)
        room = shared_bytes_for(setup.chip, 1)
        sums = {level: thread_sums(host, sizes.window(level)) for level in _LEVELS}
        trials = {}
        for case in _CASES:
            kernel = setup.kernel(case.name)
            out = setup.device.empty((blocks, _THREADS))
            launch = kernel.prepare(
                *(source, out, sizes.tiles, sizes.window(case.level), 1.0),
                grid=blocks,
                block=_THREADS,
                shared_bytes=room - kernel.shared_bytes,
                stream=setup.stream,
            )
            wanted = case.ffmas * sums[case.level]
            trials[case.name] = Trial.of(launch, out, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """The cycles of a tile."""
        tiles = _sizes(bench).tiles
        checked = "every thread's sum against whole numbers"
        found = {case.name: Measurement.wrong(checked) for case in _CASES}
        copied = bench.multiprocessors * tiles * _TILE_BYTES
        for name, timing in bench.time_right(self.trials(bench)).items():
            found[name] = Measurement.timed(
                bench.cycles(timing) / tiles,
                timing,
                checked,
                gb_per_s=copied / timing.median_us / 1e3,
            )
        return found


def _sizes(setup: Setup) -> _Sizes:
    full = _Sizes.of(setup.multiprocessors, setup.l2_bytes)
    return setup.pick(full, _Sizes(tiles=8 + 2 * setup.scale, l2_window=3))


def _prediction(gpu: GpuRecord, case: _Case, code: MachineCode | None) -> Prediction:
    static, rate = latency(gpu, case.level), bandwidth(gpu, case.level)
    computing = _compute_cycles(gpu, case, code)
    transfer = _TILE_BYTES / rate.value
    waited = static.value + transfer
    told = (
        f"latency {static.value:,.0f}{static.note} + {_TILE_BYTES} / {rate.value:.1f}{rate.note} = "
        f"{waited:,.0f} cycles, computation {computing:,.0f}"
    )
    if case.stages == 1:
        return Prediction(waited + computing, f"{told}, one after the other")
    waiting = waited / (case.stages - 1)
    terms = {"computation": computing, "transfer": transfer, "latency": waiting}
    binding = max(terms, key=lambda term: terms[term])
    return Prediction(
        terms[binding],
        f"{told}; {case.stages - 1} under way: {waiting:,.0f} cycles a tile of latency, "
        f"{transfer:,.0f} of transfer; {binding} binds; by Little's law "
        f"{waited / max(computing, transfer):.1f} tiles under way suffice",
    )


def _compute_cycles(gpu: GpuRecord, case: _Case, code: MachineCode | None) -> float:
    """The chain, a slot for each instruction beside it, and the read from shared memory before it.

    Two warps share a sub-partition and hide behind each other's chain.
    """
    chain = case.ffmas + _ADDS
    beside = max(code.instructions - chain, 0) if code else 0
    return _CHAIN_CYCLES * chain + beside + latency(gpu, "shared").value


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many tiles a block reads, and of how many of its own in turn where they come from L2."""

    tiles: int
    l2_window: int

    @classmethod
    def of(cls, sms: int, l2_bytes: float) -> _Sizes:
        """Five times L2 for all blocks together, or a quarter of it."""
        held = l2_bytes / (sms * _TILE_BYTES)
        return cls(max(int(-(-5 * held // 64)) * 64, 512), max(int(held / 4), 1))

    def window(self, level: str) -> int:
        return self.tiles if level == "dram" else self.l2_window


def thread_sums(host: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    """What each thread of each block sums up over all tiles, one FFMA each.

    Parameters
    ----------
    host
        Blocks x tiles x threads x 4, as the source lies in memory; read as whole windows a block.
    window
        Tiles that a block reads in turn.
    """
    blocks, tiles = host.shape[:2]
    used = host.reshape(-1, _THREADS, 4)[: blocks * window]
    each = used.reshape(blocks, window, _THREADS, 4).sum(3)
    times = np.full(window, tiles // window, np.float32)
    times[: tiles % window] += 1
    sums: NDArray[np.float32] = np.einsum("bwt,w->bt", each, times)
    # A thread reads what the thread 32 places on has copied.
    return np.roll(sums, -32, axis=1)
