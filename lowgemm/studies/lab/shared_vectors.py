"""LDS.32, LDS.64, LDS.128, and loads that merge because lanes read the same address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import issue_cycles, slowest
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["SharedVectors"]

_ROWS, _WORDS, _THREADS, _LANES, _WORD = 16, 128, 256, 32, 4
_WARPS = _THREADS // _LANES
#: Wavefronts of an SM in one launch: about a millisecond.
_LAUNCH_WAVEFRONTS = 2_000_000
_TYPES = {4: "unsigned int", 8: "uint2", 16: "uint4"}


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Loads of one width; ``slot`` says which vector of a row a lane reads."""

    what: str
    width_bytes: int
    slot: Callable[[int], int]

    def addresses(self) -> list[int]:
        return [self.width_bytes * self.slot(lane) for lane in range(_LANES)]

    def wavefronts(self) -> int:
        return wavefronts(self.addresses(), self.width_bytes)

    def rounds(self, warps: int) -> int:
        return _LAUNCH_WAVEFRONTS // (warps * _ROWS * self.wavefronts())

    def sums(self, tile: NDArray[np.uint32], rounds: int) -> NDArray[np.uint32]:
        """What each of the 32 lanes ends with."""
        words = self.width_bytes // _WORD
        columns = [[at // _WORD + i for i in range(words)] for at in self.addresses()]
        total = tile.astype(np.uint64)[:, columns].sum(axis=(0, 2)) * np.uint64(rounds)
        sums: NDArray[np.uint32] = (total & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        return sums


def _drop(bit: int) -> Callable[[int], int]:
    """Lanes that differ in one bit read the same slot; the others neighbouring ones."""
    return lambda lane: lane // (2 * bit) * bit + lane % bit


def _patterns(width_bytes: int) -> dict[str, _Pattern]:
    name = f"LDS.{8 * width_bytes}"
    kinds = {
        "": ("each lane its own", lambda lane: lane),
        ", n and n^1": ("lanes n and n^1 read the same", _drop(1)),
        ", n and n^2": ("lanes n and n^2 read the same", _drop(2)),
        ", n and n^4": ("lanes n and n^4 read the same: no merge", _drop(4)),
        ", mixed": (
            "n and n^1 in the lower half warp, n and n^2 in the upper: no merge",
            lambda lane: _drop(1 if lane < _LANES // 2 else 2)(lane),
        ),
        ", one": ("all lanes read the same", lambda lane: 0),
    }
    if width_bytes == _WORD:
        kinds = {kind: kinds[kind] for kind in ("", ", one")}
    return {name + kind: _Pattern(what, width_bytes, slot) for kind, (what, slot) in kinds.items()}


_PATTERNS = {**_patterns(4), **_patterns(8), **_patterns(16)}


class SharedVectors(Experiment):
    """Warps that do nothing but read shared memory, in three widths."""

    name = "shared-vectors"
    title = "LDS.32, LDS.64, LDS.128 and the broadcast merge"
    claim = (
        "A wider load from shared memory saves instructions, not bandwidth: 128 bytes a cycle. But "
        "where every lane n reads what n^1 reads, or every one what n^2 reads, LDS.64 and LDS.128 "
        "take half as many wavefronts: a multicast that gives the registers 256 bytes a cycle. "
        "Other ways of sharing an address do not merge."
    )
    quantity = "time of a warp's load on an SM"
    unit = "SM cycles"
    counted = ("LDS.32", "LDS.64", "LDS.128", "IADD3")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """A kernel for each width; what differs within one of them is a table of places."""
        return tuple(
            Variant(
                name,
                pattern.what,
                "lab_shared_vectors.cu",
                f"lab_shared_vectors<{_TYPES[pattern.width_bytes]}>",
            )
            for name, pattern in _PATTERNS.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """A wavefront a cycle, or the issue slots."""
        predictions = {}
        for name, pattern in _PATTERNS.items():
            words = pattern.width_bytes // _WORD
            issue = issue_cycles(gpu, _ROWS * (1 + words / 2), 1, codes.get(name)) / _ROWS
            predictions[name] = slowest({"wavefronts": pattern.wavefronts(), "issue": issue})
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Every SM holds as many warps as fit; every thread's sum is checked."""
        rng = np.random.default_rng(0)
        tile = rng.integers(0, 2**32, (_ROWS, _WORDS), dtype=np.uint32)
        source = setup.device.upload(tile)
        trials = {}
        for name, pattern in _PATTERNS.items():
            per_sm = setup.blocks_per_sm(name, _THREADS)
            blocks = setup.multiprocessors * per_sm
            place = np.array(pattern.addresses(), dtype=np.int32) // _WORD
            rounds = setup.pick(pattern.rounds(per_sm * _WARPS), setup.scale)
            out = setup.device.empty((blocks * _WARPS, _LANES), np.uint32)
            launch = setup.kernel(name).prepare(
                *(source, setup.device.upload(place), out, rounds),
                grid=blocks,
                block=_THREADS,
                stream=setup.stream,
            )
            wanted = pattern.sums(tile, rounds)
            trials[name] = Trial.of(launch, out, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """A figure for each pattern whose sums were right."""
        checked = "the sum of every thread, modulo 2^32"
        found = {name: Measurement.wrong(checked) for name in _PATTERNS}
        for name, timing in bench.time_right(self.trials(bench)).items():
            pattern = _PATTERNS[name]
            warps = bench.blocks_per_sm(name, _THREADS) * _WARPS
            cycles = bench.cycles(timing) / (pattern.rounds(warps) * _ROWS * warps)
            delivered = pattern.width_bytes * _LANES / cycles
            found[name] = Measurement.timed(cycles, timing, checked, bytes_per_cycle=delivered)
        return found
