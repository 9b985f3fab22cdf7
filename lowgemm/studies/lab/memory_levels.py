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
from lowgemm.runtime import Array
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.experiment import (
    Experiment,
    LabResult,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

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

_DRAM = "DRAM latency"
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

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Walks along pointers, and streams."""
        walks = {name: walk.trial for name, walk in _walks(setup).items()}
        return walks | {name: trial for name, (_, trial) in _reads(setup).items()}

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Latencies from the SM's own counter, bandwidths from the time of a launch."""
        found = {}
        for name, walk in _walks(bench).items():
            found[name] = _dram_latency(bench, walk) if name == _DRAM else _latency_of(bench, walk)
        reads = _reads(bench)
        found |= {name: Measurement.wrong(_SUM_CHECK) for name in reads}
        timings = bench.time_right({name: trial for name, (_, trial) in reads.items()})
        return found | {name: _rate(bench, reads[name][0], t) for name, t in timings.items()}


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
    """A walk along a ring from several places, and where it leaves the cycles that it took."""

    trial: Trial
    cycles: Array
    steps: int

    def run(self, stream: object) -> tuple[NDArray[np.float64], bool]:
        """Cycles a step for each block, and whether all ended where they should."""
        right = self.trial.is_right()
        return self.cycles.download(stream=stream) / self.steps, right


def _walks(setup: Setup) -> dict[str, _Walk]:
    """A thread on every SM walks a ring that its cache holds; one walks lines that none holds."""
    rng = np.random.default_rng(0)
    sms, steps = setup.multiprocessors, _steps(setup)
    l2 = setup.pick(min(8 * _MIB, setup.l2_bytes // 2 // _LINE_BYTES * _LINE_BYTES), 16 * _KIB)
    beyond = max(4 * setup.l2_bytes, 256 * _MIB) // _LINE_BYTES * _LINE_BYTES
    beyond = setup.pick(beyond, 64 * _KIB)
    return {
        "shared latency": _shared_walk(setup, rng),
        "L1 latency": _walk(setup, rng, "L1 latency", 16 * _KIB, sms, warm_up=steps),
        "L2 latency": _walk(setup, rng, "L2 latency", l2, sms, warm_up=steps),
        _DRAM: _walk(setup, rng, _DRAM, beyond, 1, warm_up=0),
    }


def _steps(setup: Setup) -> int:
    return setup.pick(_STEPS, 32 * setup.scale)


def _walk(
    setup: Setup,
    rng: np.random.Generator,
    variant: str,
    region_bytes: int,
    blocks: int,
    warm_up: int,
) -> _Walk:
    device, steps = setup.device, _steps(setup)
    ring = device.empty(region_bytes // 8, np.uint64)
    lines = min(region_bytes // _LINE_BYTES, 2 * steps)
    memory, places = pointer_chain(rng, ring.pointer, region_bytes, lines)
    ring.upload(memory)
    first = np.arange(blocks) * 61 % lines
    starts = device.upload(places[first])
    ends = device.empty(blocks, np.uint64)
    cycles = device.zeros(blocks, np.int64)
    launch = setup.kernel(variant).prepare(
        starts, ends, cycles, warm_up, steps, grid=blocks, block=1, stream=setup.stream
    )
    wanted = places[(first + warm_up + steps) % lines] - np.uint64(ring.pointer)
    trial = Trial.of(launch, ends, wanted, stream=setup.stream, within=ring)
    return _Walk(trial, cycles, steps)


def _shared_walk(setup: Setup, rng: np.random.Generator) -> _Walk:
    device, steps = setup.device, _steps(setup)
    order = rng.permutation(_SHARED_CHAIN)
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))  # the walk begins at place 0
    chain = np.empty(_SHARED_CHAIN, np.uint32)
    chain[order] = np.roll(order, -1)
    blocks = setup.multiprocessors
    ends = device.empty(blocks, np.uint32)
    cycles = device.zeros(blocks, np.int64)
    launch = setup.kernel("shared latency").prepare(
        device.upload(chain), ends, cycles, steps, grid=blocks, block=1, stream=setup.stream
    )
    trial = Trial.of(launch, ends, order[steps % _SHARED_CHAIN], stream=setup.stream)
    return _Walk(trial, cycles, steps)


def _latency_of(bench: Bench, walk: _Walk) -> Measurement:
    """That of the second walk."""
    walk.run(bench.stream)
    return _latency(*walk.run(bench.stream))


def _dram_latency(bench: Bench, walk: _Walk) -> Measurement:
    """The median of walks before each of which L2 is overwritten."""
    flush = bench.device.empty(2 * bench.l2_bytes, "uint8")
    runs = []
    for _ in range(_DRAM_WALKS):
        flush.fill_bytes(0, stream=bench.stream)
        runs.append(walk.run(bench.stream))
    cycles = np.array([run[0][0] for run in runs])
    return _latency(np.array([np.median(cycles)]), all(run[1] for run in runs))


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


# ---- bandwidth


def _power_of_two_below(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)


def _streams(setup: Setup, blocks: int) -> dict[str, _Stream]:
    """What each bandwidth kernel reads; the stride is odd, so that all chunks are met."""
    stride = blocks | 1
    l2_chunks = setup.pick(_power_of_two_below(setup.l2_bytes // 3 // _CHUNK_BYTES), 4)
    near, l2 = setup.pick((8192, 2048), (8 * setup.scale,) * 2)
    dram_chunks = setup.pick(_power_of_two_below(setup.most_bytes // _CHUNK_BYTES), 16)
    once = setup.pick(dram_chunks // stride // 8 * 8, 8 * setup.scale)
    return {
        "shared bandwidth": _Stream("shared", _SHARED_CHUNKS, near, 1),
        "L1 bandwidth": _Stream("l1", _SHARED_CHUNKS, near, stride),
        "L2 bandwidth": _Stream("l2", l2_chunks, l2, stride),
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
    setup: Setup, rng: np.random.Generator, stream: _Stream
) -> tuple[Array, NDArray[np.float64]]:
    """Memory for a kernel to read, and its chunks' sums."""
    if stream.level == "dram":
        return _filled_by_segments(setup, stream.chunks)
    host = rng.integers(0, 8, (stream.chunks, _THREADS, 4)).astype(np.float32)
    return setup.device.upload(host), host.sum(axis=2, dtype=np.float64)


def _filled_by_segments(setup: Setup, chunks: int) -> tuple[Array, NDArray[np.float64]]:
    """Too much to upload: segments of one value each."""
    array = setup.device.empty((chunks, _THREADS, 4))
    values = np.empty(chunks)
    of_segment = max(1, chunks // _SEGMENTS)
    for number, first in enumerate(range(0, chunks, of_segment)):
        value = number % 7 + 1
        part = array.view(first * _THREADS * 4, of_segment * _THREADS * 4)
        part.fill(value, stream=setup.stream)
        values[first : first + of_segment] = 4 * value
    return array, values[:, None]


def _reads(setup: Setup) -> dict[str, tuple[_Stream, Trial]]:
    """All SMs read at once, on each level."""
    rng = np.random.default_rng(1)
    blocks = _BLOCKS_PER_SM * setup.multiprocessors
    reads = {}
    for name, stream in _streams(setup, blocks).items():
        source, sums = _filled(setup, rng, stream)
        out = setup.device.empty((blocks, _THREADS))
        launch = setup.kernel(name).prepare(
            *(source, out, stream.chunks, stream.stride, stream.rounds),
            grid=blocks,
            block=_THREADS,
            stream=setup.stream,
        )
        # Every block reads the four chunks of shared memory in turn, from the first on.
        starts = 1 if stream.level == "shared" else blocks
        wanted = expected_sums(sums, starts, stream.stride, stream.rounds)
        reads[name] = (stream, Trial.of(launch, out, wanted, stream=setup.stream))
    return reads


def _rate(bench: Bench, stream: _Stream, timing: Timing) -> Measurement:
    per_sm = _BLOCKS_PER_SM * stream.rounds * _CHUNK_BYTES
    total = per_sm * bench.multiprocessors
    details: dict[str, Any] = {"gb_per_s": total / timing.median_us / 1e3}
    return Measurement.timed(per_sm / bench.cycles(timing), timing, _SUM_CHECK, **details)
