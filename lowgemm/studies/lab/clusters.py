"""Clusters: tiles that several blocks need are copied from L2 once and multicast by TMA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.hardware.memory_levels import (
    L2_PORT_BYTES_PER_CYCLE,
    SM_BYTES_PER_CYCLE,
    bandwidth,
    latency,
)
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
from lowgemm.studies.lab.trial import Trial

__all__ = ["Clusters", "expected_output"]

_SOURCE = "lab_clusters.cu"
# ---- as in the kernel's file
_TILE_FLOATS, _STAGES, _CONSUMERS, _THREADS = 4096, 3, 128, 160
_PARTS = _TILE_FLOATS // (_CONSUMERS * 4)
_SKEW = 5
_TILE_BYTES = 4 * _TILE_FLOATS
_SHARED_BYTES = _STAGES * 2 * _TILE_BYTES

_ROWS, _DEPTH, _STEPS, _WAVES = 8, 32, 128, 16
_CHECKED = "what each thread read of its tiles, in whole numbers"


@dataclass(frozen=True, slots=True)
class _Shape:
    """A cluster of ``m`` x ``n`` blocks, each with its own copies or with shares for all."""

    m: int
    n: int
    multicast: bool

    @property
    def blocks(self) -> int:
        return self.m * self.n

    @property
    def kernel(self) -> str:
        return f"lab_clusters<{self.m}, {self.n}, {str(self.multicast).lower()}>"

    @property
    def requested_bytes(self) -> int:
        """What a block asks L2 for in one step."""
        if not self.multicast:
            return 2 * _TILE_BYTES
        return _TILE_BYTES // self.n + _TILE_BYTES // self.m


_SHAPES = {
    "alone": _Shape(1, 1, False),
    "2 x 1, own copies": _Shape(2, 1, False),
    "2 x 1": _Shape(2, 1, True),
    "4 x 1": _Shape(4, 1, True),
    "2 x 2, own copies": _Shape(2, 2, False),
    "2 x 2": _Shape(2, 2, True),
    "4 x 2": _Shape(4, 2, True),
}


def _told(shape: _Shape) -> str:
    if shape.blocks == 1:
        return "each block copies its A and its B tile"
    if not shape.multicast:
        return f"a cluster of {shape.blocks}, but each block copies for itself"
    shared = "A and B" if shape.m > 1 and shape.n > 1 else "B"
    return f"{shape.m} along M, {shape.n} along N; {shared} multicast"


def _shapes(major: int) -> dict[str, _Shape]:
    """The variants; multicast is an instruction of 9.x to 11.x."""
    return {name: shape for name, shape in _SHAPES.items() if major < 12 or not shape.multicast}


class Clusters(Experiment):
    """A stream of tiles as a GEMM needs them, with hardly any arithmetic."""

    name = "clusters"
    title = "Thread block clusters: one copy from L2 for several blocks"
    claim = (
        "A cluster is a bigger tile: what several blocks need is read from L2 once and written "
        "into the shared memory of all of them, so that L2 is asked for less by the multicast "
        "factor, until another path into the SM is the bound."
    )
    quantity = "time of a step: 32 KiB into the shared memory of a block"
    unit = "SM cycles"
    counted = ("LDS.128", "SYNCS", "FFMA")
    needs = (9, 0)

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Blocks alone, and clusters with and without multicast."""
        return tuple(
            Variant(name, _told(shape), _SOURCE, shape.kernel, target="a")
            for name, shape in _shapes(arch.major).items()
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """The slowest of L2, the SM's port to it, shared memory, and latency over its stages."""
        return {
            name: _predicted(gpu, shape) for name, shape in _shapes(gpu.capability_major).items()
        }

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Many waves of blocks, so that SMs left over by large clusters weigh what they are."""
        rng = np.random.default_rng(0)
        shape = setup.pick((_ROWS, _DEPTH, _TILE_FLOATS), (4, 4, _TILE_FLOATS))
        host_a = rng.integers(0, 8, shape).astype(np.float32)
        host_b = rng.integers(0, 8, shape).astype(np.float32)
        a, b = setup.device.upload(host_a), setup.device.upload(host_b)
        grid = setup.pick(_WAVES * setup.multiprocessors, 8 * setup.scale)
        steps = setup.pick(_STEPS, 2 * _STAGES + setup.scale)
        trials = {}
        for name, cluster in _shapes(setup.device.capability[0]).items():
            out = setup.device.empty((grid, _CONSUMERS))
            error = setup.device.zeros(1, np.int32)
            launch = setup.kernel(name).prepare(
                *(a, b, out, error, shape[0], shape[1], steps),
                grid=grid,
                block=_THREADS,
                shared_bytes=_SHARED_BYTES,
                cluster=cluster.blocks if cluster.blocks > 1 else None,
                stream=setup.stream,
            )
            wanted = expected_output(host_a, host_b, cluster.m, cluster.n, grid, steps)
            trials[name] = replace(
                Trial.of(launch, out, wanted, stream=setup.stream),
                judge=partial(_in_time_and_equal, error, wanted),
            )
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """The cycles of a step, and what L2 and the SM's port deliver meanwhile."""
        trials = self.trials(bench)
        found = {name: Measurement.wrong(_CHECKED) for name in trials}
        for name, timing in bench.time_right(trials).items():
            cycles = bench.cycles(timing) / (_WAVES * _STEPS)
            found[name] = Measurement.timed(
                cycles,
                timing,
                _CHECKED,
                l2_bytes_per_cycle=_SHAPES[name].requested_bytes / cycles,
                sm_bytes_per_cycle=2 * _TILE_BYTES / cycles,
            )
        return found


def _in_time_and_equal(
    error: Array, wanted: NDArray[np.float32], found: NDArray[np.float32]
) -> bool:
    """Whether no thread gave up waiting, and all read what they should."""
    return int(error.download()[0]) == 0 and bool((found == wanted).all())


def _predicted(gpu: GpuRecord, shape: _Shape) -> Prediction:
    rate, wait = bandwidth(gpu, "l2"), latency(gpu, "l2")
    cc = gpu.capability
    blocks = cc.shared_bytes_per_sm // (_SHARED_BYTES + cc.shared_bytes_reserved_per_block)
    read_bytes = 2 * _TILE_BYTES // _PARTS
    bounds = {
        f"{shape.requested_bytes >> 10} KiB asked of L2 at {rate.value:.1f} bytes a cycle"
        f"{rate.note}": (shape.requested_bytes / rate.value),
        f"32 KiB through the SM's port at {L2_PORT_BYTES_PER_CYCLE}": (
            2 * _TILE_BYTES / L2_PORT_BYTES_PER_CYCLE
        ),
        f"written and read in shared memory at {SM_BYTES_PER_CYCLE}": (
            (2 * _TILE_BYTES + read_bytes) / SM_BYTES_PER_CYCLE
        ),
        f"latency{wait.note} over {blocks * _STAGES} steps under way": (
            wait.value / (blocks * _STAGES)
        ),
    }
    told = "; ".join(f"{what}: {cycles:.0f}" for what, cycles in bounds.items())
    return Prediction(max(bounds.values()), told)


def expected_output(
    a: NDArray[np.float32], b: NDArray[np.float32], m: int, n: int, grid: int, steps: int
) -> NDArray[np.float32]:
    """What each thread of each block adds up.

    Parameters
    ----------
    a, b
        Tile rows and tile columns: row, place along k, element.
    m, n
        The cluster's blocks along M and N.
    grid, steps
        Blocks and steps.
    """
    rows, depth = a.shape[:2]
    weights = np.arange(1, 5, dtype=np.float32)
    step = np.arange(steps)
    block = np.arange(grid)
    cluster, rank = block // (m * n), block % (m * n)
    row, col = (cluster * m + rank // n) % rows, (cluster * n + rank % n) % rows
    begin = cluster * _SKEW % depth

    def summed(tiles: NDArray[np.float32]) -> NDArray[np.float32]:
        """By row and place of beginning, for each thread."""
        read = tiles.reshape(rows, depth, _PARTS, _CONSUMERS, 4) @ weights
        places = (step + np.arange(depth)[:, None]) % depth
        return np.stack([read[:, at, step % _PARTS].sum(axis=1) for at in places], axis=1)

    total: NDArray[np.float32] = summed(a)[row, begin] + summed(b)[col, begin]
    return total
