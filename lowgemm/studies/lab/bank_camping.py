"""Bank camping: leading dimensions that are powers of two against padded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowgemm.gemm import GemmProblem, GuardedOutput, Reference, exact_operands, rung
from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.dram import channels_touched
from lowgemm.runtime import Array
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial, gemm_trial
from lowgemm.studies.ladder import upload_operands

__all__ = ["BankCamping", "sums_of_threads"]

_ELEMENTS = 2**27
_PAD = 32
_THREADS, _WARPS, _ROWS, _FLOAT = 256, 8, 8, 4
_BLOCKS_PER_SM = 4
_GEMM, _GEMM_SIDE = "GEMM, pitch 8192", 4096
_CHANNELS, _INTERLEAVE = 32, 256
_CHECKED = "every thread's sum, every element of C: against whole numbers"


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk down the columns: rows ``pitch`` floats apart, strips of 32 columns, passes."""

    pitch: int
    rows: int
    strips: int
    passes: int = 1

    @property
    def groups(self) -> int:
        """Groups of eight rows."""
        return self.rows // _ROWS

    @property
    def bytes(self) -> int:
        """Read by one launch."""
        return self.rows * self.strips * 32 * _FLOAT * self.passes

    def shortened(self, scale: int) -> _Walk:
        """The beginning of it: 16 rows, and more strips the larger the scale."""
        return replace(self, rows=2 * _ROWS, strips=8 + scale, passes=min(self.passes, 2))


def _from_dram(pitch: int) -> _Walk:
    return _Walk(pitch, _ELEMENTS // pitch, pitch // 32)


def _from_l2(l2_bytes: float) -> _Walk:
    """A quarter of L2 at most: each half of a large one may keep a copy of its own."""
    pitch, rows = 8192, 8192
    strips = 1
    while 2 * strips * rows * 32 * _FLOAT <= l2_bytes / 4 and 2 * strips * 32 <= pitch:
        strips *= 2
    return _Walk(pitch, rows, strips, passes=64)


def _walks(l2_bytes: float) -> dict[str, _Walk]:
    return {
        "DRAM, pitch 4096": _from_dram(4096),
        "DRAM, pitch 8192": _from_dram(8192),
        "DRAM, pitch 16384": _from_dram(16384),
        "L2, pitch 8192": _from_l2(l2_bytes),
    }


class BankCamping(Experiment):
    """Each pitch against itself and 32 floats more."""

    name = "bank-camping"
    title = "Bank camping: pitches that are powers of two"
    claim = (
        "Depending on the access pattern some DRAM banks get more requests than others, so that "
        "less than the peak arrives. A column of a matrix whose rows are a power of two apart is "
        "the worst pattern where channels follow from low address bits. GPUs hash the address: "
        "then padding the rows should gain nothing."
    )
    quantity = "speed over that with rows 32 floats longer"
    unit = "times"
    counted = ("LDG.32", "LDG.128", "FADD", "FFMA")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The walk for three pitches from DRAM and one from L2, and ex8."""
        walks = tuple(
            Variant(
                name,
                f"{walk.pitch * _FLOAT // 1024} KiB from row to row, 128 bytes of each",
                "lab_bank_camping.cu",
                "lab_bank_camping",
            )
            for name, walk in _walks(0).items()
        )
        ex8 = rung("ex8", arch)
        what = f"ex8 on {_GEMM_SIDE}^3 with lda = ldb = 8192"
        instance = ex8.instance(aligned=True)
        return (*walks, Variant(_GEMM, what, ex8.source, instance, ex8.defines))

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """Hashed addresses spread over all channels, whatever the pitch."""
        found = {
            name: Prediction(1.0, _reason(walk.pitch, walk.rows))
            for name, walk in _walks(gpu.l2_mib * 2**20).items()
        }
        found[_GEMM] = Prediction(
            1.0, f"as the walk; and each element is used {_GEMM_SIDE // 128} times from L2 at most"
        )
        return found

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Each pitch, and under a name of its own its padded twin."""
        walks = _walks(setup.l2_bytes)
        if setup.scale:
            walks = {name: walk.shortened(setup.scale) for name, walk in walks.items()}
        return _walk_trials(setup, walks) | _gemm_trials(setup)

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Each pitch and its padded twin, taking turns."""
        walks = _walks(bench.l2_bytes)
        work = {name: ("gb_per_s", walk.bytes / 1e3) for name, walk in walks.items()}
        work[_GEMM] = ("tflops", 2 * _GEMM_SIDE**3 / 1e6)
        timings = bench.time_right(self.trials(bench))
        found = {name: Measurement.wrong(_CHECKED) for name in work}
        for name, (unit, amount) in work.items():
            if name not in timings or _padded(name) not in timings:
                continue
            plain, padded = timings[name], timings[_padded(name)]
            found[name] = Measurement.timed(
                padded.median_us / plain.median_us,
                plain,
                _CHECKED,
                **{unit: amount / plain.median_us, f"{unit}_padded": amount / padded.median_us},
            )
        return found


def _padded(name: str) -> str:
    return f"{name} + {_PAD}"


def _reason(pitch: int, rows: int) -> str:
    """One for hashed addresses; beside it what a plain interleave would do."""
    camping, spread = (
        channels_touched(_FLOAT * p, rows, channels=_CHANNELS, interleave_bytes=_INTERLEAVE)
        for p in (pitch, pitch + _PAD)
    )
    return (
        f"hashed addresses reach all channels. {_CHANNELS} channels that took turns every "
        f"{_INTERLEAVE} bytes would serve a column from {camping} of them, padded from {spread}: "
        f"{camping / spread:.3f} times the speed"
    )


def sums_of_threads(
    flat: NDArray[np.float32], walk: _Walk, pitch: int, warps: int
) -> NDArray[np.float32]:
    """What each thread's sum must be: a row of 32 lanes for each warp."""
    step = flat.itemsize
    view = np.lib.stride_tricks.as_strided(
        flat,
        (walk.groups, _ROWS, walk.strips, 32),
        (_ROWS * pitch * step, pitch * step, 32 * step, step),
        writeable=False,
    )
    units = view.sum(axis=1, dtype=np.float32).transpose(1, 0, 2).reshape(-1, 32)
    rounds = -(-len(units) // warps)
    padded = np.zeros((rounds * warps, 32), np.float32)
    padded[: len(units)] = units
    once: NDArray[np.float32] = padded.reshape(rounds, warps, 32).sum(axis=0, dtype=np.float32)
    return once * np.float32(walk.passes)


def _walk_trials(setup: Setup, walks: Mapping[str, _Walk]) -> dict[str, Trial]:
    """Each walk plain and padded; one buffer for all."""
    rng = np.random.default_rng(0)
    elements = max(walk.rows * (walk.pitch + _PAD) for walk in walks.values())
    host = rng.integers(-8, 9, elements, dtype=np.int8).astype(np.float32)
    matrix = setup.device.upload(host)
    blocks = setup.multiprocessors * setup.pick(_BLOCKS_PER_SM, 1)
    trials = {}
    for variant, walk in walks.items():
        for name, pitch in ((variant, walk.pitch), (_padded(variant), walk.pitch + _PAD)):
            out = setup.device.empty((blocks * _WARPS, 32))
            launch = setup.kernel(variant).prepare(
                *(matrix, pitch, walk.groups.bit_length() - 1, walk.strips, walk.passes, out),
                grid=blocks,
                block=_THREADS,
                stream=setup.stream,
            )
            wanted = sums_of_threads(host, walk, pitch, blocks * _WARPS)
            trials[name] = Trial.of(launch, out, wanted, stream=setup.stream)
    return trials


def _gemm_trials(setup: Setup) -> dict[str, Trial]:
    """ex8 with a plain and a padded leading dimension of A and B."""
    side, pitch = setup.pick((_GEMM_SIDE, 8192), (128 * setup.scale, 512))
    operands = exact_operands(GemmProblem(side, side, side))
    reference = Reference(GemmProblem(side, side, side), operands)
    ex8 = rung("ex8", setup.device.architecture)
    trials = {}
    for name, ld in ((_GEMM, pitch), (_padded(_GEMM), pitch + _PAD)):
        p = GemmProblem(side, side, side, ld, ld)
        a: Array = setup.device.empty(p.a_elements)
        b: Array = setup.device.empty(p.b_elements)
        upload_operands(p, operands, a, b)
        output = GuardedOutput(setup.device, p)
        launch = setup.kernel(_GEMM).prepare(
            *(p.m, p.n, p.k, a, p.lda, b, p.ldb, output.c, p.ldc),
            grid=ex8.grid(p, setup.multiprocessors),
            block=ex8.block,
            stream=setup.stream,
        )
        trials[name] = gemm_trial(launch, output, reference, stream=setup.stream)
    return trials
