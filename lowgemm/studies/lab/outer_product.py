"""Inner against outer product: the order of a tile's multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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

__all__ = ["OuterProduct"]

_THREADS, _SIDE, _BK, _T, _APART, _FLOAT, _ROUNDS = 256, 128, 8, 8, 16, 4, 400
_WARPS = _THREADS // 32

_ORDERS = {
    "inner": (1, "element by element: both operands of each FFMA are loaded"),
    "outer 2 x 2": (2, "squares of 2 x 2: an operand serves two FFMAs"),
    "outer 4 x 4": (4, "squares of 4 x 4: an operand serves four FFMAs"),
    "outer 8 x 8": (8, "the whole thread tile: an operand serves eight FFMAs"),
}


def _wavefronts_of_a_load() -> float:
    """Passes of a warp's LDS.32 of A and of B, on average: from the real addresses."""
    rows = [_FLOAT * (lane // _APART) for lane in range(32)]
    columns = [_FLOAT * (lane % _APART) for lane in range(32)]
    return (wavefronts(rows) + wavefronts(columns)) / 2


class OuterProduct(Experiment):
    """A thread tile of 8 x 8 computed in squares of 1, 2, 4 and 8."""

    name = "outer-product"
    title = "Inner product against outer product"
    claim = (
        "An inner product reads two operands from shared memory for every multiply-add. An outer "
        "product of S elements of A's column by S of B's row reads 2 S for S x S multiply-adds, so "
        "shared memory has to deliver S times less, until the FP32 lanes or the issue slots decide."
    )
    quantity = "time of a k-step of a 128 x 128 tile"
    unit = "SM cycles"
    counted = ("FFMA", "LDS.32", "LDS.64", "LDS.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The kernel's instances, one for each side of the square."""
        return tuple(
            Variant(name, what, "lab_outer_product.cu", f"lab_outer_product<{side}>")
            for name, (side, what) in _ORDERS.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The slowest of shared memory, FP32 lanes and issue slots."""
        predictions = {}
        for name, (side, _) in _ORDERS.items():
            ffma, loads = _T * _T, 2 * _T * _T // side
            issue = issue_cycles(gpu, _BK * (ffma + loads), _WARPS, codes.get(name)) / _BK
            found = slowest(
                {
                    "wavefronts": loads * _WARPS * _wavefronts_of_a_load(),
                    "FFMA": ffma_cycles(gpu, ffma, _WARPS),
                    "issue slots and register banks": issue,
                }
            )
            reason = f"{loads / ffma:g} LDS an FFMA; {found.reason}"
            predictions[name] = Prediction(found.value, reason)
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Every SM holds as many blocks as fit; all of them are checked."""
        rng = np.random.default_rng(0)
        a, b = (rng.integers(0, 4, (_BK, _SIDE)).astype(np.float32) for _ in range(2))
        arguments = (setup.device.upload(a), setup.device.upload(b))
        rounds = setup.pick(_ROUNDS, setup.scale)
        trials = {}
        for name in _ORDERS:
            blocks = setup.multiprocessors * setup.blocks_per_sm(name, _THREADS)
            out = setup.device.empty((blocks, _SIDE, _SIDE))
            launch = setup.kernel(name).prepare(
                *arguments, out, rounds, grid=blocks, block=_THREADS, stream=setup.stream
            )
            trials[name] = Trial.of(launch, out, rounds * (a.T @ b), stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """A figure for each order whose product was right."""
        checked = "every element of every block's product against whole numbers"
        found = {name: Measurement.wrong(checked) for name in _ORDERS}
        for name, timing in bench.time_right(self.trials(bench)).items():
            steps = _ROUNDS * _BK * bench.blocks_per_sm(name, _THREADS)
            flop = 2 * _SIDE * _SIDE * steps * bench.multiprocessors
            cycles = bench.cycles(timing) / steps
            tflops = flop / timing.median_us / 1e6
            found[name] = Measurement.timed(cycles, timing, checked, tflops=tflops)
        return found
