"""Memory levels: latency and bandwidth of shared memory, L1, L2 and DRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.gpus import record_with_measurements
from lowgemm.hardware.memory_levels import LEVELS, bandwidth, latency
from lowgemm.measure import Timing
from lowgemm.runtime import Array, PreparedLaunch
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.experiment import (
    Experiment,
    LabResult,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)

__all__ = ["MemoryLevels", "expected_sums", "measured_record", "pointer_chain"]

_SOURCE = "lab_memory_levels.cu"
_NAMES = {"shared": "shared", "l1": "L1", "l2": "L2", "dram": "DRAM"}
_KIB, _MIB = 1 << 10, 1 << 20
_LINE_BYTES = 128
# ---- as in the kernels' file
_SHARED_CHAIN = 1024
_THREADS, _SHARED_CHUNKS = 512, 4
_CHUNK_BYTES = _THREADS * 16
_BLOCKS_PER_SM = 2

_STEPS = 4096
_DRAM_WALKS = 5
_SEGMENTS = 64
_CHAIN_CHECK = "the address at which each walk ends"
_SUM_CHECK = "the sum of every thread against whole numbers"


@dataclass(frozen=True, slots=True)
class _Stream:
    """How a bandwidth kernel reads: chunks there are, and rounds, each a chunk a block."""

    level: str
    chunks: int
    rounds: int
    stride: int


class MemoryLevels(Experiment):
    """A walk along pointers, and all SMs reading at once, on each level."""

    name = "memory-levels"
    title = "Latency and bandwidth of shared memory, L1, L2 and DRAM"
    claim = (
        "Each level further out is slower to answer and gives each SM less: shared memory and L1 "
        "128 bytes a cycle, L2 and DRAM a share of what all SMs get together. What is measured "
        "here is what the model can use for this GPU."
    )
    quantity = "latency, and bandwidth of an SM while all read"
    unit = "cycles; bytes per cycle and SM"
    counted = ("LDG.64", "LDG.128", "LDS.32", "LDS.128", "FADD")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """A latency and a bandwidth for each level."""
        walks = {
            "shared": "lab_memory_shared_latency",
            "l1": "lab_memory_latency<1>",
            "l2": "lab_memory_latency<2>",
            "dram": "lab_memory_latency<2>",
        }
        told = {
            "shared": "4 KiB in shared memory",
            "l1": "16 KiB, walked once before",
            "l2": "8 MiB, loads that pass by L1",
            "dram": "four times the L2, which is overwritten before",
        }
        reads = {
            "shared": "LDS.128 of 32 KiB, neighbours side by side",
            "l1": "LDG.128 of 32 KiB",
            "l2": "LDG.128 of a third of the L2, passing by L1",
            "dram": "LDG.128 of each byte once",
        }
        return (
            *(Variant(f"{_NAMES[n]} latency", told[n], _SOURCE, walks[n]) for n in LEVELS),
            *(
                Variant(f"{_NAMES[n]} bandwidth", reads[n], _SOURCE, f"lab_memory_bandwidth<{i}>")
                for i, n in enumerate(LEVELS)
            ),
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The GPU's own figures; where it has none, those of its kind."""
        predictions = {}
        for level in LEVELS:
            waiting, rate = latency(gpu, level), bandwidth(gpu, level)
            predictions[f"{_NAMES[level]} latency"] = Prediction(waiting.value, waiting.origin)
            predictions[f"{_NAMES[level]} bandwidth"] = Prediction(
                rate.value, f"{rate.value:.1f} bytes a cycle: {rate.origin}"
            )
        return predictions

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Latencies from the SM's own counter, bandwidths from the time of a launch."""
        rng = np.random.default_rng(0)
        walked = {
            "shared latency": _shared_walk(bench, rng),
            "L1 latency": _walk(bench, rng, "L1 latency", 16 * _KIB, warm_up=_STEPS),
            "L2 latency": _walk(bench, rng, "L2 latency", _l2_region(bench), warm_up=_STEPS),
            "DRAM latency": _dram_walk(bench, rng),
        }
        return walked | _bandwidths(bench, rng)


def measured_record(result: LabResult, record: GpuRecord) -> GpuRecord:
    """A GPU's record with the figures of this experiment in place of published ones.

    Parameters
    ----------
    result
        This experiment's, with measurements. What was wrong or not measured keeps its old figure.
    record
        The GPU that it was measured on.
    """
    figures: dict[str, float] = {}
    rows = {row.variant: row.measurement for row in result.rows}
    for level in LEVELS:
        walk = rows.get(f"{_NAMES[level]} latency")
        if walk is not None and walk.value is not None:
            figures[f"{level}_latency_cycles"] = walk.value
        read = rows.get(f"{_NAMES[level]} bandwidth")
        if level in ("l2", "dram") and read is not None and read.value is not None:
            figures[f"{level}_gb_per_s"] = read.details["gb_per_s"]
    return record_with_measurements(record, **figures)


# ---- latency


def pointer_chain(
    rng: np.random.Generator, pointer: int, region_bytes: int, lines: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A ring of pointers through a region, one in each of so many lines in random order.

    Returns
    -------
    memory
        What the region must hold.
    places
        The addresses in the order in which they are visited; the last points to the first.
    """
    chosen = rng.choice(region_bytes // _LINE_BYTES, lines, replace=False)
    offsets = chosen.astype(np.uint64) * np.uint64(_LINE_BYTES)
    places = offsets + np.uint64(pointer)
    memory = np.zeros(region_bytes // 8, np.uint64)
    memory[offsets // np.uint64(8)] = np.roll(places, -1)
    return memory, places


@dataclass(frozen=True, slots=True)
class _Walk:
    """A ring in a GPU's memory and the launch that walks it from several places."""

    launch: PreparedLaunch
    ends: Array
    cycles: Array
    wanted: NDArray[np.uint64]
    ring: Array

    def run(self, bench: Bench) -> tuple[NDArray[np.float64], bool]:
        """Cycles a step for each block, and whether all ended where they should."""
        self.launch()
        ends = self.ends.download(stream=bench.stream)
        cycles = self.cycles.download(stream=bench.stream)
        return cycles / _STEPS, bool((ends == self.wanted).all())


def _prepare_walk(
    bench: Bench,
    rng: np.random.Generator,
    variant: str,
    region_bytes: int,
    blocks: int,
    warm_up: int,
) -> _Walk:
    ring = bench.gpu.empty(region_bytes // 8, np.uint64)
    lines = min(region_bytes // _LINE_BYTES, 2 * _STEPS)
    memory, places = pointer_chain(rng, ring.pointer, region_bytes, lines)
    ring.upload(memory)
    first = np.arange(blocks) * 61 % lines
    starts = bench.gpu.upload(places[first])
    ends = bench.gpu.zeros(blocks, np.uint64)
    cycles = bench.gpu.zeros(blocks, np.int64)
    launch = bench.kernel(variant).prepare(
        starts, ends, cycles, warm_up, _STEPS, grid=blocks, block=1, stream=bench.stream
    )
    return _Walk(launch, ends, cycles, places[(first + warm_up + _STEPS) % lines], ring)


def _walk(
    bench: Bench, rng: np.random.Generator, variant: str, region_bytes: int, warm_up: int
) -> Measurement:
    """A thread on every SM walks a ring that its cache holds."""
    walk = _prepare_walk(bench, rng, variant, region_bytes, bench.gpu.multiprocessors, warm_up)
    walk.run(bench)
    cycles, correct = walk.run(bench)
    return _latency(cycles, correct)


def _dram_walk(bench: Bench, rng: np.random.Generator) -> Measurement:
    """One thread walks lines that no cache holds, each once; L2 is overwritten before each walk."""
    l2_bytes = bench.gpu.attributes.l2_bytes
    region_bytes = max(4 * l2_bytes, 256 * _MIB) // _LINE_BYTES * _LINE_BYTES
    walk = _prepare_walk(bench, rng, "DRAM latency", region_bytes, 1, warm_up=0)
    flush = bench.gpu.empty(2 * l2_bytes, "uint8")
    runs = []
    for _ in range(_DRAM_WALKS):
        flush.fill_bytes(0, stream=bench.stream)
        runs.append(walk.run(bench))
    cycles = np.array([run[0][0] for run in runs])
    return _latency(np.array([np.median(cycles)]), all(run[1] for run in runs))


def _shared_walk(bench: Bench, rng: np.random.Generator) -> Measurement:
    order = rng.permutation(_SHARED_CHAIN)
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))  # the walk begins at place 0
    chain = np.empty(_SHARED_CHAIN, np.uint32)
    chain[order] = np.roll(order, -1)
    blocks = bench.gpu.multiprocessors
    source = bench.gpu.upload(chain)
    ends = bench.gpu.zeros(blocks, np.uint32)
    cycles = bench.gpu.zeros(blocks, np.int64)
    launch = bench.kernel("shared latency").prepare(
        source, ends, cycles, _STEPS, grid=blocks, block=1, stream=bench.stream
    )
    launch()
    launch()
    correct = bool((ends.download(stream=bench.stream) == order[_STEPS % _SHARED_CHAIN]).all())
    return _latency(cycles.download(stream=bench.stream) / _STEPS, correct)


def _latency(cycles: NDArray[np.float64], correct: bool) -> Measurement:
    """The mean over the SMs."""
    if not correct:
        return Measurement.wrong(_CHAIN_CHECK)
    spread = {}
    if len(cycles) > 1:
        spread = {
            "fastest_sm_cycles": float(cycles.min()),
            "slowest_sm_cycles": float(cycles.max()),
        }
    return Measurement(float(cycles.mean()), True, _CHAIN_CHECK, details=spread)


def _l2_region(bench: Bench) -> int:
    return min(8 * _MIB, bench.gpu.attributes.l2_bytes // 2 // _LINE_BYTES * _LINE_BYTES)


# ---- bandwidth


def _power_of_two_below(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)


def _streams(bench: Bench, blocks: int) -> dict[str, _Stream]:
    """What each bandwidth kernel reads; the stride is odd, so that all chunks are met."""
    stride = blocks | 1
    l2_chunks = _power_of_two_below(bench.gpu.attributes.l2_bytes // 3 // _CHUNK_BYTES)
    free_bytes, _ = bench.gpu.memory_bytes()
    dram_chunks = _power_of_two_below(min(2048 * _MIB, free_bytes // 4) // _CHUNK_BYTES)
    once = dram_chunks // stride // 8 * 8
    return {
        "shared bandwidth": _Stream("shared", _SHARED_CHUNKS, 8192, 1),
        "L1 bandwidth": _Stream("l1", _SHARED_CHUNKS, 8192, stride),
        "L2 bandwidth": _Stream("l2", l2_chunks, 2048, stride),
        "DRAM bandwidth": _Stream("dram", dram_chunks, once, stride),
    }


def expected_sums(
    chunk_sums: NDArray[np.float64], blocks: int, stride: int, rounds: int
) -> NDArray[np.float64]:
    """What each thread of each block adds up.

    Parameters
    ----------
    chunk_sums
        For each chunk the sum of each thread's four floats, or one for all threads.
    blocks, stride, rounds
        Block b reads chunk (b + round * stride) mod chunks.
    """
    chunks, per_chunk = chunk_sums.shape
    read = (np.arange(blocks)[:, None] + np.arange(rounds) * stride) % chunks
    if per_chunk == 1:
        total: NDArray[np.float64] = chunk_sums[read, 0].sum(axis=1)[:, None]
        return total
    times = np.stack([np.bincount(row, minlength=chunks) for row in read])
    return times.astype(np.float64) @ chunk_sums


def _filled(
    bench: Bench, rng: np.random.Generator, stream: _Stream
) -> tuple[Array, NDArray[np.float64]]:
    """Memory for a kernel to read, and its chunks' sums."""
    if stream.level == "dram":
        return _filled_by_segments(bench, stream.chunks)
    host = rng.integers(0, 8, (stream.chunks, _THREADS, 4)).astype(np.float32)
    return bench.gpu.upload(host), host.sum(axis=2, dtype=np.float64)


def _filled_by_segments(bench: Bench, chunks: int) -> tuple[Array, NDArray[np.float64]]:
    """Too much to upload: segments of one value each."""
    array = bench.gpu.empty((chunks, _THREADS, 4))
    values = np.empty(chunks)
    of_segment = max(1, chunks // _SEGMENTS)
    for number, first in enumerate(range(0, chunks, of_segment)):
        value = number % 7 + 1
        part = array.view(first * _THREADS * 4, of_segment * _THREADS * 4)
        part.fill(value, stream=bench.stream)
        values[first : first + of_segment] = 4 * value
    return array, values[:, None]


def _bandwidths(bench: Bench, rng: np.random.Generator) -> dict[str, Measurement]:
    blocks = _BLOCKS_PER_SM * bench.gpu.multiprocessors
    streams = _streams(bench, blocks)
    launches: dict[str, PreparedLaunch] = {}
    correct: dict[str, bool] = {}
    for name, stream in streams.items():
        source, sums = _filled(bench, rng, stream)
        out = bench.gpu.zeros((blocks, _THREADS))
        launches[name] = bench.kernel(name).prepare(
            source,
            out,
            stream.chunks,
            stream.stride,
            stream.rounds,
            grid=blocks,
            block=_THREADS,
            stream=bench.stream,
        )
        launches[name]()
        # Every block reads the four chunks of shared memory in turn, from the first on.
        starts = 1 if stream.level == "shared" else blocks
        wanted = expected_sums(sums, starts, stream.stride, stream.rounds)
        correct[name] = bool((out.download(stream=bench.stream) == wanted).all())
    timings = bench.time({name: launch for name, launch in launches.items() if correct[name]})
    return {
        name: _rate(bench, streams[name], timings[name])
        if correct[name]
        else Measurement.wrong(_SUM_CHECK)
        for name in streams
    }


def _rate(bench: Bench, stream: _Stream, timing: Timing) -> Measurement:
    per_sm = _BLOCKS_PER_SM * stream.rounds * _CHUNK_BYTES
    total = per_sm * bench.gpu.multiprocessors
    details: dict[str, Any] = {"gb_per_s": total / timing.median_us / 1e3}
    return Measurement.timed(per_sm / bench.cycles(timing), timing, _SUM_CHECK, **details)
