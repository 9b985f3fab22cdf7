"""LDG.32, LDG.64, LDG.128: float against float4 where memory's latency or bandwidth decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.dram import gb_per_s_by_flight, gb_per_s_of_cycles
from lowgemm.hardware.memory_levels import bandwidth, latency
from lowgemm.runtime import Array, Device
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

__all__ = ["GlobalVectors"]

_THREADS, _WORD, _MOST_FLIGHT, _WIDEST = 256, 4, 4, 16
_TYPES = {4: "unsigned int", 8: "uint2", 16: "uint4"}
_GIB = 2**30
_PATTERN_WORDS = 2**24


@dataclass(frozen=True, slots=True)
class _Stream:
    """How a thread reads, how many of them there are, and from where."""

    width_bytes: int
    flight: int
    in_l2: bool
    few_warps: bool

    @property
    def what(self) -> str:
        loads = "one load" if self.flight == 1 else f"{self.flight} loads"
        warps = "8 warps an SM" if self.few_warps else "all warps that fit"
        return f"{loads} a thread under way, {warps}, {'within L2' if self.in_l2 else 'from DRAM'}"

    def blocks_per_sm(self, threads_per_sm: int) -> int:
        return 1 if self.few_warps else threads_per_sm // _THREADS

    def bytes_under_way(self, threads_per_sm: int) -> int:
        """Bytes that the loads of an SM have asked for at a time."""
        threads = self.blocks_per_sm(threads_per_sm) * _THREADS
        return threads * self.width_bytes * self.flight


def _streams() -> dict[str, _Stream]:
    widths = tuple(_TYPES)
    return {
        **{f"LDG.{8 * w}, L2": _Stream(w, 1, True, False) for w in widths},
        **{f"LDG.{8 * w}, DRAM": _Stream(w, 1, False, False) for w in widths},
        **{f"LDG.{8 * w}, DRAM, 8 warps": _Stream(w, 1, False, True) for w in widths},
        **{f"4 LDG.{8 * w}, DRAM, 8 warps": _Stream(w, 4, False, True) for w in (4, 16)},
    }


_STREAMS = _streams()


class GlobalVectors(Experiment):
    """A stream read in three widths, from L2 and from DRAM, with many warps and with few."""

    name = "global-vectors"
    title = "LDG.32, LDG.64 and LDG.128"
    claim = (
        "float4 does not make memory faster; it puts four times the bytes under way for each load "
        "that a thread waits for. Bandwidth is bytes under way over latency until L2 or DRAM gives "
        "no more. So float4 pays where few warps stream, as in a GEMM with a large tile, and four "
        "narrow loads at a time pay as much there."
    )
    quantity = "bandwidth of a stream that is read"
    unit = "GB/s"
    counted = ("LDG.32", "LDG.64", "LDG.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The kernel's instances, launched on streams of different length by many or few warps."""
        return tuple(
            Variant(
                name,
                stream.what,
                "lab_global_vectors.cu",
                f"lab_global_vectors<{_TYPES[stream.width_bytes]}, {stream.flight}>",
            )
            for name, stream in _STREAMS.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The least of what the memory gives, what latency lets through, and what is issued."""
        return {
            name: _least(_rates(gpu, stream, codes.get(name))) for name, stream in _STREAMS.items()
        }

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """One buffer for all; the sum of all words read is checked."""
        lengths = _lengths(setup)
        rng = np.random.default_rng(0)
        pattern = rng.integers(0, 2**32, setup.pick(_PATTERN_WORDS, 5003), dtype=np.uint32)
        buffer = _filled(setup.device, pattern, lengths[False])
        trials = {}
        for name, stream in _STREAMS.items():
            length = lengths[stream.in_l2]
            blocks = setup.multiprocessors * stream.blocks_per_sm(_threads_per_sm(setup))
            steps = _read_bytes(setup, stream) // (
                blocks * _THREADS * stream.width_bytes * stream.flight
            )
            out = setup.device.empty(blocks * _THREADS, np.uint32)
            launch = setup.kernel(name).prepare(
                *(buffer, out, length // stream.width_bytes, steps),
                grid=blocks,
                block=_THREADS,
                # More than half of it lets one block alone onto an SM.
                shared_bytes=setup.chip.shared_bytes_per_sm // 2 * stream.few_warps,
                stream=setup.stream,
            )
            wanted = _passes(setup, stream) * _sum_of(pattern, length // _WORD) % 2**32
            trials[name] = replace(
                Trial.of(launch, out, wanted, stream=setup.stream),
                judge=partial(_sums_to, wanted),
            )
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """A figure for each stream whose sum was right."""
        checked = "the sum of all words read, modulo 2^32"
        found = {name: Measurement.wrong(checked) for name in _STREAMS}
        for name, timing in bench.time_right(self.trials(bench)).items():
            read = _read_bytes(bench, _STREAMS[name])
            found[name] = Measurement.timed(
                read / timing.median_us / 1e3,
                timing,
                checked,
                bytes_per_cycle_per_sm=read / bench.cycles(timing) / bench.multiprocessors,
            )
        return found


def _sums_to(wanted: int, words: NDArray[np.uint32]) -> bool:
    return int(words.astype(np.uint64).sum()) % 2**32 == wanted


def _rates(gpu: GpuRecord, stream: _Stream, code: MachineCode | None) -> dict[str, float]:
    """GB/s that each limit lets through."""
    capability = gpu.capability
    level, name = ("l2", "L2") if stream.in_l2 else ("dram", "DRAM")
    wait, most = latency(gpu, level), bandwidth(gpu, level)
    under_way = stream.bytes_under_way(capability.threads_per_sm)
    rates = {
        f"{name}{most.note}": gb_per_s_of_cycles(most.value, gpu.sms, gpu.clock_ghz),
        f"{under_way} bytes under way an SM in {wait.value:g} cycles{wait.note}": (
            gb_per_s_by_flight(under_way * gpu.sms, wait.value, gpu.clock_ghz)
        ),
    }
    if code:
        per_loop = stream.width_bytes * stream.flight * capability.threads_per_warp
        slots = per_loop * capability.partitions_per_sm / code.instructions
        rates[f"{code.instructions} instructions for {per_loop} bytes of a warp"] = (
            gb_per_s_of_cycles(slots, gpu.sms, gpu.clock_ghz)
        )
    return rates


def _least(rates: Mapping[str, float]) -> Prediction:
    limits = "; ".join(f"{name}: {rate:.0f} GB/s" for name, rate in rates.items())
    return Prediction(min(rates.values()), limits)


def _threads_per_sm(setup: Setup) -> int:
    return setup.pick(setup.chip.threads_per_sm, 2 * _THREADS)


def _lengths(setup: Setup) -> dict[bool, int]:
    """Bytes of the stream within L2 (True: a quarter of it or so) and of the one from DRAM.

    Whole rounds of all threads, whatever the width and however many loads are under way, so that
    all threads end together.
    """
    a_round = setup.multiprocessors * _threads_per_sm(setup) // _THREADS * _THREADS * _WIDEST
    in_l2 = max(1, setup.l2_bytes // 4 // a_round) * a_round
    longest = setup.pick(max(_GIB, 4 * setup.l2_bytes), 0)
    beyond = max(1, longest // (a_round * _MOST_FLIGHT))
    return {True: in_l2, False: beyond * a_round * _MOST_FLIGHT}


def _passes(setup: Setup, stream: _Stream) -> int:
    """How often the stream is read in one launch."""
    if not stream.in_l2:
        return 1
    return setup.pick(max(1, round(4 * _GIB / _lengths(setup)[True])), 2)


def _read_bytes(setup: Setup, stream: _Stream) -> int:
    """What one launch reads."""
    return _passes(setup, stream) * _lengths(setup)[stream.in_l2]


def _filled(device: Device, pattern: NDArray[np.uint32], length: int) -> Array:
    """A buffer in which the pattern repeats."""
    words = length // _WORD
    buffer = device.empty(words, np.uint32)
    for start in range(0, words, pattern.size):
        size = min(pattern.size, words - start)
        buffer.view(start, size).upload(pattern[:size])
    return buffer


def _sum_of(pattern: NDArray[np.uint32], words: int) -> int:
    """The sum of the first words of the repeated pattern."""
    whole, rest = divmod(words, pattern.size)
    wide = pattern.astype(np.uint64)
    return whole * int(wide.sum()) + int(wide[:rest].sum())
