"""Is every rung right on every shape that has ever been known to break a GEMM?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.errors import MeasurementError
from lowgemm.gemm import (
    CheckResult,
    GemmProblem,
    GuardedOutput,
    Reference,
    Rung,
    RungKernel,
    exact_operands,
    poisoned,
    random_operands,
)
from lowgemm.runtime import Array, Device
from lowgemm.studies.ladder import upload_operands

__all__ = ["EMULATED_SHAPES", "FAR_PROBLEM", "SHAPES", "Verdict", "verify", "verify_far_offsets"]

#: One element; fewer and more than a tile; one beside a power of two; tall, wide, K = 1; leading
#: dimensions longer than the row, odd and a multiple of 4.
SHAPES: tuple[GemmProblem, ...] = (
    GemmProblem(1, 1, 1),
    GemmProblem(3, 3, 431),
    GemmProblem(35, 79, 19),
    GemmProblem(33, 33, 33),
    GemmProblem(64, 64, 64),
    GemmProblem(127, 127, 127),
    GemmProblem(128, 128, 128),
    GemmProblem(129, 129, 129),
    GemmProblem(511, 511, 96),
    GemmProblem(96, 512, 512),
    GemmProblem(4096, 8, 16),
    GemmProblem(8, 4096, 16),
    GemmProblem(2000, 1, 5),
    GemmProblem(1, 2000, 5),
    GemmProblem(200, 300, 1),
    GemmProblem(132, 260, 4),
    GemmProblem(132, 260, 44),
    GemmProblem(100, 72, 56, lda=57, ldb=75, ldc=73),
    GemmProblem(100, 72, 56, lda=60, ldb=80, ldc=76),
    GemmProblem(256, 384, 520, lda=1024, ldb=512, ldc=400),
    GemmProblem(70, 90, 8191),
)

#: Those of them that the emulator does in seconds.
EMULATED_SHAPES: tuple[GemmProblem, ...] = tuple(
    problem for problem in SHAPES if problem.m * problem.n * problem.k <= 3_000_000
)

#: Rows 2^20 elements apart: the last rows of A, B and C begin beyond 2^31 elements.
FAR_PROBLEM = GemmProblem(2100, 96, 2100, lda=2**20, ldb=2**20, ldc=2**20)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rung on one problem: ``data`` is ``"exact"`` or ``"random"``."""

    rung: str
    problem: GemmProblem
    data: str
    result: CheckResult


def verify(
    device: Device, rungs: Sequence[Rung], problems: Sequence[GemmProblem] = SHAPES
) -> Iterator[Verdict]:
    """Run rungs on problems, with exact and with random data, and judge each result.

    Each problem's reference is computed once for all rungs.

    Raises
    ------
    KernelFaultError
        A rung faulted.
    """
    kernels = [RungKernel(device, rung) for rung in rungs]
    stream = device.stream()
    for problem in problems:
        a, b = device.empty(problem.a_elements), device.empty(problem.b_elements)
        output = GuardedOutput(device, problem)
        for operands in (exact_operands(problem), random_operands(problem)):
            reference = Reference(problem, operands)
            upload_operands(problem, operands, a, b)
            for kernel in kernels:
                output.poison()
                kernel.prepare(problem, a, b, output.c, stream=stream).launch()
                stream.synchronize()
                result = output.judge(reference)
                data = "exact" if operands.exact else "random"
                yield Verdict(kernel.rung.name, problem, data, result)


def verify_far_offsets(
    device: Device, rungs: Sequence[Rung], problem: GemmProblem = FAR_PROBLEM
) -> Iterator[Verdict]:
    """Run rungs where element offsets pass 2^31, filling only the strips that are touched.

    The three buffers of :data:`FAR_PROBLEM` take 26 GB of the device's memory.

    Raises
    ------
    MeasurementError
        The problem's offsets do not reach 2^31: the test would show nothing.
    DriverError
        The device has too little memory.
    """
    if min(problem.a_elements, problem.b_elements, problem.c_elements) <= 2**31:
        raise MeasurementError(f"{problem} has no offset beyond 2^31", "use a larger one")
    operands = exact_operands(problem)
    tight = GemmProblem(problem.m, problem.n, problem.k)
    reference = Reference(tight, operands)
    a, b = device.empty(problem.a_elements), device.empty(problem.b_elements)
    c = device.empty(problem.c_elements)
    _upload_rows(a, problem.lda, operands.a)
    _upload_rows(b, problem.ldb, operands.b)
    stream = device.stream()
    for rung in rungs:
        _upload_rows(c, problem.ldc, poisoned(tight.c_elements).reshape(problem.m, problem.n))
        RungKernel(device, rung).prepare(problem, a, b, c, stream=stream).launch()
        stream.synchronize()
        rows = _download_rows(c, problem)
        yield Verdict(rung.name, problem, "exact", reference.check(rows))


def _upload_rows(array: Array, ld: int, matrix: NDArray[np.float32]) -> None:
    for index, row in enumerate(matrix):
        array.view(index * ld, row.size).upload(row)


def _download_rows(array: Array, problem: GemmProblem) -> NDArray[np.float32]:
    rows = [array.view(i * problem.ldc, problem.n).download() for i in range(problem.m)]
    return np.concatenate(rows)
