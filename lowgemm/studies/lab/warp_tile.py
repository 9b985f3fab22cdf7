"""Warp tiles: 4 x 8 lanes against 1 x 32, and the order of the lanes in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import ffma_cycles, issue_cycles, slowest
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["ARRANGEMENTS", "WarpTile", "WarpTileLanes"]

_THREADS, _BN, _BK, _TN, _QUAD, _FLOAT = 512, 256, 8, 8, 4, 4
_WARPS = _THREADS // 32
#: Rounds over the eight k-steps of a launch, by the rows of the thread tile.
_ROUNDS = {8: 600, 2: 1000}


def _row_by_row(lanes_n: int) -> Callable[[int], tuple[int, int]]:
    return lambda lane: (lane // lanes_n, lane % lanes_n)


def _z_order(lane: int) -> tuple[int, int]:
    """Bits 1 and 3 of the lane count along M, bits 0, 2 and 4 along N."""
    return lane >> 1 & 1 | lane >> 2 & 2, lane & 1 | lane >> 1 & 2 | lane >> 2 & 4


@dataclass(frozen=True, slots=True)
class WarpTileLanes:
    """Where the lanes of the warps read and write, with a thread tile of ``tm`` x 8."""

    what: str
    tm: int
    lanes_m: int
    order: Callable[[int], tuple[int, int]]
    side_by_side: bool = False

    @property
    def bm(self) -> int:
        """Rows of the block tile."""
        return _THREADS * self.tm * _TN // _BN

    @property
    def vector_rows(self) -> int:
        """Rows that a thread reads as one vector."""
        return min(self.tm, _QUAD)

    def places(self) -> NDArray[np.int32]:
        """A row a thread: the first rows of its two vectors of A, then columns of its quads of B.

        Vectors of one index lie next to each other over the lanes, unless a thread's own lie side
        by side. A thread tile with one vector of rows names it twice.
        """
        lanes_n = 32 // self.lanes_m
        warps_n = _BN // (lanes_n * _TN)
        rows = []
        for thread in range(_THREADS):
            warp, (m, n) = thread // 32, self.order(thread % 32)
            row = warp // warps_n * self.lanes_m * self.tm
            col = warp % warps_n * lanes_n * _TN
            wide, vectors = self.vector_rows, self.tm // self.vector_rows
            first = self._starts(row, m, self.lanes_m, wide, vectors)
            rows.append((*(first * 2)[:2], *self._starts(col, n, lanes_n, _QUAD, _TN // _QUAD)))
        return np.array(rows, dtype=np.int32)

    def _starts(self, base: int, lane: int, lanes: int, wide: int, vectors: int) -> tuple[int, ...]:
        apart = wide if self.side_by_side else lanes * wide
        start = base + lane * (wide * vectors if self.side_by_side else wide)
        return tuple(start + i * apart for i in range(vectors))

    def wavefronts(self) -> int:
        """Passes through shared memory for one k-step of all warps, from the real addresses."""
        places = self.places()
        vectors = self.tm // self.vector_rows
        loads = [(i, self.vector_rows) for i in range(vectors)] + [(2, _QUAD), (3, _QUAD)]
        return sum(
            wavefronts([_FLOAT * int(at) for at in warp[:, column]], _FLOAT * wide)
            for warp in places.reshape(_WARPS, 32, 4)
            for column, wide in loads
        )


def _arrangements(tm: int) -> dict[str, WarpTileLanes]:
    shapes = {
        f"{tm}x8, {m} x {32 // m}": WarpTileLanes(
            f"{m * tm} x {32 // m * _TN} a warp, lanes row by row", tm, m, _row_by_row(32 // m)
        )
        for m in (1, 2, 4, 8)
    }
    side = "the 8 columns of a lane side by side"
    return shapes | {
        f"{tm}x8, 4 x 8 z": WarpTileLanes(
            "lane bits 0, 2, 4 along N, bits 1, 3 along M", tm, 4, _z_order
        ),
        f"{tm}x8, 1 x 32 side by side": WarpTileLanes(side, tm, 1, _row_by_row(32), True),
        f"{tm}x8, 4 x 8 side by side": WarpTileLanes(side, tm, 4, _row_by_row(8), True),
        f"{tm}x8, 4 x 8 z side by side": WarpTileLanes(f"z order, {side}", tm, 4, _z_order, True),
    }


#: The arrangements of the lanes, by the variant's name.
ARRANGEMENTS = {**_arrangements(8), **_arrangements(2)}


class WarpTile(Experiment):
    """The main loop of an SGEMM from shared memory, its lanes arranged in eight ways."""

    name = "warp-tile"
    title = "Warp tile shapes and lane orders"
    claim = (
        "4 x 8 lanes are said to beat 1 x 32, because a squarer warp tile shares more of A and B "
        "and conflicts less. By the rules of shared memory the shape alone changes nothing for "
        "LDS.128: lanes that read one address count once in a group of eight, whatever the shape. "
        "What a two-dimensional shape makes possible does: in z order neighbouring lanes share "
        "columns of B as well as rows of A, and each LDS.128 takes two wavefronts instead of four."
    )
    quantity = "time of a k-step of 16 warps"
    unit = "SM cycles"
    counted = ("FFMA", "LDS.64", "LDS.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Two kernels; what differs within one of them is a table of places."""
        return tuple(
            Variant(name, lanes.what, "lab_warp_tile.cu", f"lab_warp_tile<{lanes.tm}>")
            for name, lanes in ARRANGEMENTS.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The slowest of shared memory, FP32 lanes and issue slots."""
        predictions = {}
        for name, lanes in ARRANGEMENTS.items():
            ffma = lanes.tm * _TN
            loads = lanes.tm // lanes.vector_rows + _TN // _QUAD
            issue = issue_cycles(gpu, _BK * (ffma + loads), _WARPS, codes.get(name)) / _BK
            predictions[name] = slowest(
                {
                    "wavefronts": lanes.wavefronts(),
                    "FFMA": ffma_cycles(gpu, ffma, _WARPS),
                    "issue slots and register banks": issue,
                }
            )
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Every SM holds as many blocks as fit; all of them are checked."""
        rng = np.random.default_rng(0)
        host = {tm: rng.integers(0, 4, (_BK, 16 * tm + _BN)).astype(np.float32) for tm in _ROUNDS}
        trials = {}
        for name, lanes in ARRANGEMENTS.items():
            a, b = host[lanes.tm][:, : lanes.bm], host[lanes.tm][:, lanes.bm :]
            rounds = setup.pick(_ROUNDS[lanes.tm], setup.scale)
            blocks = setup.multiprocessors * setup.blocks_per_sm(name, _THREADS)
            out = setup.device.empty((blocks, lanes.bm, _BN))
            arguments = [setup.device.upload(each) for each in (a, b, lanes.places())]
            launch = setup.kernel(name).prepare(
                *arguments, out, rounds, grid=blocks, block=_THREADS, stream=setup.stream
            )
            trials[name] = Trial.of(launch, out, rounds * (a.T @ b), stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """A figure for each variant whose product was right."""
        checked = "every element of every block's product against whole numbers"
        found = {name: Measurement.wrong(checked) for name in ARRANGEMENTS}
        for name, timing in bench.time_right(self.trials(bench)).items():
            lanes = ARRANGEMENTS[name]
            steps = _ROUNDS[lanes.tm] * _BK * bench.blocks_per_sm(name, _THREADS)
            cycles = bench.cycles(timing) / steps
            flop = 2 * lanes.bm * _BN * steps * bench.multiprocessors
            found[name] = Measurement.timed(
                cycles, timing, checked, tflops=flop / timing.median_us / 1e6
            )
        return found
