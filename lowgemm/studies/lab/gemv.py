"""GEMV: a thread, a warp or a block to a row, against both of the seed's estimates and cuBLAS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.errors import ToolNotFoundError
from lowgemm.hardware import Architecture, GpuRecord, occupancy
from lowgemm.hardware.dram import READ_SHARE, gb_per_s_by_flight
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
from lowgemm.studies.peers import CublasSgemv

__all__ = ["Gemv", "fma_per_cycle_per_sm"]

_ROWS = _COLUMNS = 16384
_FLOAT = 4
_BYTES = _ROWS * _COLUMNS * _FLOAT
_STRETCH = 256 * 4 * 4  # what a block of the widest team reads of a row at once
_PEER = "cuBLAS"
_BLOCK, _READING = "row per block", "A alone: the sum of each row"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The template arguments of the kernel, in its order, and what they mean."""

    what: str
    team: int
    rows: int
    width: int
    depth: int
    past_l1: bool = False
    uses_x: bool = True

    @property
    def kernel(self) -> str:
        """The instance."""
        flags = (str(flag).lower() for flag in (self.past_l1, self.uses_x))
        numbers = (self.team, self.rows, self.width, self.depth)
        return f"lab_gemv<{', '.join((*map(str, numbers), *flags))}>"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 if self.team == 1 else 256

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.blocks_for(_ROWS)

    def blocks_for(self, rows: int) -> int:
        """Blocks for a matrix of so many rows."""
        return rows * self.team // (self.rows * self.threads)

    @property
    def thread_bytes(self) -> int:
        """Bytes of A that a thread asks for before it waits."""
        return self.rows * self.depth * self.width * _FLOAT


_SHAPES = {
    "row per thread": _Shape("lanes 64 KiB apart, 8 floats in flight each", 1, 1, 1, 8),
    "row per warp": _Shape("lanes side by side, one float in flight each", 32, 1, 1, 1),
    "row per warp, float4": _Shape("one float4 in flight in each lane", 32, 1, 4, 1),
    "row per warp, 4 float4": _Shape("four float4 in flight in each lane", 32, 1, 4, 4),
    "the same, A past L1": _Shape("A takes no place in L1", 32, 1, 4, 4, past_l1=True),
    "4 rows per warp": _Shape(
        "a float4 of four rows each, x read once for them", 32, 4, 4, 1, past_l1=True
    ),
    _BLOCK: _Shape("256 threads, four float4 in flight each", 256, 1, 4, 4, past_l1=True),
    "4 rows per block": _Shape(
        "256 threads, a float4 of four rows each, x read once", 256, 4, 4, 1, past_l1=True
    ),
    _READING: _Shape(
        "as row per block, without x: what reading takes", 256, 1, 4, 4, past_l1=True, uses_x=False
    ),
}


def fma_per_cycle_per_sm(gpu: GpuRecord, *, multicast: bool) -> float:
    """The seed's estimate of a GEMV's multiply-adds per clock and SM.

    Parameters
    ----------
    gpu
        The GPU.
    multicast
        Whether L2 hands an element of x that all SMs ask for to all of them. Then DRAM delivers A
        alone, 4 bytes for each multiply-add; otherwise A and x, 8 bytes.
    """
    return bandwidth(gpu, "dram").value / (_FLOAT if multicast else 2 * _FLOAT)


class Gemv(Experiment):
    """y = A x with A of 1 GiB."""

    name = "gemv"
    title = "GEMV: bytes in flight, and what multicast is worth"
    claim = (
        "A matrix-vector product is bound by DRAM. The text's model without multicast gives x half "
        "of the bandwidth; with L2's multicast A gets all of it, twice as many multiply-adds. A "
        "kernel reaches that once it has latency times bandwidth of A in flight: coalesced, wide "
        "and several loads at a time."
    )
    quantity = "rate at which A is read"
    unit = "GB/s"
    counted = ("LDG.32", "LDG.128", "FFMA", "FADD")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The kernel's instances, from a thread to a block for a row."""
        return tuple(
            Variant(name, shape.what, "lab_gemv.cu", shape.kernel)
            for name, shape in _SHAPES.items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The lower of what the bytes in flight sustain and what DRAM delivers."""
        ceiling = READ_SHARE * gpu.dram_gb_per_s
        wait = latency(gpu, "dram")
        found = {}
        for name, shape in _SHAPES.items():
            flight = _resident_threads(gpu, shape, codes.get(name)) * shape.thread_bytes
            sustained = gb_per_s_by_flight(flight, wait.value, gpu.clock_ghz)
            reason = (
                f"{flight / gpu.sms / 1024:.1f} KiB in flight per SM over {wait.value:.0f} "
                f"cycles{wait.note}: {sustained:,.0f} GB/s"
            )
            if sustained > ceiling:
                reason += f"; DRAM gives {READ_SHARE:.0%} of {gpu.dram_gb_per_s:,.0f}"
            if name == _BLOCK:
                reason += f". {_estimates(gpu)}"
            found[name] = Prediction(min(sustained, ceiling), reason)
        return found

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """All variants on one A, which is far larger than L2."""
        return _Data(setup).trials()

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """All variants and cuBLAS, taking turns."""
        data = _Data(bench)
        trials = dict(data.trials())
        cublas = _cublas(bench)
        if cublas:
            y = bench.device.empty(_ROWS)
            call = cublas.prepare(data.a, data.x, y)
            trials[_PEER] = Trial.of(call, y, data.product, stream=bench.stream)
        timings = bench.time_right(trials)
        if cublas:
            cublas.close()
        rates = {name: _BYTES / timing.median_us / 1e3 for name, timing in timings.items()}
        checked = "every element against whole numbers"
        found = {name: Measurement.wrong(checked) for name in _SHAPES}
        for name, shape in _SHAPES.items():
            if name not in timings:
                continue
            details = {}
            if _READING in rates:
                details["of_reading"] = rates[name] / rates[_READING]
            if _PEER in rates:
                details["of_cublas"] = rates[name] / rates[_PEER]
            if shape.uses_x:
                cycles = bench.cycles(timings[name]) * bench.multiprocessors
                details["fma_per_cycle_per_sm"] = _ROWS * _COLUMNS / cycles
            found[name] = Measurement.timed(rates[name], timings[name], checked, **details)
        return found


def _resident_threads(gpu: GpuRecord, shape: _Shape, code: MachineCode | None) -> int:
    """Threads on the GPU at once: those that fit, or those that there are."""
    fits = occupancy(
        gpu.capability,
        threads=shape.threads,
        registers=code.registers if code else 32,
        shared_bytes=code.shared_bytes if code else 0,
    )
    return min(shape.blocks, gpu.sms * fits.blocks_per_sm) * shape.threads


def _estimates(gpu: GpuRecord) -> str:
    """The text's two, for the GPU."""
    without, with_it = (fma_per_cycle_per_sm(gpu, multicast=how) for how in (False, True))
    return (
        f"The text's estimates at the full peak, in multiply-adds per clock and SM: {without:.2f} "
        f"without multicast ({gpu.dram_gb_per_s / 2:,.0f} GB/s of A), {with_it:.2f} with it"
    )


def _cublas(bench: Bench) -> CublasSgemv | None:
    try:
        return CublasSgemv(bench.gpu, bench.stream)
    except ToolNotFoundError:
        return None


class _Data:
    """A and x of small whole numbers on the device, and what comes of them."""

    def __init__(self, setup: Setup) -> None:
        rng = np.random.default_rng(0)
        self._rows, self._columns = setup.pick((_ROWS, _COLUMNS), (128 * setup.scale, _STRETCH))
        # 16384 products of at most 3 x 3: every partial sum is exact in FP32, in any order.
        a = rng.integers(-3, 4, (self._rows, self._columns), dtype=np.int8).astype(np.float32)
        x = rng.integers(-3, 4, self._columns, dtype=np.int8).astype(np.float32)
        self.product: NDArray[np.float32] = a @ x
        self.sums: NDArray[np.float32] = a.sum(axis=1, dtype=np.float32)
        self._setup = setup
        self.a, self.x = setup.device.upload(a), setup.device.upload(x)

    def trials(self) -> Mapping[str, Trial]:
        """Each variant with a y of its own."""
        setup = self._setup
        trials = {}
        for name, shape in _SHAPES.items():
            y = setup.device.empty(self._rows)
            launch = setup.kernel(name).prepare(
                *(self.a, self.x, y, self._columns),
                grid=shape.blocks_for(self._rows),
                block=shape.threads,
                stream=setup.stream,
            )
            wanted = self.product if shape.uses_x else self.sums
            trials[name] = Trial.of(launch, y, wanted, stream=setup.stream)
        return trials
