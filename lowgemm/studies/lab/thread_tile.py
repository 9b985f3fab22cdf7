"""Thread tiles: 8 x 16 and 12 x 16 sums, as the compiler orders the loop and rewritten."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lowgemm.compiler import Build
from lowgemm.gemm.rewritten import rewritten_cubin
from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.rewrite import rewrite_kernel
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

__all__ = ["ThreadTile", "Tiles"]

_THREADS, _TN, _BN, _BK, _STAGES = 256, 16, 128, 8, 4
_SHARED_BYTES = 64 << 10
#: Threads of a warp times schedulers of an SM: FFMAs that all schedulers issue in a cycle.
_LANES = 128
_ROWS = (8, 12)
_REWRITTEN = ", rewritten"


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of C, ``rows`` x ``columns`` of ``bm`` x 128: as many on each multiprocessor."""

    tm: int
    rows: int
    columns: int
    k: int

    @classmethod
    def of(cls, tm: int, setup: Setup) -> Tiles:
        """A wave as square as may be, and a few of them."""
        sms = setup.multiprocessors
        rows = max(each for each in range(1, math.isqrt(sms) + 1) if sms % each == 0)
        waves = setup.pick(4, 1)
        return cls(tm, rows, sms // rows * waves, setup.pick(4096, 2 * _BK * setup.scale))

    @property
    def bm(self) -> int:
        """Rows of a block tile."""
        return _THREADS * self.tm * _TN // _BN

    @property
    def m(self) -> int:
        """Rows of C."""
        return self.rows * self.bm

    @property
    def n(self) -> int:
        """Columns of C."""
        return self.columns * _BN


class ThreadTile(Experiment):
    """C = A^T B on full waves of tiles."""

    name = "thread-tile"
    title = "Thread tiles of 8 x 16 and 12 x 16"
    claim = (
        "What is no FFMA takes slots from FFMAs, and a load from shared memory a cycle more. A "
        "12 x 16 thread tile needs 7 LDS.128 for 192 FFMAs where 8 x 16 needs 6 for 128, so it "
        "should be faster by 2 to 3 %; that it leaves few registers for fragments, so that they "
        "are loaded shortly before they are used, the rule of slots does not know."
    )
    quantity = "cycles of a scheduler for an FFMA of a warp"
    unit = "cycles"
    counted = ("FFMA", "LDS.128", "LDGSTS.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Both tiles, and both rewritten where the rewriter finds registers enough."""
        found = []
        for tm in _ROWS:
            bm, kernel = _THREADS * tm * _TN // _BN, f"lab_thread_tile<{tm}>"
            name, what = f"{tm} x {_TN}", f"block tile {bm} x {_BN}, {tm * _TN} sums a thread"
            found.append(Variant(name, f"{what}; as compiled", "lab_thread_tile.cu", kernel))
            if _is_rewritten(tm, arch):
                what = f"{what}; the loop rewritten"
                found.append(Variant(name + _REWRITTEN, what, "lab_thread_tile.cu", kernel))
        return tuple(found)

    def patch(self, variant: Variant, build: Build) -> bytes | None:
        """The cubin with its loop rewritten, for the variants that are."""
        if not variant.name.endswith(_REWRITTEN):
            return None
        kernel = build.kernel(variant.kernel).name
        # Anew only to say why, where it is refused.
        return rewritten_cubin(build.cubin, kernel) or rewrite_kernel(build.cubin, kernel).cubin

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """Slots of the loop, register banks and loads, over its FFMAs."""
        predictions = {}
        for variant in self.variants(Architecture(gpu.capability_major, gpu.capability_minor)):
            code = codes.get(variant.name)
            value = issue_cycles_per_ffma(gpu, code)
            reason = "the FFMA pipe alone"
            if code is not None:
                reason = (
                    f"{code.instructions} slots, {code.conflict_cycles} cycles of register banks "
                    f"and {code.mix['LDS.128']} of loads for {code.mix['FFMA']} FFMAs"
                )
            predictions[variant.name] = Prediction(value, reason)
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Whole numbers, so that every sum is exact; A and B go on for the tiles copied ahead."""
        rng = np.random.default_rng(0)
        trials = {}
        names = [variant.name for variant in self.variants(setup.device.architecture)]
        for tm in _ROWS:
            tiles = Tiles.of(tm, setup)
            depth = tiles.k + (_STAGES - 1) * _BK
            a, b = (
                rng.integers(-3, 4, (depth, size), dtype=np.int8).astype(np.float32)
                for size in (tiles.m, tiles.n)
            )
            wanted = a[: tiles.k].T @ b[: tiles.k]
            operands = setup.device.upload(a), setup.device.upload(b)
            for name in (each for each in names if each.startswith(f"{tm} x")):
                out = setup.device.empty((tiles.m, tiles.n))
                launch = setup.kernel(name).prepare(
                    *(operands[0], tiles.m, operands[1], tiles.n, out, tiles.n, tiles.k),
                    grid=(tiles.columns, tiles.rows),
                    block=_THREADS,
                    shared_bytes=_SHARED_BYTES,
                    stream=setup.stream,
                )
                trials[name] = Trial.of(launch, out, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Cycles for an FFMA, and the rate."""
        checked = "every element of C against whole numbers"
        trials = self.trials(bench)
        found = dict.fromkeys(trials, Measurement.wrong(checked))
        for name, timing in bench.time_right(trials).items():
            tiles = Tiles.of(int(name.split()[0]), bench)
            ffmas = tiles.m * tiles.n * tiles.k
            found[name] = Measurement.timed(
                bench.cycles(timing) * bench.multiprocessors * _LANES / ffmas,
                timing,
                checked,
                tflops=2 * ffmas / timing.median_us / 1e6,
            )
        return found


def _is_rewritten(tm: int, arch: Architecture) -> bool:
    """Of 12 x 16 sums ptxas leaves enough registers on sm_90 alone."""
    return (arch.major, arch.minor) == (9, 0) if tm == max(_ROWS) else arch.major >= 8
