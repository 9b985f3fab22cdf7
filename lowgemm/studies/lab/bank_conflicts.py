"""Bank conflicts: plain, padded, transposed, swizzled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.shared_memory import wavefronts
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

__all__ = ["BankConflicts"]

_SIDE, _THREADS, _ROUNDS = 32, 256, 2000
_WARPS = _THREADS // 32
_FLOAT = 4


@dataclass(frozen=True, slots=True)
class _Layout:
    """One layout: where an element lies (in floats), and how the block stores it."""

    what: str
    place: Callable[[int, int], int]
    stores_float4: bool = False
    row_a_lane: bool = False

    def store_wavefronts(self, warp: int) -> int:
        """Passes in which a warp stores its four floats a lane."""
        starts = [self._first(warp, lane) for lane in range(32)]
        if self.stores_float4:
            return wavefronts([_FLOAT * self.place(*at) for at in starts], 16, store=True)
        return sum(
            wavefronts([_FLOAT * self.place(row, k + i) for row, k in starts], store=True)
            for i in range(4)
        )

    def load_wavefronts(self, warp: int) -> int:
        """Passes in which a warp reads four columns, a row a lane."""
        return sum(
            wavefronts([_FLOAT * self.place(lane, warp + 8 * i) for lane in range(32)])
            for i in range(4)
        )

    def _first(self, warp: int, lane: int) -> tuple[int, int]:
        """Row and first k of a thread's four floats."""
        thread = warp * 32 + lane
        return (lane, warp * 4) if self.row_a_lane else (thread // 8, thread % 8 * 4)


# In the order of the numbers in the kernel's file.
_LAYOUTS = {
    "plain": _Layout(
        "pitch 32: a column lies in one bank", lambda row, k: row * 32 + k, stores_float4=True
    ),
    "padded": _Layout("pitch 33, stored float by float", lambda row, k: row * 33 + k),
    "padded by 4": _Layout(
        "pitch 36, stored as float4", lambda row, k: row * 36 + k, stores_float4=True
    ),
    "transposed": _Layout("k-major, stored as the data comes", lambda row, k: k * 32 + row),
    "transposed, a row a lane": _Layout(
        "k-major, a warp stores 32 rows of one k", lambda row, k: k * 32 + row, row_a_lane=True
    ),
    "swizzled": _Layout("column k of row m at k xor m", lambda row, k: row * 32 + (k ^ row)),
}


class BankConflicts(Experiment):
    """A tile stored by rows and read by columns, in six layouts."""

    name = "bank-conflicts"
    title = "Bank conflicts and their cures"
    claim = (
        "Lanes that read different words of one bank take turns: a column of an unpadded tile "
        "costs 32 passes instead of one. Padding, a transposed layout and an xor swizzle each cure "
        "it; padding that keeps float4 aligned and a careless transposition do so only in part."
    )
    quantity = "time of a tile stored and read"
    unit = "SM cycles"
    counted = ("STS.32", "STS.128", "LDS.32", "LDS.128", "BAR")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The kernel's instances, one for each layout."""
        return tuple(
            Variant(name, layout.what, "lab_bank_conflicts.cu", f"lab_bank_conflicts<{number}>")
            for number, (name, layout) in enumerate(_LAYOUTS.items())
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """Shared memory passes one wavefront a cycle; eight warps store and read the tile."""
        predictions = {}
        for name, layout in _LAYOUTS.items():
            stored = sum(layout.store_wavefronts(warp) for warp in range(_WARPS))
            read = sum(layout.load_wavefronts(warp) for warp in range(_WARPS))
            reason = f"{stored} wavefronts of stores, {read} of loads, one a cycle"
            predictions[name] = Prediction(float(stored + read), reason)
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Every SM holds as many blocks as fit, so that shared memory is never idle."""
        rng = np.random.default_rng(0)
        host = rng.integers(0, 8, (_SIDE, _SIDE)).astype(np.float32)
        source = setup.device.upload(host)
        rounds = setup.pick(_ROUNDS, 2 * setup.scale)
        wanted = rounds * host + rounds * (rounds - 1) // 2
        trials = {}
        for name in _LAYOUTS:
            blocks = setup.multiprocessors * setup.blocks_per_sm(name, _THREADS)
            out = setup.device.empty((blocks, _SIDE, _SIDE))
            launch = setup.kernel(name).prepare(
                source, out, rounds, grid=blocks, block=_THREADS, stream=setup.stream
            )
            trials[name] = Trial.of(launch, out, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Cycles of a round, over the blocks that share an SM."""
        checked = "every element of every block against whole numbers"
        found = {name: Measurement.wrong(checked) for name in _LAYOUTS}
        for name, timing in bench.time_right(self.trials(bench)).items():
            per_sm = bench.blocks_per_sm(name, _THREADS)
            found[name] = Measurement.timed(
                bench.cycles(timing) / (_ROUNDS * per_sm), timing, checked, blocks_per_sm=per_sm
            )
        return found
