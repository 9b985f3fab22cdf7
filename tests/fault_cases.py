"""Kernels with one fault planted in each, and what must be found in them.

The line of a finding is the one that the source marks with ``// FAULT``. Each source has a twin
without the fault: the macro ``FIXED`` chooses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.compiler import compile_file
from lowgemm.emulator import FindingKind

if TYPE_CHECKING:
    from lowgemm.compiler import Build
    from lowgemm.runtime import Device, Module

__all__ = ["CASES", "Expected", "FaultCase"]

FAULTS = Path(__file__).parent / "faults"

Index = tuple[int, int, int]
Run = Callable[["Device", "Module"], None]


@dataclass(frozen=True, slots=True)
class Expected:
    """One finding: its first block and thread; where these are None, several would be right.

    ``mark`` says in which of the marked lines it stands, counted from the first.
    """

    kind: FindingKind
    cta: Index | None = (0, 0, 0)
    thread: Index | None = (0, 0, 0)
    mark: int = 0


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A launch that must give findings in the marked lines.

    ``run`` makes the inputs and launches; it looks at no result.
    """

    name: str
    run: Run
    expected: tuple[Expected, ...]

    @property
    def source(self) -> Path:
        """The ``.cu`` file."""
        return FAULTS / f"{self.name}.cu"

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the marked lines."""
        lines = self.source.read_text(encoding="utf-8").splitlines()
        return tuple(n for n, line in enumerate(lines, start=1) if line.endswith("// FAULT"))

    def build(self, arch: str, *, fixed: bool = False) -> Build:
        """The source with its fault, or the twin without it."""
        return compile_file(self.source, arch=arch, defines={"FIXED": None} if fixed else {})


_CASES: list[FaultCase] = []


def _case(*expected: Expected) -> Callable[[Run], Run]:
    """Register a function as the launch of the source of its own name."""

    def register(run: Run) -> Run:
        _CASES.append(FaultCase(run.__name__, run, expected))
        return run

    return register


def _integers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)


# ---- shared memory


@_case(Expected(FindingKind.RACE))
def missing_barrier(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(3, 64)), device.empty((3, 64), np.int32)
    module.kernel().launch(x, out, grid=3, block=64)


@_case(Expected(FindingKind.RACE))
def missing_second_barrier(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(4, 96)), device.empty(96, np.int32)
    module.kernel().launch(x, out, 4, grid=1, block=96)


@_case(Expected(FindingKind.SHARED_OUT_OF_BOUNDS, thread=(63, 0, 0)))
def shared_past_end(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(2, 64)), device.empty((2, 64), np.int32)
    module.kernel().launch(x, out, grid=2, block=64)


@_case(Expected(FindingKind.UNINITIALISED_SHARED))
def uninitialised_shared(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64)), device.empty(64, np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


@_case(Expected(FindingKind.RACE, thread=None))
def write_write_race(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64)), device.empty(64, np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


# ---- global memory


@_case(Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, (3, 0, 0), (3, 0, 0)))
def global_read_past_end(device: Device, module: Module) -> None:
    n = 100
    x, out = device.upload(np.ones(n, np.float32)), device.empty(n)
    module.kernel().launch(x, out, n, grid=4, block=32)


@_case(Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, (2, 0, 0), (36, 0, 0)))
def global_write_past_end(device: Device, module: Module) -> None:
    n = 164
    module.kernel().launch(device.empty(n), 1.5, n, grid=3, block=64)


@_case(Expected(FindingKind.UNINITIALISED_GLOBAL, (2, 0, 0), (4, 0, 0)))
def uninitialised_global(device: Device, module: Module) -> None:
    n = 133
    data, out = device.empty(n, np.int32), device.empty(n, np.int32)
    module.kernel("produce").launch(data, n, grid=5, block=32)
    module.kernel("consume").launch(data, out, n, grid=3, block=64)


@_case(Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, (2, 0, 0)))
def index_overflow(device: Device, module: Module) -> None:
    first_row, ld = 2**15 - 2, 2**16
    # A window of four rows of a matrix of 2^31 elements and more: its first row lies elsewhere.
    window = device.zeros(4 * ld)
    module.kernel().launch(window.pointer - 4 * first_row * ld, first_row, ld, grid=4, block=64)


@_case(Expected(FindingKind.MISALIGNED))
def misaligned(device: Device, module: Module) -> None:
    n = 96
    x, out = device.upload(np.ones((n + 1, 4), np.float32)), device.empty((n, 4))
    module.kernel().launch(x, out, grid=3, block=32)


@_case(Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, (1, 0, 0), (37, 0, 0)))
def padded_input(device: Device, module: Module) -> None:
    n = 101
    x, out = device.upload(_integers(n)), device.empty(n // 4, np.int32)
    module.kernel().launch(x, out, n, grid=2, block=64)


@_case(Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, (2, 1, 1), (3, 4, 1)))
def last_thread(device: Device, module: Module) -> None:
    n = 3 * 2 * 2 * 4 * 5 * 2
    x, out = device.upload(_integers(n)), device.empty(n, np.int32)
    module.kernel().launch(x, out, n, grid=(3, 2, 2), block=(4, 5, 2))


# ---- asynchronous copies


@_case(Expected(FindingKind.ASYNC_NOT_WAITED))
def async_not_waited(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64, 4)), device.empty((64, 4), np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


@_case(Expected(FindingKind.ASYNC_NOT_WAITED))
def async_wait_too_few(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(2, 64, 4)), device.empty((64, 4), np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


@_case(Expected(FindingKind.RACE))
def async_wait_without_barrier(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64, 4)), device.empty((64, 4), np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


# ---- barriers


@_case(
    Expected(FindingKind.DIVERGENT_BARRIER, thread=None),
    Expected(FindingKind.BARRIER_NOT_REACHED, thread=None),
)
def divergent_barrier(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64)), device.zeros(128, np.int32)
    module.kernel().launch(x, out, grid=1, block=64)


@_case(Expected(FindingKind.BARRIER_NOT_REACHED, thread=None))
def skipped_barrier(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(96)), device.zeros(96, np.int32)
    module.kernel().launch(x, out, grid=1, block=96)


@_case(Expected(FindingKind.DEADLOCK, thread=None))
def named_barrier_count(device: Device, module: Module) -> None:
    x, out = device.upload(_integers(64)), device.zeros(64, np.int32)
    module.kernel().launch(x, out, grid=1, block=96)


# ---- more than one


@_case(
    Expected(FindingKind.UNINITIALISED_SHARED, thread=(63, 0, 0)),
    Expected(FindingKind.GLOBAL_OUT_OF_BOUNDS, thread=(63, 0, 0), mark=1),
)
def two_faults(device: Device, module: Module) -> None:
    n = 64
    x, out = device.upload(_integers(n)), device.empty(n, np.int32)
    module.kernel().launch(x, out, n, grid=1, block=n)


CASES: tuple[FaultCase, ...] = tuple(_CASES)
