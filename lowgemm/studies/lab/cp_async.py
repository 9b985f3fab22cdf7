"""cp.async against load and store: registers and time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowgemm.gemm import GemmProblem, Reference, exact_operands, poisoned
from lowgemm.hardware import Architecture, GpuRecord, shared_bytes_for
from lowgemm.hardware.memory_levels import bandwidth, latency
from lowgemm.hardware.shared_memory import wavefronts
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

if TYPE_CHECKING:
    from lowgemm.runtime import PreparedLaunch

__all__ = ["CpAsync"]

_TILE, _BK, _THREADS, _WARPS = 128, 8, 256, 8
_BLOCKS_PER_SM, _WAVES = 2, 2
_FLOAT = 4
_K_TILE_BYTES = 2 * _TILE * _BK * _FLOAT
_FFMAS_PER_K_TILE = 64 * _BK  # of a warp: 8 x 8 a thread
_HELD_REGISTERS = _K_TILE_BYTES // _THREADS // _FLOAT

# In the order of the numbers in the kernel's file.
_WAYS = {
    "load and store": "LDG into registers, STS when the tile is there",
    "cp.async 16 B": "LDGSTS.128, past the registers and L1",
    "cp.async 4 B": "LDGSTS of 4 bytes, four times as many",
}
_COPIES = ", copies alone"


@dataclass(frozen=True, slots=True)
class _Size:
    """A product of two full waves of blocks whose operands stay in L2."""

    problem: GemmProblem

    @classmethod
    def of(cls, sms: int, l2_bytes: float) -> _Size:
        blocks = _WAVES * _BLOCKS_PER_SM * sms
        rows = max(n for n in range(1, math.isqrt(blocks) + 1) if blocks % n == 0)
        panels = rows + blocks // rows
        fitting = int(0.4 * l2_bytes / (panels * _TILE * _FLOAT)) // 16 * 16
        k = min(max(fitting, 64), 1024)
        return cls(GemmProblem(rows * _TILE, blocks // rows * _TILE, k))

    @property
    def blocks(self) -> int:
        return self.problem.m // _TILE * (self.problem.n // _TILE)

    @property
    def k_tiles_per_sm(self) -> int:
        return _WAVES * _BLOCKS_PER_SM * self.problem.k // _BK


class CpAsync(Experiment):
    """One main loop whose tiles reach shared memory in three ways, and its copies alone."""

    name = "cp-async"
    title = "cp.async against load and store"
    claim = (
        "cp.async copies into shared memory past the registers, so those that held the next k-tile "
        "are free, and one instruction takes the place of two. At the same depth of pipeline it "
        "brings no byte sooner: where two blocks share an SM and the next tile is under way while "
        "one is computed, the time stays what it was."
    )
    quantity = "time of a k-tile of 128 x 128 x 8"
    unit = "SM cycles"
    counted = ("FFMA", "LDG.128", "STS.128", "LDGSTS.128", "LDGSTS.32", "LDS.128", "BAR")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Each way, in the product and alone."""
        return tuple(
            Variant(
                name + suffix, what + tail, "lab_cp_async.cu", f"lab_cp_async<{way}, {compute}>"
            )
            for suffix, tail, compute in (("", "", "true"), (_COPIES, "; no product", "false"))
            for way, (name, what) in enumerate(_WAYS.items())
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The product by its issue slots, the copies by L2; registers from the tile."""
        copying, why_copying = _copy_cycles(gpu)
        partitions = gpu.capability.partitions_per_sm
        passes = _shared_wavefronts()
        predictions = {}
        for name in _WAYS:
            code = codes.get(name)
            each = issue_cycles_per_ffma(gpu, code)
            issuing = each * _FFMAS_PER_K_TILE * _WARPS / partitions
            held = (
                f"{_HELD_REGISTERS} registers hold the next tile"
                if name == "load and store"
                else f"{_HELD_REGISTERS} registers fewer"
            )
            reason = (
                f"{each:.3f} issue slots an FFMA with all other instructions and register-bank "
                f"conflicts, so {issuing:,.0f} cycles; {passes} wavefronts of shared memory; "
                f"{copying:,.0f} cycles of copies go on meanwhile; {held}"
            )
            predictions[name] = Prediction(max(issuing, passes, copying), reason)
            predictions[name + _COPIES] = Prediction(copying, f"{why_copying}; {held}")
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Operands in L2, two full waves of two blocks an SM, held to two by shared memory."""
        full = _Size.of(setup.multiprocessors, setup.l2_bytes).problem
        small = (_TILE, _TILE * setup.scale, _BK * (setup.scale + 1))
        run = _Run(setup, GemmProblem(*setup.pick((full.m, full.n, full.k), small)))
        return {
            name + suffix: run.trial(name + suffix) for suffix in ("", _COPIES) for name in _WAYS
        }

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """The cycles of a k-tile, and the rate that is usual for the variant."""
        size = _Size.of(bench.multiprocessors, bench.l2_bytes)
        trials = self.trials(bench)
        found = {name: Measurement.wrong(_checked(name)) for name in trials}
        for name, timing in bench.time_right(trials).items():
            us = timing.median_us
            rate = {"tflops": size.problem.flop / us / 1e6}
            if name not in _WAYS:
                rate = {"gb_per_s": size.blocks * size.problem.k // _BK * _K_TILE_BYTES / us / 1e3}
            cycles = bench.cycles(timing) / size.k_tiles_per_sm
            found[name] = Measurement.timed(cycles, timing, _checked(name), **rate)
        return found


def _checked(variant: str) -> str:
    """What the check of a variant compares."""
    if variant in _WAYS:
        return "every element of C against whole numbers"
    return "every thread's sum against whole numbers"


def _copy_cycles(gpu: GpuRecord) -> tuple[float, str]:
    """A k-tile from L2: by bandwidth, or by latency with one tile a block under way."""
    rate, static = bandwidth(gpu, "l2"), latency(gpu, "l2")
    transfer = _K_TILE_BYTES / rate.value
    waiting = (static.value + transfer) / _BLOCKS_PER_SM
    reason = (
        f"{_K_TILE_BYTES} bytes at {rate.value:.1f} a cycle{rate.note} take {transfer:,.0f} "
        f"cycles; {_BLOCKS_PER_SM} blocks wait {static.value:,.0f}{static.note} and the "
        f"transfer for one tile each, {waiting:,.0f} cycles a tile"
    )
    return max(transfer, waiting), reason


def _shared_wavefronts() -> int:
    """Passes through shared memory that a block's k-tile takes, stored once and read by all warps.

    Lanes are 4 x 8 and read two float4 of each operand a step; see `WarpTile` in cu/common.cuh.
    """
    a = wavefronts([16 * (lane // 8) for lane in range(32)], 16)
    b = wavefronts([16 * (lane % 8) for lane in range(32)], 16)
    stored = _K_TILE_BYTES // 128
    return _WARPS * _BK * 2 * (a + b) + stored


class _Run:
    """The operands on the device, and the launches on them with their checks."""

    def __init__(self, setup: Setup, problem: GemmProblem) -> None:
        self.setup = setup
        self.problem = problem
        device = setup.device
        operands = exact_operands(problem)
        self._reference = Reference(problem, operands)
        self._wanted_sums = thread_sums(operands.a.T, operands.b)
        self._a = device.upload(np.ascontiguousarray(operands.a.T))
        self._b = device.upload(operands.b)
        self._c = device.empty(problem.c_elements)

    def trial(self, variant: str) -> Trial:
        """A variant on the operands; all of them write to one C."""
        launch, stream = self._prepare(variant), self.setup.stream
        if variant not in _WAYS:
            sums = self._c.view(0, self._wanted_sums.shape)
            return Trial.of(launch, sums, self._wanted_sums, stream=stream)
        return Trial(
            launch,
            lambda: self._c.upload(poisoned(self._c.size), stream=stream),
            lambda: self._c.download(stream=stream),
            lambda found: self._reference.check(found).passed,
            (stream,),
        )

    def _prepare(self, variant: str) -> PreparedLaunch:
        p, kernel = self.problem, self.setup.kernel(variant)
        room = shared_bytes_for(self.setup.chip, _BLOCKS_PER_SM)
        return kernel.prepare(
            *(p.m, p.n, p.k, self._a, self._b, self._c),
            grid=p.m // _TILE * (p.n // _TILE),
            block=_THREADS,
            shared_bytes=room - kernel.shared_bytes,
            stream=self.setup.stream,
        )


def thread_sums(a_by_k: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """What each thread of each block sums up in the copies alone, a row a block.

    Parameters
    ----------
    a_by_k, b
        K x M and K x N; whole numbers, so that no sum is rounded.
    """
    quads = [m.reshape(-1, _BK, m.shape[1] // _TILE, 32, 4).sum((0, 4)) for m in (a_by_k, b)]
    # [k in the tile, tile, quad] to [tile, place in the order of the threads that copied it]
    a, b_ = (q.transpose(1, 0, 2).reshape(q.shape[1], _THREADS) for q in quads)
    by_place = (a[:, None, :] + b_[None, :, :]).reshape(-1, _THREADS)
    # A thread reads what the thread 32 places on has copied.
    return np.roll(by_place, -32, axis=1)
