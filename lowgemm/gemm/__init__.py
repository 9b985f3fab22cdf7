"""The GEMM ladder as data, its problems, and the check of its results."""

from lowgemm.gemm.kernel import RungKernel, compile_rung
from lowgemm.gemm.output import GuardedOutput
from lowgemm.gemm.problem import GemmProblem, Operands, exact_operands, random_operands
from lowgemm.gemm.reference import CheckResult, Reference, gamma, poisoned
from lowgemm.gemm.rungs import (
    RUNG_NAMES,
    Rung,
    check_names,
    kernel_directory,
    ladder,
    rung,
)
from lowgemm.gemm.stream_k import StreamK, compile_stream_k

__all__ = [
    "RUNG_NAMES",
    "CheckResult",
    "GemmProblem",
    "GuardedOutput",
    "Operands",
    "Reference",
    "Rung",
    "RungKernel",
    "StreamK",
    "check_names",
    "compile_rung",
    "compile_stream_k",
    "exact_operands",
    "gamma",
    "kernel_directory",
    "ladder",
    "poisoned",
    "random_operands",
    "rung",
]
